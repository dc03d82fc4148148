"""Why a photo gets its label: the nearest examples, and the base classes that pulled them."""

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from p3dc.errors import InputError
from p3dc.images.classifier import UNKNOWN, ImageClassifier, Prediction
from p3dc.images.decoding import ImageError, read_image
from p3dc.images.embedding import embed_images
from p3dc.images.examples import Example, open_thumbnail, thumbnail
from p3dc.images.sources import readable
from p3dc.method import l2_normalize

Array = npt.NDArray[Any]

N_NEIGHBOURS = 5
N_PULLS = 5


@dataclass(frozen=True)
class Neighbour:
    """An example near the photo.

    Attributes
    ----------
    example : Example
    cosine : float
        That of the photo to the calibrated example.
    pulls : tuple of (base class, weight)
        The base classes that pulled it most or, where α and β are 0, that it resembles most; the weights of all sum
        to 1.
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
        The nearest first.
    alpha, beta : float
        How strongly base classes pull at both levels.
    unknown_below : float
        The largest cosine below which a photo is unknown.
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
        """Tell it in words."""
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
        """Return everything but the pictures, for machines."""
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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Draw it."""
        from matplotlib.figure import Figure

        from p3dc.figures import save_figure

        n_columns = len(self.neighbours)
        figure = Figure(figsize=(3.2 + 2.3 * n_columns, 5.4), layout="constrained")
        grid = figure.add_gridspec(2, n_columns + 1, width_ratios=[1.5] + [1] * n_columns, height_ratios=[3, 2])
        found = self.prediction
        title = f"{found.label}\n{100 * found.probability:.0f} %, then {found.runner_up}"
        if found.rejected:
            title = f"{UNKNOWN}\nnearest is {found.runner_up}"
        _show(figure.add_subplot(grid[0, 0]), self.photo, title, weight="bold")
        self._draw_cosines(figure.add_subplot(grid[1, 0]))
        meaning = "weight of base classes" if self.pulling else "base classes it resembles"
        for column, near in enumerate(self.neighbours, start=1):
            title = f"{near.example.label}\ncosine {near.cosine:.2f}"
            _show(figure.add_subplot(grid[0, column]), near.example.thumbnail, title)
            _draw_pulls(figure.add_subplot(grid[1, column]), near.pulls, meaning if column == 1 else "")
        weights = f"α = {self.alpha:.2f}, β = {self.beta:.2f}" if self.alpha else f"β = {self.beta:.2f}"
        how = f"pulled by base classes with weight {weights}" if self.pulling else "base classes do not pull"
        figure.suptitle(f"The nearest examples; {how}", fontsize=11)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name in a script that the font lacks
            save_figure(figure, Path(path))

    def _draw_cosines(self, ax: Any) -> None:
        names = sorted(self.cosines, key=self.cosines.__getitem__, reverse=True)[:6][::-1]
        shown = "" if self.prediction.rejected else self.prediction.label
        colours = ["C0" if name == shown else "0.75" for name in names]
        ax.barh(np.arange(len(names)), [self.cosines[name] for name in names], color=colours)
        ax.set_yticks(np.arange(len(names)), [_short(name) for name in names], parse_math=False)
        if np.isfinite(self.unknown_below):
            ax.axvline(self.unknown_below, color="0.3", linewidth=1, linestyle=":")
        ax.set_xlabel("cosine to the class")
        _tidy(ax)


def explain(classifier: ImageClassifier, photo: str | os.PathLike[str]) -> Explanation:
    """Explain the label of a photo in a file."""
    backbone = classifier.backbone
    seen: list[bytes] = []

    def read(path: Path) -> Image.Image:
        image = read_image(path, short_side=backbone.preprocessing.short_side)
        seen.append(thumbnail(image))
        return image

    ((_, result),) = embed_images([Path(photo)], read, backbone)
    if isinstance(result, ImageError):
        raise InputError(f"{readable(photo)}: {result}")
    return explain_features(classifier, result, readable(photo), seen[0])


def explain_features(classifier: ImageClassifier, features: Array, key: str, photo: bytes) -> Explanation:
    """Explain the label of a photo whose features, (D,), name and small picture are given."""
    calibrated = classifier.calibrated
    rows = features[None]
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
        dict(zip(classifier.classes, calibrated.cosines(rows)[0].tolist(), strict=True)),
        tuple(neighbours),
        calibrated.alpha,
        calibrated.beta,
        classifier.fitted.unknown_below,
    )


def base_classes(classifier: ImageClassifier, i: int) -> tuple[tuple[str, float], ...]:
    """Name the base classes that pulled an example most, or that it resembles most, with their weights."""
    return _strongest(classifier, _weights(classifier), i)


def _weights(classifier: ImageClassifier) -> Any:
    """Weights of the base classes, (S, B): those that pull or, where none does, at the sample level; None for none."""
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


def _show(ax: Any, jpeg: bytes, title: str, weight: str = "normal") -> None:
    ax.imshow(np.asarray(open_thumbnail(jpeg)))
    ax.set_title(
        "\n".join(_short(line, 26) for line in title.split("\n")), fontsize=9, fontweight=weight, parse_math=False
    )
    ax.axis("off")


def _draw_pulls(ax: Any, pulls: tuple[tuple[str, float], ...], meaning: str) -> None:
    if not pulls:
        ax.axis("off")
        return
    places = np.arange(len(pulls))[::-1]
    ax.barh(places, [weight for _, weight in pulls], color="C1", alpha=0.5)
    for place, (name, _) in zip(places, pulls, strict=True):
        ax.text(0, place, f" {_short(name)}", va="center", fontsize=8, parse_math=False)
    ax.set_yticks([])
    ax.set_xlabel(meaning)
    _tidy(ax)


def _tidy(ax: Any) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)


def _short(text: str, length: int = 20) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
