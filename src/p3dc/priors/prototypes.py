"""Priors: the prototypes of base classes, and the geometry of their samples."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from p3dc._arrays import read_only, row_blocks
from p3dc._validation import as_names, as_rows, check_directions
from p3dc.errors import InputError
from p3dc.features import FeatureSet
from p3dc.io.safetensors import read_arrays, write_arrays
from p3dc.priors.geometry import Geometry, Moments, learn_geometry
from p3dc.priors.sums import ClassSums

VERSION = 2
GEOMETRY = ("lengths", "axes", "gains")
ARRAYS = ("counts", "scatter", *GEOMETRY)
PREFIX = "prior_"
PACKED = tuple(PREFIX + name for name in ("prototypes", "counts", *GEOMETRY))
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
        How many rows each prototype is the mean of. Without them priors cannot be merged.
    moments : Moments, optional
        Second moments of those rows, which :meth:`from_features` collects.
    geometry : Geometry, optional
        Learned from the moments where it is not given.
    reason : str, optional
        Why there is none.

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
        for name, value in state.items():  # unpickled arrays are writable
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
        present = sorted(sums.counts)
        return cls(class_names=[base.class_names[label] for label in present], **sums.means(present))

    @classmethod
    def from_sums(cls, sums: ClassSums) -> "Priors":
        """Average sums of the rows of each class; the classes stand in the order of their sorted labels."""
        sums, labels = sums.in_order()
        return cls(class_names=[str(label) for label in labels], **sums.means(labels))

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
        return cls.from_sums(ClassSums.of_batches(batches))

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
        names = list(sums.counts)
        return cls(class_names=names, **sums.means(names))

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
        """Take priors apart, without what only merging needs: arrays by name, and facts for JSON."""
        arrays: dict[str, npt.NDArray[Any]] = {"prototypes": self.prototypes}
        facts: dict[str, Any] = {"class_names": self.class_names, "geometry": self.reason}
        if self.counts is not None:
            arrays["counts"] = self.counts
        if self.geometry is not None:
            more, facts["geometry"] = self.geometry.to_arrays()
            arrays |= more
        return arrays, facts

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]], facts: dict[str, Any]) -> "Priors":
        """Put together what :meth:`to_arrays` took apart."""
        means, facts_of_geometry = arrays["prototypes"], facts["geometry"]
        reason = facts_of_geometry if isinstance(facts_of_geometry, str) else ""
        if reason and "axes" in arrays:
            raise InputError(f"its geometry is damaged ({reason:.40}). Build the priors again.")
        try:
            moments = Moments.from_arrays(means, arrays) if "scatter" in arrays else None
            geometry = None if reason else Geometry.from_arrays(means, arrays, facts_of_geometry)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"its geometry is damaged ({error}). Build the priors again.") from None
        return cls(means, facts["class_names"], arrays.get("counts"), moments, geometry, reason)


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
