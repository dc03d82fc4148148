"""What the page shows of one revision of a project: labels, a map, and how they change with α and β."""

import threading
from collections.abc import Mapping
from copy import copy
from functools import cached_property

import numpy as np

from p3dc._arrays import Floats, Labels
from p3dc.adaptive.space import class_averages, members
from p3dc.app.map import Map, Plane
from p3dc.app.project.state import State
from p3dc.app.project.store import Picture
from p3dc.app.taught import Taught
from p3dc.classifier.calibrated_support import Scores
from p3dc.classifier.leave_one_out import LeaveOneOut, Point, PointScorer
from p3dc.confidence.asking import asking_order
from p3dc.confidence.open_set import known_score
from p3dc.images.classifier import ImageClassifier
from p3dc.images.predictions import Prediction
from p3dc.method import l2_normalize


class Session:
    """The classes of a project as a classifier, at any point (α, β) of the triangle.

    Where the weights are chosen for the task, the photos to be labelled refine the classes and each other's labels.

    The keys of examples and of photos to be labelled are their ids. Whatever does not depend on the point is computed
    on first use and kept, so that moving the point costs inner products only.
    """

    def __init__(self, revision: int, state: State, pictures: Mapping[str, Picture], taught: Taught) -> None:
        self.revision, self.state, self.taught = revision, state, taught
        self.pictures = {photo.id: pictures[photo.id] for photo in state.photos}
        self.to_label = state.to_label
        self.hint = taught.hint
        self._ids = [photo.id for photo in self.to_label]
        self._lock = threading.RLock()

    @cached_property
    def classifier(self) -> ImageClassifier:
        """The classifier that chooses its own α and β, from the examples alone."""
        return self._with_threshold(self.taught.classifier)

    def at(self, point: Point | None, *, pile: bool = True) -> ImageClassifier:
        """Return the classifier at a point, by default at the project's own, refined by the pile where it can be."""
        point = self.state.point if point is None else point
        with self._lock:
            if point is None:
                return self._refined if pile and self.to_label else self.classifier
            return self._with_threshold(self.taught.classifier.at(point))

    @cached_property
    def _refined(self) -> ImageClassifier:
        return self.classifier.with_unlabelled(self._query_features, self._ids)

    def _with_threshold(self, classifier: ImageClassifier) -> ImageClassifier:
        if self.state.unknown_below is None:
            return classifier
        fixed = copy(classifier)
        fixed.fitted = classifier.fitted.with_threshold(self.state.unknown_below)
        return fixed

    def leave_one_out(self, point: Point | None) -> tuple[LeaveOneOut, Labels]:
        """Label each example by the others; return which were left out, and their labels."""
        return self.taught.leave_one_out(self.state.point if point is None else point)

    def scores(self, classifier: ImageClassifier) -> Scores:
        """Score the photos to be labelled with a classifier that :meth:`at` returned."""
        if classifier.unlabelled_keys:
            return classifier.fitted.transduction
        if not self.to_label:
            cosines: Floats = np.empty((0, len(classifier.classes)))
        elif classifier.point is None:
            cosines = self.taught.cosines(self._ids, self._query_features)
        else:
            with self._lock:
                queries = self._queries
            cosines = queries.cosines(classifier.point)[0]
        return Scores(cosines, known_score(cosines))

    def labels(self, classifier: ImageClassifier) -> list[Prediction]:
        """Label the photos to be labelled with a classifier that :meth:`at` returned."""
        return classifier.label_scores(self.scores(classifier))

    def label_unpulled(self, classifier: ImageClassifier, features: Floats) -> str | None:
        """Return the label of a photo at α = β = 0, or None where base classes do not pull with the classifier."""
        if not any(classifier.weights):
            return None
        return self.at((0.0, 0.0)).label(features[None])[0].label

    def asking_order(self, doubts: Floats) -> list[str]:
        """Return the ids of the photos to be labelled, those whose label would teach most first."""
        if not self.to_label:
            return []
        return [self._ids[row] for row in asking_order(doubts, l2_normalize(self._transformed))]

    @cached_property
    def _queries(self) -> PointScorer:
        return PointScorer([self.taught.classifier.calibrated], [self._transformed])

    @property
    def _transformed(self) -> Floats:
        return self.taught.transformed(self._ids, self._query_features)

    @cached_property
    def _query_features(self) -> Floats:
        return np.stack([self.pictures[identity].features for identity in self._ids])

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
        corners = self.taught.corners
        rows = l2_normalize(self._transformed) if self.to_label else np.empty((0, corners.shape[-1]))
        centre, axes = self.taught.axes
        plane = Plane.reaching(centre, axes, [*np.moveaxis(corners, 1, 0), rows])
        return plane, plane.project(corners[:, 0]), plane.project(rows)
