"""Distribution calibration (DC): borrow the mean and the covariance of the nearest base classes."""

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from p3dc._arrays import Array, Labels
from p3dc._validation import check_power
from p3dc.baselines.contract import TaskMethod, class_means, task_generators
from p3dc.baselines.logistic import logits, solve_scaled
from p3dc.features import FeatureSet
from p3dc.method import l2_normalize, tukey
from p3dc.priors.prototypes import Priors


def calibrated_means(transformed: Array, prototypes: Array, n_nearest: int) -> tuple[Array, Array]:
    """Average each transformed sample with the base means nearest to it.

    (..., D), (B, D) -> (..., D) and the numbers of the nearest base classes, (..., n_nearest)
    """
    distances = np.vecdot(prototypes, prototypes) - 2 * transformed @ prototypes.T
    n_nearest = min(n_nearest, len(prototypes))
    nearest = np.argsort(distances, axis=-1, kind="stable")[..., :n_nearest]
    return (prototypes[nearest].sum(axis=-2) + transformed) / (n_nearest + 1), nearest


class DCNearest(TaskMethod):
    """DC + L2N + NN: DC's calibrated means, normalised, with the nearest prototype by cosine.

    Queries are transformed as DC transforms them.

    Parameters
    ----------
    priors : Priors
    n_nearest : int, default=2
        Base classes to borrow from.
    power : float, default=0.5
        Exponent of Tukey's transform.
    """

    differs = "nothing: the paper's variant of DC"

    def __init__(self, priors: Priors, *, n_nearest: int = 2, power: float = 0.5) -> None:
        self.priors = priors
        self.n_nearest = n_nearest
        self.power = power

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Calibrate and average each class."""
        prototypes = self.priors.prototypes.astype(support.dtype)
        means, _ = calibrated_means(_transform(support, self.power), prototypes, self.n_nearest)
        return (class_means(l2_normalize(means), labels),)

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Compute cosines to the means."""
        return np.asarray(l2_normalize(_transform(queries, self.power)) @ l2_normalize(state[0]).mT)


class DC(TaskMethod):
    """Logistic regression on samples and on draws from their calibrated distributions.

    The covariance of a support sample is the average of those of its nearest base classes, with ``spread`` added to
    every entry. A draw from it is the sum of a draw from each base class, scaled, and of one number for all features.
    So the covariance of each base class is factored once; draws are independent, in a task and between tasks. All of
    it happens along the principal axes of the average covariance, where the solver needs few steps; a rotation changes
    neither the distribution nor the optimum.

    Parameters
    ----------
    base : FeatureSet
    n_nearest : int, default=2
        Base classes to borrow from.
    spread : float, default=0.21
        Added to every entry of the covariance.
    n_draws : int, default=750
        Draws for each class, shared among its samples.
    power : float, default=0.5
        Exponent of Tukey's transform.
    random_state : int, default=0
    """

    differs = "nothing; since version 1.4 scikit-learn stops the official code before the optimum, for 0.2 points more"

    def __init__(
        self,
        base: FeatureSet,
        *,
        n_nearest: int = 2,
        spread: float = 0.21,
        n_draws: int = 750,
        power: float = 0.5,
        random_state: int = 0,
    ) -> None:
        self.base = base
        self.n_nearest = n_nearest
        self.spread = spread
        self.n_draws = n_draws
        self.power = power
        self.random_state = random_state

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Draw and solve each task."""
        transformed = _transform(support, self.power).astype(np.float32)
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(os.cpu_count()) as pool:
            self._statistics()  # once, before the threads need them
            generators = task_generators(support, self.random_state)
            states = list(pool.map(self._learn_one, transformed, generators, repeat(labels)))
        weights, intercepts = (np.stack(parts) for parts in zip(*states, strict=True))
        return weights.astype(support.dtype), intercepts.astype(support.dtype)

    def _learn_one(self, samples: Array, rng: np.random.Generator, labels: Labels) -> tuple[Array, ...]:
        known = self._statistics()
        means, nearest = calibrated_means(samples, known.means, self.n_nearest)
        centre = means.mean(axis=0)
        drawn, drawn_labels = [(samples - centre) @ known.axes], [labels]
        for mean, own, label in zip((means - centre) @ known.axes, nearest, labels, strict=True):
            n_draws = self.n_draws // int(np.count_nonzero(labels == label))
            drawn.append(mean + self._draw(rng, own, n_draws))
            drawn_labels.append(np.full(n_draws, label))
        weights, intercepts = solve_scaled(np.concatenate(drawn), np.concatenate(drawn_labels), known.variances)
        weights = weights @ known.axes.T
        return weights, intercepts - weights @ centre

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Return the logits."""
        return logits(state, _transform(queries, self.power))

    def _draw(self, rng: np.random.Generator, own: Labels, n_draws: int) -> Array:
        """Draw around zero from the average covariance of some base classes, along the axes, (n_draws, D)."""
        known = self._statistics()
        factors = [known.factors[c] for c in own]
        each = [_normals(rng, n_draws, len(factor)) @ factor for factor in factors]
        common = _normals(rng, n_draws, 1) * known.axes.sum(axis=0)
        return np.asarray(sum(each) / len(factors) ** 0.5 + self.spread**0.5 * common)

    def _statistics(self) -> "_BaseClasses":
        if not hasattr(self, "_kept"):
            rows = [self.base.features[self.base.labels == c] for c in range(len(self.base.class_names))]
            self._kept = _describe(rows, self.spread)
        return self._kept


class _BaseClasses(NamedTuple):
    """What all tasks share: B base classes with D features."""

    means: Array  # (B, D)
    axes: Array  # (D, D), the principal axes of the average covariance, one in each column
    variances: Array  # (D,), along these axes
    factors: list[Array]  # of each class a factor F of its covariance FᵀF along these axes, at most (D, D)


def _describe(classes: list[Array], spread: float) -> _BaseClasses:
    """Compute means and covariances of base classes, in float32, from their rows."""
    means, factors = [], []
    for rows in classes:
        each = rows.astype(np.float32)
        means.append(each.mean(axis=0))
        factors.append(np.linalg.qr(each - means[-1], mode="r") / max(len(each) - 1, 1) ** 0.5)
    average = sum((factor.T @ factor).astype(np.float64) for factor in factors) / len(factors)
    variances, axes = np.linalg.eigh(average + spread)
    rotation = axes.astype(np.float32)
    return _BaseClasses(np.stack(means), rotation, np.maximum(variances, 0), [f @ rotation for f in factors])


def _normals(rng: np.random.Generator, n_rows: int, n_columns: int) -> Array:
    """Draw standard normal numbers by the Box–Muller transform, in less than half the time of ``rng``'s own."""
    uniform = rng.random((2, n_rows * n_columns // 2 + 1), dtype=np.float32)
    radius = np.sqrt(-2 * np.log(1 - uniform[0]))
    angle = np.float32(2 * np.pi) * uniform[1]
    both = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    return both[: n_rows * n_columns].reshape(n_rows, n_columns)


def _transform(features: Array, power: float) -> Array:
    check_power(features, power, "features")
    return np.asarray(tukey(features, power))
