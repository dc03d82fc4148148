"""An open project: its state, its photos, and the history for undo and redo."""

import hashlib
import json
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from p3dc.app.errors import ConflictError, UndoneError
from p3dc.app.example_set import example_priors
from p3dc.app.project.originals import Originals
from p3dc.app.project.state import DRAWN_BIRDS, ProjectLimits, State
from p3dc.app.project.store import Picture, Step, Store, StoreError
from p3dc.errors import InputError
from p3dc.images.backbone_priors import backbone_priors
from p3dc.images.backbones.backbone import Backbone
from p3dc.priors.prototypes import Priors

WITHOUT_FILE = {"backbone", "none", DRAWN_BIRDS}
MOST_STEPS = 100
"""How many changes can be undone."""


class Project:
    """Classes and photos, stored in a folder or in memory.

    When :meth:`change`, :meth:`undo` or :meth:`redo` return, the change is on disk. Several threads may share it. A
    project of another backbone is refused; a new one has the state ``start`` and the given priors. After each change,
    ``on_change`` is called.
    """

    def __init__(
        self,
        folder: Path | None,
        backbone: Backbone,
        start: State,
        priors: Priors | str | None = "backbone",
        limits: ProjectLimits | None = None,
    ) -> None:
        self.store = Store(folder)
        self.backbone, self.limits = backbone, limits or ProjectLimits()
        self._lock, self._is_open = threading.Lock(), True
        self.on_change: Callable[[], None] = lambda: None
        self._known: dict[str, Priors | None] = {"none": None}
        try:
            self._check_backbone()
            self.steps, self.pictures = self.store.read()
            self.keeps_originals = self.store.number("originals") == 1
            self.originals = Originals(folder, self.pictures)
            if any(len(each.features) != backbone.n_features for each in self.pictures.values()):
                raise InputError(f"{folder} is damaged: photos have the wrong number of features. Bring back a copy.")
            if not self.steps:
                name = self.keep_priors(priors)
                self.steps = [Step(0, "", replace(start, priors=name))]
                self.store.record({"current": 0, "revision": 0}, self.steps, priors=self._files({name}))
            current, self.revision = self.store.number("current"), self.store.number("revision")
            self.place = next((i for i, step in enumerate(self.steps) if step.number == current), len(self.steps) - 1)
        except BaseException:
            self.store.close()
            raise

    def _check_backbone(self) -> None:
        digest = self.store.fact("backbone")
        if digest is None:
            self.store.record({"backbone": self.backbone.digest})
        elif digest != self.backbone.digest:
            raise InputError(
                f"{self.store.folder} was made with another backbone ({digest[:12]}) than {self.backbone.name} "
                f"({self.backbone.digest[:12]}). Use that backbone, or choose another folder."
            )

    @property
    def name(self) -> str:
        """The name of its folder, or nothing for a project in memory."""
        return "" if self.store.folder is None else self.store.folder.absolute().name

    @property
    def state(self) -> State:
        """What the project holds now."""
        return self.steps[self.place].state

    @property
    def undoable(self) -> str | None:
        """The title of the change that undo would take back."""
        return self.steps[self.place].title if self.place else None

    @property
    def redoable(self) -> str | None:
        """The title of the change that redo would repeat."""
        return self.steps[self.place + 1].title if self.place + 1 < len(self.steps) else None

    def change(
        self,
        title: str,
        make: Callable[[State], State],
        pictures: Mapping[str, Picture] | None = None,
        drop: str = "",
    ) -> int:
        """Make a change that can be undone and return the new revision; one that changes nothing makes no step.

        All changes of one drop are one step, also where others came between them: what the drop adds is added to the
        state in which the drop began and to all that followed.
        """
        with self._lock:
            self._check_open()
            state = make(self.state)
            if state == self.state:
                return self.revision
            there = {photo.id for photo in state.photos}
            added = {identity: picture for identity, picture in (pictures or {}).items() if identity in there}
            amended = self._amended(make, drop)
            if amended is not None:
                self.store.record({"revision": self.revision + 1}, amended, added)
                self.steps[-len(amended) :], self.revision = amended, self.revision + 1
                self.pictures = self.pictures | added
                self.on_change()
                return self.revision
            step = Step(self.steps[-1].number + 1, title, state, drop)
            kept = self.steps[: self.place + 1][-MOST_STEPS:]
            dropped = {old.number for old in self.steps} - {old.number for old in kept}
            gone = set(self.pictures) - {photo.id for each in (*kept, step) for photo in each.state.photos}
            facts = {"current": step.number, "revision": self.revision + 1}
            used, stored = {each.state.priors for each in (*kept, step)}, self.store.kept_priors()
            self.store.record(facts, [step], added, dropped, gone, self._files(used - stored), stored - used)
            self._known = {name: each for name, each in self._known.items() if name in used | WITHOUT_FILE}
            self.steps, self.place, self.revision = [*kept, step], len(kept), self.revision + 1
            self.pictures = {key: each for key, each in (self.pictures | added).items() if key not in gone}
            self.originals.remove(gone)
            self.on_change()
            return self.revision

    def _amended(self, make: Callable[[State], State], drop: str) -> list[Step] | None:
        """Return the step of a drop and all later ones with a change of that drop; None where it needs a new step."""
        began = next((n for n, step in enumerate(self.steps) if drop and step.drop == drop), None)
        if began is None:
            return None
        if began > self.place:
            raise UndoneError("These photos were undone while they were being sent. Redo, or send them again.")
        try:
            amended = [replace(step, state=make(step.state)) for step in self.steps[began:]]
        except InputError:  # a state in between does not allow it
            return None
        n_photos = sum(photo.drop == drop for photo in amended[0].state.photos)
        return [replace(amended[0], title=adding(n_photos) if n_photos else amended[0].title), *amended[1:]]

    def undo(self) -> int:
        """Undo the last change and return the new revision."""
        return self._go(-1, "There is nothing to undo.")

    def redo(self) -> int:
        """Redo the last change that was undone and return the new revision."""
        return self._go(+1, "There is nothing to redo.")

    def _go(self, by: int, otherwise: str) -> int:
        with self._lock:
            self._check_open()
            place = self.place + by
            if not 0 <= place < len(self.steps):
                raise ConflictError(otherwise)
            self.store.record({"current": self.steps[place].number, "revision": self.revision + 1})
            self.place, self.revision = place, self.revision + 1
            self.on_change()
            return self.revision

    def keep_originals(self, keep: bool) -> int:
        """Keep photos as they are sent from now on, or delete those that are kept; return the new revision."""
        with self._lock:
            self._check_open()
            if keep and self.store.folder is None:
                raise ConflictError("A project in memory keeps no photos. Serve it with --project to keep them.")
            if keep != self.keeps_originals:
                self.store.record({"originals": int(keep), "revision": self.revision + 1})
                self.keeps_originals, self.revision = keep, self.revision + 1
                if not keep:
                    self.originals.remove(self.originals.ids)
                self.on_change()
            return self.revision

    def close(self) -> None:
        """Let other processes open the project; nothing can be changed any more."""
        with self._lock:
            self._is_open = False
            self.store.close()

    def _check_open(self) -> None:
        if not self._is_open:
            raise ConflictError("Another project was opened in the meantime. Load the page again.")

    def now(self) -> tuple[int, State, Mapping[str, Picture]]:
        """Return revision, state and pictures that belong together."""
        with self._lock:
            return self.revision, self.state, self.pictures

    def priors(self, name: str) -> Priors | None:
        """Return the priors that a state names."""
        if name not in self._known:
            self._known[name] = self._load_priors(name)
        return self._known[name]

    def _load_priors(self, name: str) -> Priors | None:
        if name == "backbone":
            return backbone_priors(self.backbone)
        return example_priors() if name == DRAWN_BIRDS else self._kept_priors(name)

    def keep_priors(self, priors: Priors | str | None) -> str:
        """Remember priors for the next change and return their name; those without a file may be given by it."""
        if priors is None or isinstance(priors, str):
            return priors or "none"
        width = priors.prototypes.shape[1]
        if width != self.backbone.n_features:
            raise InputError(
                f"the priors have {width:,} features, but {self.backbone.name} gives {self.backbone.n_features:,}. "
                "Use priors of the same backbone."
            )
        ours = self.priors("backbone")
        if ours is not None and np.array_equal(ours.prototypes, priors.prototypes):
            return "backbone"
        name = _digest(priors)
        self._known[name] = priors
        return name

    def _files(self, names: set[str]) -> dict[str, bytes]:
        """Return the content of files of priors, by name."""
        content = {}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "priors.safetensors"
            for name in names - WITHOUT_FILE:
                priors = self.priors(name)
                if priors is not None:
                    priors.save(path)
                    content[name] = path.read_bytes()
        return content

    def _kept_priors(self, name: str) -> Priors:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "priors.safetensors"
            path.write_bytes(self.store.priors(name) or b"")
            try:
                priors = Priors.load(path)
            except InputError:
                priors = None
        if priors is None or _digest(priors) != name:
            raise StoreError(f"{self.store.folder} is damaged: its priors are missing. Bring back a copy.")
        return priors


def adding(n_photos: int) -> str:
    """Return the title of the change that adds photos."""
    return f"Add {n_photos} photo{'s' * (n_photos != 1)}"


def _digest(priors: Priors) -> str:
    """Compute a name from the content of priors."""
    arrays, facts = priors.to_arrays()
    digest = hashlib.sha256(json.dumps(facts).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
