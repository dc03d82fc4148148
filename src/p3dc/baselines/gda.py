"""Gaussian discriminant analysis with the covariance of the base classes."""

import numpy as np

from p3dc._arrays import Array, Labels
from p3dc.baselines.contract import TaskMethod, class_means
from p3dc.baselines.logistic import logits
from p3dc.features import FeatureSet
from p3dc.method import l2_normalize


class GDA(TaskMethod):
    """Class means with one covariance, that of base features around their class means, shrunk towards a sphere.

    Not in the paper's table. Features are L2-normalised first.

    Parameters
    ----------
    base : FeatureSet
    shrinkage : float, default=0.9
        From 0, the covariance as it is, to 1, a sphere of the same trace.
    """

    differs = "not in the paper; the covariance of the base classes, shrunk, on normalised features"

    def __init__(self, base: FeatureSet, *, shrinkage: float = 0.9) -> None:
        self.base = base
        self.shrinkage = shrinkage

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Turn each class mean into weights and an intercept."""
        means = class_means(l2_normalize(support), labels).astype(np.float64)
        weights = np.linalg.solve(self._covariance(), means.reshape(-1, means.shape[-1]).T).T.reshape(means.shape)
        return weights.astype(support.dtype), (-0.5 * np.vecdot(means, weights)).astype(support.dtype)

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Return log-likelihoods, up to a constant of each query."""
        return logits(state, l2_normalize(queries))

    def _covariance(self) -> Array:
        if not hasattr(self, "_within"):
            rows = l2_normalize(self.base.features.astype(np.float64))
            for c in range(len(self.base.class_names)):
                rows[self.base.labels == c] -= rows[self.base.labels == c].mean(axis=0)
            self._within = rows.T @ rows / len(rows)
        sphere = np.trace(self._within) / len(self._within) * np.eye(len(self._within))
        return np.asarray((1 - self.shrinkage) * self._within + self.shrinkage * sphere)
