"""The engine on a device of torch, in float64 throughout. This module needs the torch extra.

A calibrated sample is a sum of its row, of its transformed row and of priors. So all scores follow from products of
rows with rows, of rows with priors and of priors with each other, and none of these depends on the task. Where there is
room they are tabled once; a task then takes some thousand numbers out of tables instead of a hundred rows of features.

Shape letters are those of :mod:`p3dc.engine`; U counts the priors that may pull samples of one task.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from p3dc import auto, method
from p3dc.device import Device
from p3dc.engine import Floats, TaskScorer
from p3dc.errors import InputError
from p3dc.prepared import PreparedScorer
from p3dc.tasks import Tasks

LEVEL = 1e-12  # scores that differ by less are the same, and the first of such classes has the query
MODEST = 150.0  # a query whose logits can go into an exponential as they are
TENSORS = 0.9  # of the memory, what tensors may take; torch holds more than they do
TABLE_SHARE = 0.5  # of what features leave, what tables may take
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


class Sums(NamedTuple):
    """Vectors that are sums of a sample's row, of its transformed row and of priors.

    Attributes
    ----------
    own, moved : tensors of shape (T, S, V)
        How much of the row and of the transformed row.
    pulls : tensor of shape (T, S, V, U)
        How much of each prior.
    used : tensor of shape (T, U), or None
        Which priors those are; None for all.
    similarities : tensor of shape (T, S, U)
        Of transformed rows and priors.
    among : tensor of shape (T, U, U) or (U, U)
        Products of the priors with each other.
    """

    own: Tensor
    moved: Tensor
    pulls: Tensor
    used: Tensor | None
    similarities: Tensor
    among: Tensor


def on_device(scorer: TaskScorer, device: Device) -> "DeviceScorer":
    """Let a device do what a scorer does."""
    with memory_told(device):
        if isinstance(scorer, PreparedScorer):
            return PreparedDeviceScorer(scorer, device)
        return TableScorer(scorer, device)


class DeviceScorer(ABC):
    """Scores tasks on a device, at one or many (α, β), as :class:`p3dc.engine.TaskScorer` does on the processor.

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


class Products:
    """Inner products of rows of two arrays, all of them in a table where there is room.

    Parameters
    ----------
    left, right : tensors of shapes (n, D) and (m, D)
    tabled : bool
    """

    def __init__(self, left: Tensor, right: Tensor, *, tabled: bool) -> None:
        self.left, self.right = left, right
        self.table = left @ right.mT if tabled else None

    def whole(self) -> Tensor:
        """Return all products, (n, m)."""
        return self.left @ self.right.mT if self.table is None else self.table

    def take(self, rows: Tensor, others: Tensor | None) -> Tensor:
        """Take the products of some rows with others, or with all, (T, L), (T, M) -> (T, L, M)."""
        if others is None:
            return self.left[rows] @ self.right.mT if self.table is None else self.table[rows]
        if self.table is None:
            return self.left[rows] @ self.right[others].mT
        return self.table[rows[:, :, None], others[:, None]]


class TableScorer(DeviceScorer):
    """Scores tasks on features as they are."""

    def __init__(self, scorer: TaskScorer, device: Device) -> None:
        super().__init__(scorer, device)
        n_rows, self.width = scorer.features.shape
        self.n_base = 0 if scorer.table is None else len(scorer.table.priors)
        self.n_nearest = min(scorer.n_nearest, self.n_base)
        self.scale = scorer.scale
        self.tabled = self._plan(n_rows)
        rows = self._tensor(scorer.features)
        self.lengths = torch.linalg.vector_norm(rows, dim=1)
        self.reach = float(self.lengths.max())
        self.row_row = Products(rows, rows, tabled=self.tabled["rows"])
        if scorer.table is not None:
            priors, changed = self._tensor(scorer.table.priors), method.tukey(rows, scorer.power)
            self.nearest = self._find_nearest(changed, priors)
            self.row_changed = Products(rows, changed, tabled=self.tabled["rows"])
            self.changed_changed = Products(changed, changed, tabled=self.tabled["rows"])
            self.row_prior = Products(rows, priors, tabled=self.tabled["both"])
            self.changed_prior = Products(changed, priors, tabled=self.tabled["both"])
            self.prior_prior = Products(priors, priors, tabled=self.tabled["priors"])
            self.squares = torch.linalg.vecdot(changed, changed)

    def _plan(self, n_rows: int) -> dict[str, bool]:
        """Decide which products are tabled, small tables first."""
        kinds = 2 if self.n_base else 1
        self._keep(n_rows * (kinds * (self.width + 1) + self.n_nearest) + self.n_base * self.width)
        tables = {
            "priors": self.n_base**2,
            "both": 2 * n_rows * self.n_base,
            "rows": (2 * kinds - 1) * n_rows**2,
        }
        left, tabled = int(TABLE_SHARE * self.room) // FLOAT, {}
        for name, numbers in tables.items():
            tabled[name] = numbers <= left
            if tabled[name]:
                left -= numbers
                self._keep(numbers)
        return tabled

    def _find_nearest(self, changed: Tensor, priors: Tensor) -> Tensor:
        """Find the numbers of the nearest priors of each row, (n_rows, M)."""
        size = max(1, self.room // (8 * FLOAT * self.n_base))
        masks = (method.nearest_priors(block @ priors.mT, self.n_nearest) for block in torch.split(changed, size))
        return torch.cat([mask.nonzero()[:, 1].reshape(-1, self.n_nearest) for mask in masks])

    def _numbers(self, n_way: int, n_shot: int, n_queries: int) -> int:
        n_support = n_way * n_shot
        n_used = min(self.n_base, n_support * self.n_nearest)
        n_corners = 3 if self.n_base and len(self.alpha) > 1 else 1
        numbers = n_queries * n_support * (3 + 2 * n_corners) + 4 * n_support * n_shot * n_corners**2
        numbers += n_used * (2 * n_queries + n_support * (10 + 4 * n_corners))
        numbers += n_used**2 if n_used < self.n_base else 0
        if not self.tabled["rows"]:
            numbers += self.width * (n_queries + 2 * n_support)
        if not (self.tabled["both"] and self.tabled["priors"]):
            numbers += self.width * (n_queries + 2 * n_used) + (self.n_base**2 if n_used == self.n_base else 0)
        return numbers

    def _corners(self, support: Tensor, queries: Tensor) -> Corners:
        n_way, n_shot = support.shape[1:]
        rows, within = support.flatten(1), support.flatten(0, 1)
        if self.n_base:
            corners = self._sums(rows)
            mix = self.mix if corners.own.shape[2] > 1 else self.alone
            products = self._with_queries(corners, rows, queries)
            grams = self._with_each_other(corners, rows, within)
        else:
            own, mix = 1 / self.lengths[rows][..., None], self.alone
            products = self.row_row.take(queries, rows)[..., None] * own[:, None]
            grams = _pairs(own, self.row_row.take(within, within), own)
        products = products.reshape(len(support), -1, n_way, n_shot, products.shape[3])
        grams = grams.reshape(len(support), n_way, *grams.shape[1:])
        return Corners(products, grams, mix, self.lengths[queries])

    def _sums(self, rows: Tensor) -> Sums:
        """Find the corners of each sample's triangle, or their mix where there is one point."""
        used, nearest = self._used(rows)
        similarities = self.changed_prior.take(rows, used)
        weights = [
            method.prior_weights(similarities, chosen, self.scale) for chosen in (nearest, method.task_priors(nearest))
        ]
        among = self.prior_prior.take(used, used) if used is not None else self.prior_prior.whole()
        squares = self.squares[rows]
        ends = [
            (squares + (each @ among).add_(similarities, alpha=2).mul_(each).sum(dim=2)).clamp_min(0).sqrt()
            for each in weights
        ]
        lengths = torch.stack([self.lengths[rows], *ends], dim=2)[:, :, None]
        corners = self.mix.T if len(self.alpha) == 1 else torch.eye(3, dtype=self.mix.dtype, device=self.mix.device)
        shares = corners / torch.where(lengths == 0, 1, lengths)
        pulls = shares[..., 1, None] * weights[0][:, :, None]
        pulls += shares[..., 2, None] * weights[1][:, :, None]
        return Sums(shares[..., 0], shares[..., 1] + shares[..., 2], pulls, used, similarities, among)

    def _used(self, rows: Tensor) -> tuple[Tensor | None, Tensor]:
        """List the priors that may pull samples of a task, None for all, and mark the nearest of each sample."""
        places = self.nearest[rows]
        used, n_used = None, self.n_base
        if places[0].numel() < self.n_base:
            ordered, order = places.flatten(1).sort(dim=1)
            rank = torch.zeros_like(ordered)
            rank[:, 1:] = (ordered[:, 1:] != ordered[:, :-1]).cumsum(dim=1)
            n_used = int(rank.max()) + 1
            used = torch.zeros_like(ordered[:, :n_used]).scatter_(1, rank, ordered)
            places = torch.empty_like(order).scatter_(1, order, rank).reshape(places.shape)
        nearest = torch.zeros(*rows.shape, n_used, dtype=torch.bool, device=rows.device)
        return used, nearest.scatter_(2, places, True)

    def _with_queries(self, corners: Sums, rows: Tensor, queries: Tensor) -> Tensor:
        """Multiply queries with corners, (T, Q, S, V)."""
        products = self.row_prior.take(queries, corners.used) @ corners.pulls.flatten(1, 2).mT
        products = products.reshape(*queries.shape, rows.shape[1], -1)
        products.addcmul_(self.row_row.take(queries, rows)[..., None], corners.own[:, None])
        products.addcmul_(self.row_changed.take(queries, rows)[..., None], corners.moved[:, None])
        return products

    def _with_each_other(self, corners: Sums, rows: Tensor, within: Tensor) -> Tensor:
        """Multiply the corners of each class, (T * N, K, V, K, V)."""
        own, moved, pulls, used, similarities, among = corners
        met = own[..., None] * self.row_prior.take(rows, used)[:, :, None]
        met.addcmul_(moved[..., None], similarities[:, :, None])
        towards = (pulls.flatten(1, 2) @ among).reshape(met.shape).add_(met, alpha=2)
        by_class = (len(within), within.shape[1] * pulls.shape[2], -1)
        grams = towards.reshape(by_class) @ pulls.reshape(by_class).mT
        shape = (len(within), within.shape[1], -1, within.shape[1], own.shape[2])
        grams = ((grams + grams.mT) / 2).reshape(shape)
        grams += _pairs(own, self.row_row.take(within, within), own)
        grams += _pairs(moved, self.changed_changed.take(within, within), moved)
        mixed = _pairs(own, self.row_changed.take(within, within), moved)
        grams += mixed
        return grams.add_(mixed.permute(0, 3, 4, 1, 2))


class PreparedDeviceScorer(DeviceScorer):
    """Scores tasks on features prepared as :mod:`p3dc.auto` does."""

    reach = 1.0

    def __init__(self, scorer: PreparedScorer, device: Device) -> None:
        super().__init__(scorer, device)
        self.geometry, self.chooses, self.n_nearest = scorer.geometry, scorer.chooses, scorer.n_nearest
        n_rows, self.width = scorer.features.shape
        self.n_base = 0 if scorer.geometry is None else len(scorer.priors)
        self._keep(self.width * (n_rows + self.n_base))
        self.rows = self._tensor(scorer.rows)
        if scorer.geometry is not None:
            self.priors, self.home = self._tensor(scorer.priors), self._tensor(scorer.geometry.mean)
            self.squares = torch.linalg.vecdot(self.priors, self.priors)

    def _numbers(self, n_way: int, n_shot: int, n_queries: int) -> int:
        n_support = n_way * n_shot
        numbers = self.width * (3 * n_queries + 10 * n_support) + 8 * n_support * self.n_base
        return numbers + 4 * n_queries * n_support + 18 * n_support * n_shot

    def _corners(self, support: Tensor, queries: Tensor) -> Corners:
        n_way, n_shot = support.shape[1:]
        corners, mix, asking = self._place(support, queries)
        n_corners = corners.shape[2]
        by_class = corners.reshape(-1, n_shot * n_corners, self.width)
        grams = (by_class @ by_class.mT).reshape(-1, n_way, n_shot, n_corners, n_shot, n_corners)
        products = (asking @ corners.flatten(1, 2).mT).reshape(len(support), -1, n_way, n_shot, n_corners)
        lengths = torch.linalg.vector_norm(asking, dim=2)
        return Corners(products, grams, mix, torch.where(lengths == 0, 1, lengths))

    def _place(self, support: Tensor, queries: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return corners, (T, S, V, D), the weights that mix them, (V, G), and queries, (T, Q, D)."""
        n_way, n_shot = support.shape[1:]
        samples, asking = self.rows[support.flatten(1)], self.rows[queries]
        if self.geometry is None:
            return samples[:, :, None], self.alone, asking
        averages = torch.eye(n_way, dtype=samples.dtype, device=samples.device).repeat_interleave(n_shot, 1) / n_shot
        centre = auto.task_centre(averages @ samples, self.home)
        prepared, asking = auto.prepare(samples, centre), auto.prepare(asking, centre)
        sample_ends, task_ends = self._ends(prepared, centre)
        if self.chooses:
            agreed = auto.agreement(prepared, task_ends, averages)
            beta = auto.pull_weight(agreed, prepared, task_ends, n_shot, self.geometry.tightness)
            return method.mix(prepared, sample_ends, task_ends, 0.0, beta)[:, :, None], self.alone, asking
        ends = method.l2_normalize(sample_ends), method.l2_normalize(task_ends)
        return torch.stack([prepared, *ends], dim=2), self.mix, asking

    def _ends(self, prepared: Tensor, centre: Tensor) -> tuple[Tensor, Tensor]:
        """Find both endpoints of each sample, (T, S, D), without centring all priors for each task."""
        squares = self.squares - 2 * (centre @ self.priors.mT) + torch.linalg.vecdot(centre, centre)[..., None]
        lengths = squares.clamp_min(torch.finfo(squares.dtype).tiny).sqrt()
        similarities = (prepared @ self.priors.mT - torch.linalg.vecdot(prepared, centre)[..., None]) / lengths
        nearest = method.nearest_priors(similarities, self.n_nearest)
        ends = []
        for chosen in (nearest, method.task_priors(nearest)):
            weights = method.prior_weights(similarities, chosen, auto.SHARPNESS) / lengths
            ends.append(prepared + weights @ self.priors - weights.sum(dim=-1, keepdim=True) * centre)
        return ends[0], ends[1]


def mix_and_attend(products: Tensor, grams: Tensor, mix: Tensor, *, uniform: bool, modest: bool) -> Tensor:
    """Unify the corners, attend and score, from inner products alone, as :func:`p3dc.engine.mix_and_attend` does.

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


def _pairs(left: Tensor, products: Tensor, right: Tensor) -> Tensor:
    """Weigh the products of each class's samples, (T, S, V), (T * N, K, K), (T, S, V) -> (T * N, K, V, K, V)."""
    n_classes, n_shot = products.shape[:2]
    one, two = (each.reshape(n_classes, n_shot, -1) for each in (left, right))
    return one[:, :, :, None, None] * products[:, :, None, :, None] * two[:, None, None]


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
