# ruff: noqa: E501
"""Wrong command lines: each ends with status 2 and one sentence, never with a traceback, and harms no file.

A line is a right one with something wrong in it: an option of a wrong value, a file that is something else, a name that
does not exist, a required part left out.
"""

import random
import shutil

import pytest

from p3dc import ImageClassifier
from tests.conftest import make_features
from tests.images.conftest import paint_classes

NET = ["--backbone", "tiny.onnx"]
RIGHT = {
    "demo": ["demo", "--out", "demo.png", "--tasks", "3"],
    "evaluate": ["evaluate", "--base", "base.npz", "--novel", "novel.npz", "--tasks", "3", "--query", "3"],
    "search": ["search", "--base", "base.npz", "--tasks", "3", "--query", "3", "--step", "0.5"],
    "reproduce": ["reproduce", "data", "--out", "report", "--quick"],
    "extract": ["extract", "photos", "--out", "features", *NET],
    "fit": ["fit", "photos", "--out", "new.safetensors", *NET],
    "add": ["add", "model.safetensors", "photos", *NET],
    "predict": ["predict", "model.safetensors", "photos", *NET],
    "label": ["label", "photos", "more", "--csv", "new.csv", *NET],
    "explain": ["explain", "model.safetensors", "more/0.png", "--out", "new.png", *NET],
    "priors": ["priors", "base.npz", "--out", "new.safetensors"],
    "show": ["backbone", "show", "tiny.onnx"],
    "serve": ["serve", "--port", "0", "--no-browser"],
}
NUMBER = ["", "x", "0x10", "1e", "--", "½", "1,5", "\x1b[31m1", "9" * 400 + "x", "nan%"]
COUNT = [*NUMBER, "0", "-1", "1.5", "nan", "inf", "1e3"]
SHARE = [*NUMBER, "-0.1", "2", "nan", "inf", "-inf"]
NOT_FILES = [
    "missing",
    "missing/file",
    "photos/teal",
    "\x1b]0;title\x07",
    "x" * 300,
    "/dev/null",
    "a\nb",
    "\udcff",
]
NO_FEATURES = [*NOT_FILES, "empty.npz", "garbage.npz", "text.npz", "garbage.plk", "cut.npz", "tiny.onnx", "list.csv"]
NO_MODEL = [*NOT_FILES, "empty.safetensors", "garbage.safetensors", "priors.safetensors", "cut.safetensors"]
NO_PHOTOS = [
    "missing",
    "\x1b[2J",
    "x" * 300,
    "/dev/null",
    "empty",
    "empty.csv",
    "garbage.csv",
    "garbage.zip",
    "cut.tar",
]
NO_NETWORK = [
    "missing",
    "efficientnet-lite9",
    "hf:",
    "hf:x",
    "garbage.onnx",
    "empty.onnx",
    "bare.onnx",
    "empty",
    "ftp://x",
]
NO_OUTPUT = ["missing/out.json", "photos", "/dev/null/x", "/dev/full", "x" * 300, "read-only.json"]
NO_FIGURE = ["missing/x.png", "x.jpg", "x", "x.json", "photos", "base.npz"]
NO_NEW_MODEL = ["missing/x.safetensors", "x.npz", "x", "photos", "read-only.safetensors"]
WRONG = {
    "demo": {"--tasks": COUNT, "--out": NO_FIGURE, "--json": NO_OUTPUT, "--seed": NUMBER},
    "evaluate": {
        "--base": NO_FEATURES, "--novel": NO_FEATURES, "--validation": NO_FEATURES, "--way": [*COUNT, "1", "99"],
        "--shot": [*COUNT, "99"], "--query": [*COUNT, "99"], "--tasks": COUNT, "--seed": [*NUMBER, "-1"],
        "--alpha": [*NUMBER, "0.5"], "--beta": [*NUMBER, "0.5"], "--nearest": COUNT, "--power": [*NUMBER, "nan"],
        "--scale": [*SHARE[:-3], "-1", "nan"], "--attention": ["x", ""], "--method": ["x", "", "NN"], "--json": NO_OUTPUT,
        "--unknown": [*NUMBER, "-1"], "--pile": [*NUMBER, "-1", "9999"], "--engine": ["x", ""], "--address": ["x"],
        "--device": ["x", "gpu:7"], "--memory": ["x", "2 monkeys", "-1GB", "0"],
    },
    "search": {
        "--base": NO_FEATURES, "--validation": NO_FEATURES, "--step": [*NUMBER, "0", "-1", "nan", "0.0001", "1e-300", "2"],
        "--margin": [*NUMBER, "-1", "nan", "inf", "1e9", "1e308"], "--nearest": COUNT, "--scale": [*NUMBER, "-1", "nan"],
        "--attention": ["x"], "--figure": NO_FIGURE, "--json": NO_OUTPUT, "--tasks": COUNT, "--way": [*COUNT, "99"],
    },
    "reproduce": {"--out": ["base.npz", "data", ".", "/dev/null"], "--tasks": NUMBER, "--methods": ["x"], "--protocol": ["x"], "--as": ["x"], "--jobs": COUNT},
    "extract": {
        "--out": ["base.npz", "photos", "missing/features", "/dev/null", "ftp://x/y", "hf://x/y", "\udcff"],
        "--backbone": NO_NETWORK, "--views": [*COUNT, "8"], "--batch": COUNT, "--part-rows": COUNT, "--device": ["x"],
        "--engine": ["x"], "--address": ["x"], "--json": NO_OUTPUT,
    },
    "fit": {
        "--out": NO_NEW_MODEL, "--priors": NO_MODEL, "--backbone": NO_NETWORK, "--reject": SHARE, "--views": [*COUNT, "8"],
        "--unlabelled": ["missing", "empty", "garbage.zip"], "--json": NO_OUTPUT, "--device": ["x"],
    },
    "add": {"--backbone": NO_NETWORK, "--json": NO_OUTPUT},
    "predict": {"--csv": NO_OUTPUT, "--backbone": NO_NETWORK, "--views": [*COUNT, "8"], "--device": ["x"], "--json": NO_OUTPUT},
    "label": {"--csv": NO_OUTPUT, "--priors": NO_MODEL, "--reject": SHARE, "--save": NO_NEW_MODEL, "--views": [*COUNT, "8"]},
    "explain": {"--out": NO_FIGURE, "--backbone": NO_NETWORK, "--json": NO_OUTPUT},
    "priors": {"--out": NO_NEW_MODEL, "--json": NO_OUTPUT, "--engine": ["x"], "--address": ["x"]},
    "show": {"--json": NO_OUTPUT},
    "serve": {
        "--port": [*NUMBER, "-1", "65536"], "--host": ["0.0.0.0", "no.such.host.invalid", "x" * 300, "\udcff"], "--project": ["base.npz"],
        "--token": ["short", "ü" * 20], "--priors": NO_MODEL, "--backbone": NO_NETWORK, "--reject": SHARE,
    },
}  # fmt: skip
ARGUMENTS = {
    "reproduce": {1: ["missing", "base.npz", "empty"]},
    "extract": {1: NO_PHOTOS},
    "fit": {1: [*NO_PHOTOS, "more"]},
    "add": {1: NO_MODEL, 2: [*NO_PHOTOS, "more"]},
    "predict": {1: NO_MODEL, 2: NO_PHOTOS},
    "label": {1: NO_PHOTOS, 2: NO_PHOTOS},
    "explain": {1: NO_MODEL, 2: ["missing", "photos", "garbage.zip", "/dev/null", "x" * 300]},
    "priors": {1: [name for name in NO_FEATURES if name != "list.csv"]},
    "show": {2: NO_NETWORK},
}
"""What is wrong at a place of the right line."""

STRAY = [
    ["--no-such-option"],
    ["--json"],
    ["--", "stray", "stray"],
    ["-x"],
    ["--out"],
    ["--help-me"],
    ["stray\x1b[0m", "--x"],
]


def wrong_lines(n_lines, seed):
    """Draw wrong command lines."""
    rng = random.Random(seed)
    lines = [["nonsense"], ["fitt"], ["--nonsense"], ["\x1b[2J"], ["x" * 70_000], ["backbone", "x"], ["--version=1"]]
    while len(lines) < n_lines:
        name = rng.choice(list(RIGHT))
        line, kind = list(RIGHT[name]), rng.random()
        if kind < 0.6:
            option = rng.choice(list(WRONG[name]))
            line += [option, rng.choice(WRONG[name][option])]
            if option in RIGHT[name]:  # once, so that the right value does not count
                del line[line.index(option) : line.index(option) + 2]
        elif kind < 0.85 and name in ARGUMENTS:
            place = rng.choice(list(ARGUMENTS[name]))
            line[place] = rng.choice(ARGUMENTS[name][place])
        elif kind < 0.95:
            stray = rng.choice(STRAY)
            if stray[0] == "--" and name in ("predict", "label"):
                continue  # more photos, which are not there: the others are labelled
            line += stray
        elif name not in ("demo", "serve"):
            line = line[: 2 if line[0] == "backbone" else 1]
        else:
            continue
        lines.append(line)
    return lines


@pytest.fixture
def folder(tmp_path, network, priors, monkeypatch):
    """A folder with right files and wrong ones, where commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    paint_classes(tmp_path / "photos")
    shutil.copytree("photos/olive", "more")
    for ending in (".onnx", ".toml"):
        shutil.copy(network.with_suffix(ending), f"tiny{ending}")
    shutil.copy("tiny.onnx", "bare.onnx")
    for name in ("base", "novel"):
        make_features(len(name), 8, 12, prefix=name).save(f"{name}.npz")
    priors.save("priors.safetensors")
    ImageClassifier.from_folder("photos", backbone="tiny.onnx").save("model.safetensors")
    noise = random.Random(0).randbytes(3000)
    for name in ("npz", "plk", "safetensors", "onnx", "csv", "zip"):
        (tmp_path / f"garbage.{name}").write_bytes(noise)
        (tmp_path / f"empty.{name}").touch()
    (tmp_path / "text.npz").write_text("features")
    (tmp_path / "cut.tar").write_bytes(noise[:700])
    for name in ("base.npz", "model.safetensors"):
        path = tmp_path / name
        path.with_stem("cut").write_bytes(path.read_bytes()[:-100])
    (tmp_path / "list.csv").write_text("path,label\nphotos/teal/0.png,teal\n")
    for name in ("read-only.json", "read-only.safetensors"):
        (tmp_path / name).write_text("old")
        (tmp_path / name).chmod(0o444)
    (tmp_path / "empty").mkdir()
    (tmp_path / "data").mkdir()
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check(p3dc, folder, lines):
    """Run each line; return those that end otherwise than they should."""
    before, problems = contents(folder), []
    for line in lines:
        try:
            status, _, errors = p3dc(*line)
        except BaseException as error:
            problems.append(f"{line}: {error!r}")
            continue
        told = [sentence for sentence in errors.splitlines() if sentence]
        if status != 2 or not told or not all(sentence.startswith("p3dc: ") for sentence in told):
            problems.append(f"{line}: status {status}, {errors[:300]!r}")
        elif max(map(len, told)) > 700 or "\x1b" in errors:
            problems.append(f"{line}: {len(errors)} characters, {errors[:100]!r}")
        after = contents(folder)
        for path, content in before.items():
            if after.get(path) != content:
                problems.append(f"{line}: {path} changed")
        before = after
    return problems


def test_wrong_command_lines_end_in_one_sentence(p3dc, folder):
    assert check(p3dc, folder, wrong_lines(300, seed=1)) == []


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(10))
def test_many_wrong_command_lines_end_in_one_sentence(p3dc, folder, seed, count):
    lines = wrong_lines(1000, seed=100 + seed)
    problems = check(p3dc, folder, lines)
    count("command lines", "wrong ones", "one sentence and status 2", len(lines) - len(problems))
    count("command lines", "wrong ones", "anything else", len(problems))
    assert not problems, "\n".join(problems)
