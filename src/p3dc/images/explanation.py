"""Why a photo has its label: the nearest examples, and the base classes that pulled them."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from p3dc._arrays import Floats
from p3dc.errors import InputError
from p3dc.images.classifier import ImageClassifier, Prediction
from p3dc.images.examples import Example, read_examples
from p3dc.images.sources import ImageFile, readable
from p3dc.method import l2_normalize

N_NEIGHBOURS = 5
N_PULLS = 5


@dataclass(frozen=True)
class Neighbour:
    """An example near the photo.

    Attributes
    ----------
    example : Example
    cosine : float
        Cosine of the photo and the calibrated example.
    pulls : tuple of (base class, weight)
        The base classes that pulled it most or, where α and β are 0, that it resembles most. The weights of all base
        classes sum to 1.
    """

    example: Example
    cosine: float
    pulls: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Explanation:
    """Why a photo has its label.

    Attributes
    ----------
    prediction : Prediction
    photo : bytes
        A small JPEG of it.
    cosines : dict from class to float
    neighbours : tuple of Neighbour
        Nearest first.
    alpha, beta : float
        How strongly base classes pull at both levels.
    unknown_below : float
        A photo whose largest cosine is lower is unknown.
    """

    prediction: Prediction
    photo: bytes
    cosines: dict[str, float]
    neighbours: tuple[Neighbour, ...]
    alpha: float
    beta: float
    unknown_below: float

    @property
    def pulling(self) -> bool:
        """Whether base classes pull at all."""
        return (self.alpha, self.beta) != (0, 0)

    def lines(self) -> Iterator[str]:
        """Write the explanation as lines of text."""
        found = self.prediction
        likely = found.runner_up if found.rejected else found.label
        yield f"{found.key}: {found.label} ({100 * found.probability:.0f} % {likely})"
        if found.rejected:
            nearest = max(self.cosines.values())
            yield f"its largest cosine to a class, {nearest:.2f}, is below {self.unknown_below:.2f}"
        for near in self.neighbours:
            pulled = ", ".join(f"{name} {100 * weight:.0f} %" for name, weight in near.pulls)
            by = f"; {'pulled by' if self.pulling else 'resembles'} {pulled}" if pulled else ""
            yield f"  {near.cosine:+.2f}  {near.example.label}  {near.example.key}{by}"

    def to_json(self) -> dict[str, Any]:
        """Return everything but the pictures, ready for JSON."""
        found = self.prediction
        return {
            "path": found.key,
            "label": found.label,
            "probability": found.probability,
            "runner_up": found.runner_up,
            "cosines": self.cosines,
            "alpha": self.alpha,
            "beta": self.beta,
            "neighbours": [
                {
                    "photo": near.example.key,
                    "label": near.example.label,
                    "cosine": near.cosine,
                    "base_classes": [{"name": name, "weight": weight} for name, weight in near.pulls],
                }
                for near in self.neighbours
            ],
        }


def explain(classifier: ImageClassifier, photo: str | os.PathLike[str]) -> Explanation:
    """Explain the label of a photo in a file."""
    key = readable(photo)
    read, failures = read_examples([ImageFile(Path(photo), key, label=None)], classifier.backbone)
    if failures:
        raise InputError(f"{key}: {failures[0][1]}")
    return explain_features(classifier, read[0].features, key, read[0].thumbnail)


def explain_features(classifier: ImageClassifier, features: Floats, key: str, photo: bytes) -> Explanation:
    """Explain the label of a photo from its features, (D,), its name and its thumbnail."""
    calibrated = classifier.calibrated
    rows = features[None]
    scores = classifier.fitted.score(rows)
    query = l2_normalize(calibrated.transform(rows))[0]
    near = calibrated.samples @ query
    weights = _weights(classifier)
    nearest = np.argsort(-near, kind="stable")[:N_NEIGHBOURS].tolist()
    neighbours = [
        Neighbour(classifier.examples[i], float(near[i]), _strongest(classifier, weights, i)) for i in nearest
    ]
    return Explanation(
        replace(classifier.label(rows)[0], key=key),
        photo,
        dict(zip(classifier.classes, scores.cosines[0].tolist(), strict=True)),
        tuple(neighbours),
        calibrated.alpha,
        calibrated.beta,
        classifier.fitted.unknown_below + float(scores.cosines.max() - scores.known[0]),
    )


def base_classes(classifier: ImageClassifier, i: int) -> tuple[tuple[str, float], ...]:
    """Name the base classes that pulled an example most, or that it resembles most, with their weights."""
    return _strongest(classifier, _weights(classifier), i)


def _weights(classifier: ImageClassifier) -> Any:
    """Return the weights of the base classes, (S, B), those of the sample level if none pulls; without priors, None."""
    calibrated = classifier.calibrated
    if calibrated.transformed is None:
        return None
    alpha, beta = calibrated.alpha, calibrated.beta
    if alpha == beta == 0:
        alpha = 1.0
    both = calibrated.pulls()[2]
    return (alpha * both[:, 0] + beta * both[:, 1]) / (alpha + beta)


def _strongest(classifier: ImageClassifier, weights: Any, i: int) -> tuple[tuple[str, float], ...]:
    if weights is None or classifier.priors is None:
        return ()
    names = classifier.priors.class_names
    return tuple((names[b], float(weights[i, b])) for b in np.argsort(-weights[i], kind="stable")[:N_PULLS].tolist())
