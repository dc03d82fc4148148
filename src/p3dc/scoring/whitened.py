"""Many tasks at once in the space of :mod:`p3dc.adaptive.rule`, in float64 throughout.

Features are whitened once, where they fit. The centre differs from task to task, so products with centred priors are
taken apart: no array has a task axis and the axes of priors and of features at once.

Shape letters are those of :mod:`p3dc.scoring.numpy_scorer`.
"""

import numpy as np
import numpy.typing as npt

from p3dc import method
from p3dc._arrays import Rows, row_blocks
from p3dc._validation import check_directions, check_same_width, check_settings
from p3dc.adaptive import rule as auto
from p3dc.priors.geometry import Geometry
from p3dc.scoring.nearest_priors import nearest_in_blocks, priors_in_use, products
from p3dc.scoring.numpy_scorer import FLOAT64, TOO_CLOSE, Floats, TaskScorer
from p3dc.tasks import Tasks

WHITENED_BYTES = 2**30  # rows that are whitened once; of more, those of each chunk


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
            self.reading = self.priors.nbytes
        self.features, self.geometry = features, geometry
        self.chooses = alpha is None or beta is None
        self.alpha = np.zeros(1) if alpha is None else np.asarray(alpha, dtype=np.float64)
        self.beta = np.zeros(1) if beta is None else np.asarray(beta, dtype=np.float64)
        self.mix: Floats = np.stack([1 - self.alpha - self.beta, self.alpha, self.beta])
        self.n_nearest, self.attention = n_nearest, attention
        self.dtype, self.too_close = FLOAT64, TOO_CLOSE[FLOAT64]
        self.whitened: Floats | None = None
        if 8 * features.size <= WHITENED_BYTES:
            self.whitened = np.empty(features.shape)
            for start, block in row_blocks(features):
                self.whitened[start : start + len(block)] = self.whiten(block)

    def whiten(self, features: Floats) -> Floats:
        """Whiten the directions of features, or only normalise them where nothing is known of base classes."""
        directions = method.l2_normalize(features.astype(np.float64))
        return directions if self.geometry is None else self.geometry.whiten(directions)

    def _take(self, rows: Rows) -> Floats:
        return self.whiten(self.features[rows]) if self.whitened is None else self.whitened[rows]

    def _place(self, tasks: Tasks) -> tuple[Floats, Floats, Floats]:
        n_tasks, n_way, n_shot = tasks.support.shape
        support = self._take(tasks.support.reshape(n_tasks, -1))
        queries = self._take(tasks.queries.reshape(n_tasks, -1))
        alone = np.ones((1, len(self.alpha)))
        if self.geometry is None:
            return support[:, :, None], alone, queries
        averages = auto.class_averages(np.repeat(np.eye(n_way, dtype=bool), n_shot, axis=0))
        centre = auto.task_centre(averages @ support, self.geometry.mean)
        prepared, queries = auto.prepare(support, centre), auto.prepare(queries, centre)
        sample_ends, task_ends = self._centred_ends(prepared, centre)
        if self.chooses:
            agreed = auto.agreement(prepared, task_ends, averages)
            beta = auto.pull_weight(agreed, prepared, task_ends, n_shot, self.geometry.tightness)
            return method.mix(prepared, sample_ends, task_ends, 0.0, beta)[:, :, None], alone, queries
        ends = method.l2_normalize(sample_ends), method.l2_normalize(task_ends)
        return np.stack([prepared, *ends], axis=2), self.mix, queries

    def _centred_ends(self, prepared: Floats, centre: Floats) -> tuple[Floats, Floats]:
        """Find both endpoints of each sample, (T, S, D), without centring all priors for each task."""
        ends = np.empty_like(prepared), np.empty_like(prepared)
        n_samples, n_base = prepared.shape[0] * prepared.shape[1], len(self.priors)
        nearest = nearest_in_blocks(
            lambda block: self._compare(prepared, centre, block)[0], n_samples, n_base, self.n_nearest
        )
        for part, used, near, shared in priors_in_use(nearest, n_base):
            some, centres, priors = prepared[part], centre[part[0]], self.priors[used]
            similarities, lengths = self._compare(some, centres, used)
            for end, chosen in zip(ends, (near, shared), strict=True):
                weights = method.prior_weights(similarities, chosen, auto.SHARPNESS) / lengths
                end[part] = some + products(weights, priors.T) - weights.sum(axis=-1, keepdims=True) * centres
        return ends

    def _compare(self, prepared: Floats, centre: Floats, which: slice | Rows) -> tuple[Floats, Floats]:
        """Cosines of samples to some centred priors, (T, S, U), and the lengths of these priors, (T, 1, U)."""
        priors = self.priors[which]
        squares = self.squares[which] - 2 * products(centre, priors) + np.vecdot(centre, centre)[..., None]
        lengths = np.sqrt(np.maximum(squares, np.finfo(np.float64).tiny))
        return (products(prepared, priors) - np.vecdot(prepared, centre)[..., None]) / lengths, lengths

    def _predict_exactly(self, tasks: Tasks, own: int, task: Rows, query: Rows, point: Rows) -> Rows:
        """Predict single queries whose classes are level: the first of them, as a classifier does."""
        at = own * tasks.queries.shape[2] + query
        best = np.empty(len(task), dtype=np.int64)
        for t in np.unique(task):
            here = task == t
            best[here] = self.scores(tasks[t : t + 1])[0, point[here], at[here]].argmax(axis=-1)
        return best
