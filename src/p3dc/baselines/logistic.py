"""Logistic regression on normalised features."""

import numpy as np
from sklearn.linear_model import LogisticRegression as Solver

from p3dc._arrays import Array, Labels
from p3dc.baselines.contract import TaskMethod, centred
from p3dc.errors import InputError
from p3dc.method import l2_normalize
from p3dc.priors.prototypes import Priors


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


def logits(state: tuple[Array, ...], queries: Array) -> Array:
    """Apply weights and intercepts."""
    weights, intercepts = state
    return np.asarray(queries @ weights.mT + intercepts[:, None])


def _both(rows: Array) -> Array:
    """Expand the single row of two classes, which is that of the second, to one row each."""
    return np.concatenate([-rows, rows]) / 2 if len(rows) == 1 else rows
