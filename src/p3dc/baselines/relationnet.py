"""RelationNet: a network decides whether a class mean and a query match."""

from typing import Any

import numpy as np

from p3dc._arrays import Array, Labels
from p3dc.baselines.trained import TaskTrainedMethod, Tensor, Weights, averages, layer, load_torch, one_hot, unit

WIDTH = 256


class RelationNet(TaskTrainedMethod):
    """Largest relation score of a network with two hidden layers on [class mean, query].

    The score is a sigmoid, trained on tasks of base classes with a squared loss against 1 for the right class and 0 for
    every other. Rows are normalised and multiplied by √D, so that features are near 1 whatever the backbone. As
    features are fixed, the published convolutions over two feature maps become layers over two vectors, and the network
    under them does not learn.

    Parameters
    ----------
    base, cache, random_state
        As in :class:`~p3dc.baselines.trained.TrainedMethod`.
    n_steps : int, default=1000
        Steps of the training, 16 tasks of 5 ways each.
    n_shot : int, optional
        Shots of the base tasks. By default each step draws a number from 1 to 5.
    """

    differs = "the relation module sees vectors, not feature maps, and only the module is trained"

    _learning_rate = 3e-4

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Average each class of transformed samples."""
        return (averages(_transform(self._tensor(support)), labels).numpy(),)

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Relate every query to every mean."""
        scores = self._relate(self._module(), self._tensor(state[0]), _transform(self._tensor(queries)))
        return np.asarray(scores, dtype=queries.dtype)

    def _relate(self, weights: Weights, means: Tensor, queries: Tensor) -> Tensor:
        """Score pairs, (T, N, D) and (T, Q, D) -> (T, Q, N); the first layer is applied to each half of a pair once."""
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
