"""What is known from before: the prototypes of the base classes."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from p3dc.checks import Floats, as_labels, as_names, as_rows, check_directions, read_only, row_blocks
from p3dc.errors import InputError
from p3dc.features import FeatureSet
from p3dc.files import read_arrays, write_arrays

VERSION = 1


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

    def __init__(
        self,
        prototypes: npt.ArrayLike,
        class_names: Sequence[str] | None = None,
        counts: npt.ArrayLike | None = None,
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
        sums = _ClassSums()
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
        sums = _ClassSums()
        for features, labels in batches:
            if np.size(labels) or np.size(features):
                rows = as_rows(features, "features")
                sums.add_rows(rows, as_labels(labels, len(rows)))
        if len({isinstance(label, str) for label in sums.counts}) > 1:
            sums = sums.by_text()
        return sums.priors(sorted(sums.counts))

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
        sums = _ClassSums()
        for part in parts:
            if part.counts is None:
                raise InputError("priors without counts cannot be merged. Build them with Priors.from_features.")
            for name, mean, count in zip(part.class_names, part.prototypes, part.counts.tolist(), strict=True):
                sums.add(name, mean * count, count)
        return sums.priors(list(sums.counts))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file. It appears whole or not at all."""
        arrays: dict[str, npt.NDArray[Any]] = {"prototypes": self.prototypes}
        if self.counts is not None:
            arrays["counts"] = self.counts
        write_arrays(path, "priors", VERSION, arrays, {"class_names": self.class_names})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Priors":
        """Read what :meth:`save` wrote."""
        arrays, facts = read_arrays(
            path, "priors", VERSION, required=["prototypes"], optional=["counts"], facts=["class_names"]
        )
        try:
            return cls(arrays["prototypes"], facts["class_names"], arrays.get("counts"))
        except InputError as error:
            raise InputError(f"{path}: {error}") from None


def as_priors(priors: Priors | npt.ArrayLike | None) -> Priors | None:
    """Return priors as they are, or made from an array of prototypes."""
    return priors if priors is None or isinstance(priors, Priors) else Priors(priors)


class _ClassSums:
    """Running sums in float64 and counts, by label."""

    def __init__(self) -> None:
        self.sums: dict[Any, npt.NDArray[np.float64]] = {}
        self.counts: dict[Any, int] = {}
        self.width: int | None = None

    def add_rows(self, rows: Floats, labels: npt.NDArray[Any]) -> None:
        order = np.argsort(labels, kind="stable")
        present, first, sizes = np.unique(labels[order], return_index=True, return_counts=True)
        totals = np.add.reduceat(rows[order].astype(np.float64), first, axis=0)
        for label, total, size in zip(present.tolist(), totals, sizes.tolist(), strict=True):
            self.add(label, total, size)

    def add(self, label: Any, total: npt.NDArray[np.float64], size: int) -> None:
        if self.width not in (None, len(total)):
            raise InputError(
                f"there are rows of {self.width} features and rows of {len(total)}. "
                "Extract all of them with the same backbone."
            )
        self.width = len(total)
        if label in self.sums:
            self.sums[label] += total
            self.counts[label] += size
        else:
            self.sums[label], self.counts[label] = total.copy(), size

    def by_text(self) -> "_ClassSums":
        texts = _ClassSums()
        for label, total in self.sums.items():
            texts.add(str(label), total, self.counts[label])
        return texts

    def priors(self, labels: Sequence[Any], names: Sequence[str] | None = None) -> Priors:
        if not labels:
            raise InputError("there are no rows to average. Give at least one.")
        means = np.stack([self.sums[label] / self.counts[label] for label in labels])
        return Priors(
            means,
            [str(label) if names is None else names[label] for label in labels],
            [self.counts[label] for label in labels],
        )
