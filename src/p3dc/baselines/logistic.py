"""Logistic regression on normalised features."""

import numpy as np
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression as Solver

from p3dc._arrays import Array, Labels
from p3dc.adaptive.space import members
from p3dc.baselines.contract import TaskMethod, centred
from p3dc.errors import InputError
from p3dc.method import l2_normalize
from p3dc.priors.prototypes import Priors

CURVATURE = 0.005
"""Average variance of the softmax at the optimum of DC's draws, roughly, which are all but separable."""

TOLERANCE = 1e-3
"""Largest slope, for each scaled parameter, where the solver stops."""


class LogisticRegression(TaskMethod):
    """Multinomial logistic regression on L2-normalised features.

    Not in the paper's table, but what many would try first. Where there are validation classes, ``C`` and ``centred``
    are best chosen on them, as :mod:`p3dc.baselines.registry` does.

    Parameters
    ----------
    priors : Priors, optional
        Only their mean is used, and only if ``centred``.
    C : float, default=1.0
        Weight of the losses against the length of the weights.
    centred : bool, default=False
        Whether the mean of all base features is subtracted before features are normalised.

    Examples
    --------
    >>> from p3dc.baselines import LogisticRegression
    >>> LogisticRegression(C=10).fit([[1.0, 0.0], [0.0, 1.0]], ["wren", "robin"]).predict([[1.0, 3.0]])
    array(['robin'], dtype='<U5')
    """

    differs = "not in the paper; on normalised features, with C and centring chosen on the validation classes"

    def __init__(self, priors: Priors | None = None, *, C: float = 1.0, centred: bool = False) -> None:
        self.priors = priors
        self.C = C
        self.centred = centred

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Solve each task in the span of its samples, where the weights of the optimum are."""
        samples = self._transform(support)
        basis = np.linalg.qr(samples.mT).Q
        weights, intercepts = solve_logistic(samples @ basis, labels, self.C)
        return np.asarray(weights @ basis.mT), intercepts

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Return the logits."""
        return logits(state, self._transform(queries))

    def _transform(self, features: Array) -> Array:
        if self.centred:
            if self.priors is None:
                raise InputError("centred is True, but there are no priors whose mean to subtract. Give priors.")
            features = centred(features, self.priors)
        return np.asarray(l2_normalize(features))


def solve_logistic(samples: Array, labels: Labels, C: float) -> tuple[Array, ...]:
    """Fit weights, (T, N, D), and intercepts, (T, N), with scikit-learn's solver."""
    weights, intercepts = [], []
    for task in samples:
        solved = Solver(C=C, max_iter=1000).fit(task, labels)
        weights.append(_both(solved.coef_))
        intercepts.append(_both(solved.intercept_))
    return np.stack(weights).astype(samples.dtype), np.stack(intercepts).astype(samples.dtype)


def solve_scaled(samples: Array, labels: Labels, variances: Array) -> tuple[Array, ...]:
    """Fit weights, (N, D), and intercepts, (N,), to many float32 samples of one task, with C = 1.

    ``variances`` are roughly those of the features, which should be uncorrelated. Each feature takes steps according to
    its curvature, which is that of the loss, ``variances`` times a factor, and that of the penalty. This changes the
    way to the optimum and not the optimum, which is that of scikit-learn.
    """
    n_samples, n_features = samples.shape
    targets = members(labels).T.astype(samples.dtype)  # (N, n_samples)
    shape = len(targets), n_features + 1
    penalty = 2 if len(targets) == 2 else 1  # of two classes scikit-learn penalises the difference, twice each of these
    lengths = np.sqrt(np.append(CURVATURE * variances + 1 / n_samples, CURVATURE))

    def loss_and_slopes(scaled: Array) -> tuple[float, Array]:
        parameters = scaled.reshape(shape) / lengths
        weights, intercepts = parameters[:, :-1].astype(samples.dtype), parameters[:, -1:].astype(samples.dtype)
        scores = np.add((samples @ weights.T).T, intercepts, order="C")
        scores -= scores.max(axis=0)
        exponentials = np.exp(scores)
        totals = exponentials.sum(axis=0)
        loss = np.log(totals).sum(dtype=np.float64) - np.vdot(targets, scores) + penalty * np.vdot(weights, weights) / 2
        errors = exponentials / totals - targets
        slopes = np.concatenate([errors @ samples + penalty * weights, errors.sum(axis=1, keepdims=True)], axis=1)
        return float(loss / n_samples), (slopes / n_samples / lengths).ravel()

    options = {"gtol": TOLERANCE, "ftol": 0.0, "maxiter": 1000}
    found = minimize(loss_and_slopes, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options=options)
    solved = found.x.reshape(shape) / lengths
    return solved[:, :-1].astype(samples.dtype), solved[:, -1].astype(samples.dtype)


def logits(state: tuple[Array, ...], queries: Array) -> Array:
    """Apply weights and intercepts."""
    weights, intercepts = state
    return np.asarray(queries @ weights.mT + intercepts[:, None])


def _both(rows: Array) -> Array:
    """Expand the single row of two classes, which is that of the second, to one row each."""
    return np.concatenate([-rows, rows]) / 2 if len(rows) == 1 else rows
