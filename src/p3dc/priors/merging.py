"""Merging priors: which of their classes are the same, and whose geometry holds for all."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from p3dc._arrays import Array
from p3dc.errors import InputError
from p3dc.priors.geometry import SCATTERS, Geometry, whitened_means
from p3dc.priors.sums import ClassSums

Part = Any
""":class:`p3dc.Priors`, which imports this module."""


def merge_parts(parts: Sequence[Part]) -> dict[str, Any]:
    """Join the classes of some priors and return what :class:`p3dc.Priors` is made of."""
    sums, central, uncounted = ClassSums(), {}, set()
    for number, part in enumerate(parts):
        sizes = np.ones(len(part.class_names), dtype=np.int64) if part.counts is None else part.counts
        lengths = sizes * _lengths(part)
        for row, name in enumerate(part.class_names):
            label: Any = (number, name) if part.clusters[row] else name
            if label in sums.counts and (part.counts is None or label in uncounted):
                raise InputError(
                    f"the class {name!r} is in several of the priors, and some have no counts to average it by. "
                    "Build them with Priors.from_features, or merge only those with other classes."
                )
            sums.add(label, part.prototypes[row] * sizes[row], int(sizes[row]), float(lengths[row]))
            if part.clusters[row]:
                sums.clusters.add(label)
                central[label] = part.central[row]
            if part.counts is None:
                uncounted.add(label)
        _add_scatter(sums, part, lengths)
    apart = [part.reason for part in parts if part.moments is None]
    if apart:
        sums.drop_geometry(next(filter(None, apart), "some of them do not know how their rows scatter"))
    labels = list(sums.counts)
    found = {"class_names": names_of(labels, sums.clusters)} | sums.means(labels)
    found["central"] = [central.get(label, ()) for label in labels]
    if uncounted:
        found["counts"] = None
    if "moments" not in found:
        mean_lengths = np.array([sums.lengths[label] / sums.counts[label] for label in labels])
        found["geometry"] = _geometry_of_one(parts, found["prototypes"], mean_lengths)
    return found


def names_of(labels: Sequence[Any], clusters: set[Any]) -> list[str]:
    """Name classes by their labels, and clusters by numbers that no class is called."""
    taken = {str(label) for label in labels if label not in clusters}
    free = (name for number in count(1) if (name := f"cluster {number:04d}") not in taken)
    return [next(free) if label in clusters else str(label) for label in labels]


def _lengths(part: Part) -> Array:
    """Return the mean length of the rows of each class; NaN where it is unknown."""
    known = part.geometry if part.moments is None else part.moments
    return np.full(len(part.class_names), np.nan) if known is None else known.lengths


def _add_scatter(sums: ClassSums, part: Part, lengths: Array) -> None:
    for kind, name in enumerate(SCATTERS):
        if part.moments is not None and (scatter := getattr(part.moments, name)) is not None:
            sums.add_outer(scatter * lengths[part.clusters == kind].sum(), bool(kind))


def _geometry_of_one(parts: Sequence[Part], prototypes: Array, lengths: Array) -> Geometry | None:
    """Take over the geometry of one of the parts, of labelled classes if possible, for all prototypes.

    With clusters among them it is as tight as theirs: a sample agrees with its nearest clusters on more than the class,
    and in the looser geometry of a backbone's classes β would be too large with several shots.
    """
    known: list[Geometry] = [part.geometry for part in sorted(parts, key=_is_clusters) if part.geometry is not None]
    if not known or not np.isfinite(lengths).all():
        return None
    tightness = [part.geometry.tightness for part in parts if _is_clusters(part) and part.geometry is not None]
    first = known[0]
    whitened = whitened_means(prototypes, lengths, first.axes, first.gains, first.rest)
    return replace(first, tightness=max([first.tightness, *tightness]), lengths=lengths, prototypes=whitened)


def _is_clusters(part: Part) -> bool:
    return bool(part.clusters.all())
