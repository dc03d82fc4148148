"""Scores of many tasks at many (α, β) on a device of torch, in float64 throughout.

Shape letters are those of :mod:`p3dc.scoring.kernel`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from p3dc._arrays import Floats, row_blocks
from p3dc.adaptive.settings import Settings
from p3dc.adaptive.space import WhitenedSpace
from p3dc.errors import InputError
from p3dc.scoring.device_memory import Budget, Device
from p3dc.scoring.kernel import mix_and_attend, score_corners
from p3dc.scoring.torch_tables import TableCorners
from p3dc.scoring.whitened_corners import WhitenedCorners
from p3dc.tasks import Tasks

LONGEST = 150.0  # a query whose products with samples can go into an exponential as they are
LEVEL = 1e-12  # scores that differ by less are equal, and the first of equal classes is predicted


class TorchScorer:
    """Scores tasks on a device, at one or many (α, β), as :class:`p3dc.scoring.numpy_scorer.NumpyScorer` does.

    Parameters
    ----------
    source : TableCorners or WhitenedCorners
        Where the corners of tasks come from.
    budget : Budget
        The memory that is left for tasks.
    """

    def __init__(self, source: TableCorners | WhitenedCorners, budget: Budget) -> None:
        self.source, self.budget, self.device = source, budget, budget.device
        self.attention = source.settings.attention

    def correct(self, tasks: Tasks, watch: Callable[[slice, Any], None] | None = None) -> npt.NDArray[np.int64]:
        """Count the queries that each task gets right at each point, (T, G).

        ``watch`` is called with the scores of each part of the tasks, tensors of shape (T, N, Q, G).
        """
        n_way, n_query = tasks.queries.shape[1:]
        own = torch.arange(n_way, device=self.device.torch).repeat_interleave(n_query)[:, None]
        counts = []
        with out_of_memory_as_input_error(self.device):
            for part, scores in self._chunks(tasks):
                if watch:
                    watch(part, scores)
                level = scores >= scores.amax(dim=1, keepdim=True) - LEVEL
                counts.append((level.to(torch.uint8).argmax(dim=1) == own).sum(dim=1))
            return np.asarray(torch.cat(counts).cpu().numpy())

    def scores(self, tasks: Tasks) -> Floats:
        """Return the cosine of every query to every class at every point, (T, G, Q, N)."""
        with out_of_memory_as_input_error(self.device):
            return np.concatenate([scores.permute(0, 3, 2, 1).cpu().numpy() for _, scores in self._chunks(tasks)])

    def _chunks(self, tasks: Tasks) -> Iterator[tuple[slice, Tensor]]:
        """Yield parts of the tasks and their scores, (T, N, Q, G)."""
        n_tasks, n_way, n_shot = tasks.support.shape
        n_queries = tasks.queries.shape[1] * tasks.queries.shape[2]
        n_scores = n_way * n_queries * self.source.n_points
        attending = n_scores * (3 * n_shot + 4) + 2 * n_scores // n_way
        size = self.budget.batch_size(self.source.numbers(n_way, n_shot, n_queries) + attending)
        for start in range(0, n_tasks, size):
            part = slice(start, min(start + size, n_tasks))
            support, queries = (
                torch.as_tensor(rows[part], device=self.device.torch) for rows in (tasks.support, tasks.queries)
            )
            yield part, self._score(support, queries.flatten(1))

    def _score(self, support: Tensor, queries: Tensor) -> Tensor:
        bounded = self.attention != "raw" or self.source.longest <= LONGEST
        attend = partial(mix_and_attend, bounded=bounded)
        scores: Tensor = score_corners(self.source.corners(support, queries), self.attention, attend)[0]
        return scores


def whitened_on(
    device: Device, features: Floats, space: WhitenedSpace, settings: Settings, points: Floats | None
) -> TorchScorer:
    """Return a scorer in the whitened space, whose features are whitened on the device."""
    budget = Budget(device)
    n_base = 0 if space.geometry is None else len(space.geometry.prototypes)
    budget.reserve(features.shape[1] * (len(features) + n_base))
    with out_of_memory_as_input_error(device):
        whitened = torch.empty(features.shape, dtype=torch.float64, device=device.torch)
        space = space.to_device_of(whitened)
        for start, block in row_blocks(features):
            rows = torch.tensor(block, dtype=torch.float64, device=device.torch)
            whitened[start : start + len(block)] = space.whiten(rows)
        return TorchScorer(WhitenedCorners(whitened, space, settings, points, whitened), budget)


def plain_on(
    device: Device, features: Floats, priors: Floats | None, settings: Settings, points: Floats
) -> TorchScorer:
    """Return a scorer on features as they are."""
    budget = Budget(device)
    with out_of_memory_as_input_error(device):
        return TorchScorer(TableCorners(features, priors, settings, points, budget), budget)


@contextmanager
def out_of_memory_as_input_error(device: Device) -> Iterator[None]:
    """Explain in one sentence that the memory of the device was not enough."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise InputError(
            f"{device.torch} ran out of memory before it used the {device.memory:,} bytes that it may use. "
            "Lower memory, or free some of it."
        ) from None
