"""Photos of plain colours, and a backbone that sees nothing else."""

import numpy as np
import pytest
from PIL import Image

from p3dc import Priors
from p3dc.images.backbones.loading import load_backbone
from tests.conftest import make_features

COLOURS = {"olive": (150, 130, 20), "rust": (190, 70, 20), "teal": (30, 140, 140)}


def paint(path, colour, seed=0, noise=12):
    """Save a photo of sixteen squares of nearly one colour."""
    squares = np.random.default_rng(seed).normal(colour, noise, (4, 4, 3))
    pixels = np.clip(squares, 1, 254).astype(np.uint8).repeat(8, axis=0).repeat(8, axis=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def paint_classes(root, n_each=4, colours=COLOURS, first=0):
    for place, (name, colour) in enumerate(colours.items()):
        for number in range(first, first + n_each):
            paint(root / name / f"{number}.png", colour, seed=1000 * place + number)
    return root


@pytest.fixture
def photos(tmp_path):
    """Four photos of each of three classes."""
    return paint_classes(tmp_path / "photos")


@pytest.fixture(scope="session")
def colour_priors():
    """Base classes as wide as the features of Colours."""
    return Priors.from_features(make_features(5, 10, 20, n_features=12, prefix="base"))


@pytest.fixture(scope="session")
def lite0_backbone():
    return load_backbone()
