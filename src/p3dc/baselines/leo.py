"""LEO: adapt a class's weights in a small latent space, then directly."""

import os
from typing import Any

import numpy as np

from p3dc._arrays import Array, Labels
from p3dc.baselines.trained import (
    TaskTrainedMethod,
    Tensor,
    Weights,
    averages,
    cross_entropy,
    layer,
    load_torch,
    logit_slopes,
    unit,
)
from p3dc.features import FeatureSet

CODE, WIDTH = 64, 128
LATENT_RATE, WEIGHT_RATE = 1.0, 1e-3  # at the start of the training, which learns both
MOST_PAIRS = 2**17  # pairs that are encoded together


class LEO(TaskTrainedMethod):
    """Largest inner product with class weights that are decoded from a latent code and adapted to the support.

    On normalised features: a linear encoder to 64 numbers; every pair of supports through a relation network of three
    layers, averaged over the partners, then over each class; a linear decoder to the weights of the class. The
    cross-entropy of the support then takes gradient steps on the code, and more on the weights. All of it is trained
    through these steps on tasks of base classes. LEO was published on fixed features. Two things differ: code and
    weights are the means of what the published method samples, in training too, and weight decay replaces its dropout,
    its KL term and its penalties on encoder and decoder.

    Parameters
    ----------
    base, cache, random_state
        As in :class:`~p3dc.baselines.trained.TrainedMethod`.
    n_steps : int, default=600
        Steps of the training, 16 tasks of 5 ways each.
    n_shot : int, optional
        Shots of the base tasks. By default each step draws a number from 1 to 5.
    n_latent_steps, n_weight_steps : int, default=5
        Gradient steps on the code and on the weights of a task.
    """

    differs = "as published on fixed features, without noise in the latent code"

    _learning_rate = 2e-2
    _weight_decay = 1.0

    def __init__(
        self,
        base: FeatureSet,
        cache: str | os.PathLike[str] | None = None,
        random_state: int = 0,
        n_steps: int = 600,
        n_shot: int | None = None,
        n_latent_steps: int = 5,
        n_weight_steps: int = 5,
    ) -> None:
        super().__init__(base, cache, random_state, n_steps, n_shot)
        self.n_latent_steps = n_latent_steps
        self.n_weight_steps = n_weight_steps

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Decode the weights of each class and adapt them."""
        weights = self._module()
        parts = unit(self._tensor(support)).split(max(1, MOST_PAIRS // len(labels) ** 2))
        return (np.concatenate([self._adapt(weights, part, labels).numpy() for part in parts]),)

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Compute inner products with the weights."""
        logits = unit(self._tensor(queries)) @ self._tensor(state[0]).mT
        return np.asarray(logits, dtype=queries.dtype)

    def _encode(self, weights: Weights, samples: Tensor, labels: Labels) -> Tensor:
        """Encode each class, (T, S, D) -> (T, N, 64); the first layer is applied to each half of a pair once."""
        codes = samples @ weights["encoder"].T
        of_one, of_other = weights["first"].chunk(2, dim=1)
        hidden = ((codes @ of_one.T)[:, :, None] + (codes @ of_other.T)[:, None]).relu()
        hidden = (hidden @ weights["second"].T).relu().mean(dim=2)
        return averages(hidden @ weights["third"].T, labels)

    def _adapt(self, weights: Weights, samples: Tensor, labels: Labels) -> Tensor:
        """Decode the weights of each class and adapt them, (T, S, D) -> (T, N, D)."""
        code, decoder = self._encode(weights, samples, labels), weights["decoder"]
        for _ in range(self.n_latent_steps):
            slopes = logit_slopes(samples @ decoder @ code.mT, labels).mT @ (samples @ decoder)
            code = code - weights["latent_rate"] * slopes
        heads = code @ decoder.T
        for _ in range(self.n_weight_steps):
            heads = heads - weights["weight_rate"] * (logit_slopes(samples @ heads.mT, labels).mT @ samples)
        return heads

    def _initial(self, n_way: int, generator: Any) -> Weights:
        n_features = self.base.features.shape[1]
        widths = {
            "encoder": (n_features, CODE),
            "first": (2 * CODE, WIDTH),
            "second": (WIDTH, WIDTH),
            "third": (WIDTH, CODE),
            "decoder": (CODE, n_features),
        }
        weights: Weights = {name: layer(n_in, n_out, generator)[0] for name, (n_in, n_out) in widths.items()}
        for name, rate in (("latent_rate", LATENT_RATE), ("weight_rate", WEIGHT_RATE)):
            weights[name] = load_torch().from_numpy(np.array([rate], dtype=np.float32))
        return weights

    def _loss(self, weights: Weights, *batch: Any) -> Tensor:
        support, labels, queries, own = batch
        return cross_entropy(unit(queries) @ self._adapt(weights, unit(support), labels).mT, own)
