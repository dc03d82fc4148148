"""Many tasks at once in the space of :mod:`p3dc.auto`, in float64 throughout.

Features are whitened once. The centre differs from task to task, so products with centred priors are taken apart: no
array has a task axis and the axis of all priors and of all features at once.

Shape letters are those of :mod:`p3dc.engine`.
"""

import numpy as np
import numpy.typing as npt

from p3dc import auto, method
from p3dc.checks import check_directions, check_same_width, check_settings, row_blocks
from p3dc.engine import FLOAT64, TOO_CLOSE, Floats, TaskScorer
from p3dc.geometry import Geometry
from p3dc.tasks import Rows, Tasks


class PreparedScorer(TaskScorer):
    """Scores tasks on prepared features.

    Parameters
    ----------
    features : array of shape (n_rows, D)
    geometry : Geometry, optional
        Without one, features are normalised and nothing is calibrated.
    alpha, beta : arrays of shape (G,), optional
        Without them each task gets its own β, and α is 0.
    n_nearest, attention
        As in :mod:`p3dc.method`.
    """

    def __init__(
        self,
        features: Floats,
        geometry: Geometry | None,
        alpha: npt.ArrayLike | None = None,
        beta: npt.ArrayLike | None = None,
        *,
        n_nearest: int = 5,
        attention: method.Attention = "raw",
    ) -> None:
        check_settings(n_nearest=n_nearest, power=1, scale="auto", attention=attention)
        check_directions(features, "features")
        if geometry is not None:
            check_same_width(features, "the features", geometry.prototypes, "the priors")
            self.priors = geometry.prototypes
            self.squares = np.vecdot(self.priors, self.priors)
        self.features, self.geometry = features, geometry
        self.chooses = alpha is None or beta is None
        self.alpha = np.zeros(1) if alpha is None else np.asarray(alpha, dtype=np.float64)
        self.beta = np.zeros(1) if beta is None else np.asarray(beta, dtype=np.float64)
        self.mix: Floats = np.stack([1 - self.alpha - self.beta, self.alpha, self.beta])
        self.n_nearest, self.attention = n_nearest, attention
        self.dtype, self.too_close = FLOAT64, TOO_CLOSE[FLOAT64]
        self.rows: Floats = np.empty(features.shape)
        for start, block in row_blocks(features):
            directions = method.l2_normalize(block.astype(np.float64))
            self.rows[start : start + len(block)] = directions if geometry is None else geometry.whiten(directions)

    def _place(self, tasks: Tasks) -> tuple[Floats, Floats, Floats]:
        n_tasks, n_way, n_shot = tasks.support.shape
        support = self.rows[tasks.support.reshape(n_tasks, -1)]
        queries = self.rows[tasks.queries.reshape(n_tasks, -1)]
        alone = np.ones((1, len(self.alpha)))
        if self.geometry is None:
            return support[:, :, None], alone, queries
        averages = auto.class_averages(np.repeat(np.eye(n_way, dtype=bool), n_shot, axis=0))
        centre = auto.task_centre(averages @ support, self.geometry.mean)
        prepared, queries = auto.prepare(support, centre), auto.prepare(queries, centre)
        sample_ends, task_ends = self._ends(prepared, centre)
        if self.chooses:
            agreed = auto.agreement(prepared, task_ends, averages)
            beta = auto.pull_weight(agreed, prepared, task_ends, n_shot, self.geometry.tightness)
            return method.mix(prepared, sample_ends, task_ends, 0.0, beta)[:, :, None], alone, queries
        ends = method.l2_normalize(sample_ends), method.l2_normalize(task_ends)
        return np.stack([prepared, *ends], axis=2), self.mix, queries

    def _ends(self, prepared: Floats, centre: Floats) -> tuple[Floats, Floats]:
        """Find both endpoints of each sample, (T, S, D), without centring all priors for each task."""
        priors = self.priors
        squares = self.squares - 2 * (centre @ priors.T) + np.vecdot(centre, centre)[..., None]
        lengths = np.sqrt(np.maximum(squares, np.finfo(np.float64).tiny))
        similarities = (prepared @ priors.T - np.vecdot(prepared, centre)[..., None]) / lengths
        nearest = method.nearest_priors(similarities, self.n_nearest)
        used = np.flatnonzero(nearest.any(axis=(0, 1)))
        similarities, nearest, lengths = similarities[..., used], nearest[..., used], lengths[..., used]
        ends = []
        for chosen in (nearest, method.task_priors(nearest)):
            weights = method.prior_weights(similarities, chosen, auto.SHARPNESS) / lengths
            ends.append(prepared + weights @ priors[used] - weights.sum(axis=-1, keepdims=True) * centre)
        return ends[0], ends[1]

    def _predict_exactly(self, tasks: Tasks, own: int, task: Rows, query: Rows, point: Rows) -> Rows:
        """Predict single queries whose classes are level: the first of them, as a classifier does."""
        at = own * tasks.queries.shape[2] + query
        best = np.empty(len(task), dtype=np.int64)
        for t in np.unique(task):
            here = task == t
            best[here] = self.scores(tasks[t : t + 1])[0, point[here], at[here]].argmax(axis=-1)
        return best
