"""RelationNet: a network that is shown a class mean and a query says whether they match."""

import os
from typing import Any

import numpy as np

from p3dc._arrays import Array, Labels
from p3dc.baselines.trained import TaskTrainedMethod, Tensor, Weights, averages, layer, load_torch, one_hot, unit
from p3dc.features import FeatureSet

WIDTH = 256


class RelationNet(TaskTrainedMethod):
    """Largest relation score of a network with two hidden layers on [class mean, query].

    The score is a sigmoid, trained on tasks of base classes with a squared loss against 1 for the own class and 0 for
    every other. Rows are normalised and multiplied by √D, so that features are near 1 whatever the backbone. As
    features are fixed, the published convolutions over two feature maps become layers over two vectors, and the network
    under them does not learn.

    Parameters
    ----------
    base : FeatureSet
        What the network is trained on. Tasks should have none of these classes.
    cache : path, optional
        Folder that keeps the weights. Without it they last as long as this object.
    random_state : int, default=0
        The same number trains the same weights.
    n_steps : int, default=1000
        Steps of the training, 16 tasks of 5 ways each.
    n_shot : int, optional
        Shots of the base tasks. By default each step draws a number from 1 to 5.
    """

    differs = "the relation module sees vectors, not feature maps, and only the module is trained"

    _learning_rate = 3e-4

    def __init__(
        self,
        base: FeatureSet,
        cache: str | os.PathLike[str] | None = None,
        random_state: int = 0,
        n_steps: int = 1000,
        n_shot: int | None = None,
    ) -> None:
        super().__init__(base, cache, random_state, n_steps, n_shot)

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Average each class of transformed samples."""
        return (averages(_transform(self._tensor(support)), labels).numpy(),)

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Relate every query to every mean."""
        scores = self._relate(self._module(), self._tensor(state[0]), _transform(self._tensor(queries)))
        return np.asarray(scores, dtype=queries.dtype)

    def _relate(self, weights: Weights, means: Tensor, queries: Tensor) -> Tensor:
        """Score pairs, (T, N, D) and (T, Q, D) -> (T, Q, N); the first layer meets each half of a pair only once."""
        torch = load_torch()
        linear = torch.nn.functional.linear
        of_mean, of_query = weights["first.weight"].chunk(2, dim=1)
        left, right = linear(means, of_mean, weights["first.bias"]), linear(queries, of_query)
        scores = []
        for one in left.unbind(dim=1):
            hidden = (one[:, None] + right).relu()
            hidden = linear(hidden, weights["second.weight"], weights["second.bias"]).relu()
            scores.append(linear(hidden, weights["output.weight"], weights["output.bias"]))
        return torch.cat(scores, dim=-1).sigmoid()

    def _initial(self, n_way: int, generator: Any) -> Weights:
        weights: Weights = {}
        widths = {"first": (2 * self.base.features.shape[1], WIDTH), "second": (WIDTH, WIDTH), "output": (WIDTH, 1)}
        for name, (n_in, n_out) in widths.items():
            weights[f"{name}.weight"], weights[f"{name}.bias"] = layer(n_in, n_out, generator)
        return weights

    def _loss(self, weights: Weights, *batch: Any) -> Tensor:
        support, labels, queries, own = batch
        scores = self._relate(weights, averages(_transform(support), labels), _transform(queries))
        return (scores - one_hot(own)).square().mean()


def _transform(rows: Tensor) -> Tensor:
    return unit(rows) * rows.shape[-1] ** 0.5
