"""Corners of tasks on features as they are, by torch, from tables of inner products.

A calibrated sample is a weighted sum of its row, of its transformed row and of priors. So all scores follow from
products of rows with rows, of rows with priors and of priors with each other, and none of these depends on the task.
Where there is room they are tabled once; a task then reads some thousand numbers from tables instead of a hundred
rows of features.

Shape letters are those of :mod:`p3dc.scoring.kernel`; U counts the priors that may pull samples of one task.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from p3dc import method
from p3dc._arrays import Floats
from p3dc._validation import check_power
from p3dc.adaptive.settings import Settings
from p3dc.scoring.device_memory import FLOAT_BYTES, Budget
from p3dc.scoring.kernel import Corners, corner_weights

TABLE_SHARE = 0.5  # share of the room beside the features that tables may take


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


class TableCorners:
    """Finds the corners of tasks on features as they are.

    Parameters
    ----------
    features : array of shape (n_rows, D)
    priors : array of shape (B, D), optional
    settings : Settings
    points : array of shape (G, 2)
    budget : Budget
        The memory of the device; what is kept is taken from it.
    """

    def __init__(
        self, features: Floats, priors: Floats | None, settings: Settings, points: Floats, budget: Budget
    ) -> None:
        self.settings, self.n_points = settings, len(points)
        n_rows, self.width = features.shape
        self.n_base = 0 if priors is None else len(priors)
        self.n_nearest = min(settings.n_nearest, self.n_base)
        if priors is not None:
            check_power(features, settings.power, "features")
        self.tabled = self._plan(n_rows, budget)
        place = {"dtype": torch.float64, "device": budget.device.torch}
        rows = torch.tensor(features, **place)
        self.mix = corner_weights(*torch.tensor(points, **place).T)
        self.unmixed = torch.ones_like(self.mix[:1])
        self.lengths = torch.linalg.vector_norm(rows, dim=1)
        self.longest = float(self.lengths.max())
        self.row_row = Products(rows, rows, tabled=self.tabled["rows"])
        if priors is not None:
            known, changed = torch.tensor(priors, **place), method.tukey(rows, settings.power)
            self.nearest = self._find_nearest(changed, known, budget.room)
            self.row_changed = Products(rows, changed, tabled=self.tabled["rows"])
            self.changed_changed = Products(changed, changed, tabled=self.tabled["rows"])
            self.row_prior = Products(rows, known, tabled=self.tabled["both"])
            self.changed_prior = Products(changed, known, tabled=self.tabled["both"])
            self.prior_prior = Products(known, known, tabled=self.tabled["priors"])
            self.squares = torch.linalg.vecdot(changed, changed)

    def _plan(self, n_rows: int, budget: Budget) -> dict[str, bool]:
        """Decide which products are tabled, small tables first."""
        kinds = 2 if self.n_base else 1
        budget.reserve(n_rows * (kinds * (self.width + 1) + self.n_nearest) + self.n_base * self.width)
        tables = {
            "priors": self.n_base**2,
            "both": 2 * n_rows * self.n_base,
            "rows": (2 * kinds - 1) * n_rows**2,
        }
        left, tabled = int(TABLE_SHARE * budget.room) // FLOAT_BYTES, {}
        for name, numbers in tables.items():
            tabled[name] = numbers <= left
            if tabled[name]:
                left -= numbers
                budget.reserve(numbers)
        return tabled

    def _find_nearest(self, changed: Tensor, priors: Tensor, room: int) -> Tensor:
        """Find the numbers of the nearest priors of each row, (n_rows, M)."""
        size = max(1, room // (8 * FLOAT_BYTES * self.n_base))
        masks = (method.nearest_priors(block @ priors.mT, self.n_nearest) for block in torch.split(changed, size))
        return torch.cat([mask.nonzero()[:, 1].reshape(-1, self.n_nearest) for mask in masks])

    def numbers(self, n_way: int, n_shot: int, n_queries: int) -> int:
        """Count the numbers that the corners of one task take."""
        n_support = n_way * n_shot
        n_used = min(self.n_base, n_support * self.n_nearest)
        n_corners = 3 if self.n_base and self.n_points > 1 else 1
        numbers = n_queries * n_support * (3 + 2 * n_corners) + 4 * n_support * n_shot * n_corners**2
        numbers += n_used * (2 * n_queries + n_support * (10 + 4 * n_corners))
        numbers += n_used**2 if n_used < self.n_base else 0
        if not self.tabled["rows"]:
            numbers += self.width * (n_queries + 2 * n_support)
        if not (self.tabled["both"] and self.tabled["priors"]):
            numbers += self.width * (n_queries + 2 * n_used) + (self.n_base**2 if n_used == self.n_base else 0)
        return numbers

    def corners(self, support: Tensor, queries: Tensor) -> Corners:
        """Find the corners of tasks, given as rows (T, N, K) and (T, Q)."""
        n_way, n_shot = support.shape[1:]
        rows, within = support.flatten(1), support.flatten(0, 1)
        if self.n_base:
            corners = self._sums(rows)
            mix = self.mix if corners.own.shape[2] > 1 else self.unmixed
            products = self._with_queries(corners, rows, queries)
            grams = self._with_each_other(corners, rows, within)
        else:
            own, mix = 1 / self.lengths[rows][..., None], self.unmixed
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
            method.prior_weights(similarities, chosen, self.settings.prior_scale)
            for chosen in (nearest, method.task_priors(nearest))
        ]
        among = self.prior_prior.take(used, used) if used is not None else self.prior_prior.whole()
        squares = self.squares[rows]
        ends = [
            (squares + (each @ among).add_(similarities, alpha=2).mul_(each).sum(dim=2)).clamp_min(0).sqrt()
            for each in weights
        ]
        lengths = torch.stack([self.lengths[rows], *ends], dim=2)[:, :, None]
        corners = self.mix.T if self.n_points == 1 else torch.eye(3, dtype=self.mix.dtype, device=self.mix.device)
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


def _pairs(left: Tensor, products: Tensor, right: Tensor) -> Tensor:
    """Weigh the products of each class's samples, (T, S, V), (T * N, K, K), (T, S, V) -> (T * N, K, V, K, V)."""
    n_classes, n_shot = products.shape[:2]
    one, two = (each.reshape(n_classes, n_shot, -1) for each in (left, right))
    return one[:, :, :, None, None] * products[:, :, None, :, None] * two[:, None, None]
