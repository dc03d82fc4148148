"""Review labelled photos before they are used: too few, duplicates, likely mislabelled."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p3dc._arrays import Floats, Labels
from p3dc.adaptive.space import members
from p3dc.classifier.calibrated_support import CalibratedSupport
from p3dc.images.examples import Example
from p3dc.method import l2_normalize

SAME = 0.9995
"""Photos whose features have a larger cosine are duplicates."""


@dataclass(frozen=True)
class Review:
    """What a review of labelled photos found.

    Attributes
    ----------
    shots : dict from class to number of photos
    duplicates : tuple of (key, key)
        Pairs of photos that show the same.
    misfiled : tuple of (key, label, label)
        Likely mislabelled photos, nearer to another class than to the rest of their own: the photo, its label, and the
        label of that class.
    relevance : float or None
        How well the priors fit the classes; None without priors.
    beta : float
        How strongly the priors pull, from 0 to 1.
    """

    shots: dict[str, int]
    duplicates: tuple[tuple[str, str], ...]
    misfiled: tuple[tuple[str, str, str], ...]
    relevance: float | None
    beta: float


def review_examples(examples: Sequence[Example], classes: Sequence[str], calibrated: CalibratedSupport) -> Review:
    """Count labelled photos, and find duplicates and likely mislabelled ones."""
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
    return Review(ordered, duplicates, misfiled, calibrated.relevance, calibrated.beta)


def nearest_classes(features: Floats, labels: Labels) -> Labels:
    """Find the class to whose other samples each sample is nearest; the only sample of a class stays in it."""
    belonging = members(labels)
    sums = belonging.T.astype(features.dtype) @ features
    cosines = features @ l2_normalize(sums).T
    others = l2_normalize(sums[labels] - features)
    single = belonging.sum(axis=0)[labels] == 1
    cosines[belonging] = np.where(single, np.inf, np.vecdot(features, others))
    return np.asarray(cosines.argmax(axis=1))
