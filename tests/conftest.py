"""Small sets of features that look like a network's: skewed, never negative, clustered by class."""

import os
import sys
from pathlib import Path

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # or scikit-learn skips one of its checks

import numpy as np
import pytest

from p3dc import FeatureSet, P3DCClassifier, Priors
from p3dc.cli import main

TOML = 'short_side = 8\ncrop = 6\nmean = [0, 0, 0]\nscale = [255, 255, 255]\ncolours = "RGB"\nlayout = "NCHW"\n'
PAPER = {"alpha": 0.0, "beta": 0.9, "space": "plain"}


def paper(priors=None, **parameters):
    """The paper's method, with weights that are given."""
    return P3DCClassifier(priors, **(PAPER | parameters))


def make_features(seed, n_classes, n_rows, n_features=24, dtype=np.float32, prefix="class"):
    rng = np.random.default_rng(seed)
    centres = rng.gamma(0.6, 1.5, size=(n_classes, 1, n_features))
    rows = rng.gamma(2.0, centres / 2.0 + 0.05, size=(n_classes, n_rows, n_features))
    labels = np.repeat(np.arange(n_classes), n_rows)
    names = [f"{prefix}-{c}" for c in range(n_classes)]
    return FeatureSet(rows.reshape(-1, n_features).astype(dtype), labels, names)


def make_signed(seed, n_classes, n_rows, n_features=24, home=0.0, directions=None, noise=0.5, prefix="class"):
    """Gaussian classes around ``home``, whose means lie in some directions and whose samples scatter unevenly."""
    rng = np.random.default_rng(seed)
    directions = np.eye(n_features) if directions is None else directions
    centres = home + rng.normal(size=(n_classes, 1, len(directions))) @ directions
    scatter = noise * np.linspace(0.3, 1.7, n_features)
    rows = centres + scatter * rng.normal(size=(n_classes, n_rows, n_features))
    labels = np.repeat(np.arange(n_classes), n_rows)
    return FeatureSet(rows.reshape(-1, n_features), labels, [f"{prefix}-{c}" for c in range(n_classes)])


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture(scope="session")
def base():
    return make_features(1, 12, 30, prefix="base")


@pytest.fixture(scope="session")
def validation():
    return make_features(2, 8, 30, prefix="validation")


@pytest.fixture(scope="session")
def novel():
    return make_features(3, 8, 30, prefix="novel")


@pytest.fixture(scope="session")
def priors(base):
    return Priors.from_features(base)


@pytest.fixture
def task(novel):
    """Unequal shots of three classes, in no order, with string labels."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([np.flatnonzero(novel.labels == c)[:k] for c, k in ((0, 1), (1, 4), (2, 2))])
    rows = rng.permutation(rows)
    queries = np.concatenate([np.flatnonzero(novel.labels == c)[10:] for c in (0, 1, 2)])
    names = np.array(["wren", "robin", "auk"])
    return (
        novel.features[rows].astype(float),
        names[novel.labels[rows]],
        novel.features[queries].astype(float),
        names[novel.labels[queries]],
    )


@pytest.fixture(autouse=True)
def data_home(monkeypatch, tmp_path_factory, request):
    """A folder of the user's data that is empty, not the real one."""
    path = tmp_path_factory.getbasetemp() / f"data-{abs(hash(request.node.nodeid))}"
    monkeypatch.setenv("XDG_DATA_HOME", str(path))
    return path


@pytest.fixture
def p3dc(monkeypatch, capsys):
    """Run the command and return its status, output and errors."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["p3dc", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code, *capsys.readouterr()

    return call


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    """Each device of torch that is there."""
    import torch

    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch finds no GPU")
    return request.param


@pytest.fixture(scope="session")
def data_folder():
    """The folder of real features; tests marked data run where P3DC_DATA names it."""
    folder = os.environ.get("P3DC_DATA")
    if not folder:
        pytest.skip("P3DC_DATA names no folder of real features")
    path = Path(folder)
    assert path.is_dir(), f"P3DC_DATA is {folder}, which is not a folder"
    return path


@pytest.fixture(scope="session")
def network(tmp_path_factory):
    """A network that gives all colours of a photo, as a file with its preprocessing."""
    from tests.images.backbones.test_onnx_network import model

    path = tmp_path_factory.mktemp("networks") / "tiny.onnx"
    path.write_bytes(model([("Flatten", ["pixels"], ["features"], {})]))
    path.with_suffix(".toml").write_text(TOML)
    return path


@pytest.fixture(scope="session")
def s3():
    """The address of an S3 server on this machine, which the environment names as well."""
    from tests.stores import s3_server

    with pytest.MonkeyPatch.context() as patch, s3_server(patch) as address:
        yield address


@pytest.fixture
def bucket(s3, request):
    """A new bucket."""
    from tests.stores import make_bucket

    return make_bucket(f"bucket-{abs(hash(request.node.nodeid))}")


@pytest.fixture
def elsewhere(monkeypatch):
    """Point the client to another server."""
    from p3dc.io import store
    from tests.stores import ACCOUNT

    def use(address, **account):
        for name, value in (ACCOUNT | account | {"AWS_ENDPOINT_URL": address}).items():
            monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
        store._file_system.cache_clear()

    yield use
    store._file_system.cache_clear()
