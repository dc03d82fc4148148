"""What the page shows of one revision of a project: labels, a map, and how they change with α and β."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from p3dc.adaptive.rule import class_averages
from p3dc.app.http.limits import conflict
from p3dc.app.project.state import State
from p3dc.app.project.store import Picture
from p3dc.classifier.calibrated_support import Labels, members
from p3dc.classifier.leave_one_out import LeaveOneOut, Point, Strangers
from p3dc.images.backbones.backbone import Backbone
from p3dc.images.classifier import ImageClassifier, Prediction
from p3dc.images.examples import Example
from p3dc.method import l2_normalize
from p3dc.priors.prototypes import Priors

Array = npt.NDArray[Any]

WITHIN = 0.3
"""How much photos of one class count against class means when the axes of the map are chosen."""


@dataclass(frozen=True)
class Map:
    """Places in two dimensions, each from -1 to 1.

    Attributes
    ----------
    before, after : arrays of shape (S, 2)
        The examples and the calibrated examples.
    prototypes : array of shape (N, 2)
        The means of the calibrated examples.
    queries : array of shape (Q, 2)
    """

    before: Array
    after: Array
    prototypes: Array
    queries: Array


class Task:
    """The classes of a project as a classifier, and what follows from it.

    The keys of its examples are the ids of their photos. What takes long is computed when it is asked for, once.

    Parameters
    ----------
    revision : int
    state : State
    pictures : mapping from id to Picture
    backbone : Backbone
    priors : Priors, optional
    """

    def __init__(
        self,
        revision: int,
        state: State,
        pictures: Mapping[str, Picture],
        backbone: Backbone,
        priors: Priors | None,
    ) -> None:
        self.revision, self.state, self.priors = revision, state, priors
        self.pictures = {photo.id: pictures[photo.id] for photo in state.photos}
        self.backbone = backbone
        self.asked = state.to_label
        self._lock, self._slow_lock = threading.RLock(), threading.Lock()

    @property
    def hint(self) -> str | None:
        """What is missing before anything can be labelled."""
        names = {photo.label for photo in self.state.photos} - {None}
        if len(names) >= 2:
            return None
        return "Add photos of a second class to get labels." if names else "Add photos of two classes to get labels."

    @cached_property
    def classifier(self) -> ImageClassifier:
        """The classifier whose point is chosen for the task."""
        if self.hint is not None:
            raise conflict(self.hint)
        names = self.state.names
        examples = [
            Example(photo.id, names[photo.label], self.pictures[photo.id].features, self.pictures[photo.id].thumbnail)
            for photo in self.state.photos
            if photo.label is not None
        ]
        return ImageClassifier(self.backbone, examples, self.priors, reject=self.state.reject)

    def at(self, point: Point | None) -> ImageClassifier:
        """Give the classifier at a point, or at the project's own where none is given."""
        with self._lock:
            return self._own if point is None else self._at(point)

    @cached_property
    def _own(self) -> ImageClassifier:
        return self._at(self.state.point)

    def _at(self, point: Point | None) -> ImageClassifier:
        reject = self.state.reject
        below = -np.inf if reject is None else self._strangers.threshold(reject, point)
        return self.classifier.at(point, float(below))

    @cached_property
    def _strangers(self) -> Strangers:
        return Strangers(self.classifier.support, self.classifier.labels, self.priors)

    @cached_property
    def _held_out(self) -> LeaveOneOut:
        return LeaveOneOut(self.classifier.support, self.classifier.labels, self.priors)

    def leave_one_out(self, point: Point | None) -> tuple[list[str], list[bool], int]:
        """Label photos by all others: which, whether rightly, and how many could have been asked."""
        with self._lock:
            examples = self.classifier.examples
        with self._slow_lock:
            held = self._held_out
        right = held.right(self.state.point if point is None else point)
        return [examples[row].key for row in held.rows], right.tolist(), held.n_possible

    def labels(self, classifier: ImageClassifier) -> list[Prediction]:
        """Label the photos that are to be labelled."""
        return classifier.label(self._asked_features) if self.asked else []

    @cached_property
    def _asked_features(self) -> Array:
        rows = [self.pictures[photo.id].features for photo in self.asked]
        return np.stack(rows) if rows else np.empty((0, self.backbone.n_features), dtype=np.float32)

    def map(self, classifier: ImageClassifier) -> Map:
        """Lay everything out in two dimensions, on axes that do not depend on α and β."""
        with self._lock:
            plane, before, queries = self._ground
        samples = classifier.calibration.samples
        prototypes = class_averages(members(classifier.labels)) @ samples
        return Map(before, plane.place(samples), plane.place(prototypes), queries)

    @cached_property
    def _ground(self) -> tuple["Plane", Array, Array]:
        """What of the map does not move with the point: its plane, the examples and the photos to be labelled."""
        calibration = self.classifier.calibration
        corners = calibration.corners()
        asked = l2_normalize(calibration.prepare(self._asked_features))
        centre, axes = principal_axes(corners, calibration.labels)
        shown = np.concatenate([corners.reshape(-1, len(centre)), asked])
        plane = Plane(centre, axes, float(np.abs((shown - centre) @ axes).max()) or 1.0)
        return plane, plane.place(corners[:, 0]), plane.place(asked)


class Plane(NamedTuple):
    """Two axes, (D, 2), their origin, (D,), and how far places on them reach."""

    centre: Array
    axes: Array
    reach: float

    def place(self, rows: Array) -> Array:
        """Find the places of rows, (n, D) -> (n, 2), each from -1 to 1."""
        return np.clip((rows - self.centre) @ self.axes / self.reach, -1, 1)


def principal_axes(corners: Array, labels: Labels) -> tuple[Array, Array]:
    """Find the centre, (D,), and two axes, (D, 2), along which the classes of triangles, (S, 3, D), spread."""
    means = np.einsum("ns,svd->nvd", class_averages(members(labels)), corners)
    centre = means.mean(axis=(0, 1))
    within = WITHIN * (corners - means[labels])
    rows = np.concatenate([means - centre, within]).reshape(-1, len(centre))
    axes = np.linalg.svd(rows, full_matrices=False)[2][:2].T
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    return centre, axes * signs
