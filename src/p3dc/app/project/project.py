"""An open project: its state, its photos, and the history for undo and redo."""

import hashlib
import json
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from p3dc.app.errors import ConflictError
from p3dc.app.project.state import ProjectLimits, State
from p3dc.app.project.store import Picture, Step, Store, StoreError
from p3dc.errors import InputError
from p3dc.images.backbone_priors import backbone_priors
from p3dc.images.backbones.backbone import Backbone
from p3dc.priors.prototypes import Priors

WITHOUT_FILE = {"backbone", "none"}
MOST_STEPS = 100
"""How many changes can be undone."""


class Project:
    """Classes and photos, stored in a folder or in memory.

    When :meth:`change`, :meth:`undo` or :meth:`redo` return, the change is on disk. Several threads may share it. A
    project of another backbone is refused; a new one has the state ``start`` and the given priors.
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
        self._lock = threading.Lock()
        self._known: dict[str, Priors | None] = {"none": None}
        try:
            self._check_backbone()
            self.steps, self.pictures = self.store.read()
            if any(len(each.features) != backbone.n_features for each in self.pictures.values()):
                raise InputError(f"{folder} is damaged: photos have the wrong number of features. Bring back a copy.")
            if not self.steps:
                name = priors if isinstance(priors, str) else self.keep_priors(priors)
                self.steps = [Step(0, "", replace(start, priors=name))]
                self.store.record({"current": 0, "revision": 0}, self.steps[0], priors=self._files({name}))
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

    def change(self, title: str, make: Callable[[State], State], pictures: Mapping[str, Picture] | None = None) -> int:
        """Make a change that can be undone and return the new revision; one that changes nothing makes no step."""
        with self._lock:
            state = make(self.state)
            if state == self.state:
                return self.revision
            step = Step(self.steps[-1].number + 1, title, state)
            kept = self.steps[: self.place + 1][-MOST_STEPS:]
            dropped = {old.number for old in self.steps} - {old.number for old in kept}
            gone = set(self.pictures) - {photo.id for each in (*kept, step) for photo in each.state.photos}
            added = pictures or {}
            facts = {"current": step.number, "revision": self.revision + 1}
            used, stored = {each.state.priors for each in (*kept, step)}, self.store.kept_priors()
            self.store.record(facts, step, added, dropped, gone, self._files(used - stored), stored - used)
            self._known = {name: each for name, each in self._known.items() if name in used | WITHOUT_FILE}
            self.steps, self.place, self.revision = [*kept, step], len(kept), self.revision + 1
            self.pictures = {key: each for key, each in (self.pictures | dict(added)).items() if key not in gone}
            return self.revision

    def undo(self) -> int:
        """Undo the last change and return the new revision."""
        return self._go(-1, "There is nothing to undo.")

    def redo(self) -> int:
        """Redo the last change that was undone and return the new revision."""
        return self._go(+1, "There is nothing to redo.")

    def _go(self, by: int, otherwise: str) -> int:
        with self._lock:
            place = self.place + by
            if not 0 <= place < len(self.steps):
                raise ConflictError(otherwise)
            self.store.record({"current": self.steps[place].number, "revision": self.revision + 1})
            self.place, self.revision = place, self.revision + 1
            return self.revision

    def now(self) -> tuple[int, State, Mapping[str, Picture]]:
        """Return revision, state and pictures that belong together."""
        with self._lock:
            return self.revision, self.state, self.pictures

    def priors(self, name: str) -> Priors | None:
        """Return the priors that a state names."""
        if name not in self._known:
            self._known[name] = backbone_priors(self.backbone) if name == "backbone" else self._kept_priors(name)
        return self._known[name]

    def keep_priors(self, priors: Priors | None) -> str:
        """Remember priors for the next change and return their name."""
        if priors is None:
            return "none"
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


def _digest(priors: Priors) -> str:
    """Compute a name from the content of priors."""
    arrays, facts = priors.to_arrays()
    digest = hashlib.sha256(json.dumps(facts).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
