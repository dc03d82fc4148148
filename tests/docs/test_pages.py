"""What the documents say exists."""

import ast
import importlib
import importlib.util
import re
from pathlib import Path

import pytest
from safetensors import safe_open

import p3dc.baselines
import p3dc.figures
from p3dc import P3DCClassifier, Priors

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
SOURCES = sorted((ROOT / "src").rglob("*.py"))
ARCHITECTURE = ROOT / "docs" / "explanation" / "architecture.md"
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def exists(path, page):
    """Whether a path leads somewhere from the page, the repository, its sources or the package."""
    return any((folder / path).exists() for folder in (page.parent, ROOT, ROOT / "src", ROOT / "src" / "p3dc"))


@each_page
def test_names_in_the_documents_exist(page):
    for name in re.findall(r"`(p3dc\.[\w.]+)`", page.read_text()):
        module, _, attribute = name.rpartition(".")
        try:
            found = importlib.util.find_spec(name)  # without importing, since some modules need torch
        except ModuleNotFoundError:
            found = None
        if found is None:
            assert hasattr(importlib.import_module(module), attribute), name


@each_page
def test_links_between_the_documents_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / link).exists(), link


@each_page
def test_headings_that_links_name_exist(page):
    for link, anchor in re.findall(r"\]\(([^)#:]*)#([^)]*)\)", page.read_text()):
        target = (page.parent / link if link else page).read_text()
        headings = re.findall(r"^#+ (.*)", target, flags=re.M)
        assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}, link


@each_page
def test_python_files_in_the_documents_exist(page):
    for path in re.findall(r"[\w/.-]+\.py\b", page.read_text()):
        assert exists(path, page), path


@each_page
def test_commands_in_the_documents_run_benchmarks_that_exist(page):
    for name in re.findall(r"python -m (benchmarks\.\w+)", page.read_text()):
        assert exists(name.replace(".", "/") + ".py", page), name


def test_every_path_of_the_architecture_exists():
    paths = re.findall(r"(?<![\w/.])[\w.]+(?:/[\w.]+)*(?:/(?!\w)|\.(?:py|js|css|html)\b)", ARCHITECTURE.read_text())
    assert len(paths) > 40
    assert not [path for path in paths if not exists(path, ARCHITECTURE)]


def test_the_architecture_shows_every_package():
    text = ARCHITECTURE.read_text()
    packages = [path.parent.name for path in (ROOT / "src" / "p3dc").glob("*/__init__.py")]
    assert not [name for name in packages if f" {name}/" not in text]


def test_the_reference_lists_every_public_name():
    text = (ROOT / "docs" / "reference" / "api.md").read_text()
    public = {*p3dc.__all__, *(f"baselines.{name}" for name in dir(p3dc.baselines))}
    public |= {f"figures.{name}" for name in p3dc.figures.__all__ if name.endswith("Display")}
    assert not sorted(name for name in public if f"   {name}\n" not in text)


def test_every_equation_has_its_line():
    text = (ROOT / "docs" / "explanation" / "paper.md").read_text()
    assert [int(number) for number in re.findall(r"^\| Eq\. (\d+) \|", text, flags=re.M)] == list(range(1, 15))


def test_files_have_the_formats_that_the_documents_name(tmp_path):
    text = (ROOT / "docs" / "reference" / "files.md").read_text()
    Priors([[1.0, 0.0], [0.0, 1.0]], ["owl", "lynx"]).save(tmp_path / "priors.safetensors")
    P3DCClassifier().fit([[1.0, 0.0], [0.0, 1.0]], ["wren", "robin"]).save(tmp_path / "birds.safetensors")
    for path in tmp_path.iterdir():
        with safe_open(path, "numpy") as file:
            assert "| `{format}`, version {version} |".format(**file.metadata()) in text


def test_docstrings_do_not_begin_with_a_vague_verb():
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = []
    for path in SOURCES:
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, documented)]
        heads = [(ast.get_docstring(node) or "").split(" ")[0] for node in nodes]
        found += [f"{path.relative_to(ROOT)}: {head}" for head in heads if head in {"Give", "Say", "Tell"}]
    assert not found, "Write Return, Compute, Choose, Read… instead."


def test_one_word_for_what_belongs_to_no_class():
    files = [*SOURCES, *PAGES, *(ROOT / "benchmarks").glob("*.py")]
    assert not [path.name for path in files if "stranger" in path.read_text().lower()], "Write unknown."
