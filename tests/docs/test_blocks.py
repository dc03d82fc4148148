"""Every code block of every page runs as printed; one that cannot says why and is checked."""

import shutil

import matplotlib as mpl
import pytest

from p3dc.app.example_set import example_set
from p3dc.demo import load_sample
from tests.docs import blocks
from tests.docs.test_pages import PAGES

CODE = [page for page in PAGES if page.name != "CHANGELOG.md"]
each_page = pytest.mark.parametrize("page", CODE, ids=lambda page: str(page.relative_to(blocks.ROOT)))


@pytest.fixture(scope="session")
def readers_folder(tmp_path_factory):
    """What a reader has: labelled photos, photos to label, and features of base, validation and novel classes."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("reader")
    number = {None: 0}
    for picture in example_set(shots=5):
        number[picture.label] = number.get(picture.label, 0) + 1
        path = (
            folder
            / ("photos" if picture.label is None else f"support/{picture.label}")
            / f"{number[picture.label]}.jpg"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        source = folder / "source.webp"
        source.write_bytes(picture.content)
        with Image.open(source) as image:
            image.convert("RGB").save(path)
    source.unlink()
    shutil.copytree(folder / "support", folder / "base-photos")
    birds = load_sample()
    names = birds.validation.class_names
    parts = {"base": birds.validation.select(names[:30]), "validation": birds.validation.select(names[30:])}
    for name, features in {**parts, "novel": birds.novel}.items():
        features.save(folder / f"{name}.npz")
    parts["base"].save(folder / "base.parquet")
    (folder / "base").mkdir()
    shutil.copy(folder / "base.parquet", folder / "base" / "part-000000.parquet")
    return folder


@pytest.fixture
def folder(readers_folder, tmp_path, monkeypatch):
    """A copy of it for one page."""
    mpl.use("Agg")
    monkeypatch.setattr("matplotlib.pyplot.show", lambda *_, **__: None)
    return shutil.copytree(readers_folder, tmp_path / "reader")


@each_page
def test_every_block_runs(page, folder):
    blocks.run_page(page, folder)


@each_page
def test_every_block_is_checked(page):
    for block in blocks.blocks(page):
        assert block.language in blocks.LANGUAGES | blocks.DATA, f"{block.where} has no language that is known"
        assert block.not_run is None or block.not_run in blocks.REASONS, f"{block.where}: {block.not_run}"
        blocks.check_block(block)


def test_a_block_that_fails_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    for code, sentence in {
        "```python\nwren = 1\n```\n\n```python\n>>> wren\n2\n```": "Got:",
        "```python\nrobin\n```": "NameError",
        "```sh\np3dc fit nowhere --out model.safetensors\n```": "status 2",
        "```sh\nfalse | true\n```": "page.md:1",
        "```sh\necho wren\n```\n\n<!-- prints -->\n```text\nrobin\n```": "prints",
        ":::{note}\n```python\nrobin\n```\n:::": "page.md:2",
        "```sh\np3dc serve\n```\n\n```sh\ncurl -f http://localhost:8765/v1/wren\n```": "404",
    }.items():
        page.write_text(code)
        with pytest.raises(AssertionError, match=sentence):
            blocks.run_page(page, tmp_path)


def test_a_block_that_does_not_run_is_checked(tmp_path):
    page = blocks.ROOT / "page.md"
    for language, code in {
        "python": "from p3dc import wren",
        "sh": "for one in 1 2; do p3dc fit support --wren; done",
    }.items():
        with pytest.raises(AssertionError):
            blocks.check_block(blocks.Block(page, 1, language, code, "a network", False))
