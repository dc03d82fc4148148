"""Why a photo has its label: the nearest examples, and the base classes that pulled them."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from p3dc._arrays import Floats
from p3dc.errors import InputError
from p3dc.images.classifier import ImageClassifier
from p3dc.images.examples import Example, read_examples
from p3dc.images.predictions import Prediction
from p3dc.images.sources import ImageFile, readable
from p3dc.images.views import views_of
from p3dc.method import l2_normalize
from p3dc.priors.central import CentralRow

N_NEIGHBOURS = 5
N_PULLS = 5


@dataclass(frozen=True)
class Pull:
    """A base class that pulls an example.

    Attributes
    ----------
    name : str
    weight : float
        The weights of all base classes sum to 1.
    central : tuple of CentralRow
        Where the base class is a cluster, its most central photos or rows, which stand for the name it does not have.
    """

    name: str
    weight: float
    central: tuple[CentralRow, ...] = ()

    @property
    def title(self) -> str:
        """The name of a class, or for a cluster the key of its most central photo or row."""
        return f"cluster of {self.central[0].key}" if self.central else self.name


@dataclass(frozen=True)
class Neighbour:
    """An example near the photo."""

    example: Example
    cosine: float  # of the photo and the calibrated example
    pulls: tuple[Pull, ...]  # the base classes that pulled it most or, where α and β are 0, that it resembles most


@dataclass(frozen=True)
class Explanation:
    """Why a photo has its label."""

    prediction: Prediction
    photo: bytes  # a small JPEG of it
    cosines: dict[str, float]  # by class
    neighbours: tuple[Neighbour, ...]  # nearest first
    alpha: float  # how strongly base classes pull at the sample level
    beta: float  # how strongly they pull at the task level
    unknown_below: float  # a photo whose largest cosine is lower is unknown

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
            pulled = ", ".join(f"{pull.title} {100 * pull.weight:.0f} %" for pull in near.pulls)
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
                    "base_classes": [_pull_json(pull) for pull in near.pulls],
                }
                for near in self.neighbours
            ],
        }


def _pull_json(pull: Pull) -> dict[str, Any]:
    central = {"central": [row.key for row in pull.central]} if pull.central else {}
    return {"name": pull.name, "weight": pull.weight} | central


def explain(classifier: ImageClassifier, photo: str | os.PathLike[str]) -> Explanation:
    """Explain the label of a photo in a file."""
    key = readable(photo)
    files, views = [ImageFile(Path(photo), key, label=None)], views_of(classifier.views)
    read, failures = read_examples(files, classifier.backbone, views=views)
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
    nearest = np.argsort(-near, kind="stable")[:N_NEIGHBOURS].tolist()
    neighbours = [
        Neighbour(classifier.examples[i], float(near[i]), pulls)
        for i, pulls in zip(nearest, base_classes(classifier, nearest), strict=True)
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


def base_classes(classifier: ImageClassifier, rows: Sequence[int]) -> list[tuple[Pull, ...]]:
    """Name the base classes that pulled each of some examples most or, where none pulls, that it resembles most."""
    calibrated, priors = classifier.calibrated, classifier.priors
    if priors is None or calibrated.transformed is None:
        return [()] * len(rows)
    alpha, beta = calibrated.alpha, calibrated.beta
    if alpha == beta == 0:
        alpha = 1.0
    both = calibrated.pulls()[2][rows]
    weights = (alpha * both[:, 0] + beta * both[:, 1]) / (alpha + beta)
    strongest = np.argsort(-weights, axis=1, kind="stable")[:, :N_PULLS].tolist()
    return [
        tuple(Pull(priors.class_names[b], float(own[b]), priors.central[b]) for b in most)
        for own, most in zip(weights, strongest, strict=True)
    ]
