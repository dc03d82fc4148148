"""Where a report comes from: the command that makes it again, and the versions of what computed it."""

import platform
import shlex
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import p3dc
from p3dc.baselines.registry import TABLE_1
from p3dc.reproduce.experiments import QUICK, Plan

LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "matplotlib")


def command(folders: Sequence[Path], out: Path, plan: Plan, methods: Sequence[str], known_as: Sequence[str]) -> str:
    """Write the command that makes the report, with every option that is not the default."""
    words = ["p3dc", "reproduce", *map(str, folders)]
    words += [word for name in known_as for word in ("--as", name)]
    words += ["--out", str(out)]
    default = Plan()
    if all(getattr(plan, name) == value for name, value in QUICK.items()):
        words.append("--quick")
    elif plan.n_tasks != default.n_tasks:
        words += ["--tasks", str(plan.n_tasks)]
    for name in ("protocol", "seed"):
        if getattr(plan, name) != getattr(default, name):
            words += [f"--{name}", str(getattr(plan, name))]
    if set(methods) != set(TABLE_1):
        words += [word for key in TABLE_1 if key in methods for word in ("--methods", key)]
    return shlex.join(words)


def versions() -> dict[str, str]:
    """List the versions of Python, of p3dc and of the libraries that are installed."""
    found = {"p3dc": p3dc.__version__, "Python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
