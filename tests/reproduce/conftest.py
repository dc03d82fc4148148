import pytest


@pytest.fixture
def folder(tmp_path, base, validation, novel):
    path = tmp_path / "birds"
    path.mkdir()
    base.save(path / "base.npz")
    validation.save(path / "validation.parquet")
    novel.save(path / "novel.npz")
    return path
