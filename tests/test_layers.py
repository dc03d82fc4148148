"""Dependencies between modules point one way."""

import ast
from pathlib import Path

import p3dc

ORDER = [
    "errors",
    "method",
    "arrays",
    "confidence",
    "checks",
    "device",
    "files",
    "legacy",
    "parquet",
    "features",
    "geometry",
    "priors",
    "auto",
    "calibration",
    "triangle",
    "tasks",
    "nearness",
    "engine",
    "prepared",
    "torch_engine",
    "classifier",
    "baselines",
    "judging",
    "evaluation",
    "selection",
    "figures",
    "images",
    "experiment",
    "report",
    "demo",
    "reproduce",
    "app",
    "cluster",
    "cli",
    "__main__",
]
SOURCE = Path(p3dc.__file__).parent


def imported(path):
    """Names of the modules of this package that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "p3dc":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("p3dc."):
            yield node.module.split(".")[1]


def files_of(module):
    folder = SOURCE / module
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [SOURCE / f"{module}.py"]


def test_every_module_has_its_place():
    modules = {path.stem for path in SOURCE.glob("*.py")} | {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert modules - {"__init__"} == set(ORDER)


def test_modules_import_only_those_before_them():
    for place, module in enumerate(ORDER):
        for path in files_of(module):
            later = set(imported(path)) - set(ORDER[:place]) - ({module} if path.parent.name == module else set())
            assert not later, f"{path} imports {later}"


def test_the_public_names_are_few_and_exist():
    assert sorted(p3dc.__all__) == p3dc.__all__
    assert len(p3dc.__all__) == 8
    assert all(hasattr(p3dc, name) for name in p3dc.__all__)
