"""From the products of queries and corners to scores, for many tasks and many (α, β) at once."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from p3dc.errors import InputError
from p3dc.scoring.device_memory import Device
from p3dc.scoring.numpy_scorer import Floats, TaskScorer
from p3dc.tasks import Tasks

LEVEL = 1e-12  # scores that differ by less are the same, and the first of such classes has the query
MODEST = 150.0  # a query whose logits can go into an exponential as they are
TENSORS = 0.9  # of the memory, what tensors may take; torch holds more than they do
FLOAT = 8  # bytes


class Corners(NamedTuple):
    """What all points need to know of some tasks.

    Attributes
    ----------
    products : tensor of shape (T, Q, N, K, V)
        Queries with corners.
    grams : tensor of shape (T, N, K, V, K, V)
        Corners of one class with each other.
    mix : tensor of shape (V, G)
        The weights of the corners at each point.
    lengths : tensor of shape (T, Q)
        Of the queries.
    """

    products: Tensor
    grams: Tensor
    mix: Tensor
    lengths: Tensor


class DeviceScorer(ABC):
    """Scores tasks on a device, at one or many (α, β), as ``TaskScorer`` does on the CPU.

    Parameters
    ----------
    scorer : TaskScorer
        What is to be scored: features, priors, points and settings, already checked.
    device : Device
    """

    width: int
    """The number of features."""

    n_base: int
    """The number of priors."""

    reach: float
    """The length of the longest query that attends to samples."""

    def __init__(self, scorer: TaskScorer, device: Device) -> None:
        self.device, self.room = device, int(TENSORS * device.memory)
        self.alpha, self.beta, self.attention = scorer.alpha, scorer.beta, scorer.attention
        self.mix = self._tensor(np.stack([1 - self.alpha - self.beta, self.alpha, self.beta]))
        self.alone = torch.ones_like(self.mix[:1])

    @abstractmethod
    def _corners(self, support: Tensor, queries: Tensor) -> Corners:
        """Find what all points need, of rows (T, N, K) and (T, Q)."""

    @abstractmethod
    def _numbers(self, n_way: int, n_shot: int, n_queries: int) -> int:
        """Count the numbers that finding the corners of one task takes."""

    def correct(self, tasks: Tasks, watch: Callable[[slice, Any], None] | None = None) -> npt.NDArray[np.int64]:
        """Count the queries that each task gets right at each point, (T, G).

        ``watch`` is shown the scores on the way, tensors of shape (T, N, Q, G) for each part of the tasks.
        """
        n_way, n_query = tasks.queries.shape[1:]
        own = torch.arange(n_way, device=self.device.torch).repeat_interleave(n_query)[:, None]
        counts = []
        with memory_told(self.device):
            for part, scores in self._chunks(tasks):
                if watch:
                    watch(part, scores)
                level = scores >= scores.amax(dim=1, keepdim=True) - LEVEL
                counts.append((level.to(torch.uint8).argmax(dim=1) == own).sum(dim=1))
            return np.asarray(torch.cat(counts).cpu().numpy())

    def scores(self, tasks: Tasks) -> Floats:
        """Cosine of every query to every class at every point, (T, G, Q, N)."""
        with memory_told(self.device):
            return np.concatenate([scores.permute(0, 3, 2, 1).cpu().numpy() for _, scores in self._chunks(tasks)])

    def _chunks(self, tasks: Tasks) -> Iterator[tuple[slice, Tensor]]:
        """Yield parts of the tasks and their scores, (T, N, Q, G)."""
        n_tasks, n_way, n_shot = tasks.support.shape
        n_queries = tasks.queries.shape[1] * tasks.queries.shape[2]
        one = FLOAT * (self._numbers(n_way, n_shot, n_queries) + self._mixing(n_way, n_shot, n_queries))
        if one > self.room:
            raise InputError(
                f"one task takes {one:,} bytes, but of the {self.device.memory:,} that may be used {self.room:,} are "
                "left for tasks. Raise memory, or leave the device out."
            )
        size = self.room // one
        for start in range(0, n_tasks, size):
            part = slice(start, min(start + size, n_tasks))
            support, queries = (
                torch.as_tensor(rows[part], device=self.device.torch) for rows in (tasks.support, tasks.queries)
            )
            yield part, self._score(self._corners(support, queries.flatten(1)))

    def _mixing(self, n_way: int, n_shot: int, n_queries: int) -> int:
        """Count the numbers that mixing and attending take for one task."""
        n_scores = n_way * n_queries * len(self.alpha)
        return n_scores * (2 * n_shot + 4) + 2 * n_scores // n_way

    def _score(self, corners: Corners) -> Tensor:
        products, grams, mix, lengths = corners
        if self.attention == "raw":
            scores = mix_and_attend(products, grams, mix, uniform=False, modest=self.reach <= MODEST)
            return scores.div_(lengths[:, None, :, None])
        products = products / lengths[:, :, None, None, None]
        return mix_and_attend(products, grams, mix, uniform=self.attention == "mean", modest=True)

    def _keep(self, numbers: int) -> None:
        """Take some of the memory for what is always there."""
        if FLOAT * numbers >= self.room:
            raise InputError(
                f"features and priors take {FLOAT * numbers:,} bytes, but {self.device.memory:,} may be used. "
                "Raise memory, or leave the device out."
            )
        self.room -= FLOAT * numbers

    def _tensor(self, array: Any) -> Tensor:
        return torch.tensor(array, dtype=torch.float64, device=self.device.torch)


def mix_and_attend(products: Tensor, grams: Tensor, mix: Tensor, *, uniform: bool, modest: bool) -> Tensor:
    """Unify the corners, attend and score, from inner products alone, as NumPy's does.

    Parameters
    ----------
    products, grams, mix
        As in :class:`Corners`.
    uniform : bool
        Whether all samples of a class weigh the same.
    modest : bool
        Whether logits are so small that no exponential of them overflows.

    Returns
    -------
    tensor of shape (T, N, Q, G)
        The products of the queries with their normalised prototypes.
    """
    n_tasks, _, n_way, n_shot, n_corners = products.shape
    pairs = (mix[:, None] * mix).flatten(0, 1)
    kernel = grams.permute(0, 1, 2, 4, 3, 5).reshape(n_tasks, n_way, n_shot, n_shot, n_corners**2) @ pairs
    lengths = kernel.diagonal(dim1=2, dim2=3).mT.clamp_min(torch.finfo(kernel.dtype).tiny).sqrt()
    kernel /= lengths[:, :, :, None] * lengths[:, :, None]
    weights = mix / lengths[..., None, :]
    products = products.permute(0, 2, 3, 1, 4)
    logits = products * weights if n_corners == 1 else products @ weights
    return _attend(logits, kernel, uniform=uniform, modest=modest)


def _attend(logits: Tensor, kernel: Tensor, *, uniform: bool, modest: bool) -> Tensor:
    """Products of queries with normalised prototypes, (T, N, Q, G), from logits (T, N, K, Q, G), (T, N, K, K, G)."""
    n_shot = logits.shape[2]
    if n_shot == 1:
        return logits[:, :, 0]
    if uniform:
        return logits.sum(dim=2) / kernel.sum(dim=(2, 3)).sqrt()[:, :, None]
    weights = logits.exp() if modest else torch.softmax(logits, dim=2)
    squared = weights[:, :, 0] * weights[:, :, 0]
    for k in range(1, n_shot):
        row = weights[:, :, k]
        for other in range(k):
            row = torch.addcmul(row, kernel[:, :, k, other, None], weights[:, :, other], value=2)
        squared.addcmul_(row, weights[:, :, k])
    return (logits.mul_(weights).sum(dim=2)).div_(squared.sqrt_())


@contextmanager
def memory_told(device: Device) -> Iterator[None]:
    """Say in one sentence that memory was not enough."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise InputError(
            f"{device.torch} ran out of memory before the {device.memory:,} bytes were used that may be. "
            "Lower memory, or free some of it."
        ) from None
