"""ANIL: MAML that adapts only the last layer."""

import os
from typing import Any, Self

import numpy as np

from p3dc._arrays import Array, Labels, Progress
from p3dc.baselines.trained import N_WAY, TaskTrainedMethod, Tensor, Weights, cross_entropy, load_torch, logit_slopes
from p3dc.features import FeatureSet


class ANIL(TaskTrainedMethod):
    """Largest output of a linear head after a few gradient steps on the support.

    The head that the steps start from is trained through them on tasks of base classes, starting at zero, by the
    cross-entropy of the queries. It has as many outputs as the task has classes, so one head is trained for each number
    of ways when it is first needed. As features are fixed, only this start is trained; the published method trains the
    network under it as well.

    Parameters
    ----------
    base, cache, random_state
        As in :class:`~p3dc.baselines.trained.TrainedMethod`.
    n_steps : int, default=200
        Steps of the training, 16 tasks each.
    n_shot : int, optional
        Shots of the base tasks. By default each step draws a number from 1 to 5.
    n_inner_steps : int, default=5
        Gradient steps of a task.
    inner_rate : float, default=0.01
        Learning rate of these steps.
    """

    differs = "only the last layer adapts (ANIL), from a start that is meta-trained on base features"

    _learning_rate = 1e-4

    def __init__(
        self,
        base: FeatureSet,
        cache: str | os.PathLike[str] | None = None,
        random_state: int = 0,
        n_steps: int = 200,
        n_shot: int | None = None,
        n_inner_steps: int = 5,
        inner_rate: float = 0.01,
    ) -> None:
        super().__init__(base, cache, random_state, n_steps, n_shot)
        self.n_inner_steps = n_inner_steps
        self.inner_rate = inner_rate

    def train(self, progress: Progress | None = None, n_way: int = N_WAY) -> Self:
        """Train the head for a number of ways now, or read the cache."""
        self._module(n_way, progress)
        return self

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Adapt the head."""
        weight, bias = self._adapt(self._module(int(labels.max()) + 1), self._tensor(support), labels)
        return weight.numpy(), bias.numpy()

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Return the outputs of the head."""
        weight, bias = state
        logits = self._tensor(queries) @ self._tensor(weight).mT
        return np.asarray(logits.numpy() + bias, dtype=queries.dtype)

    def _adapt(self, weights: Weights, samples: Tensor, labels: Labels) -> tuple[Tensor, Tensor]:
        """Return weight (T, N, D) and bias (T, 1, N) after the steps."""
        weight, bias = (weights[name].expand(len(samples), -1, -1) for name in ("weight", "bias"))
        for _ in range(self.n_inner_steps):
            slopes = logit_slopes(samples @ weight.mT + bias, labels)
            weight = weight - self.inner_rate * (slopes.mT @ samples)
            bias = bias - self.inner_rate * slopes.sum(dim=1, keepdim=True)
        return weight, bias

    def _initial(self, n_way: int, generator: Any) -> Weights:
        shapes = {"weight": (n_way, self.base.features.shape[1]), "bias": (1, n_way)}
        return {name: load_torch().from_numpy(np.zeros(shape, dtype=np.float32)) for name, shape in shapes.items()}

    def _loss(self, weights: Weights, *batch: Any) -> Tensor:
        support, labels, queries, own = batch
        weight, bias = self._adapt(weights, support, labels)
        return cross_entropy(queries @ weight.mT + bias, own)
