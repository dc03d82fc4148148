"""The commands for networks."""

import json

import pytest

from p3dc import Priors
from tests.cli.test_photos import is_one_sentence
from tests.conftest import make_features
from tests.images.backbones.test_network_folder import classifying, write_folder


def test_a_network_is_shown(p3dc, tmp_path):
    folder = write_folder(tmp_path / "net", {"onnx/model.onnx": classifying()})
    status, said, errors = p3dc("backbone", "show", folder, "--json", tmp_path / "facts.json")
    assert (status, errors) == (0, "")
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert (facts["name"], facts["features"], facts["classes"]) == ("net", 3, 5)
    assert f"digest: {facts['digest']}" in said


def test_a_head_and_priors_of_photos_become_base_classes(p3dc, tmp_path):
    folder = write_folder(tmp_path / "net", {"onnx/model.onnx": classifying()})
    Priors.from_features(make_features(5, 10, 20, n_features=3, prefix="base")).save(tmp_path / "photos.safetensors")
    command = ("backbone", "priors", folder, tmp_path / "photos.safetensors", "--out", tmp_path / "head.safetensors")
    status, said, errors = p3dc(*command)
    assert (status, errors) == (0, "")
    assert "Priors(5 base classes, 3 features)" in said
    found = Priors.load(tmp_path / "head.safetensors")
    assert found.geometry is not None
    headless = write_folder(tmp_path / "bare", {"onnx/model.onnx": classifying(output="scores")})
    status, _, errors = p3dc(*command[:2], headless, *command[3:])
    assert status == 2
    assert is_one_sentence(errors)
    assert "has no last layer to take classes from" in errors


@pytest.mark.parametrize(
    "line",
    [
        "extract photos --out out",
        "fit photos --out out.safetensors",
        "label photos photos",
        "predict model.safetensors photos",
        "add model.safetensors photos",
        "explain model.safetensors photos/teal/0.png",
        "priors photos --out out.safetensors",
    ],
)
def test_a_device_that_is_not_there_is_one_sentence(p3dc, fitted, network, line, monkeypatch):
    monkeypatch.chdir(fitted.parent)
    status, _, errors = p3dc(*line.split(), "--backbone", network, "--device", "tpu")
    assert status == 2
    assert is_one_sentence(errors)
    assert "tpu" in errors
