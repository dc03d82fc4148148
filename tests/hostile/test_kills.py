"""Commands that are killed at random moments: each file is the old one or the new one, and nothing is left over.

The commands run in children of a process that has imported everything, so that a kill costs milliseconds.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

import pytest

from tests.conftest import make_features
from tests.images.conftest import paint_classes

ROOT = Path(__file__).parents[2]
NET = ["--backbone", "tiny.onnx"]
COMMANDS = {
    "extract": ["extract", "photos", "--out", "features", "--part-rows", "2", *NET],
    "fit": ["fit", "photos", "--out", "fitted.safetensors", "--json", "fit.json", *NET],
    "add": ["add", "model.safetensors", "more", "--json", "add.json", *NET],
    "priors": ["priors", "photos", "--out", "made.safetensors", "--json", "priors.json", *NET],
    "label": [
        "label",
        "photos",
        "pile",
        "--csv",
        "pile.csv",
        "--save",
        "pile.safetensors",
        "--json",
        "pile.json",
        *NET,
    ],
    "evaluate": ["evaluate", "--base", "base.npz", "--novel", "novel.npz", "--tasks", "60", "--json", "evaluate.json"],
}
WRITTEN = {
    "extract": ["features"],
    "fit": ["fitted.safetensors", "fit.json"],
    "add": ["model.safetensors", "add.json"],
    "priors": ["made.safetensors", "priors.json"],
    "label": ["pile.csv", "pile.safetensors", "pile.json"],
    "evaluate": ["evaluate.json"],
}
IMPORTED = (
    "matplotlib.figure",
    "onnxruntime",
    "p3dc.cli.extraction",
    "p3dc.cli.photos",
    "p3dc.cli.priors",
    "p3dc.cli.research",
    "p3dc.images.backbones.onnx_network",
    "p3dc.images.extraction",
    "pyarrow.parquet",
    "scipy.linalg",
)
CLEAN = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130}


def child(arguments):
    """Run a command in a child process; return its process id."""
    from p3dc.cli import main

    before = signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # until the command begins
    pid = os.fork()
    if pid:
        signal.signal(signal.SIGINT, before)
    else:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        sys.argv = ["p3dc", *arguments]
        status = 70
        try:
            main()
        except SystemExit as stop:
            status = stop.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return pid


def partials():
    return [str(path) for path in Path().rglob(".p3dc-*")]


def contents(names):
    """The bytes of files, and of the parts in folders; what is not there is None."""
    found = {}
    for name in names:
        path = Path(name)
        if path.is_dir():
            found |= {str(part): part.read_bytes() for part in path.glob("part-*")}
        else:
            found[name] = path.read_bytes() if path.exists() else None
    return found


def restore(old):
    for name, content in old.items():
        Path(name).unlink(missing_ok=True) if content is None else Path(name).write_bytes(content)


def kill(arguments, number, rng, longest):
    """Start a command, send it a signal while it runs or writes, and return its status."""
    pid = child(arguments)
    begun = time.monotonic()
    if rng.random() < 0.6:  # while something is being written
        while not partials() and time.monotonic() - begun < longest:
            time.sleep(0.0002)
        time.sleep(rng.uniform(0, 0.004))
    else:
        time.sleep(rng.uniform(0, longest))
    os.kill(pid, number)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def campaign(n_kills, seed):
    """Kill each command many times; print what was found as JSON."""
    for module in IMPORTED:
        import_module(module)
    found = {name: kill_often(name, n_kills, seed) for name in COMMANDS}
    print(json.dumps(found))  # noqa: T201


def kill_often(name, n_kills, seed):
    """Kill a command many times; return what is wrong afterwards, and each status."""
    rng, arguments, names = random.Random(seed), COMMANDS[name], WRITTEN[name]
    old = contents(names) if name != "extract" else {}
    begun = time.monotonic()
    assert os.waitpid(child(arguments), 0)[1] == 0
    longest = time.monotonic() - begun
    new = contents(names)
    shutil.rmtree("features", ignore_errors=True)
    restore(old)
    problems, statuses = [], []
    for _ in range(n_kills):
        number = rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
        earlier = partials()
        status = kill(arguments, number, rng, longest)
        statuses.append(status)
        if status not in (0, -number, CLEAN.get(number)):
            problems.append(f"status {status} after {number.name}")
        if number != signal.SIGKILL and set(partials()) - set(earlier):
            problems.append(f"{partials()} left after {number.name}")
        for path, content in contents(names).items():
            if content != new.get(path) and content != old.get(path):
                problems.append(f"{path} is neither old nor new after {number.name}")
        restore(old)
        if name == "extract" and rng.random() < 0.3:
            shutil.rmtree("features", ignore_errors=True)
    assert os.waitpid(child(arguments), 0)[1] == 0
    if contents(names) != new:
        problems.append("the last run gives other files")
    if partials():
        problems.append(f"{partials()} left by the last run")
    return {"problems": problems, "statuses": statuses}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, network):
    from p3dc import ImageClassifier

    folder = tmp_path_factory.mktemp("inputs")
    paint_classes(folder / "photos")
    (folder / "more").mkdir()
    shutil.copytree(folder / "photos" / "olive", folder / "more" / "green")
    shutil.copytree(folder / "photos" / "teal", folder / "pile")
    for ending in (".onnx", ".toml"):
        shutil.copy(network.with_suffix(ending), folder / f"tiny{ending}")
    for name in ("base", "novel"):
        make_features(len(name), 8, 30, prefix=name).save(folder / f"{name}.npz")
    few = shutil.copytree(folder / "photos", folder / "few")
    shutil.rmtree(few / "rust")
    ImageClassifier.from_folder(few, backbone=folder / "tiny.onnx").save(folder / "model.safetensors")
    for name in ("fit.json", "evaluate.json", "pile.csv", "made.safetensors"):  # older files of the same names
        (folder / name).write_text("old")
    return folder


def run(inputs, folder, n_kills, seed):
    shutil.copytree(inputs, folder)
    program = f"from tests.hostile.test_kills import campaign; campaign({n_kills}, {seed})"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True, timeout=3600
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return json.loads(done.stdout)


def check(found):
    assert not {name: one["problems"] for name, one in found.items() if one["problems"]}
    for name, one in found.items():
        assert set(one["statuses"]) - {0}, f"all signals to {name} came too late"


def test_killed_commands_leave_old_files_or_new_ones(inputs, tmp_path):
    check(run(inputs, tmp_path / "work", n_kills=8, seed=1))


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(5))
def test_commands_killed_many_times_leave_old_files_or_new_ones(inputs, tmp_path, seed, count):
    found = run(inputs, tmp_path / "work", n_kills=100, seed=100 + seed)
    for name, one in found.items():
        late = one["statuses"].count(0)
        count("kills", name, "stopped", len(one["statuses"]) - late)
        count("kills", name, "finished before", late)
        count("kills", name, "problems", len(one["problems"]))
    check(found)
