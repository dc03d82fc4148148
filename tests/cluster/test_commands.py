"""The commands give the same files and figures with either engine."""

import json
import shutil

import numpy as np
import pytest

from p3dc import Priors
from tests.images.conftest import paint_classes
from tests.images.test_extraction import contents

pytestmark = pytest.mark.ray


@pytest.fixture
def folder(tmp_path, monkeypatch, network, base, validation, novel):
    """Photos, a network and features, all called by names that only this folder knows."""
    paint_classes(tmp_path / "photos")
    for file in (network, network.with_suffix(".toml")):
        shutil.copy(file, tmp_path)
    for name, features in (("base", base), ("validation", validation), ("novel", novel)):
        features.save(tmp_path / f"{name}.npz")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_extract_and_priors(two_workers, p3dc, folder):
    for engine in ("local", "ray"):
        options = ["--engine", engine, "--backbone", "tiny.onnx", "--part-rows", 5]
        status, output, errors = p3dc("extract", "photos", "--out", engine, *options)
        assert (status, errors) == (0, "")
        assert output == f"12 of 12 images extracted to {engine}\n"
        assert p3dc("priors", engine, "--out", f"{engine}.safetensors", "--engine", engine)[0] == 0
    assert contents(folder / "ray") == contents(folder / "local")
    one, two = Priors.load("local.safetensors"), Priors.load("ray.safetensors")
    assert one.class_names == two.class_names == ("olive", "rust", "teal")
    np.testing.assert_allclose(one.prototypes, two.prototypes, rtol=1e-12)


def test_evaluate(two_workers, p3dc, folder):
    sets = ["--base", "base.npz", "--validation", "validation.npz", "--novel", "novel.npz"]
    drawing = ["--shot", 1, "--shot", 3, "--query", 5, "--tasks", 430, "--auto", "--unknown", 6]
    found = []
    for engine in ("local", "ray"):
        status, output, errors = p3dc("evaluate", *sets, *drawing, "--engine", engine, "--json", f"{engine}.json")
        assert (status, errors) == (0, "")
        found.append((output, json.loads((folder / f"{engine}.json").read_text())))
    assert found[0] == found[1]
