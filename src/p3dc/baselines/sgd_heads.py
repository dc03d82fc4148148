"""Cosine heads trained by SGD on the support of each task: Baseline++, Negative-Cosine and S2M2_R.

Every weight vector stays in the span of its first value and of the support samples. Training therefore runs in an
orthonormal basis of the samples with one more axis for the part of the first weights outside it: S + 1 numbers instead
of D. A rotation changes neither cosines nor the steps of SGD, so this trains the D weights without approximation.

Shape letters: T tasks, S support, Q queries, N ways, D features, R the smaller of S and D.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from p3dc._arrays import Array, Labels
from p3dc.baselines.contract import TaskMethod, task_generators
from p3dc.method import l2_normalize, masked_softmax

LEARNING_RATE = 0.01
MOMENTUM = 0.9
DAMPENING = 0.9
WEIGHT_DECAY = 0.001
BATCH_SIZE = 4


class SGDHead(TaskMethod):
    """Cosine head on plain features; its subclasses differ in their defaults and in ``weight_norm``.

    Parameters
    ----------
    scale : float
        Multiplies the cosines.
    n_epochs : int
        How often every support sample is seen.
    random_state : int
        Seed of the first weights and of the order of the samples.

    Attributes
    ----------
    weight_norm : bool
        Whether logits are scale · g · cos(w, x) with a learned g for each class, or scale · cos(w, x).
    """

    weight_norm: ClassVar[bool]

    def __init__(self, *, scale: float, n_epochs: int, random_state: int) -> None:
        self.scale = scale
        self.n_epochs = n_epochs
        self.random_state = random_state

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Train a new head for each task."""
        heads = train_heads(
            l2_normalize(support.astype(np.float64)),
            labels,
            task_generators(support, self.random_state),
            scale=self.scale,
            n_epochs=self.n_epochs,
            weight_norm=self.weight_norm,
        )
        return (heads.astype(support.dtype),)

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Compute the logits of the head."""
        return np.asarray(l2_normalize(queries) @ state[0].mT)


class BaselinePP(SGDHead):
    """Baseline++: a cosine head with a learned length for each class.

    The published method also trains its backbone on the base classes with such a head; here features are fixed. The
    published ``scale`` is 2, and 4 on CUB. Parameters are those of :class:`SGDHead`.

    Examples
    --------
    >>> from p3dc.baselines import BaselinePP
    >>> BaselinePP().fit([[1.0, 0.0], [0.0, 1.0]], ["wren", "robin"]).predict([[1.0, 3.0]])
    array(['robin'], dtype='<U5')
    """

    differs = "the head; the network is not trained with it"

    weight_norm = True

    def __init__(self, *, scale: float = 2.0, n_epochs: int = 100, random_state: int = 0) -> None:
        super().__init__(scale=scale, n_epochs=n_epochs, random_state=random_state)


class NegativeCosine(SGDHead):
    """Negative-Cosine: a plain cosine head.

    The negative margin of the published method acts while its backbone is trained on the base classes; here features
    are fixed, and at test the margin is 0. Parameters are those of :class:`SGDHead`.

    Examples
    --------
    >>> from p3dc.baselines import NegativeCosine
    >>> NegativeCosine().fit([[1.0, 0.0], [0.0, 1.0]], ["wren", "robin"]).predict([[0.0, 3.0]])
    array(['robin'], dtype='<U5')
    """

    differs = "the head; the margin acts in training only, which is not done here"

    weight_norm = False

    def __init__(self, *, scale: float = 5.0, n_epochs: int = 100, random_state: int = 0) -> None:
        super().__init__(scale=scale, n_epochs=n_epochs, random_state=random_state)


class S2M2Head(BaselinePP):
    """S2M2_R: the head of Baseline++, trained for longer.

    The published method trains its backbone with rotations and manifold mixup; here features are fixed and only its
    head remains. Parameters are those of :class:`SGDHead`.
    """

    differs = "the head; the network is not trained with rotations and mixup for it"

    def __init__(self, *, scale: float = 2.0, n_epochs: int = 300, random_state: int = 0) -> None:
        super().__init__(scale=scale, n_epochs=n_epochs, random_state=random_state)


def train_heads(
    samples: Array,
    labels: Labels,
    generators: Sequence[np.random.Generator],
    *,
    scale: float,
    n_epochs: int,
    weight_norm: bool,
) -> Array:
    """Train the head of each task on float64 samples as they are, (T, S, D) -> (T, N, D).

    The inner products of the head with a query, transformed as the samples were, are its logits: ``scale`` times the
    product with a weight vector of length 1, which is the cosine where samples have length 1.
    The generator of a task draws the first weights, uniform in ±1/√D as those of PyTorch's linear layer, and then the
    orders of the samples. ``scale``, ``n_epochs`` and ``weight_norm`` are those of :class:`SGDHead`.
    """
    n_support, n_features = samples.shape[1:]
    bound = n_features**-0.5
    first = np.stack([rng.uniform(-bound, bound, (labels.max() + 1, n_features)) for rng in generators])
    unshuffled = np.tile(np.arange(n_support), (n_epochs, 1))
    orders = np.stack([rng.permuted(unshuffled, axis=1) for rng in generators], axis=1)

    basis = np.linalg.qr(samples.mT).Q
    inside = first @ basis
    outside = first - inside @ basis.mT
    weights = np.concatenate([inside, np.linalg.norm(outside, axis=-1, keepdims=True)], axis=-1)
    coordinates = np.pad(samples @ basis, ((0, 0), (0, 0), (0, 1)))
    gains = _train(weights, coordinates, labels, orders, scale=scale, weight_norm=weight_norm)

    weights = weights[..., :-1] @ basis.mT + weights[..., -1:] * l2_normalize(outside)
    return np.asarray(scale * gains[..., None] * l2_normalize(weights))


def _train(weights: Array, samples: Array, labels: Labels, orders: Array, *, scale: float, weight_norm: bool) -> Array:
    """Train the weights in place and return the gain of each class.

    (T, N, R + 1), (T, S, R + 1), (S,), (n_epochs, T, S) -> (T, N)
    """
    targets = np.eye(weights.shape[1])[labels]
    gains = np.linalg.norm(weights, axis=-1) if weight_norm else np.ones(weights.shape[:2])
    velocity, gain_velocity = np.zeros_like(weights), np.zeros_like(gains)
    starts = range(0, len(labels), BATCH_SIZE)
    first = True
    for order in orders:
        shuffled, wanted = np.take_along_axis(samples, order[..., None], axis=1), targets[order]
        for start in starts:
            batch, truth = shuffled[:, start : start + BATCH_SIZE], wanted[:, start : start + BATCH_SIZE]
            lengths = np.sqrt(np.vecdot(weights, weights))
            products = batch @ weights.mT / lengths[:, None]
            errors = masked_softmax(scale * gains[:, None] * products, None) - truth
            errors *= scale / batch.shape[1]
            slopes = np.sum(errors * products, axis=1)
            pulls = gains / lengths
            gradient = (errors * pulls[:, None]).mT @ batch
            gradient -= (slopes * pulls / lengths)[..., None] * weights
            _step(weights, velocity, gradient, first=first)
            if weight_norm:
                _step(gains, gain_velocity, slopes, first=first)
            first = False
    return gains


def _step(values: Array, velocity: Array, gradient: Array, *, first: bool) -> None:
    """Move the values by one step of SGD as PyTorch defines it: the first step is not dampened."""
    gradient += WEIGHT_DECAY * values
    if not first:
        gradient *= 1 - DAMPENING
    velocity *= MOMENTUM
    velocity += gradient
    values -= LEARNING_RATE * velocity
