"""Connecting to a Ray cluster, and the errors where there is none."""

import subprocess
import sys

import pytest

from p3dc.cluster.connection import connected
from p3dc.errors import InputError


def test_a_missing_extra_names_its_install_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r'Ray is not installed. Run pip install "p3dc-shot\[ray\]"'), connected():
        pass


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--engine", "spark"], "there is no engine 'spark'. Choose from local, ray."),
        (["--address", "here:6379"], "--address is for Ray. Give --engine ray as well, or leave it out."),
    ],
)
@pytest.mark.parametrize("command", ["extract", "priors", "evaluate"])
def test_a_wrong_engine_is_one_sentence(p3dc, tmp_path, base, novel, command, options, sentence):
    for name, features in (("base", base), ("novel", novel)):
        features.save(tmp_path / f"{name}.npz")
    (tmp_path / "photo.jpg").touch()
    arguments = {
        "extract": [tmp_path, "--out", tmp_path / "out"],
        "priors": [tmp_path / "base.npz", "--out", tmp_path / "priors.safetensors"],
        "evaluate": ["--base", tmp_path / "base.npz", "--novel", tmp_path / "novel.npz"],
    }
    status, _, errors = p3dc(command, *arguments[command], *options)
    assert status == 2
    assert errors.splitlines()[-1] == f"p3dc: {sentence}"


@pytest.mark.ray
@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("127.0.0.1:1", r"no Ray cluster can be reached at 127.0.0.1:1 \(.*refused\). Start one with ray start --head"),
        ("somewhere", "'somewhere' is not a Ray address. Give host:port"),
        ("ray://host:10001", "'ray://host:10001' is not a Ray address. Give host:port"),
    ],
)
def test_an_address_without_a_ray_is_one_sentence(address, sentence):
    with pytest.raises(InputError, match=sentence), connected(address):
        pass


@pytest.mark.ray
def test_a_ray_that_was_joined_goes_on(two_workers, tmp_path, base):
    import ray

    base.save(tmp_path / "base.parquet")
    command = [sys.executable, "-m", "p3dc", "priors", tmp_path / "base.parquet", "--out", tmp_path / "p.safetensors"]
    done = subprocess.run(
        [*command, "--engine", "ray", "--address", two_workers], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "12 base classes" in done.stdout
    assert ray.get(ray.remote(lambda: 1).remote()) == 1
