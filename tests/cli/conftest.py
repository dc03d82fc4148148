"""What tests of commands on photos share: photos of some classes, and a model fitted to them."""

import pytest

from p3dc import ImageClassifier
from tests.images.conftest import paint_classes


@pytest.fixture
def photos(tmp_path):
    return paint_classes(tmp_path / "photos")


@pytest.fixture
def fitted(photos, network, tmp_path):
    """A model, as fit writes it."""
    path = tmp_path / "model.safetensors"
    ImageClassifier.from_folder(photos, backbone=network).save(path)
    return path
