"""The convex heads of MetaOptNet (DCO in the paper's table)."""

import numpy as np
from sklearn.svm import LinearSVC

from p3dc._arrays import Array, Labels
from p3dc.adaptive.space import members
from p3dc.baselines.contract import TaskMethod


class MetaOptNetSVM(TaskMethod):
    """Multi-class linear support vector machine of Crammer and Singer, without intercept.

    The published network learns its features through the solver; here they are fixed and the solver is scikit-learn's.

    Parameters
    ----------
    C : float, default=0.1
        Weight of the losses against the length of the weights.
    """

    differs = "the convex head; the features are not trained through it"

    def __init__(self, C: float = 0.1) -> None:
        self.C = C

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Solve each task."""
        weights = [self._solve(task, labels) for task in support]
        return (np.stack(weights).astype(support.dtype),)

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Compute inner products with the weights."""
        return np.asarray(queries @ state[0].mT)

    def _solve(self, samples: Array, labels: Labels) -> Array:
        solver = LinearSVC(
            C=self.C, multi_class="crammer_singer", fit_intercept=False, max_iter=100_000, random_state=0
        )
        weights: Array = solver.fit(samples, labels).coef_
        return np.concatenate([-weights, weights]) if len(weights) == 1 else weights


class MetaOptNetRidge(TaskMethod):
    """Ridge regression onto one-hot labels, solved in the space of the samples.

    The published network learns its features through the solver; here they are fixed.

    Parameters
    ----------
    ridge : float, default=50.0
        Weight of the length of the weights.
    """

    differs = "the convex head; the features are not trained through it"

    def __init__(self, ridge: float = 50.0) -> None:
        self.ridge = ridge

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Solve all tasks."""
        targets = members(labels).astype(support.dtype)
        gram = support @ support.mT + self.ridge * np.eye(len(labels), dtype=support.dtype)
        return (np.linalg.solve(gram, targets).mT @ support,)

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Compute inner products with the weights."""
        return np.asarray(queries @ state[0].mT)
