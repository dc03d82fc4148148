"""Sums of the features of each class, from a stream or from parts that are joined."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from p3dc._arrays import Array, Floats, as_numpy, is_tensor, to_device_of
from p3dc._validation import as_labels, as_rows
from p3dc.errors import InputError
from p3dc.method import vector_norm
from p3dc.priors.central import N_CENTRAL, CentralRow
from p3dc.priors.geometry import Moments

MOST_FEATURES = 8192
"""With more features, their products with each other are not kept."""


class ClassSums:
    """Running sums in float64, counts and lengths by label, and the outer products of all rows.

    Sums of parts can be joined, and only their total needs to be averaged.

    Examples
    --------
    >>> from p3dc import Priors
    >>> from p3dc.priors.sums import ClassSums
    >>> sums = ClassSums.of_batches([([[0.0, 3.0]], ["owl"])])
    >>> sums.join(ClassSums.of_batches([([[3.0, 0.0], [3.0, 0.0]], ["owl", "owl"])]))
    >>> Priors.from_sums(sums).prototypes
    array([[2., 1.]])
    """

    def __init__(self) -> None:
        self.sums: dict[Any, npt.NDArray[np.float64]] = {}
        self.counts: dict[Any, int] = {}
        self.lengths: dict[Any, float] = {}
        self.width: int | None = None
        self.clusters: set[Any] = set()
        self.central: dict[Any, list[tuple[float, str]]] = {}  # cosine and key, the most central first
        self.outer: dict[bool, npt.NDArray[np.float64]] = {}  # of labelled classes and of clusters
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

    def in_order(self) -> tuple["ClassSums", list[Any]]:
        """Return the sums with their sorted labels; as text where some labels are text and some are not."""
        sums = self.by_text() if len({isinstance(label, str) for label in self.counts}) > 1 else self
        return sums, sorted(sums.counts)

    def join(self, other: "ClassSums") -> None:
        """Add the sums of other rows."""
        for label, total in other.sums.items():
            self.add(label, total, other.counts[label], other.lengths[label])
        self.clusters |= other.clusters
        for label, rows in other.central.items():
            self.add_central(label, rows)
        if other.reason:
            self.drop_geometry(other.reason)
        for clusters, products in other.outer.items():
            self.add_outer(products, clusters)

    def add_rows(self, rows: Array, labels: npt.NDArray[Any], *, clusters: bool = False) -> None:
        """Add rows with their labels, or with the numbers of their clusters."""
        xp = array_namespace(rows)
        present, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        exact = xp.astype(rows, xp.float64)
        with np.errstate(over="ignore"):
            totals = as_numpy(sum_by_code(exact, to_device_of(codes, rows), len(present)))
            norms = vector_norm(exact)
        lengths = as_numpy(norms)
        if not (np.isfinite(totals).all() and np.isfinite(lengths.sum())):
            raise InputError("the features are too large to be averaged. Divide all of them by the same number.")
        long = np.bincount(codes, weights=lengths)
        for label, total, size, length in zip(present.tolist(), totals, sizes.tolist(), long.tolist(), strict=True):
            self.add(label, total, size, length)
        if clusters:
            self.clusters.update(present.tolist())
        if rows.shape[1] > MOST_FEATURES:
            self.drop_geometry(f"{rows.shape[1]:,} features are too many for it, more than {MOST_FEATURES:,}")
        elif not self.reason and lengths.any():
            longest = float(lengths.max())
            directions = exact / xp.where(norms > 0, norms, xp.ones_like(norms))[:, None]
            weighted = directions * xp.sqrt(norms / longest)[:, None]
            if rows.dtype != xp.float64:
                weighted = xp.astype(weighted, xp.float32)
            self.add_outer(longest * as_numpy(weighted.T @ weighted).astype(np.float64), clusters)

    def add(self, label: Any, total: npt.NDArray[np.float64], size: int, length: float) -> None:
        """Add the sum of some rows of a class, their number and the sum of their lengths."""
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

    def add_central(self, label: Any, rows: Iterable[tuple[float, str]]) -> None:
        """Remember rows of a cluster, by cosine to its centre and key, if they are among its most central."""
        self.central[label] = sorted([*self.central.get(label, ()), *rows], key=lambda row: -row[0])[:N_CENTRAL]

    def add_outer(self, products: Floats, clusters: bool) -> None:
        """Add the outer products of some rows, of labelled classes or of clusters."""
        if clusters not in self.outer:
            self.outer[clusters] = np.zeros(products.shape)
        self.outer[clusters] += products

    def drop_geometry(self, reason: str) -> None:
        """Collect no outer products, and remember the reason."""
        self.reason = self.reason or reason

    def by_text(self) -> "ClassSums":
        """Merge classes whose labels are the same as text."""
        texts = ClassSums()
        for label, total in self.sums.items():
            texts.add(str(label), total, self.counts[label], self.lengths[label])
        texts.outer, texts.reason = self.outer, self.reason
        return texts

    def means(self, labels: Sequence[Any]) -> dict[str, Any]:
        """Average each class, in a given order: what :class:`Priors` is made of."""
        if not labels:
            raise InputError("there are no rows to average. Give at least one.")
        clusters = np.array([label in self.clusters for label in labels])
        found: dict[str, Any] = {
            "clusters": clusters,
            "central": [[CentralRow(key) for _, key in self.central.get(label, ())] for label in labels],
            "prototypes": np.stack([self.sums[label] / self.counts[label] for label in labels]),
            "counts": np.array([self.counts[label] for label in labels]),
        }
        lengths = np.array([self.lengths[label] for label in labels])
        if self.reason or not self.outer or not (lengths > 0).all():
            return found | {"reason": self.reason or "some classes have rows of zeros alone"}
        scatters = [
            self.outer[kind] / lengths[clusters == kind].sum() if kind in self.outer else None for kind in (False, True)
        ]
        return found | {"moments": Moments(lengths / found["counts"], *scatters)}


def sum_by_code(rows: Array, codes: Array, n_codes: int) -> Array:
    """Sum the rows that have each code from 0 on, (n, D) and (n,) -> (n_codes, D).

    Examples
    --------
    >>> import numpy as np
    >>> sum_by_code(np.eye(3), np.array([2, 0, 2]), 4)
    array([[0., 1., 0.],
           [0., 0., 0.],
           [1., 0., 1.],
           [0., 0., 0.]])
    """
    if is_tensor(rows):
        return rows.new_zeros((n_codes, rows.shape[1])).index_add_(0, codes, rows)
    order = np.argsort(codes, kind="stable")
    present, first = np.unique(codes[order], return_index=True)
    totals = np.zeros((n_codes, rows.shape[1]), dtype=rows.dtype)
    totals[present] = np.add.reduceat(rows[order], first, axis=0)
    return totals
