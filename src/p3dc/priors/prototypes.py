"""What is known from before: the prototypes of the base classes, and the geometry of their samples."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from p3dc._arrays import Floats, read_only, row_blocks
from p3dc._validation import as_labels, as_names, as_rows, check_directions
from p3dc.errors import InputError
from p3dc.features import FeatureSet
from p3dc.io.safetensors import read_arrays, write_arrays
from p3dc.priors.geometry import Geometry, Moments, learn_geometry, whitened_means

VERSION = 2
MOST_FEATURES = 8192
"""With more, the products of all features with each other are not kept."""

GEOMETRY = ("lengths", "axes", "gains")
ARRAYS = ("counts", "scatter", *GEOMETRY)
PREFIX = "prior_"
PACKED = tuple(PREFIX + name for name in ("prototypes", "counts", *GEOMETRY))
"""What the arrays of priors are called in the files of others."""


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
        How many rows each prototype is the mean of. Without them priors cannot be merged.
    moments : Moments, optional
        Second moments of those rows, which :meth:`from_features` collects.
    geometry : Geometry, optional
        Learned from the moments where it is not given.
    reason : str, optional
        Why there can be none.

    Attributes
    ----------
    geometry : Geometry or None
        How samples scatter around their class, which ``scale="auto"`` of the classifier needs.
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
    _given: Geometry | str

    def __init__(
        self,
        prototypes: npt.ArrayLike,
        class_names: Sequence[str] | None = None,
        counts: npt.ArrayLike | None = None,
        moments: Moments | None = None,
        geometry: Geometry | None = None,
        reason: str = "they were given as means, without the rows behind them",
    ) -> None:
        means = as_rows(prototypes, "prototypes").astype(np.float64)
        check_directions(means, "prototypes")
        names = as_names(range(len(means)) if class_names is None else class_names, len(means))
        if counts is not None:
            counts = np.array(counts)
            if counts.shape != (len(means),) or counts.dtype.kind not in "iu" or counts.min() < 1:
                raise InputError(f"counts must be {len(means)} whole numbers, 1 or more: one for each prototype.")
            counts = read_only(counts.astype(np.int64))
        object.__setattr__(self, "prototypes", read_only(means))
        object.__setattr__(self, "class_names", names)
        object.__setattr__(self, "counts", counts)
        object.__setattr__(self, "moments", moments)
        object.__setattr__(self, "_given", reason if geometry is None else geometry)

    @cached_property
    def _geometry(self) -> Geometry | str:
        if isinstance(self._given, Geometry) or self.counts is None or self.moments is None:
            return self._given
        return learn_geometry(self.prototypes, self.counts, self.moments)

    @property
    def geometry(self) -> Geometry | None:
        """How samples scatter around their class, learned when it is first asked for."""
        return self._geometry if isinstance(self._geometry, Geometry) else None

    @property
    def reason(self) -> str:
        """Why there is no geometry; empty if there is one."""
        return self._geometry if isinstance(self._geometry, str) else ""

    def __len__(self) -> int:
        return len(self.class_names)

    def __repr__(self) -> str:
        return f"Priors({len(self):,} base classes, {self.prototypes.shape[1]:,} features)"

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():  # an array forgets in a pickle that it cannot be written to
            object.__setattr__(self, name, read_only(value) if isinstance(value, np.ndarray) else value)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Priors":
        return self  # nothing in it can change, and scikit-learn copies parameters often

    @property
    def mean(self) -> npt.NDArray[np.float64]:
        """The mean of all base features; of all prototypes where the counts are unknown."""
        return np.average(self.prototypes, axis=0, weights=self.counts)

    @classmethod
    def from_features(cls, base: FeatureSet) -> "Priors":
        """Average the features of each class that has any."""
        blocks = ((block, base.labels[start : start + len(block)]) for start, block in row_blocks(base.features))
        sums = ClassSums()
        for rows, labels in blocks:
            sums.add_rows(rows, labels)
        return sums.priors(sorted(sums.counts), base.class_names)

    @classmethod
    def from_batches(cls, batches: Iterable[tuple[npt.ArrayLike, npt.ArrayLike]]) -> "Priors":
        """Average features that come a batch at a time, in one pass.

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
        return ClassSums.of_batches(batches).average()

    @classmethod
    def merge(cls, parts: Iterable["Priors"]) -> "Priors":
        """Join priors built from different rows; a class in several parts gets the mean of all its rows.

        Examples
        --------
        >>> from p3dc import Priors
        >>> one = Priors([[0.0, 3.0]], ["owl"], counts=[1])
        >>> two = Priors([[3.0, 0.0]], ["owl"], counts=[2])
        >>> Priors.merge([one, two]).prototypes
        array([[2., 1.]])
        """
        sums = ClassSums()
        for part in parts:
            if part.counts is None:
                raise InputError("priors without counts cannot be merged. Build them with Priors.from_features.")
            lengths = np.full(len(part), np.nan) if part.moments is None else part.counts * part.moments.lengths
            for name, mean, count, length in zip(
                part.class_names, part.prototypes, part.counts.tolist(), lengths.tolist(), strict=True
            ):
                sums.add(name, mean * count, count, length)
            if part.moments is None:
                sums.drop_geometry(part.reason or "some of them were read from a classifier's file")
            elif not sums.reason:
                sums.add_outer(part.moments.scatter * lengths.sum())
        return sums.priors(list(sums.counts))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file. It appears whole or not at all."""
        arrays, facts = self.to_arrays()
        if self.moments is not None:
            arrays |= {"lengths": self.moments.lengths, "scatter": self.moments.scatter.astype(np.float32)}
        write_arrays(path, "priors", VERSION, arrays, facts)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Priors":
        """Read what :meth:`save` wrote."""
        arrays, facts = read_arrays(
            path, "priors", VERSION, required=["prototypes"], optional=ARRAYS, facts=["class_names", "geometry"]
        )
        try:
            return cls.from_arrays(arrays, facts)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def to_arrays(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Take everything apart but what only merging needs: arrays by name, and facts for JSON."""
        arrays: dict[str, npt.NDArray[Any]] = {"prototypes": self.prototypes}
        facts: dict[str, Any] = {"class_names": self.class_names, "geometry": self.reason}
        if self.counts is not None:
            arrays["counts"] = self.counts
        if self.geometry is not None:
            found = self.geometry
            arrays |= {"lengths": found.lengths, "axes": found.axes.astype(np.float32), "gains": found.gains}
            facts["geometry"] = {"rest": found.rest, "tightness": found.tightness, "spread": found.spread}
        return arrays, facts

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]], facts: dict[str, Any]) -> "Priors":
        """Put together what :meth:`to_arrays` took apart."""
        means, counts = arrays["prototypes"], arrays.get("counts")
        moments = geometry = None
        reason = facts["geometry"] if isinstance(facts["geometry"], str) else ""
        if reason and "axes" in arrays:
            raise InputError(f"its geometry is damaged ({reason:.40}). Build the priors again.")
        try:
            if "scatter" in arrays:
                moments = Moments(
                    _of_shape(arrays["lengths"], means.shape[:1]), _of_shape(arrays["scatter"], means.shape[1:] * 2)
                )
            if not reason:
                lengths, gains = _of_shape(arrays["lengths"], means.shape[:1]), arrays["gains"]
                axes = _of_shape(arrays["axes"], gains.shape + means.shape[1:])
                numbers = {name: float(facts["geometry"][name]) for name in ("rest", "tightness", "spread")}
                _check_geometry(lengths, axes, gains, **numbers)
                whitened = whitened_means(means, lengths, axes, gains, numbers["rest"])
                geometry = Geometry(axes, gains, **numbers, lengths=lengths, prototypes=whitened)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"its geometry is damaged ({error}). Build the priors again.") from None
        return cls(means, facts["class_names"], counts, moments, geometry, reason)


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


def without_geometry(priors: Priors) -> str:
    """Say why these priors cannot be used with "auto", and what happens instead."""
    return (
        f"the priors have no geometry, because {priors.reason}, so samples are only normalised and not calibrated. "
        "Build the priors with Priors.from_features, from several rows of each class."
    )


def _of_shape(array: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    if array.shape != shape:
        raise ValueError(f"an array has shape {array.shape} instead of {shape}")
    return array.astype(np.float64)


def _check_geometry(lengths: Floats, axes: Floats, gains: Floats, rest: float, tightness: float, spread: float) -> None:
    positive = (lengths.min(), gains.min(initial=1), rest, spread)
    if not (np.isfinite(axes).all() and np.isfinite(gains).all() and np.isfinite(lengths).all()):
        raise ValueError("it has numbers that are not finite")
    if not (0 < tightness < 1 and all(0 < number < np.inf for number in positive)):
        raise ValueError("it has numbers that no geometry has")


class ClassSums:
    """Running sums in float64, counts and lengths, by label, and the outer products of all rows.

    Sums of parts can be joined, and only their total needs to be averaged.

    Examples
    --------
    >>> from p3dc.priors.prototypes import ClassSums
    >>> sums = ClassSums.of_batches([([[0.0, 3.0]], ["owl"])])
    >>> sums.join(ClassSums.of_batches([([[3.0, 0.0], [3.0, 0.0]], ["owl", "owl"])]))
    >>> sums.average().prototypes
    array([[2., 1.]])
    """

    def __init__(self) -> None:
        self.sums: dict[Any, npt.NDArray[np.float64]] = {}
        self.counts: dict[Any, int] = {}
        self.lengths: dict[Any, float] = {}
        self.width: int | None = None
        self.outer: npt.NDArray[np.float64] | None = None
        self.reason = ""

    @classmethod
    def of_batches(cls, batches: Iterable[tuple[npt.ArrayLike, npt.ArrayLike]]) -> "ClassSums":
        """Sum features that come a batch at a time, with their labels."""
        sums = cls()
        for features, labels in batches:
            if np.size(labels) or np.size(features):
                rows = as_rows(features, "features")
                sums.add_rows(rows, as_labels(labels, len(rows)))
        return sums

    def average(self) -> Priors:
        """Take the mean of each class, in the order of their labels; as text where some of them are and some not."""
        sums = self.by_text() if len({isinstance(label, str) for label in self.counts}) > 1 else self
        return sums.priors(sorted(sums.counts))

    def join(self, other: "ClassSums") -> None:
        """Add the sums of other rows."""
        for label, total in other.sums.items():
            self.add(label, total, other.counts[label], other.lengths[label])
        if other.reason:
            self.drop_geometry(other.reason)
        elif other.outer is not None:
            self.add_outer(other.outer)

    def add_rows(self, rows: Floats, labels: npt.NDArray[Any]) -> None:
        """Add rows with their labels."""
        order = np.argsort(labels, kind="stable")
        present, first, sizes = np.unique(labels[order], return_index=True, return_counts=True)
        exact = rows[order].astype(np.float64)
        totals = np.add.reduceat(exact, first, axis=0)
        with np.errstate(over="ignore", under="ignore"):
            lengths = np.sqrt(np.vecdot(exact, exact))
        long = np.add.reduceat(lengths, first)
        for label, total, size, length in zip(present.tolist(), totals, sizes.tolist(), long.tolist(), strict=True):
            self.add(label, total, size, length)
        if rows.shape[1] > MOST_FEATURES:
            self.drop_geometry(f"{rows.shape[1]:,} features are too many for it, more than {MOST_FEATURES:,}")
        elif lengths.max() > 1e100 or lengths[exact.any(axis=1)].min(initial=1) < 1e-100:
            self.drop_geometry("their features are too long or too short for it")
        elif not self.reason and lengths.any():
            longest = lengths.max()
            weighted: Floats = exact / np.sqrt(np.where(lengths > 0, lengths, 1) * longest)[:, None]
            if rows.dtype != np.float64:
                weighted = weighted.astype(np.float32)
            self.add_outer(longest * (weighted.T @ weighted).astype(np.float64))

    def add(self, label: Any, total: npt.NDArray[np.float64], size: int, length: float) -> None:
        """Add the sum of some rows of a class: how many they are, and their lengths together."""
        if self.width not in (None, len(total)):
            raise InputError(
                f"there are rows of {self.width} features and rows of {len(total)}. "
                "Extract all of them with the same backbone."
            )
        self.width = len(total)
        if label in self.sums:
            self.sums[label] += total
            self.counts[label] += size
            self.lengths[label] += length
        else:
            self.sums[label], self.counts[label], self.lengths[label] = total.copy(), size, length

    def add_outer(self, products: Floats) -> None:
        """Add the outer products of some rows."""
        if self.outer is None:
            self.outer = np.zeros(products.shape)
        self.outer += products

    def drop_geometry(self, reason: str) -> None:
        """Collect no outer products, for a reason."""
        self.reason = self.reason or reason

    def by_text(self) -> "ClassSums":
        """Join classes whose labels read the same."""
        texts = ClassSums()
        for label, total in self.sums.items():
            texts.add(str(label), total, self.counts[label], self.lengths[label])
        texts.outer, texts.reason = self.outer, self.reason
        return texts

    def priors(self, labels: Sequence[Any], names: Sequence[str] | None = None) -> Priors:
        """Take the mean of each class, in a given order."""
        if not labels:
            raise InputError("there are no rows to average. Give at least one.")
        means = np.stack([self.sums[label] / self.counts[label] for label in labels])
        counts = np.array([self.counts[label] for label in labels])
        lengths = np.array([self.lengths[label] for label in labels])
        called = [str(label) if names is None else names[label] for label in labels]
        if self.reason or self.outer is None or not (lengths > 0).all():
            return Priors(means, called, counts, reason=self.reason or "some classes have rows of zeros alone")
        return Priors(means, called, counts, Moments(lengths / counts, self.outer / lengths.sum()))
