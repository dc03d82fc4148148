"""What follows from the taught photos alone, kept until they change."""

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property

import numpy as np

from p3dc._arrays import Array, Floats, Labels
from p3dc.app.errors import ConflictError
from p3dc.app.map import principal_axes
from p3dc.app.project.state import State
from p3dc.app.project.store import Picture
from p3dc.classifier.leave_one_out import LeaveOneOut, Point
from p3dc.images.backbones.backbone import Backbone
from p3dc.images.classifier import ImageClassifier
from p3dc.images.examples import Example
from p3dc.priors.prototypes import Priors

TOGETHER = 50
"""Photos that are scored at a time; each takes as much memory as the prototypes."""


class Taught:
    """Examples as a classifier that chooses its own α and β.

    The keys of examples are ids of photos. What is computed of other photos is kept by their ids, so that a new photo
    costs one product and the others nothing.
    """

    def __init__(
        self, backbone: Backbone, examples: Sequence[Example], priors: Priors | None, reject: float | None
    ) -> None:
        self.backbone, self.examples, self.priors, self.reject = backbone, examples, priors, reject
        self._transformed: dict[str, Floats] = {}
        self._cosines: dict[str, Floats] = {}
        self._lock, self._slow_lock = threading.RLock(), threading.Lock()

    @property
    def hint(self) -> str | None:
        """What is missing before anything can be labelled."""
        n_classes = len({example.label for example in self.examples})
        if n_classes >= 2:
            return None
        return f"Add photos of {'a second class' if n_classes else 'two classes'} to get labels."

    @property
    def classifier(self) -> ImageClassifier:
        """The classifier that chooses its own α and β, from the examples alone."""
        if self.hint is not None:
            raise ConflictError(self.hint)
        with self._lock:
            return self._classifier

    @cached_property
    def _classifier(self) -> ImageClassifier:
        made = ImageClassifier(self.backbone, self.examples, self.priors, reject=self.reject)
        made.fitted.unknown_below  # noqa: B018, what takes time is computed once
        return made

    @property
    def corners(self) -> Array:
        """The triangle of each example, (S, 3, D)."""
        return self.classifier.calibrated.corners()

    @property
    def axes(self) -> tuple[Floats, Floats]:
        """The centre and the two axes of the map."""
        with self._lock:
            return self._axes

    @cached_property
    def _axes(self) -> tuple[Floats, Floats]:
        return principal_axes(self.corners, self.classifier.labels)

    def transformed(self, ids: Sequence[str], features: Floats) -> Floats:
        """Return photos in the space of the classifier, (Q, D)."""
        with self._lock:
            return _completed(self._transformed, ids, features, self.classifier.calibrated.transform)

    def cosines(self, ids: Sequence[str], features: Floats) -> Floats:
        """Return the cosines of photos to the classes, (Q, N)."""
        with self._lock:
            rows, calibrated = self.transformed(ids, features), self.classifier.calibrated
            return _completed(self._cosines, ids, rows, lambda missing: calibrated.scores_of(missing).cosines)

    def leave_one_out(self, point: Point | None) -> tuple[LeaveOneOut, Labels]:
        """Label each example by the others; return which were left out, and their labels."""
        self.classifier  # noqa: B018, refused where there are too few examples
        with self._slow_lock:
            left_out = self._left_out
        return left_out, left_out.found(point)

    @cached_property
    def _left_out(self) -> LeaveOneOut:
        fitted = self.classifier.fitted
        return LeaveOneOut(fitted.support, fitted.labels, fitted.priors, fitted.settings)


def taught_key(state: State) -> Hashable:
    """Return what decides whether the taught photos of two states are the same."""
    names = state.names
    examples = tuple((photo.id, names[photo.label]) for photo in state.photos if photo.label is not None)
    return examples, state.priors, state.reject


def taught_photos(state: State, pictures: Mapping[str, Picture], backbone: Backbone, priors: Priors | None) -> Taught:
    """Collect the taught photos of a state."""
    names = state.names
    examples = [
        Example(photo.id, names[photo.label], pictures[photo.id].features, pictures[photo.id].thumbnail)
        for photo in state.photos
        if photo.label is not None
    ]
    return Taught(backbone, examples, priors, state.reject)


def _completed(kept: dict[str, Floats], ids: Sequence[str], rows: Floats, compute: Callable[[Array], Array]) -> Floats:
    """Return what is computed of each row, (Q, ...), for those that are not kept already."""
    fresh = [place for place, identity in enumerate(ids) if identity not in kept]
    for start in range(0, len(fresh), TOGETHER):
        places = fresh[start : start + TOGETHER]
        kept.update(zip((ids[place] for place in places), compute(rows[places]), strict=True))
    return np.stack([kept[identity] for identity in ids])
