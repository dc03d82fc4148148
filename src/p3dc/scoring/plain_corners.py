"""Corners of tasks on features as they are, by NumPy, in float32 where that is precise enough.

Shape letters are those of :mod:`p3dc.scoring.kernel`; S = N * K support, D features.
"""

import numpy as np

from p3dc import method
from p3dc._arrays import Array, Floats, Rows, row_blocks
from p3dc._validation import check_power, check_similarities
from p3dc.adaptive.settings import Settings
from p3dc.scoring.endpoints import endpoints_of_tasks
from p3dc.scoring.kernel import Corners, corner_weights, inner_products, triangle
from p3dc.scoring.nearest_priors import Part, PriorTable, priors_in_use

FLOAT32: np.dtype[np.floating] = np.dtype(np.float32)
FLOAT64: np.dtype[np.floating] = np.dtype(np.float64)
LONGEST = 64  # a query that float32 can attend with: its logits err by its length times 1e-7
WIDEST = 4  # sum of the absolute weights of the corners that float32 can mix
TOO_CLOSE = {FLOAT32: 4e-6, FLOAT64: 1e-12}  # at least ten times the error of a cosine


class PlainCorners:
    """Finds the corners of tasks on features as they are.

    Parameters
    ----------
    features : array of shape (n_rows, D)
    priors : array of shape (B, D), optional
        Base prototypes. Without them nothing is calibrated.
    settings : Settings
    points : array of shape (G, 2)
        The (α, β) to score at.
    """

    def __init__(self, features: Floats, priors: Floats | None, settings: Settings, points: Floats) -> None:
        self.features, self.settings = features, settings
        self.alpha, self.beta = points.T
        self.n_points, self.width = len(points), features.shape[1]
        mix = corner_weights(self.alpha, self.beta)
        shortest, longest = _lengths(features)
        reach = longest if settings.attention == "raw" else 1.0
        wide = float(np.abs(mix).sum(axis=0).max())
        precise = reach <= LONGEST and wide <= WIDEST and shortest > 1e-15 and longest < 1e15
        self.dtype = FLOAT32 if precise else FLOAT64
        self.too_close = TOO_CLOSE[self.dtype] * wide * max(1.0, reach / 50)
        self.rows = np.ascontiguousarray(features, dtype=self.dtype)
        self.mix = mix.astype(self.dtype)
        self.table: PriorTable | None = None
        if priors is not None:
            check_power(features, settings.power, "features")
            check_similarities(features, priors, settings.power, np.float64)
            self.table = PriorTable(features, priors, settings.n_nearest, settings.power, self.dtype)

    def corners(self, support: Rows, queries: Rows) -> Corners:
        """Find the corners of tasks, given as rows (T, N, K) and (T, Q)."""
        rows = support.reshape(len(support), -1)
        samples = self.rows[rows]
        normalised = method.l2_normalize(samples)
        mix: Floats = np.ones((1, self.n_points), dtype=self.dtype)
        if self.table is None:
            corners = normalised[:, :, None]
        elif self.n_points == 1:
            point = float(self.alpha[0]), float(self.beta[0])
            corners = method.mix(normalised, *self._ends(self.table, rows, samples), *point)[:, :, None]
        else:
            corners, mix = triangle(normalised, *self._ends(self.table, rows, samples)), self.mix
        return inner_products(corners, self.rows[queries], mix, support.shape[1])

    def exact_scores(self, support: Rows, queries: Rows, points: Rows) -> Array:
        """Score one query of each task, (T, N, K), (T,), at a point of each, (T,), in float64, (T, N)."""
        rows = support.reshape(len(support), -1)
        samples = self.features[rows].astype(np.float64)
        calibrated = method.l2_normalize(samples)
        if self.table is not None:
            alpha, beta = (weights[points][:, None, None] for weights in (self.alpha, self.beta))
            calibrated = method.unify(calibrated, *self._ends(self.table, rows, samples), alpha, beta)
        by_class = calibrated.reshape(*support.shape, self.width)
        asked = self.features[queries][:, None].astype(np.float64)
        return method.classify(asked, by_class, attention=self.settings.attention)[:, 0]

    def _ends(self, table: PriorTable, rows: Rows, samples: Floats) -> tuple[Floats, Floats]:
        """Find both endpoints of each sample, (T, S, D), in the type of the samples."""

        def compare(part: Part, used: Rows) -> tuple[Floats, None]:
            return table.similarities(rows[part], used, samples.dtype), None

        transformed = method.tukey(samples, self.settings.power)
        parts = priors_in_use(table.nearest(rows), len(table.priors))
        return endpoints_of_tasks(transformed, table.priors, parts, compare, self.settings.prior_scale)


def _lengths(features: Floats) -> tuple[float, float]:
    """Return the smallest and the largest length of a row."""
    norms = [method.vector_norm(block.astype(np.float64)) for _, block in row_blocks(features)]
    return float(min(part.min() for part in norms)), float(max(part.max() for part in norms))
