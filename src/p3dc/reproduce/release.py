"""The protocol of the authors' released scripts, where it differs from the paper."""

from collections.abc import Iterator

import numpy as np

from p3dc import method
from p3dc._arrays import Array, Labels
from p3dc._validation import check_power
from p3dc.baselines.contract import TaskMethod
from p3dc.errors import InputError
from p3dc.features import FeatureSet
from p3dc.priors.prototypes import Priors
from p3dc.tasks import Tasks


class ReleaseSampler:
    """Draws the tasks that the released sampler draws from the same file.

    One stream of NumPy's legacy generator, seeded once. Each class is cut to its first n rows, n the size of the
    smallest. For each task the classes are permuted; then the rows 0 to n - 1 are permuted for the first class, and
    that order is permuted again for each class after it. The classes must be in the order of the file.
    """

    def __init__(self, features: FeatureSet, *, n_way: int, n_shot: int, n_query: int, seed: int = 0) -> None:
        n_classes = len(features.class_names)
        sizes = np.bincount(features.labels, minlength=n_classes)
        if n_classes < n_way or sizes.min() < n_shot + n_query:
            raise InputError(
                f"{n_way} ways, {n_shot} shots and {n_query} queries need {n_way} classes of {n_shot + n_query} rows, "
                f"but there are {n_classes}, the smallest of {sizes.min()}. Lower them."
            )
        rows = [np.flatnonzero(features.labels == c)[: sizes.min()] for c in range(n_classes)]
        self.rows = np.stack(rows)
        self.n_way, self.n_shot, self.n_query, self.seed = n_way, n_shot, n_query, seed

    def batches(self, n_tasks: int, size: int = 100) -> Iterator[Tasks]:
        """Draw the first tasks a batch at a time."""
        stream = np.random.RandomState(self.seed)
        for start in range(0, n_tasks, size):
            drawn = [self._draw(stream) for _ in range(min(size, n_tasks - start))]
            classes, rows = (np.stack(parts) for parts in zip(*drawn, strict=True))
            yield Tasks(classes, rows[..., : self.n_shot], rows[..., self.n_shot :])

    def _draw(self, stream: np.random.RandomState) -> tuple[Array, Array]:
        classes = stream.permutation(np.arange(len(self.rows)))[: self.n_way]
        order = np.arange(self.rows.shape[1])
        rows = []
        for c in classes:
            order = stream.permutation(order)
            rows.append(self.rows[c, order[: self.n_shot + self.n_query]])
        return classes, np.stack(rows)


class ReleaseP3DC(TaskMethod):
    """P3DC as the released scripts compute it: the mixed samples are not normalised before the attention.

    With one shot this changes no cosine.
    """

    def __init__(self, priors: Priors, *, alpha: float, beta: float, attention: method.Attention = "raw") -> None:
        self.priors = priors
        self.alpha = alpha
        self.beta = beta
        self.attention = attention

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Mix the corners of each sample."""
        counts = np.bincount(labels)
        if counts.min() < counts.max():
            raise InputError(
                f"classes have from {counts.min()} to {counts.max()} shots. The released scripts need equal shots."
            )
        check_power(support, 0.5, "support")
        support = support[:, np.argsort(labels, kind="stable")].astype(np.float64)
        ends = method.endpoints(support, self.priors.prototypes, n_nearest=5, power=0.5, scale=1.0)
        mixed = method.mix(method.l2_normalize(support), *ends, self.alpha, self.beta)
        return (mixed.reshape(len(support), len(counts), counts[0], -1),)

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Compute cosines to the attentive prototypes."""
        return np.asarray(method.classify(queries.astype(np.float64), state[0], attention=self.attention))
