"""The package itself: names that are imported when they are used."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import p3dc

ROOT = Path(__file__).parent.parent


def modules_after(code, *names):
    """Which of some modules are there after some code has run in a fresh interpreter."""
    code = f"{code}\nimport sys\nprint([name for name in {names!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("name", p3dc.__all__)
def test_every_public_name_can_be_imported(name):
    scope = {}
    exec(f"from p3dc import {name}", scope)
    assert scope[name].__name__ == name
    assert scope[name] is getattr(p3dc, name)
    assert scope[name].__module__ == f"p3dc.{p3dc.HOMES[name]}"


def test_a_star_imports_the_public_names():
    scope = {}
    exec("from p3dc import *", scope)
    assert set(scope) - {"__builtins__"} == set(p3dc.__all__) == set(p3dc.HOMES)


def test_dir_lists_the_public_names():
    assert set(p3dc.__all__) <= set(dir(p3dc))
    assert dir(p3dc) == sorted(dir(p3dc))


def test_other_names_are_not_there():
    with pytest.raises(AttributeError, match="module 'p3dc' has no attribute 'magic'"):
        _ = p3dc.magic
    assert not hasattr(p3dc, "ImageClassifer")
    with pytest.raises(ImportError, match="cannot import name 'magic'"):
        exec("from p3dc import magic", {})


def test_the_version_is_that_of_the_installed_package():
    assert p3dc.__version__ == importlib.metadata.version("p3dc-shot")


def test_citation_and_changelog_have_the_version_of_the_package():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    changed, on = re.search(r"^## (\S+) — (\S+)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.M).groups()
    citation = (ROOT / "CITATION.cff").read_text()
    assert changed == version
    assert f"\nversion: {version}\n" in citation
    assert f"\ndate-released: {on}\n" in citation


def test_the_hooks_run_the_ruff_that_the_tests_run():
    least = re.search(r'"ruff>=([\d.]+),', (ROOT / "pyproject.toml").read_text()).group(1)
    assert f"rev: v{least} " in (ROOT / ".pre-commit-config.yaml").read_text()


def test_importing_the_package_imports_nothing_else():
    assert modules_after("import p3dc", "numpy", "PIL", "sklearn", "p3dc.classifier.estimator", "p3dc.images") == "[]"
    assert modules_after("from p3dc import ImageClassifier", "sklearn", "scipy", "p3dc.images") == "['p3dc.images']"
