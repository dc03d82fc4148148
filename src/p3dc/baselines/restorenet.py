"""RestoreNet: move each sample towards where the mean of its class is likely to be."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from p3dc._arrays import Array, Labels
from p3dc.baselines.trained import Tensor, TrainedMethod, Weights, averages, layer, load_torch, unit

N_ROWS = 128  # base samples of one step
WIDTH = 640


class RestoreNet(TrainedMethod):
    """Largest cosine to the class mean of restored samples ½ (x̂ + M(x̂)).

    M is a network of one hidden layer that serves every class. It is trained on base samples to give the mean of their
    class: it minimises ‖M(x̂) − p_y‖², where x̂ is the normalised sample and p_y the mean of normalised base samples of
    its class. Normalising first was chosen on base classes kept out of the training. As features are fixed, M learns
    from one view of each image and the network under it does not learn.

    Parameters
    ----------
    base, cache, random_state
        As in :class:`TrainedMethod`.
    n_steps : int, default=1000
        Steps of the training, 128 samples each.
    """

    differs = "the module is trained on fixed features"

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Average each class of restored samples."""
        samples = unit(self._tensor(support))
        restored = (samples + self._restore(self._module(), samples)) / 2
        return (averages(restored, labels).numpy(),)

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Compute cosines to the means."""
        means, normalised = (unit(self._tensor(rows)) for rows in (state[0], queries))
        return np.asarray(normalised @ means.mT, dtype=queries.dtype)

    def _restore(self, weights: Weights, samples: Tensor) -> Tensor:
        linear = load_torch().nn.functional.linear
        hidden = linear(samples, weights["hidden.weight"], weights["hidden.bias"]).relu()
        return linear(hidden, weights["output.weight"], weights["output.bias"])

    def _initial(self, n_way: int, generator: Any) -> Weights:
        n_features = self.base.features.shape[1]
        weights: Weights = {}
        weights["hidden.weight"], weights["hidden.bias"] = layer(n_features, WIDTH, generator)
        weights["output.weight"], weights["output.bias"] = layer(WIDTH, n_features, generator)
        return weights

    def _batches(self, rows: Tensor, n_way: int) -> Iterator[tuple[Any, ...]]:
        samples = unit(rows)
        codes = np.unique(self.base.labels, return_inverse=True)[1]
        (means,) = averages(samples[None], codes)
        generator = np.random.default_rng(self.random_state)
        for _ in range(self.n_steps):
            chosen = generator.integers(len(samples), size=N_ROWS)
            yield samples[chosen], means[codes[chosen]]

    def _loss(self, weights: Weights, *batch: Any) -> Tensor:
        samples, means = batch
        return (self._restore(weights, samples) - means).square().sum(dim=-1).mean()
