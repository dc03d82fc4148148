"""A fitted classifier: labels, probabilities and what is unknown, without scikit-learn.

Importing scikit-learn takes longer than labelling a photo. :class:`p3dc.P3DCClassifier` wraps this class in its
conventions, and :class:`p3dc.ImageClassifier` joins it to a backbone.
"""

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from p3dc._arrays import Array, Labels, Mask, Rows, as_numpy, is_tensor, to_device_of
from p3dc._validation import as_labels
from p3dc.adaptive.settings import Settings
from p3dc.adaptive.space import WhitenedSpace
from p3dc.classifier.calibrated_support import CalibratedSupport, Scores, calibrate_support
from p3dc.classifier.leave_one_out import LeaveOneClassOut, Point, evenly_spaced
from p3dc.classifier.refined_support import refine_support
from p3dc.confidence import temperature
from p3dc.confidence.open_set import is_unknown
from p3dc.errors import InputError
from p3dc.method import l2_normalize
from p3dc.priors.geometry import Geometry
from p3dc.priors.prototypes import Priors
from p3dc.unlabelled.refinement import Balance

UNKNOWN: dict[str, Any] = {"U": "unknown", "i": -1, "u": -1}
"""The label of what belongs to no class, by the kind of the other labels."""

MOST_UNLABELLED = 1000
"""How many unlabelled rows prototypes are refined with, at most."""

TOGETHER = 100
"""Unlabelled rows that are scored at a time."""


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
    unlabelled : array of shape (P, D), or None
        Rows without labels that the prototypes are refined with.
    pile_balance : {"equal"} or None
        A promise that the unlabelled rows are of the classes alone, equally many of each.
    """

    support: Array
    labels: Labels
    classes: npt.NDArray[Any]
    priors: Priors | None
    settings: Settings
    reject: float | None = None
    given_temperature: float | None = None
    unlabelled: Array | None = None
    pile_balance: Balance | None = None

    def __post_init__(self) -> None:
        if self.pile_balance not in (None, "equal"):
            raise InputError(f"pile_balance is {self.pile_balance!r:.40}. It must be 'equal' or None.")
        if self.reject is None:
            return
        kind = as_labels(self.classes).dtype.kind
        if kind not in UNKNOWN:
            raise InputError(f"labels are of type {self.classes.dtype}. To reject, give text or whole numbers.")
        if UNKNOWN[kind] in self.classes:
            raise InputError(f"there is a class {UNKNOWN[kind]!r}, which is what reject calls others. Rename it.")

    @cached_property
    def calibrated(self) -> CalibratedSupport:
        """The calibrated support, refined with the unlabelled rows where that is possible."""
        geometry = self._geometry
        if geometry is None or self.unlabelled is None:
            return calibrate_support(self.support, self.labels, self.priors, self.settings)
        support, rows = WhitenedSpace(geometry).whiten(as_numpy(self.support)), self._whitened_pile[self._sample]
        return refine_support(support, self.labels, rows, geometry, self.settings, self.pile_balance)

    @property
    def _geometry(self) -> Geometry | None:
        """The geometry in which unlabelled rows can be compared."""
        return self.priors.geometry if self.settings.whitened and self.priors is not None else None

    @property
    def _sample(self) -> Rows:
        """The unlabelled rows that prototypes are refined with: all, or an even sample of many."""
        return evenly_spaced(0 if self.unlabelled is None else len(self.unlabelled), MOST_UNLABELLED)

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
        same = copy(self)
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

    def score(self, queries: Array) -> Scores:
        """Score queries, (Q, D)."""
        known = self.calibrated
        if is_tensor(queries) or is_tensor(known.samples):
            wide = str(known.samples.dtype).endswith("float64")
            queries = to_device_of(queries, queries, array_namespace(queries).float64 if wide else queries.dtype)
            known = known.to_device_of(queries)
        return known.scores(queries)

    def probabilities(self, cosines: Array) -> Array:
        """Turn cosines into probabilities of the classes, (Q, N) -> (Q, N)."""
        return temperature.probabilities(cosines, self.temperature)

    def unknown(self, scores: Scores) -> Array:
        """Decide which queries belong to none of the classes, mask (Q,): those below the threshold, and groups."""
        unknown = is_unknown(scores.known, self.unknown_below)
        return unknown if self.reject is None or scores.grouped is None else unknown | scores.grouped

    def predict(self, scores: Scores) -> Array:
        """Return the class of the largest cosine, or the label of unknown queries, (Q,)."""
        if self.classes.dtype.kind not in "iufb":
            scores = Scores(*map(as_numpy, scores))
        best = scores.cosines.argmax(axis=1)
        if self.reject is None:
            return to_device_of(self.classes, best)[best]
        kind = as_labels(self.classes).dtype.kind
        classes = self.classes.astype(np.int64) if kind == "u" else self.classes
        labels = to_device_of(classes, best)[best]
        return array_namespace(best).where(self.unknown(scores), UNKNOWN[kind], labels)

    @cached_property
    def _whitened_pile(self) -> Array:
        """The unlabelled rows, whitened, (P, D) in float32: what many rows take is time to read them."""
        geometry, directions = self._geometry, l2_normalize(as_numpy(self.unlabelled).astype(np.float32))
        return directions if geometry is None else geometry.whiten(directions)

    def _pile(self, rows: Rows) -> Array:
        """Bring some of the unlabelled rows into the space of the task, (P', D)."""
        space = self.calibrated.space
        return self._whitened_pile[rows] if space is None else space.centred(self._whitened_pile[rows])

    @cached_property
    def transduction(self) -> Scores:
        """The scores of the unlabelled rows themselves, with the shares of the classes among them.

        A row that refined the classes is compared with prototypes without its own part.
        """
        if self.unlabelled is None:
            raise InputError("there are no unlabelled rows. Fit with unlabelled rows to label them together.")
        refinement = self.calibrated.refinement
        if refinement is None:
            return self.score(as_numpy(self.unlabelled))
        own_weights = np.zeros((len(self.unlabelled), len(self.classes)))
        own_weights[self._sample] = refinement.weights
        parts = np.array_split(np.arange(len(own_weights)), 1 + len(own_weights) // TOGETHER)
        found = [self.calibrated.scores_of(self._pile(rows), own_weights[rows]) for rows in parts]
        cosines, known = (np.concatenate([getattr(each, name) for each in found]) for name in ("cosines", "known"))
        return Scores(cosines + refinement.offsets, known, _mask(self.groups, len(cosines)))

    @cached_property
    def groups(self) -> list[Rows]:
        """Unlabelled rows that resemble each other and none of the classes: the largest group first.

        The most central rows of each group come first. Rows that are less than half as near to its centre as the
        median row are left out: in a pile of a few photos they may be there for want of a group of their own.
        """
        refinement = self.calibrated.refinement
        if refinement is None:
            return []
        sample, found = self._sample, []
        for group in np.flatnonzero(refinement.proposed):
            own = sample[refinement.members[:, group]]
            nearness = self._pile(own) @ refinement.groups[group]
            order = np.argsort(-nearness, kind="stable")
            found.append(own[order][nearness[order] >= np.median(nearness) / 2])
        return sorted(found, key=len, reverse=True)


def _mask(groups: list[Rows], n_rows: int) -> Mask:
    """Mark the rows that are in any of the groups, (n_rows,)."""
    mask = np.zeros(n_rows, dtype=bool)
    for group in groups:
        mask[group] = True
    return mask
