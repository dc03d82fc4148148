"""Calibration error of probabilities, and how well unknowns are separated from known classes."""

import numpy as np
import numpy.typing as npt

from p3dc._arrays import Floats, Mask

N_BINS = 15


class Reliability:
    """Expected calibration error (ECE), collected over any number of queries.

    Queries are put into bins of equal width by the probability of their prediction. The error is the difference
    between that probability and the share that is right, averaged over the queries.

    Examples
    --------
    >>> import numpy as np
    >>> from p3dc.confidence.metrics import Reliability
    >>> reliability = Reliability()
    >>> reliability.add(np.array([0.9, 0.9, 0.9, 0.9]), np.array([True, True, False, True]))
    >>> round(reliability.error, 2)
    0.15
    """

    def __init__(self) -> None:
        self.counts = np.zeros(N_BINS, dtype=np.int64)
        self.right = np.zeros(N_BINS, dtype=np.int64)
        self.confidence = np.zeros(N_BINS)

    def add(self, confidence: Floats, right: Mask) -> None:
        """Add predictions: the probability of each, and whether it is right."""
        bins = np.minimum((confidence * N_BINS).astype(np.int64), N_BINS - 1)
        self.counts += np.bincount(bins, minlength=N_BINS)
        self.right += np.bincount(bins[right], minlength=N_BINS)
        self.confidence += np.bincount(bins, weights=confidence, minlength=N_BINS)

    def join(self, other: "Reliability") -> None:
        """Add what another has collected."""
        self.counts += other.counts
        self.right += other.right
        self.confidence += other.confidence

    @property
    def error(self) -> float:
        """Mean difference between confidence and accuracy, from 0 to 1."""
        return float(np.abs(self.confidence - self.right).sum() / self.counts.sum())


def area_under_roc(known: Floats, unknown: Floats) -> npt.NDArray[np.float64]:
    """Return how often a known query scores above an unknown one, by task, (T, Q), (T, U) -> (T,).

    Examples
    --------
    >>> import numpy as np
    >>> from p3dc.confidence.metrics import area_under_roc
    >>> area_under_roc(np.array([[3.0, 1.0]]), np.array([[2.0, 0.0]]))
    array([0.75])
    """
    above = known[:, :, None] > unknown[:, None]
    level = known[:, :, None] == unknown[:, None]
    return np.asarray(above.mean(axis=(1, 2)) + level.mean(axis=(1, 2)) / 2)
