"""Logistic regression on normalised features."""

import numpy as np
from sklearn.linear_model import LogisticRegression as Solver

from p3dc._arrays import Array, Labels
from p3dc.baselines.contract import TaskMethod
from p3dc.method import l2_normalize


class LogisticRegression(TaskMethod):
    """Multinomial logistic regression on L2-normalised features.

    Not in the paper's table, but what many would try first.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the losses against the length of the weights.
    """

    differs = "not in the paper; on normalised features"

    def __init__(self, C: float = 1.0) -> None:
        self.C = C

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Solve each task."""
        return solve_logistic(l2_normalize(support), labels, self.C)

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Return the logits."""
        return logits(state, l2_normalize(queries))


def solve_logistic(samples: Array, labels: Labels, C: float) -> tuple[Array, ...]:
    """Fit weights, (T, N, D), and intercepts, (T, N), with scikit-learn's solver."""
    weights, intercepts = [], []
    for task in samples:
        solved = Solver(C=C, max_iter=1000).fit(task, labels)
        weights.append(_both(solved.coef_))
        intercepts.append(_both(solved.intercept_))
    return np.stack(weights).astype(samples.dtype), np.stack(intercepts).astype(samples.dtype)


def logits(state: tuple[Array, ...], queries: Array) -> Array:
    """Apply weights and intercepts."""
    weights, intercepts = state
    return np.asarray(queries @ weights.mT + intercepts[:, None])


def _both(rows: Array) -> Array:
    """Expand the single row of two classes, which is that of the second, to one row each."""
    return np.concatenate([-rows, rows]) / 2 if len(rows) == 1 else rows
