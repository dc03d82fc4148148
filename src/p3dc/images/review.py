"""What labelled photos look like before anything is predicted: too few, twice, or in the wrong folder."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from p3dc.adaptive.space import members
from p3dc.classifier.calibrated_support import CalibratedSupport
from p3dc.method import l2_normalize

SAME = 0.9995
"""Photos whose features have a larger cosine show the same."""

Array = npt.NDArray[Any]


class Labelled(Protocol):
    """A photo with a label and features."""

    @property
    def key(self) -> str: ...  # noqa: D102

    @property
    def label(self) -> str: ...  # noqa: D102

    @property
    def features(self) -> Array: ...  # noqa: D102


@dataclass(frozen=True)
class Findings:
    """What was found.

    Attributes
    ----------
    shots : dict from class to number of photos
    duplicates : tuple of (key, key)
        Photos that show the same.
    misfiled : tuple of (key, label, label)
        Photos that are nearer to another class than to the rest of their own: which, where it is, where it seems to
        belong.
    relevance : float or None
        How well the priors fit the classes, where there are any.
    beta : float
        How strongly the priors pull, from 0 to 1.
    """

    shots: dict[str, int]
    duplicates: tuple[tuple[str, str], ...]
    misfiled: tuple[tuple[str, str, str], ...]
    relevance: float | None
    beta: float


def find(examples: Sequence[Labelled], classes: Sequence[str], calibrated: CalibratedSupport) -> Findings:
    """Look at labelled photos."""
    features = l2_normalize(np.stack([example.features for example in examples]).astype(np.float64))
    same = np.argwhere(np.triu(features @ features.T > SAME, k=1))
    duplicates = tuple((examples[i].key, examples[j].key) for i, j in same.tolist())
    nearest = nearest_classes(calibrated.transform(features), calibrated.labels)
    misfiled = tuple(
        (example.key, example.label, classes[near])
        for example, near in zip(examples, nearest.tolist(), strict=True)
        if classes[near] != example.label
    )
    shots = Counter(example.label for example in examples)
    ordered = {name: shots[name] for name in classes}
    return Findings(ordered, duplicates, misfiled, calibrated.relevance, calibrated.beta)


def nearest_classes(prepared: Array, labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Find the class whose other samples each sample is nearest to; one that is alone in its class stays there."""
    belonging = members(labels)
    sums = belonging.T.astype(prepared.dtype) @ prepared
    cosines = prepared @ l2_normalize(sums).T
    own = l2_normalize(sums[labels] - prepared)
    alone = belonging.sum(axis=0)[labels] == 1
    cosines[belonging] = np.where(alone, np.inf, np.vecdot(prepared, own))
    return np.asarray(cosines.argmax(axis=1))
