"""What the documents say exists."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_in_the_documents_exist(page):
    for name in re.findall(r"`(p3dc\.[\w.]+)`", page.read_text()):
        module, _, attribute = name.rpartition(".")
        try:
            importlib.import_module(name)
        except ImportError:
            assert hasattr(importlib.import_module(module), attribute), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_the_documents_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / link).exists(), link


def test_every_equation_has_its_line():
    text = (ROOT / "docs" / "paper.md").read_text()
    assert [int(number) for number in re.findall(r"^\| Eq\. (\d+) \|", text, flags=re.M)] == list(range(1, 15))
