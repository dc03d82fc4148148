"""Class proportions among unlabelled rows (label shift), and what to add to logits for them.

A class that gets many rows either has many, or all its logits are too large. Let ℓ be the logarithm of its share and b
the error that its logits have in common. A part κ of the rows of a class is ambiguous, Σ p (1 − p) / Σ p, and follows
the logits. So the logarithm of its count, less the mean of all classes, is

    L = (1 − κ) ℓ + κ b + noise.

Unlabelled rows are labelled best with ℓ − b added to their logits, and other queries with −b. The variance of b is
fixed; that of ℓ is not known, and several are considered: classes that are exactly equal, and rows drawn at random from
classes whose log shares have one of ``SPREADS`` as their variance.

Shape letters: P unlabelled rows, N classes, H hypotheses about the variance of ℓ.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from p3dc._arrays import Array
from p3dc.method import masked_softmax

Offsets = Callable[[Array], Array]
"""What is added to the logits of the classes, given the logits of all rows, (P, N) -> (N,)."""

ERROR, MANY = 0.5, 10
"""Variance of b, in squared nats, and the number of classes above which it grows in proportion to them."""

SPREADS = np.array([0.0, 0.1, 1.0, 10.0])
"""Variances of ℓ that are considered."""

EQUAL, *_, UNEQUAL = np.eye(1 + len(SPREADS))
"""Certainty that classes are exactly equal, and that they are as unequal as can be, (H,) each."""

BALANCING = 10
"""Rounds of Sinkhorn's rule."""


@dataclass(frozen=True, eq=False)
class Counts:
    """How many rows each class gets without offsets.

    Attributes
    ----------
    rows : array of shape (N,)
        The counts.
    logs : array of shape (N,)
        Logarithms of the counts, less their mean. One row is added to each count.
    ambiguous : array of shape (N,)
        The part κ of the rows of each class that is ambiguous.
    error : float
        Variance of b.
    spreads : array of shape (H,)
        Variance of ℓ by each hypothesis.
    variances : array of shape (N, H)
        Variance of the logarithms by each hypothesis.
    """

    rows: Array
    logs: Array
    ambiguous: Array
    error: float
    spreads: Array
    variances: Array

    def log_likelihoods(self) -> Array:
        """Return the log likelihood of each hypothesis about the variance of ℓ, up to a constant, (H,)."""
        return -0.5 * (np.log(self.variances) + self.logs[:, None] ** 2 / self.variances).sum(axis=0)

    def posterior(self) -> Array:
        """Return the posterior probability of each hypothesis about the variance of ℓ, (H,).

        Exactly equal classes are left out: counts alone hardly tell them from others, and
        :mod:`p3dc.unlabelled.balance` does.
        """
        return masked_softmax(self.log_likelihoods(), EQUAL == 0)

    def log_shares(self, posterior: Array) -> Array:
        """Return the expected ℓ of each class, (N,)."""
        return (1 - self.ambiguous) * ((self.spreads / self.variances) @ posterior) * self.logs

    def errors(self, posterior: Array) -> Array:
        """Return the expected b of each class, (N,)."""
        return self.ambiguous * self.error * ((1 / self.variances) @ posterior) * self.logs

    def uncertainty(self, posterior: Array) -> float:
        """Return the variance of ℓ − b that the counts leave open, averaged over rows."""
        covariances = (1 - self.ambiguous[:, None]) * self.spreads - self.ambiguous[:, None] * self.error
        means = covariances / self.variances * self.logs[:, None]
        remaining = self.spreads + self.error - covariances**2 / self.variances
        variances = (remaining + means**2) @ posterior - (means @ posterior) ** 2
        return float(np.average(variances, weights=self.rows))


def count_rows(logits: Array) -> Counts:
    """Count the rows of each class, (P, N)."""
    probable = masked_softmax(logits, None)
    counts, uncertain = probable.sum(axis=0), (probable * (1 - probable)).sum(axis=0)
    logs, ambiguous, mean = np.log(counts + 1), uncertain / np.maximum(counts, 1e-12), counts.mean()
    spreads = np.concatenate([[0.0], mean / (mean + 1) ** 2 + SPREADS])
    noise = (uncertain + 1) / (counts + 1) ** 2  # ambiguous rows fall by chance, and any count may be a row off
    error = ERROR * max(1.0, len(counts) / MANY)
    variances = (1 - ambiguous[:, None]) ** 2 * spreads + (ambiguous**2 * error + noise)[:, None]
    return Counts(counts, logs - logs.mean(), ambiguous, error, spreads, variances)


def offsets_by(posterior: Array) -> Offsets:
    """Make the offsets for unlabelled rows, given the posterior probability of each hypothesis, (H,)."""

    def offsets(logits: Array) -> Array:
        counts = count_rows(logits)
        return counts.log_shares(posterior) - counts.errors(posterior)

    return offsets


def balancing_offsets(logits: Array) -> Array:
    """Return the offsets with which each class gets equally many rows, by Sinkhorn's rule, (P, N) -> (N,)."""
    n_rows, n_way = logits.shape
    offsets: Array = np.zeros(n_way)
    for _ in range(BALANCING):
        counts = masked_softmax(logits + offsets, None).sum(axis=0)
        offsets = offsets - np.log(np.maximum(counts, 1e-12) * n_way / n_rows)
    return offsets
