"""RestoreNet: move each sample towards where the mean of its class is likely to be."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from p3dc._arrays import Array, Labels
from p3dc.baselines.trained import Tensor, TrainedMethod, Weights, averages, layer, load_torch, unit
from p3dc.features import FeatureSet

N_ROWS = 128  # of one step
WIDTH = 640


class RestoreNet(TrainedMethod):
    """Largest cosine to the class mean of restored samples ½ (x̂ + M(x̂)).

    M is a network of one hidden layer that serves every class. It is trained on base samples to give the mean of their
    class: it minimises ‖M(x̂) − p_y‖², where x̂ is the normalised sample and p_y the mean of normalised base samples of
    its class. Normalising first was chosen on base classes kept out of the training. As features are fixed, M learns
    from one view of each image and the network under it does not learn.

    Parameters
    ----------
    base : FeatureSet
        What M is trained on. Tasks should have none of these classes.
    cache : path, optional
        Folder that keeps the weights. Without it they last as long as this object.
    random_state : int, default=0
        The same number trains the same weights.
    n_steps : int, default=1000
        Steps of the training, 128 samples each.
    """

    differs = "the module is trained on fixed features"

    def __init__(
        self, base: FeatureSet, cache: str | os.PathLike[str] | None = None, random_state: int = 0, n_steps: int = 1000
    ) -> None:
        super().__init__(base, cache, random_state, n_steps)

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Average each class of restored samples."""
        samples = unit(self._tensor(support))
        restored = (samples + self._restore(self._module(), samples)) / 2
        return (averages(restored, labels).numpy(),)

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Take cosines to the means."""
        means, asked = (unit(self._tensor(rows)) for rows in (state[0], queries))
        return np.asarray(asked @ means.mT, dtype=queries.dtype)

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
