"""Priors straight from photos, with a tiny network of one's own."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from p3dc import FeatureSet, ImageClassifier, Priors
from p3dc.images import extraction
from p3dc.images.backbone_priors import backbone_priors
from p3dc.images.backbones.loading import load_backbone
from p3dc.images.examples import open_thumbnail
from tests.images.conftest import COLOURS, paint, paint_classes

MORE = {f"colour {n}": (20 + 25 * n, 230 - 20 * n, 40 + 70 * (n % 3)) for n in range(9)}


@pytest.fixture
def base(tmp_path):
    return paint_classes(tmp_path / "base", colours=MORE)


@pytest.fixture
def make(p3dc, network, tmp_path):
    """Run priors with the tiny network and return its status, output, errors and what it wrote."""
    out = tmp_path / "priors.safetensors"

    def call(*arguments):
        status, output, errors = p3dc("priors", *arguments, "--backbone", network, "--out", out)
        return status, output, errors, Priors.load(out) if status == 0 else None

    return call


def test_photos_become_the_priors_of_their_extracted_features(p3dc, make, base, network, tmp_path):
    assert p3dc("extract", base, "--out", tmp_path / "features", "--backbone", network)[0] == 0
    expected = Priors.from_features(FeatureSet.load(tmp_path / "features"))
    status, output, _, found = make(base)
    assert (status, "Priors(9 base classes, " in output, " from 36 rows" in output) == (0, True, True)
    assert found.class_names == expected.class_names
    np.testing.assert_allclose(found.prototypes, expected.prototypes)
    assert not (tmp_path / "priors.features").exists()
    classifier = ImageClassifier.from_folder(paint_classes(tmp_path / "photos"), backbone=network, priors=found)
    assert classifier.calibrated.relevance is not None


def test_views_of_photos_are_averaged(p3dc, make, base, network, tmp_path):
    assert p3dc("extract", base, "--out", tmp_path / "features", "--backbone", network, "--views", 2)[0] == 0
    expected = Priors.from_features(FeatureSet.load(tmp_path / "features"))
    np.testing.assert_allclose(make(base, "--views", 2)[-1].prototypes, expected.prototypes)
    assert np.abs(make(base)[-1].prototypes - expected.prototypes).max() > 1e-4


def test_parquet_holds_photos_or_features(make, base, tmp_path):
    photos = sorted(base.rglob("*.png"))
    images = [{"bytes": path.read_bytes(), "path": path.name} for path in photos]
    table = pa.table({"image": images, "label": [path.parent.name for path in photos]})
    (tmp_path / "shards").mkdir()
    pq.write_table(table, tmp_path / "shards" / "photos.parquet")
    expected = make(base)[-1]
    for source in (tmp_path / "shards", tmp_path / "shards" / "photos.parquet"):
        found = make(source)[-1]
        assert found.class_names == expected.class_names
        np.testing.assert_allclose(found.prototypes, expected.prototypes)


def test_photos_without_classes_become_clusters_with_pictures(p3dc, make, network, tmp_path):
    for place, colour in enumerate(MORE.values()):
        for number in range(4):
            paint(tmp_path / "pile" / f"{place}-{number}.png", colour, seed=100 * place + number)
    status, output, _, found = make(tmp_path / "pile", "--unlabelled", "--json", tmp_path / "facts.json")
    assert status == 0
    assert "Priors(8 clusters, " in output
    assert json.loads((tmp_path / "facts.json").read_text())["rows"] == 36
    keys = [row.key for rows in found.central for row in rows]
    assert len(keys) == len(set(keys)) > 8
    for rows in found.central:
        for row in rows:
            colour = np.asarray(open_thumbnail(row.thumbnail)).mean(axis=(0, 1))
            np.testing.assert_allclose(colour, list(MORE.values())[int(row.key[0])], atol=25)
    photos, model = paint_classes(tmp_path / "photos"), tmp_path / "model.safetensors"
    fit = ["fit", photos, "--backbone", network, "--priors", tmp_path / "priors.safetensors", "--out", model]
    status, output, _ = p3dc(*fit)
    assert (status, "\n8 clusters " in output) == (0, True)
    assert ImageClassifier.load(model, network).priors.central == found.central


def test_an_interrupted_run_is_continued_and_named_features_are_kept(make, base, tmp_path, monkeypatch):
    opened = []
    made = extraction.make_part
    monkeypatch.setattr(
        extraction, "make_part", lambda *known, **options: opened.append(known) or made(*known, **options)
    )
    monkeypatch.setattr("p3dc.cli.priors.Priors.merge", lambda parts: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make(base)
    assert FeatureSet.load(tmp_path / "priors.features").features.shape[0] == 36
    monkeypatch.undo()
    monkeypatch.setattr(extraction, "make_part", lambda *known, **options: 1 / 0)
    assert make(base)[0] == 0, "nothing is extracted twice"
    assert (len(opened), len(FeatureSet.load(tmp_path / "priors.features"))) == (1, 36), "what was whole before stays"
    monkeypatch.undo()
    summary = tmp_path / "priors.features" / extraction.SUMMARY
    summary.write_text(summary.read_text().replace('"complete": true', '"complete": false'))
    assert make(base)[0] == 0
    assert not summary.parent.exists(), "what an interrupted run left is removed"
    assert make(base, "--features", tmp_path / "kept")[0] == 0
    assert len(FeatureSet.load(tmp_path / "kept")) == 36


def test_several_folders_features_and_priors_are_merged(p3dc, make, base, network, tmp_path):
    assert p3dc("extract", base, "--out", tmp_path / "features", "--backbone", network)[0] == 0
    other = paint_classes(tmp_path / "other", colours=COLOURS)
    more = paint_classes(tmp_path / "more", colours={"rust": COLOURS["rust"]}, first=4)
    status, _, _, found = make(other, tmp_path / "features", more)
    assert status == 0
    counts = dict(zip(found.class_names, found.counts.tolist(), strict=True))
    assert counts == dict.fromkeys([*MORE, "olive", "teal"], 4) | {"rust": 8}
    status, _, _, found = make(other, more, "--unlabelled")
    keys = {row.key for rows in found.central for row in rows}
    assert keys <= {str(path) for folder in (other, more) for path in folder.rglob("*.png")}


def test_photos_that_cannot_be_averaged_are_refused(make, tmp_path):
    paint(tmp_path / "pile" / "1.png", COLOURS["rust"])
    status, _, errors, _ = make(tmp_path / "pile")
    assert status == 2
    assert errors.startswith(
        "p3dc: 1.png has no class. Put the photos of each class into a folder, or give --unlabelled"
    )
    (tmp_path / "pile" / "1.png").write_bytes(b"junk")
    status, _, errors, _ = make(tmp_path / "pile", "--unlabelled")
    assert status == 2
    assert errors.splitlines()[-1] == "p3dc: none of the photos could be read. Look at the reasons above."


def test_the_classes_of_the_backbone_merge_with_clusters(p3dc, tmp_path):
    head = backbone_priors(load_backbone())
    head.save(tmp_path / "head.safetensors")
    rows = np.abs(np.random.default_rng(0).normal(size=(60, 1280))).astype(np.float32)
    FeatureSet(rows, np.zeros(60, dtype=int)).save(tmp_path / "rows.parquet")
    clusters, merged = tmp_path / "clusters.safetensors", tmp_path / "merged.safetensors"
    assert p3dc("priors", tmp_path / "rows.parquet", "--unlabelled", "--out", clusters)[0] == 0
    status, output, _ = p3dc("priors", tmp_path / "head.safetensors", clusters, "--out", merged)
    assert (status, "Priors(1,000 base classes, 8 clusters, 1,280 features)" in output) == (0, True)
    assert Priors.load(merged).geometry is not None
    assert Priors.load(merged).central[-1][0].key.startswith("rows.parquet:")
