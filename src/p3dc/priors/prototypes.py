"""Priors: the prototypes of base classes, and the geometry of their samples."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from p3dc._arrays import Mask, Progress, read_only, row_blocks
from p3dc._validation import as_names, as_rows, check_directions
from p3dc.errors import InputError
from p3dc.features import FeatureSet, LabelledFeatures, as_feature_set
from p3dc.io.safetensors import read_arrays, write_arrays
from p3dc.priors.central import THUMBNAILS, Central, CentralRow, pack_central, unpack_central
from p3dc.priors.geometry import SCATTERS, Geometry, Moments, learn_geometry
from p3dc.priors.merging import merge_parts, names_of
from p3dc.priors.sums import ClassSums
from p3dc.priors.unlabelled import Batch, as_array, learn_centres, sum_clusters

VERSION = 2
OPTIONAL = ("counts", "clusters", "lengths", "axes", "gains", *THUMBNAILS)
PREFIX = "prior_"
PACKED = tuple(PREFIX + name for name in ("prototypes", *OPTIONAL))
"""What the arrays of priors are called in the file of a classifier."""


@dataclass(frozen=True, eq=False, init=False)
class Priors:
    """Prototypes of base classes: the mean feature vector of each.

    Parameters
    ----------
    prototypes : array of shape (n_base, n_features)
        Kept in float64.
    class_names : sequence of str, optional
        One for each prototype; the numbers from 0 if none are given.
    counts : array of shape (n_base,), optional
        How many rows each prototype is the mean of.
    moments : Moments, optional
        Second moments of those rows, which :meth:`from_features` collects.
    geometry : Geometry, optional
        Learned from the moments where it is not given.
    reason : str, optional
        Why there is none.
    clusters : array of bool of shape (n_base,), optional
        Which of the prototypes are of clusters of rows without labels; none by default.
    central : sequence of sequences of CentralRow, optional
        For each prototype, the most central rows of its cluster; explanations show them in place of a name.

    Attributes
    ----------
    geometry : Geometry or None
        How samples scatter around their class, which the whitened space needs.
    reason : str
        Why there is no geometry; empty if there is one.

    Examples
    --------
    >>> from p3dc import FeatureSet, Priors
    >>> base = FeatureSet([[1.0, 0.0], [3.0, 0.0], [0.0, 5.0]], ["owl", "owl", "lynx"])
    >>> priors = Priors.from_features(base)
    >>> priors.class_names
    ('lynx', 'owl')
    >>> priors.prototypes
    array([[0., 5.],
           [2., 0.]])
    >>> priors
    Priors(2 base classes, 2 features)
    """

    prototypes: npt.NDArray[np.float64]
    class_names: tuple[str, ...]
    counts: npt.NDArray[np.int64] | None
    moments: Moments | None
    clusters: Mask
    central: Central
    _given: Geometry | str

    def __init__(
        self,
        prototypes: npt.ArrayLike,
        class_names: Sequence[str] | None = None,
        counts: npt.ArrayLike | None = None,
        moments: Moments | None = None,
        geometry: Geometry | None = None,
        reason: str = "they were given as means, without the rows behind them",
        clusters: npt.ArrayLike | None = None,
        central: Sequence[Sequence[CentralRow]] | None = None,
    ) -> None:
        means = as_rows(prototypes, "prototypes").astype(np.float64)
        check_directions(means, "prototypes")
        names = as_names(range(len(means)) if class_names is None else class_names, len(means))
        if counts is not None:
            counts = np.array(counts)
            if counts.shape != (len(means),) or counts.dtype.kind not in "iu" or counts.min() < 1:
                raise InputError(f"counts must be {len(means)} whole numbers, 1 or more: one for each prototype.")
            counts = read_only(counts.astype(np.int64))
        which = np.zeros(len(means), dtype=bool) if clusters is None else np.array(clusters)
        if which.shape != (len(means),) or which.dtype != bool:
            raise InputError(f"clusters must be {len(means)} of True and False: one for each prototype.")
        rows = ((),) * len(means) if central is None else tuple(map(tuple, central))
        if len(rows) != len(means):
            raise InputError(f"central has {len(rows)} entries for {len(means)} prototypes. Give one for each.")
        object.__setattr__(self, "prototypes", read_only(means))
        object.__setattr__(self, "central", rows)
        object.__setattr__(self, "clusters", read_only(which))
        object.__setattr__(self, "class_names", names)
        object.__setattr__(self, "counts", counts)
        object.__setattr__(self, "moments", moments)
        object.__setattr__(self, "_given", reason if geometry is None else geometry)

    @cached_property
    def _geometry(self) -> Geometry | str:
        if isinstance(self._given, Geometry) or self.counts is None or self.moments is None:
            return self._given
        return learn_geometry(self.prototypes, self.counts, self.moments, self.clusters)

    @property
    def geometry(self) -> Geometry | None:
        """How samples scatter around their class means, learned on first use."""
        return self._geometry if isinstance(self._geometry, Geometry) else None

    @property
    def reason(self) -> str:
        """Why there is no geometry; empty if there is one."""
        return self._geometry if isinstance(self._geometry, str) else ""

    def __len__(self) -> int:
        return len(self.class_names)

    def __repr__(self) -> str:
        return f"Priors({self.kinds}, {self.prototypes.shape[1]:,} features)"

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():  # unpickled arrays are writable
            object.__setattr__(self, name, read_only(value) if isinstance(value, np.ndarray) else value)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Priors":
        return self  # nothing in it can change, and scikit-learn copies parameters often

    @property
    def kinds(self) -> str:
        """The numbers of base classes and of clusters, as text."""
        n_clusters = int(self.clusters.sum())
        numbers = {"base classes": len(self) - n_clusters, "clusters": n_clusters}
        return ", ".join(f"{number:,} {kind}" for kind, number in numbers.items() if number)

    @property
    def mean(self) -> npt.NDArray[np.float64]:
        """The mean of all base features, or of all prototypes if the counts are unknown."""
        return np.average(self.prototypes, axis=0, weights=self.counts)

    @classmethod
    def from_features(cls, base: LabelledFeatures) -> "Priors":
        """Average the features of each class of a set, a pair (X, y) or a mapping from class to rows."""
        base = as_feature_set(base)
        blocks = ((block, base.labels[start : start + len(block)]) for start, block in row_blocks(base.features))
        sums = ClassSums()
        for rows, labels in blocks:
            sums.add_rows(rows, labels)
        present = sorted(sums.counts)
        return cls(class_names=[base.class_names[label] for label in present], **sums.means(present))

    @classmethod
    def from_sums(cls, sums: ClassSums) -> "Priors":
        """Average sums of the rows of each class; the classes stand in the order of their sorted labels."""
        sums, labels = sums.in_order()
        return cls(class_names=names_of(labels, sums.clusters), **sums.means(labels))

    @classmethod
    def from_batches(cls, batches: Iterable[tuple[npt.ArrayLike, npt.ArrayLike]]) -> "Priors":
        """Average features that arrive one batch at a time, in one pass.

        Parameters
        ----------
        batches : iterable of (features, labels)
            Arrays of shape (n, n_features) and (n,). Memory holds one batch and one sum for each class. Where some
            labels are numbers and some are text, all count as text.

        Returns
        -------
        Priors
            Its classes stand in the order of their sorted labels, whatever order the batches come in.

        Examples
        --------
        >>> from p3dc import Priors
        >>> stream = (([[i, 1.0]], ["even" if i % 2 == 0 else "odd"]) for i in range(4))
        >>> Priors.from_batches(stream).prototypes
        array([[1., 1.],
               [2., 1.]])
        """
        return cls.from_sums(ClassSums.of_batches(batches))

    @classmethod
    def from_unlabelled(
        cls,
        features: npt.ArrayLike | FeatureSet | Callable[[], Iterable[Batch]],
        *,
        n_clusters: int | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> "Priors":
        """Average clusters of rows that have no labels.

        Parameters
        ----------
        features : array or tensor of shape (n_rows, n_features), FeatureSet or callable
            Labels of a set are ignored. A callable returns an iterable of arrays of shape (n, n_features), or of tuples
            of such an array and the keys of its rows, the same in each of two passes. Memory holds one batch, one sum
            for each cluster and at most 512 MB of sampled rows. Tensors are clustered on their device.
        n_clusters : int, optional
            By default the root of the number of rows, from 8 to 1,024.
        seed : int, default=0
        progress : callable, optional
            Called in the second pass with the number of rows averaged and of all rows.

        Returns
        -------
        Priors
            Its classes are called "cluster 0001" and so on, and ``clusters`` is true for all of them. ``central``
            names the most central rows of each: by their keys, the ids of a set, or their numbers.

        Examples
        --------
        >>> from p3dc import Priors
        >>> priors = Priors.from_unlabelled([[1.0, 0.1], [9.0, 0.0], [0.0, 4.0], [0.1, 1.0]], n_clusters=2)
        >>> priors
        Priors(2 clusters, 2 features)
        >>> sorted(sorted(row.key for row in rows) for rows in priors.central)
        [['0', '1'], ['2', '3']]
        """
        stream = features if callable(features) else _blocks(features)
        centres, n_rows = learn_centres(stream(), n_clusters, seed)
        return cls.from_sums(sum_clusters(stream(), centres, n_rows, progress))

    @classmethod
    def merge(cls, parts: Iterable["Priors"]) -> "Priors":
        """Combine priors of different rows; a class in several parts gets the mean of all its rows.

        Clusters are numbered anew, since equal names of clusters mean nothing. Where there are labelled classes, the
        geometry is theirs. Parts that do not know how their rows scatter, such as the classes that a backbone was
        trained on, cannot share in a geometry: then it is that of the first part with labelled classes that has one.

        Examples
        --------
        >>> from p3dc import Priors
        >>> one = Priors([[0.0, 3.0]], ["owl"], counts=[1])
        >>> two = Priors([[3.0, 0.0]], ["owl"], counts=[2])
        >>> Priors.merge([one, two]).prototypes
        array([[2., 1.]])
        """
        return cls(**merge_parts(list(parts)))

    def with_central(self, central: Sequence[Sequence[CentralRow]]) -> "Priors":
        """Return the same priors with other central rows."""
        known = {name: getattr(self, name) for name in ("prototypes", "class_names", "counts", "moments", "clusters")}
        return Priors(**known, geometry=self.geometry, reason=self.reason, central=central)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file, which appears complete or not at all."""
        arrays, facts = self.to_arrays()
        if self.moments is not None:
            arrays |= self.moments.to_arrays()
        write_arrays(path, "priors", VERSION, arrays, facts)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Priors":
        """Read what :meth:`save` wrote."""
        arrays, facts = read_arrays(
            path,
            "priors",
            VERSION,
            required=["prototypes"],
            optional=[*OPTIONAL, *SCATTERS],
            facts=["class_names", "geometry"],
            optional_facts=["central"],
        )
        try:
            return cls.from_arrays(arrays, facts)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def to_arrays(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Take priors apart, without what only merging needs: arrays by name, and facts for JSON."""
        arrays: dict[str, npt.NDArray[Any]] = {"prototypes": self.prototypes}
        facts: dict[str, Any] = {"class_names": self.class_names, "geometry": self.reason}
        if self.counts is not None:
            arrays["counts"] = self.counts
        if self.clusters.any():
            arrays["clusters"] = self.clusters
        if any(self.central):
            thumbnails, facts["central"] = pack_central(self.central)
            arrays |= thumbnails
        if self.geometry is not None:
            more, facts["geometry"] = self.geometry.to_arrays()
            arrays |= more
        return arrays, facts

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]], facts: dict[str, Any]) -> "Priors":
        """Put together what :meth:`to_arrays` took apart."""
        means, facts_of_geometry = as_rows(arrays["prototypes"], "prototypes"), facts["geometry"]
        reason = facts_of_geometry if isinstance(facts_of_geometry, str) else ""
        if reason and "axes" in arrays:
            raise InputError(f"its geometry is damaged ({reason:.40}). Build the priors again.")
        try:
            moments = Moments.from_arrays(means, arrays) if arrays.keys() & set(SCATTERS) else None
            geometry = None if reason else Geometry.from_arrays(means, arrays, facts_of_geometry)
            keys = facts.get("central", [[]] * len(means))
            central = unpack_central(arrays, keys, len(means))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"its geometry is damaged ({error}). Build the priors again.") from None
        clusters = arrays.get("clusters")
        return cls(means, facts["class_names"], arrays.get("counts"), moments, geometry, reason, clusters, central)


def _blocks(features: npt.ArrayLike | FeatureSet) -> Callable[[], Iterable[Batch]]:
    """Return a function that yields rows a block at a time, with their ids where they have any."""
    if isinstance(features, FeatureSet):
        rows, ids = features.features, features.ids
    else:
        rows, ids = as_array(features), None
    if ids is None:
        return lambda: (block for _, block in row_blocks(rows))
    return lambda: ((block, ids[start : start + len(block)].tolist()) for start, block in row_blocks(rows))


def as_priors(priors: Priors | npt.ArrayLike | None) -> Priors | None:
    """Return priors as they are, or made from an array of prototypes."""
    return priors if priors is None or isinstance(priors, Priors) else Priors(priors)


def pack_priors(priors: Priors | None) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any] | None]:
    """Take priors apart for the file of a classifier: arrays, and facts or None where there are no priors."""
    if priors is None:
        return {}, None
    arrays, facts = priors.to_arrays()
    return {PREFIX + name: array for name, array in arrays.items()}, facts


def unpack_priors(arrays: dict[str, npt.NDArray[Any]], facts: dict[str, Any] | None) -> Priors | None:
    """Put together what :func:`pack_priors` took apart; other arrays are passed over."""
    known = {name.removeprefix(PREFIX): array for name, array in arrays.items() if name.startswith(PREFIX)}
    if facts is None:
        if known:
            raise ValueError("it has priors without names")
        return None
    return Priors.from_arrays(known, facts)


def geometry_warning(priors: Priors) -> str:
    """Explain why the weights cannot be chosen with these priors, and what happens instead."""
    return (
        f"the priors have no geometry, because {priors.reason}, so samples are only normalised and not calibrated. "
        "Build the priors with Priors.from_features, from several rows of each class."
    )
