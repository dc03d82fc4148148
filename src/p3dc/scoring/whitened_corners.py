"""Corners of tasks in the whitened space, in float64, by NumPy or by torch.

Features are whitened once, where they fit into memory. The centre differs from task to task, so products with centred
priors are expanded: no array has the axes of tasks, priors and features at once.

Shape letters are those of :mod:`p3dc.scoring.kernel`; S = N * K support, B base classes, U base classes in use.
"""

from collections.abc import Iterable

import numpy as np
from array_api_compat import array_namespace

from p3dc import method
from p3dc._arrays import Array, Floats, is_tensor
from p3dc.adaptive import weights
from p3dc.adaptive.settings import Settings
from p3dc.adaptive.space import WhitenedSpace, class_averages
from p3dc.scoring.endpoints import endpoints_of_tasks
from p3dc.scoring.kernel import Corners, corner_weights, inner_products, triangle
from p3dc.scoring.nearest_priors import Part, nearest_in_blocks, priors_in_use, products


class WhitenedCorners:
    """Finds the corners of tasks in the whitened space.

    Parameters
    ----------
    features : array of shape (n_rows, D)
    space : WhitenedSpace
        Not yet centred, on the device of the features.
    settings : Settings
    points : array of shape (G, 2), optional
        The (α, β) to score at. Without them each task gets its own β, and α is 0.
    whitened : array of shape (n_rows, D), optional
        The whitened features; without them, rows are whitened each time they are used.
    """

    longest = 1.0
    """The length of the longest query."""

    def __init__(
        self,
        features: Array,
        space: WhitenedSpace,
        settings: Settings,
        points: Floats | None = None,
        whitened: Array | None = None,
    ) -> None:
        self.features, self.space, self.settings, self.whitened = features, space, settings, whitened
        self.n_base = 0 if space.geometry is None else len(space.geometry.prototypes)
        self.adaptive = points is None
        self.n_points = 1 if points is None else len(points)
        self.width = int(features.shape[1])
        xp = array_namespace(features)
        device = {} if not is_tensor(features) else {"device": features.device}
        self.mix = xp.ones((1, self.n_points), dtype=xp.float64, **device)
        if space.geometry is not None:
            self.priors = space.geometry.prototypes
            self.squares = xp.vecdot(self.priors, self.priors)
            if points is not None:
                self.mix = corner_weights(*xp.asarray(np.array(points), dtype=xp.float64, **device).T)

    def numbers(self, n_way: int, n_shot: int, n_queries: int) -> int:
        """Count the numbers that the corners of one task take on a device."""
        n_support = n_way * n_shot
        numbers = self.width * (3 * n_queries + 10 * n_support) + 8 * n_support * self.n_base
        return numbers + 4 * n_queries * n_support + 18 * n_support * n_shot

    def corners(self, support: Array, queries: Array) -> Corners:
        """Find the corners of tasks, given as rows (T, N, K) and (T, Q)."""
        corners, asked = self._place(support, queries)
        return inner_products(corners, asked, self.mix, support.shape[1])

    def _take(self, rows: Array) -> Array:
        return self.space.whiten(self.features[rows]) if self.whitened is None else self.whitened[rows]

    def _place(self, support: Array, queries: Array) -> tuple[Array, Array]:
        """Return corners, (T, S, V, D), and queries, (T, Q, D), in the space of each task."""
        xp = array_namespace(support)
        n_tasks, n_way, n_shot = support.shape
        samples, asked = self._take(xp.reshape(support, (n_tasks, -1))), self._take(queries)
        if self.space.geometry is None:
            return samples[:, :, None], asked
        belonging = xp.asarray(np.repeat(np.eye(n_way, dtype=bool), n_shot, axis=0))
        averages = class_averages(belonging if not is_tensor(samples) else belonging.to(samples.device))
        space = self.space.centred_on(samples, averages)
        samples, asked = space.centred(samples), space.centred(asked)
        ends = self._ends(samples, space.centre)
        if self.adaptive:
            relevant = weights.relevance(samples, ends[1], averages)
            beta = weights.choose_beta(relevant, samples, ends[1], n_shot, self.space.geometry.tightness)
            return method.mix(samples, *ends, 0.0, beta)[:, :, None], asked
        return triangle(samples, *ends), asked

    def _ends(self, samples: Array, centre: Array) -> tuple[Array, Array]:
        """Find both endpoints of each sample, (T, S, D)."""

        def compare(part: Part, used: Array) -> tuple[Array, Array]:
            return self._compare(samples[part], centre[part[0]], used)

        return endpoints_of_tasks(
            samples, self.priors, self._parts(samples, centre), compare, self.settings.prior_scale, centre
        )

    def _parts(self, samples: Array, centre: Array) -> Iterable[tuple[Part, Array, Array, Array]]:
        """Yield samples with the priors that they use: on a device all at once, which its batches leave room for."""
        n_nearest = self.settings.n_nearest
        if is_tensor(samples):
            nearest = method.nearest_priors(self._compare(samples, centre, slice(None))[0], n_nearest)
            return [((slice(None), slice(None)), slice(None), nearest, method.task_priors(nearest))]
        n_samples = samples.shape[0] * samples.shape[1]
        found = nearest_in_blocks(
            lambda block: self._compare(samples, centre, block)[0], n_samples, self.n_base, n_nearest
        )
        return priors_in_use(found, self.n_base)

    def _compare(self, samples: Array, centre: Array, which: Array) -> tuple[Array, Array]:
        """Return cosines of samples to some centred priors, (T, S, U), and the lengths of these priors, (T, 1, U)."""
        xp = array_namespace(samples)
        priors = self.priors[which]
        squares = self.squares[which] - 2 * products(centre, priors) + xp.vecdot(centre, centre)[..., None]
        lengths = xp.sqrt(squares.clip(min=xp.finfo(squares.dtype).tiny))
        return (products(samples, priors) - xp.vecdot(samples, centre)[..., None]) / lengths, lengths
