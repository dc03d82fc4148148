"""Features prepared as :mod:`p3dc.adaptive.rule` does, as :mod:`p3dc.scoring.whitened` has them."""

import torch
from torch import Tensor

from p3dc import method
from p3dc._arrays import row_blocks
from p3dc.adaptive import rule as auto
from p3dc.scoring.device_memory import Device
from p3dc.scoring.torch_scorer import Corners, DeviceScorer
from p3dc.scoring.whitened import PreparedScorer


class PreparedDeviceScorer(DeviceScorer):
    """Scores tasks on features prepared as :mod:`p3dc.adaptive.rule` does."""

    reach = 1.0

    def __init__(self, scorer: PreparedScorer, device: Device) -> None:
        super().__init__(scorer, device)
        self.geometry, self.chooses, self.n_nearest = scorer.geometry, scorer.chooses, scorer.n_nearest
        n_rows, self.width = scorer.features.shape
        self.n_base = 0 if scorer.geometry is None else len(scorer.priors)
        self._keep(self.width * (n_rows + self.n_base))
        self.rows = torch.empty(scorer.features.shape, dtype=torch.float64, device=self.mix.device)
        for start, block in row_blocks(scorer.features):
            self.rows[start : start + len(block)] = self._tensor(scorer.whiten(block))
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
