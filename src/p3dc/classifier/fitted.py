"""A fitted classifier: labels, probabilities and what is unknown, without scikit-learn.

Importing scikit-learn takes longer than labelling a photo. :class:`p3dc.P3DCClassifier` wraps this class in its
conventions, and :class:`p3dc.ImageClassifier` joins it to a backbone.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from p3dc._arrays import Array, Labels, as_numpy, is_tensor, to_device_of
from p3dc._validation import as_labels
from p3dc.adaptive.settings import Settings
from p3dc.classifier.calibrated_support import CalibratedSupport, calibrate_support
from p3dc.classifier.leave_one_out import LeaveOneClassOut, Point
from p3dc.confidence import temperature
from p3dc.confidence.open_set import is_unknown
from p3dc.errors import InputError
from p3dc.priors.prototypes import Priors

UNKNOWN: dict[str, Any] = {"U": "unknown", "i": -1, "u": -1}
"""The label of what belongs to no class, by the kind of the other labels."""


@dataclass(frozen=True, eq=False)
class FittedClassifier:
    """Labelled samples, and how queries are labelled by them. What takes time is computed on first use.

    Attributes
    ----------
    support : array of shape (S, D)
        The samples as they were given.
    labels : array of shape (S,)
        The position of each sample's label in ``classes``.
    classes : array of shape (N,)
        The labels, sorted.
    priors : Priors or None
    settings : Settings
    reject : float or None
        Share of out-of-distribution queries to label as unknown.
    given_temperature : float or None
        What cosines are divided by before the softmax; None where it follows from the shots.
    """

    support: Array
    labels: Labels
    classes: npt.NDArray[Any]
    priors: Priors | None
    settings: Settings
    reject: float | None = None
    given_temperature: float | None = None

    def __post_init__(self) -> None:
        if self.reject is None:
            return
        kind = as_labels(self.classes).dtype.kind
        if kind not in UNKNOWN:
            raise InputError(f"labels are of type {self.classes.dtype}. To reject, give text or whole numbers.")
        if UNKNOWN[kind] in self.classes:
            raise InputError(f"there is a class {UNKNOWN[kind]!r}, which is what reject calls others. Rename it.")

    @cached_property
    def calibrated(self) -> CalibratedSupport:
        """The calibrated support."""
        return calibrate_support(self.support, self.labels, self.priors, self.settings)

    @cached_property
    def unknown_below(self) -> float:
        """The largest cosine below which a query is unknown."""
        return self.threshold_at(None)

    @cached_property
    def _class_turns(self) -> LeaveOneClassOut:
        return LeaveOneClassOut(self.support, self.labels, self.priors, self.settings)

    def threshold_at(self, point: Point | None) -> float:
        """Return the largest cosine below which a query is unknown at another (α, β)."""
        if self.reject is None or len(self.classes) < 2:
            return -float("inf")
        return self._class_turns.threshold(self.reject, point)

    def with_threshold(self, unknown_below: float) -> "FittedClassifier":
        """Return the same classifier with a threshold that is known, from a file for example."""
        same = replace(self)
        vars(same)["unknown_below"] = unknown_below
        return same

    def at(self, alpha: float, beta: float) -> "FittedClassifier":
        """Return the classifier at another point of the triangle. Nothing is whitened or calibrated anew."""
        moved = replace(self, settings=replace(self.settings, alpha=alpha, beta=beta))
        vars(moved)["calibrated"] = self.calibrated.at(alpha, beta)
        vars(moved)["unknown_below"] = self.threshold_at((alpha, beta))
        return moved

    @property
    def temperature(self) -> float:
        """What cosines are divided by before the softmax."""
        return self.calibrated.temperature if self.given_temperature is None else self.given_temperature

    def cosines(self, queries: Array) -> Array:
        """Return the cosine of every query to the prototype of every class, (Q, D) -> (Q, N)."""
        known = self.calibrated
        if is_tensor(queries) or is_tensor(known.samples):
            wide = str(known.samples.dtype).endswith("float64")
            queries = to_device_of(queries, queries, array_namespace(queries).float64 if wide else queries.dtype)
            known = known.to_device_of(queries)
        return known.cosines(queries)

    def probabilities(self, cosines: Array) -> Array:
        """Turn cosines into probabilities of the classes, (Q, N) -> (Q, N)."""
        return temperature.probabilities(cosines, self.temperature)

    def unknown(self, cosines: Array) -> Array:
        """Decide which queries belong to none of the classes, (Q, N) -> mask (Q,)."""
        return is_unknown(cosines, self.unknown_below)

    def predict(self, cosines: Array) -> Array:
        """Return the class of the largest cosine, or the label of unknown queries, (Q, N) -> (Q,)."""
        if self.classes.dtype.kind not in "iufb":
            cosines = as_numpy(cosines)
        best = cosines.argmax(axis=1)
        if self.reject is None:
            return to_device_of(self.classes, best)[best]
        kind = as_labels(self.classes).dtype.kind
        classes = self.classes.astype(np.int64) if kind == "u" else self.classes
        labels = to_device_of(classes, best)[best]
        return array_namespace(cosines).where(self.unknown(cosines), UNKNOWN[kind], labels)
