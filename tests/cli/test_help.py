"""The help of each command: options under headings, an example that runs as printed, and a page to read on."""

import re
import shlex
import shutil
import signal
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer

from p3dc import ImageClassifier, Priors
from p3dc.cli import COMMANDS
from p3dc.cli.shared import app
from tests.conftest import make_features
from tests.images.backbones.test_network_folder import classifying, write_folder
from tests.images.conftest import paint_classes

ROOT = Path(__file__).parents[2]
for module in COMMANDS:
    import_module(f"p3dc.cli.{module}")


def commands(command, words=("p3dc",)):
    """List a program's commands, groups included, by the words that call them."""
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))


HELP = dict(commands(typer.main.get_command(app)))
EXAMPLES = {
    " ".join(words): re.findall(r"^    (p3dc .*)", command.epilog, flags=re.M) for words, command in HELP.items()
}
SHORTER = {"p3dc demo": ["--tasks", "20"], "p3dc reproduce": ["--no-quick", "--tasks", "5", "--methods", "nn"]}
"""What is added to examples that take longer than a test should."""

each_command = pytest.mark.parametrize("name", EXAMPLES)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with everything that the examples read."""
    folder = tmp_path_factory.mktemp("prepared")
    photos = paint_classes(folder / "photos")
    shutil.copytree(photos / "olive", folder / "new")
    shutil.copytree(photos / "teal", folder / "more" / "blue")
    paint_classes(folder / "pile", n_each=12)
    for seed, name in enumerate(("base", "validation", "novel")):
        (folder / "birds").mkdir(exist_ok=True)
        make_features(seed, 24, 20, prefix=name).save(folder / f"{name}.npz")
        shutil.copy(folder / f"{name}.npz", folder / "birds")
    ImageClassifier.from_folder(photos).save(folder / "model.safetensors")
    write_folder(folder / "net", {"onnx/model.onnx": classifying()})
    of_photos = Priors.from_features(make_features(5, 10, 20, n_features=3, prefix="base"))
    of_photos.save(folder / "photos.safetensors")
    return folder


@pytest.fixture
def folder(prepared, tmp_path, monkeypatch):
    monkeypatch.chdir(shutil.copytree(prepared, tmp_path / "work"))


@each_command
def test_the_help_shows_an_example_and_a_page(p3dc, name):
    status, shown, errors = p3dc(*name.split()[1:], "--help")
    assert (status, errors) == (0, "")
    assert EXAMPLES[name]
    for example in EXAMPLES[name]:
        assert example.startswith(name)
        assert example in shown, "it is not wrapped in 80 columns"
    page = ROOT / re.search(r"Documentation: (\S+)", shown)[1]
    assert page.name in {path.name for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))}


@each_command
def test_options_stand_under_headings(name):
    command = HELP[tuple(name.split())]
    if not hasattr(command, "commands"):
        options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
        assert all(option.rich_help_panel for option in options)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in ("p3dc serve", "p3dc backbone export")])
def test_examples_run_as_printed(p3dc, folder, name):
    for example in EXAMPLES[name]:
        status, _, errors = p3dc(*shlex.split(example)[1:], *SHORTER.get(name, ()))
        assert status == 0, errors


def test_the_example_of_serve_runs(folder):
    command = [sys.executable, "-m", *shlex.split(EXAMPLES["p3dc serve"][0]), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("Serving http://localhost:")
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 128 + signal.SIGTERM


@pytest.mark.torch
@pytest.mark.skipif(not find_spec("timm"), reason="timm is not installed")
def test_the_example_of_export_runs_with_random_weights(p3dc, folder):
    status, _, errors = p3dc(*shlex.split(EXAMPLES["p3dc backbone export"][0])[1:], "--no-pretrained")
    assert status == 0, errors
