import pytest

from tests.conftest import make_features

ROLES = ("base", "validation", "novel")


@pytest.fixture
def folder(tmp_path, base, validation, novel):
    path = tmp_path / "birds"
    path.mkdir()
    base.save(path / "base.npz")
    validation.save(path / "validation.parquet")
    novel.save(path / "novel.npz")
    return path


@pytest.fixture(scope="session")
def imposter(tmp_path_factory):
    """A data set with as many classes as miniImageNet, none of them miniImageNet's."""
    path = tmp_path_factory.mktemp("imposter") / "things"
    path.mkdir()
    for seed, (role, n_classes) in enumerate(zip(ROLES, (64, 16, 20), strict=True)):
        make_features(seed, n_classes, 22, prefix=role).save(path / f"{role}.npz")
    return path
