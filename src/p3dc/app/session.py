"""What the page shows of one revision of a project: labels, a map, and how they change with α and β."""

import threading
from collections.abc import Mapping
from functools import cached_property

import numpy as np

from p3dc._arrays import Floats
from p3dc.adaptive.space import class_averages, members
from p3dc.app.errors import ConflictError
from p3dc.app.map import Map, Plane
from p3dc.app.project.state import State
from p3dc.app.project.store import Picture
from p3dc.classifier.leave_one_out import LeaveOneOut, Point, PointScorer
from p3dc.images.backbones.backbone import Backbone
from p3dc.images.classifier import ImageClassifier
from p3dc.images.examples import Example
from p3dc.images.predictions import Prediction
from p3dc.method import l2_normalize
from p3dc.priors.prototypes import Priors


class Session:
    """The classes of a project as a classifier, at any point (α, β) of the triangle.

    Where the weights are chosen for the task, the photos to be labelled refine the classes and each other's labels.

    The keys of examples and of photos to be labelled are their ids. Whatever does not depend on the point is computed
    on first use and kept, so that moving the point costs inner products only.
    """

    def __init__(
        self, revision: int, state: State, pictures: Mapping[str, Picture], backbone: Backbone, priors: Priors | None
    ) -> None:
        self.revision, self.state, self.priors = revision, state, priors
        self.pictures = {photo.id: pictures[photo.id] for photo in state.photos}
        self.backbone = backbone
        self.to_label = state.to_label
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
        """The classifier that chooses its own α and β, from the examples alone."""
        if self.hint is not None:
            raise ConflictError(self.hint)
        names = self.state.names
        examples = [
            Example(photo.id, names[photo.label], self.pictures[photo.id].features, self.pictures[photo.id].thumbnail)
            for photo in self.state.photos
            if photo.label is not None
        ]
        return ImageClassifier(self.backbone, examples, self.priors, reject=self.state.reject)

    def at(self, point: Point | None) -> ImageClassifier:
        """Return the classifier at a point, by default at the project's own."""
        with self._lock:
            return self._own if point is None else self.classifier.at(point)

    @cached_property
    def _own(self) -> ImageClassifier:
        if self.state.point is not None or not self.to_label:
            return self.classifier.at(self.state.point)
        return self.classifier.with_unlabelled(self._query_features, [photo.id for photo in self.to_label])

    @cached_property
    def _left_out_examples(self) -> LeaveOneOut:
        fitted = self.classifier.fitted
        return LeaveOneOut(fitted.support, fitted.labels, fitted.priors, fitted.settings)

    def leave_one_out(self, point: Point | None) -> tuple[list[str], list[bool], int]:
        """Label each example by the others; return the ids, whether each label is right, and how many are possible."""
        with self._lock:
            examples = self.classifier.examples
        with self._slow_lock:
            left_out = self._left_out_examples
        right = left_out.right(self.state.point if point is None else point)
        return [examples[row].key for row in left_out.rows], right.tolist(), left_out.n_possible

    def labels(self, classifier: ImageClassifier) -> list[Prediction]:
        """Label the photos to be labelled with a classifier that :meth:`at` returned."""
        if not self.to_label:
            return []
        if classifier.unlabelled_keys:
            return classifier.label_unlabelled()
        with self._lock:
            queries = self._queries
        return classifier.label_cosines(queries.cosines(classifier.point)[0])

    @cached_property
    def _queries(self) -> PointScorer:
        return PointScorer([self.classifier.calibrated], [self._query_features])

    @cached_property
    def _query_features(self) -> Floats:
        rows = [self.pictures[photo.id].features for photo in self.to_label]
        return np.stack(rows) if rows else np.empty((0, self.backbone.n_features), dtype=np.float32)

    def map(self, classifier: ImageClassifier) -> Map:
        """Project everything onto a plane that depends neither on α and β nor on the photos to be labelled."""
        with self._lock:
            plane, before, queries = self._fixed_positions
        samples = (self.classifier if classifier.unlabelled_keys else classifier).calibrated.samples
        prototypes = class_averages(members(classifier.labels)) @ samples
        return Map(before, plane.project(samples), plane.project(prototypes), queries)

    @cached_property
    def _fixed_positions(self) -> tuple[Plane, Floats, Floats]:
        """The plane of the map, and the positions of the examples and of the photos to be labelled on it."""
        calibrated = self.classifier.calibrated
        corners, queries = calibrated.corners(), l2_normalize(self._queries.transformed[0])
        plane = Plane.through(corners, calibrated.labels, queries)
        return plane, plane.project(corners[:, 0]), plane.project(queries)
