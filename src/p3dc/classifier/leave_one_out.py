"""Leave-one-out: each sample labelled by all others, and each class unknown to the others, at any (α, β).

Shape letters: S support, N classes, K samples of a class, Q queries, D features.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np

from p3dc._arrays import Array, Labels, Mask, Rows, as_numpy, to_device_of
from p3dc.adaptive.settings import Settings
from p3dc.adaptive.space import WhitenedSpace, class_averages, members
from p3dc.classifier.calibrated_support import CalibratedSupport, calibrate_support, calibrate_whitened
from p3dc.confidence.open_set import unknown_threshold
from p3dc.priors.prototypes import Priors
from p3dc.scoring.kernel import Corners, corner_weights, inner_products, score_corners

Point = tuple[float, float]

MOST_SAMPLES = 60
"""How many samples are left out in turn, at most."""

MOST_CLASSES = 20
"""How many classes are left out in turn, at most."""


class PointScorer:
    """Scores queries by calibrated supports at any (α, β), from inner products that are computed once.

    Parameters
    ----------
    supports : sequence of CalibratedSupport
        With the same settings.
    queries : sequence of arrays of shape (Q, D)
        Some for each support, in its space.
    """

    def __init__(self, supports: Sequence[CalibratedSupport], queries: Sequence[Array]) -> None:
        self.supports, self.queries = supports, queries

    def cosines(self, point: Point | None = None) -> list[Array]:
        """Score every class for every query at a point, or at that of each support, (Q, N) for each support."""
        if point is None:
            return self._own_cosines
        found = [np.empty((len(asked), int(support.labels.max()) + 1)) for support, asked in self._pairs()]
        mix = corner_weights(*np.array(point)[:, None])
        attention = self.supports[0].settings.attention
        for places, corners in self._corners:
            scores, _ = score_corners(corners._replace(mix=mix), attention)
            for (turn, label), column in zip(places, scores[:, 0, :, 0], strict=True):
                found[turn][:, label] = column
        return found

    def _pairs(self) -> Iterator[tuple[CalibratedSupport, Array]]:
        return zip(self.supports, self.queries, strict=True)

    @cached_property
    def _own_cosines(self) -> list[Array]:
        return [support.scores_of(asked).cosines for support, asked in self._pairs()]

    @cached_property
    def _corners(self) -> list[tuple[list[tuple[int, int]], Corners]]:
        """Inner products of classes with equally many samples and queries, and which supports and classes they are."""
        groups: dict[tuple[int, int], list[tuple[tuple[int, int], Corners]]] = defaultdict(list)
        for turn, (support, asked) in enumerate(self._pairs()):
            corners = support.corners()
            for label in range(int(support.labels.max()) + 1):
                own = corners[support.labels == label]
                found = inner_products(own[None], asked[None], None, 1)
                groups[len(own), len(asked)].append(((turn, label), found))
        return [
            ([place for place, _ in group], Corners(*(_joined([found[i] for _, found in group]) for i in range(4))))
            for group in groups.values()
        ]


def _joined(arrays: list[Array]) -> Array:
    return None if arrays[0] is None else np.concatenate(arrays)


class _Turns:
    """Calibrations of parts of a support, whose rows are whitened and compared with base classes once for all."""

    def __init__(self, support: Array, priors: Priors | None, settings: Settings) -> None:
        self.priors, self.settings = priors, settings
        geometry = None if priors is None else priors.geometry
        self.space = WhitenedSpace(geometry).to_device_of(support) if settings.whitened else None
        self.rows = support if self.space is None else self.space.whiten(support)
        known = None if self.space is None else self.space.geometry
        self.products = None if known is None else self.rows @ known.prototypes.mT

    def take(self, turns: Iterable[tuple[Mask, Labels]]) -> PointScorer:
        """Calibrate the rows that each turn marks, by their labels, to score the other rows with them."""
        supports, queries = [], []
        for others, labels in turns:
            kept = to_device_of(others, self.rows)
            rest, left_out = self.rows[kept], self.rows[~kept]
            if self.space is None:
                calibrated = calibrate_support(rest, labels, self.priors, self.settings)
            else:
                averages = class_averages(to_device_of(members(labels), rest))
                space = self.space.centred_on(rest, averages)
                products = None if self.products is None else self.products[kept]
                calibrated = calibrate_whitened(rest, labels, space, self.settings, products)
                left_out = space.centred(left_out)
            supports.append(calibrated.without_priors())
            queries.append(left_out)
        return PointScorer(supports, queries)


class LeaveOneClassOut:
    """Leaves out each class in turn, to find from what cosine on a query belongs to one of the classes.

    Parameters
    ----------
    support : array of shape (S, D)
    labels : array of shape (S,)
        The class of each sample, a number from 0 on, of two classes or more.
    priors : Priors, optional
    settings : Settings
    """

    def __init__(self, support: Array, labels: Labels, priors: Priors | None, settings: Settings) -> None:
        self.n_way = int(labels.max()) + 1
        self.scorer = _Turns(support, priors, settings).take(class_turns(labels))

    def threshold(self, share: float, point: Point | None = None) -> float:
        """Return the largest cosine below which this share of out-of-distribution queries falls."""
        cosines = np.concatenate([as_numpy(found).ravel() for found in self.scorer.cosines(point)])
        space = self.scorer.supports[0].space
        variance = None if space is None or space.geometry is None else space.geometry.spread
        return unknown_threshold(cosines, self.n_way, share, variance)


class LeaveOneOut:
    """Leaves out each sample in turn and labels it by all others.

    The only sample of a class is never left out. Of many samples, some are left out.

    Parameters
    ----------
    support : array of shape (S, D)
    labels : array of shape (S,)
        The class of each sample, a number from 0 on.
    priors : Priors, optional
    settings : Settings

    Attributes
    ----------
    rows : array of shape (n,)
        The samples that are left out.
    n_possible : int
        How many could be.
    """

    def __init__(self, support: Array, labels: Labels, priors: Priors | None, settings: Settings) -> None:
        possible = np.flatnonzero(np.bincount(labels)[labels] > 1)
        self.rows: Rows = possible[evenly_spaced(len(possible), MOST_SAMPLES)]
        self.n_possible = len(possible)
        self.labels = labels[self.rows]
        rest = (np.arange(len(labels)) != row for row in self.rows)
        self.scorer = _Turns(support, priors, settings).take((others, labels[others]) for others in rest)

    def found(self, point: Point | None = None) -> Labels:
        """Return the label that each sample gets, at a point or each at the one that is chosen for it, (n,)."""
        return np.array([cosines[0].argmax() for cosines in self.scorer.cosines(point)], dtype=np.int64)


def class_turns(labels: Labels) -> Iterator[tuple[Mask, Labels]]:
    """Leave out each class in turn, or some of many: mark all other samples, (S,), and number their classes anew."""
    n_way = int(labels.max()) + 1
    for left_out in evenly_spaced(n_way, MOST_CLASSES):
        others = labels != left_out
        yield others, np.where(labels > left_out, labels - 1, labels)[others]


def evenly_spaced(n_items: int, most: int) -> Rows:
    """Choose at most so many items, from the first to the last at equal distances."""
    return np.linspace(0, n_items - 1, min(n_items, most)).round().astype(np.int64)
