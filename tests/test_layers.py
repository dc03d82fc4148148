"""The shape of the package: layers that import only what lies below them, and rooms without cycles."""

import ast
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import p3dc

LAYERS = [
    {"_arrays", "errors"},
    {"method"},
    {"_validation"},
    {"io"},
    {"features", "tasks"},
    {"priors"},
    {"adaptive", "confidence"},
    {"unlabelled"},
    {"scoring"},
    {"classifier"},
    {"baselines", "demo", "images"},
    {"figures"},
    {"evaluation"},
    {"app", "cluster", "reproduce"},
    {"cli"},
    {"__main__"},
]
"""The modules and packages at the root, lowest first. Those of one layer do not import each other."""

SHARED_ALIASES = {"Array", "Floats", "Labels", "Mask", "Progress", "Rows"}
MOST_ROOT_MODULES = 8
MOST_LINES = 400

SOURCE = Path(p3dc.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
PACKAGES = sorted(path.parent for path in FILES if path.name == "__init__.py" and path.parent != SOURCE)


def name_of(path):
    """The parts of a module's name below the package: ``("app", "http", "guard")``; a package ends in ``__init__``."""
    return path.relative_to(SOURCE).with_suffix("").parts


def imported_names(path):
    """The dotted names that a file imports anywhere: at the top, in functions and for type checkers."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import. Write the whole name."
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_ours(dotted):
    """Whether a name belongs to this package; the root itself and its version may be imported anywhere."""
    return dotted.startswith("p3dc.") and dotted != "p3dc.__version__"


def module_called(dotted):
    """The module of this package that a dotted name is, or lies in; None where there is no such module."""
    parts = dotted.split(".")[1:]
    for inside in (parts, parts[:-1]):
        place = SOURCE.joinpath(*inside)
        if inside and place.with_suffix(".py").exists():
            return tuple(inside)
        if inside and (place / "__init__.py").exists():
            return (*inside, "__init__")
    return None


def imports(path):
    """The modules of this package that a file imports."""
    return {module for name in imported_names(path) if is_ours(name) and (module := module_called(name))}


GRAPH = {name_of(path): imports(path) for path in FILES if path != SOURCE / "__init__.py"}
"""From each module to those that it imports. The root's own file is left out: it imports its names on first use."""


def rank(root_name):
    return next(number for number, layer in enumerate(LAYERS) if root_name in layer)


def children_graph(package):
    """How the modules and packages directly in a package import each other: child -> children."""
    prefix = name_of(package)
    depth = len(prefix)
    graph = defaultdict(set)
    for module, imported in GRAPH.items():
        if module[:depth] == prefix:
            inside = {other[depth] for other in imported if other[:depth] == prefix}
            graph[module[depth]] |= inside - {module[depth]}
    return graph


def assigned_names(path):
    """The names that a module assigns at its top level."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def test_every_module_belongs_to_one_layer():
    listed = [name for layer in LAYERS for name in layer]
    assert sorted(listed) == sorted({module[0] for module in GRAPH})


def test_names_are_imported_from_the_module_that_has_them():
    missing = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in FILES
        for name in imported_names(path)
        if is_ours(name) and not module_called(name)
    ]
    assert not missing, "\n".join(missing)


def test_imports_point_to_lower_layers():
    upward = [
        f"{'.'.join(module)} imports {'.'.join(other)}"
        for module, imported in GRAPH.items()
        for other in imported
        if module[0] != other[0] and rank(other[0]) >= rank(module[0])
    ]
    assert not upward, "\n".join(sorted(upward))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: ".".join(name_of(package)))
def test_packages_have_no_cycles(package):
    try:
        TopologicalSorter(children_graph(package)).prepare()
    except CycleError as error:
        pytest.fail(f"{' imports '.join(reversed(error.args[1]))}")


def test_only_the_http_package_knows_the_web_framework():
    for path in FILES:
        if name_of(path)[:2] != ("app", "http"):
            assert not {name.split(".")[0] for name in imported_names(path)} & {"fastapi", "starlette"}, path


def test_the_root_has_few_modules():
    modules = [path.name for path in SOURCE.glob("*.py") if path.name != "__init__.py"]
    assert len(modules) <= MOST_ROOT_MODULES, modules


def test_no_file_is_long():
    lengths = {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in FILES}
    assert not {name: length for name, length in lengths.items() if length > MOST_LINES}


def test_shared_type_aliases_have_one_home():
    twice = {
        str(path.relative_to(SOURCE)): found
        for path in FILES
        if path.name != "_arrays.py" and (found := SHARED_ALIASES & set(assigned_names(path)))
    }
    assert not twice


def test_the_public_names_are_few_and_exist():
    assert sorted(p3dc.__all__) == p3dc.__all__
    assert len(p3dc.__all__) == 11
    assert all(hasattr(p3dc, name) for name in p3dc.__all__)
