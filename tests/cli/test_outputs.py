"""No command writes over anything that it reads, however it is spelled."""

import os
import shutil

import pytest

from p3dc import ImageClassifier
from p3dc.cli import COMMANDS, backbones, extraction, photos, priors, reproduction, research, serving
from p3dc.cli.outputs import Use, _uses, check_outputs
from p3dc.cli.shared import app
from p3dc.errors import InputError
from p3dc.io.store import location
from tests.conftest import make_features
from tests.images.conftest import paint_classes

CASES = [
    "evaluate --base base.npz --novel novel.npz --json base.npz",
    "evaluate --base base.npz --novel novel.npz --json novel.npz",
    "evaluate --base base.npz --novel novel.npz --validation validation.npz --json validation.npz",
    "evaluate --base base.npz --novel novel.npz --json ./sub/../base.npz",
    "evaluate --base base.npz --novel novel.npz --json link-to-base",
    "evaluate --base link-to-base --novel novel.npz --json base.npz",
    "evaluate --base base.npz --novel novel.npz --json hard-base.npz",
    "evaluate --base parts --novel novel.npz --json parts/part-000000.parquet",
    "search --base base.npz --json base.npz",
    "search --base base.npz --validation validation.npz --json validation.npz",
    "search --base base.png --figure base.png",
    "reproduce data --out data",
    "reproduce data/cub --out data",
    "reproduce data --out .",
    "extract photos --out photos --backbone tiny.onnx",
    "extract photos --out out --backbone tiny.onnx --json photos/teal/0.png",
    "extract photos --out out --backbone tiny.onnx --json tiny.onnx",
    "extract photos --out out --backbone tiny.onnx --json tiny.toml",
    "extract list.csv --out out --backbone tiny.onnx --json list.csv",
    "extract list.csv --out out --backbone tiny.onnx --json photos/teal/0.png",
    "extract parts --out parts --backbone tiny.onnx",
    "extract s3://bucket/photos --out s3://bucket/photos",
    "extract s3://bucket/photos --out s3://bucket",
    "fit photos --out priors.safetensors --priors priors.safetensors --backbone tiny.onnx",
    "fit photos --out model.safetensors --backbone tiny.onnx --json photos/teal/1.png",
    "fit photos --out model.safetensors --backbone tiny.onnx --json linked/teal.png",
    "fit linked --out model.safetensors --backbone tiny.onnx --json photos/teal/0.png",
    "fit photos --out new.safetensors --unlabelled more --backbone tiny.onnx --json more/0.png",
    "add model.safetensors photos --backbone tiny.onnx --json model.safetensors",
    "add model.safetensors photos --backbone tiny.onnx --json photos/rust/0.png",
    "predict model.safetensors photos --backbone tiny.onnx --csv photos/teal/0.png",
    "predict model.safetensors photos/teal/0.png --backbone tiny.onnx --csv photos/teal/0.png",
    "predict model.safetensors photos --backbone tiny.onnx --csv model.safetensors",
    "predict model.safetensors photos --backbone tiny.onnx --csv a.csv --json a.csv",
    "label photos more --backbone tiny.onnx --csv more/0.png",
    "label photos more --backbone tiny.onnx --priors priors.safetensors --save priors.safetensors",
    "label list.csv more --backbone tiny.onnx --save new.safetensors --csv list.csv",
    "explain model.safetensors more/0.png --backbone tiny.onnx --out more/0.png",
    "explain model.safetensors base.png --backbone tiny.onnx --out base.png",
    "explain model.safetensors more/0.png --backbone tiny.onnx --json model.safetensors",
    "priors priors.safetensors base.npz --out priors.safetensors",
    "priors photos --out new.safetensors --backbone tiny.onnx --json photos/teal/0.png",
    "priors photos --out new.safetensors --features photos --backbone tiny.onnx",
    "priors photos new.features --out new.safetensors --backbone tiny.onnx",
    "priors parts --out new.safetensors --json parts/part-000000.parquet",
    "backbone show network --json network/config.json",
    "backbone show tiny.onnx --json tiny.onnx",
    "backbone show tiny.onnx --json tiny.onnx.data",
    "backbone priors tiny.onnx priors.safetensors --out priors.safetensors",
    "backbone export timm:resnet18 --out net --json net",
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, network, priors):
    """A folder with an input of each kind."""
    folder = tmp_path_factory.mktemp("inputs")
    paint_classes(folder / "photos")
    shutil.copytree(folder / "photos" / "olive", folder / "more")
    shutil.copy(folder / "photos" / "olive" / "0.png", folder / "base.png")
    for ending in (".onnx", ".toml"):
        shutil.copy(network.with_suffix(ending), folder / f"tiny{ending}")
    for name in ("base", "validation", "novel"):
        make_features(len(name), 8, 30, prefix=name).save(folder / f"{name}.npz")
    for inner in ("data/cub", "sub", "network", "linked", "parts", "new.features"):
        (folder / inner).mkdir(parents=True)
    shutil.copy(folder / "base.npz", folder / "data" / "cub")
    make_features(1, 8, 30).save(folder / "parts" / "part-000000.parquet")
    shutil.copy(folder / "parts" / "part-000000.parquet", folder / "new.features")
    (folder / "network" / "config.json").write_text("{}")
    (folder / "tiny.onnx.data").write_bytes(b"weights")
    (folder / "list.csv").write_text("path,label\nphotos/teal/0.png,teal\nphotos/rust/0.png,rust\n")
    (folder / "link-to-base").symlink_to("base.npz")
    os.link(folder / "base.npz", folder / "hard-base.npz")
    (folder / "linked" / "teal.png").symlink_to("../photos/teal/0.png")
    priors.save(folder / "priors.safetensors")
    ImageClassifier.from_folder(folder / "photos", backbone=folder / "tiny.onnx").save(folder / "model.safetensors")
    return folder


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("line", CASES)
def test_an_output_that_is_an_input_is_refused(p3dc, prepared, monkeypatch, line):
    monkeypatch.chdir(prepared)
    before = contents(prepared)
    status, output, errors = p3dc(*line.split())
    assert (status, output, errors.count("\n")) == (2, "", 1), errors
    assert "is to be written" in errors
    assert contents(prepared) == before


@pytest.mark.parametrize(
    "line",
    [
        "predict model.safetensors photos --backbone tiny.onnx --csv photos/labels.csv",
        "fit photos --out photos/model.safetensors --backbone tiny.onnx",
        "extract photos --out photos/features --backbone tiny.onnx",
        "add model.safetensors more-classes --backbone tiny.onnx",
    ],
)
def test_a_second_run_may_replace_what_the_first_wrote(p3dc, prepared, tmp_path, monkeypatch, line):
    monkeypatch.chdir(shutil.copytree(prepared, tmp_path / "inputs", symlinks=True))
    shutil.copytree("photos", "more-classes")
    for _ in range(2):
        assert p3dc(*line.split())[0] == 0


def test_every_output_of_every_command_is_declared():
    """A parameter whose help or name speaks of writing is marked, so that no command can leave out the check."""
    for module in (research, reproduction, extraction, priors, photos, backbones, serving):
        assert module.__name__.rpartition(".")[2] in COMMANDS
    commands = [info.callback for group in (app, backbones.backbone) for info in group.registered_commands]
    assert len(commands) == 15
    written = set()
    for callback in commands:
        name = callback.__name__
        assert callback.__wrapped__, f"{name} is not registered with command()"
        uses = _uses(callback)
        written |= {(callback, parameter) for parameter, use in uses.items() if use.name.startswith("WRITES")}
        for parameter in ("json", "out", "csv_file", "save", "figure", "features"):
            if parameter in callback.__annotations__:
                assert uses[parameter].name.startswith("WRITES"), (name, parameter)
        for parameter in ("backbone", "priors", "model", "support", "photos", "sources", "base"):
            if parameter in callback.__annotations__:
                assert uses[parameter].name.startswith("READS"), (name, parameter)
    assert len(written) >= 20


def test_places_in_stores_are_compared_by_address():
    def check(read, written):
        check_outputs({Use.READS: [location(read)], Use.WRITES_FOLDER: [location(written)]})

    check("s3://bucket/photos", "s3://bucket/photos-features")
    check("s3://bucket/photos", "s3://bucket/photos/features")
    for read, written in (("s3://bucket/photos/", "s3://bucket/photos"), ("s3://bucket/a/b", "s3://bucket/a")):
        with pytest.raises(InputError, match="is to be written"):
            check(read, written)
