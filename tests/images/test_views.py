"""Views of a photo, from pixels to labels."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from p3dc import FeatureSet, ImageClassifier
from p3dc.errors import InputError
from p3dc.images.embedding import embed_images, embed_views
from p3dc.images.explanation import explain
from p3dc.images.extraction import extract
from p3dc.images.sources import list_folder
from p3dc.images.views import VIEWS, View, average_views, views_of
from tests.images.conftest import paint_classes
from tests.images.test_extraction import Colours, contents
from tests.images.test_preprocessing import HOW, noise


class Maps(Colours):
    """Colours with feature maps: their mean over four positions are the features."""

    def _embed_maps(self, batch):
        features = self._embed(batch)
        return np.stack([features * factor for factor in (0.5, 1.5, 0.75, 1.25)], axis=1)


def written_out(image, how, view):
    """The photo is resized, cut and mirrored, one after the other."""
    if view.area == "whole":
        resized = image.resize((how.crop, how.crop), Image.Resampling.BICUBIC)
    else:
        short = {"centre": how.short_side, "wide": how.crop, "tight": round(how.short_side / 0.75)}[view.area]
        size = [round(side * short / min(image.size)) for side in image.size]
        left, top = ((side - how.crop) // 2 for side in size)
        resized = image.resize(size, Image.Resampling.BICUBIC).crop((left, top, left + how.crop, top + how.crop))
    if view.flip:
        resized = resized.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    pixels = np.asarray(resized, dtype=np.float32)
    return ((pixels - np.float32(how.mean)) / np.float32(how.scale)).transpose(2, 0, 1)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
@pytest.mark.parametrize("size", [(640, 480), (333, 500)])
def test_a_view_is_resized_cut_and_mirrored(view, size):
    image = noise(*size)
    difference = np.abs(HOW.prepare(image, view) - written_out(image, HOW, view)) * 128
    assert difference.max() <= 1
    assert (difference > 0).mean() < 1e-3
    assert HOW.prepare(image, view).flags.c_contiguous


def test_views_differ_and_the_first_is_the_centre():
    image = noise(640, 480)
    seen = [HOW.prepare(image, view) for view in VIEWS]
    np.testing.assert_array_equal(seen[0], HOW.prepare(image))
    assert all(np.abs(one - other).mean() > 0.01 for i, one in enumerate(seen) for other in seen[:i])
    assert len({view.name for view in VIEWS}) == len(VIEWS)


@pytest.mark.parametrize("wrong", [0, 8, -1, 2.0, True, "3", None])
def test_a_wrong_number_of_views_is_refused(wrong):
    with pytest.raises(InputError, match="views is .* It must be a whole number from 1 to 7"):
        views_of(wrong)


def test_directions_and_lengths_are_averaged_separately(rng):
    views = rng.normal(size=(5, 3, 4)) * rng.uniform(1, 9, (5, 3, 1))
    for row, own in zip(average_views(views), views, strict=True):
        lengths = [np.linalg.norm(view) for view in own]
        expected = sum(view / length for view, length in zip(own, lengths, strict=True)) / 3 * np.mean(lengths)
        np.testing.assert_allclose(row, expected)
    np.testing.assert_array_equal(average_views(views[:, :1]), views[:, 0])


def test_images_are_embedded_in_all_views_at_once():
    images, backbone = [noise(30, 20), noise(20, 40), noise(9, 9)], Maps()
    results = dict(embed_views([0, 1, 2], images.__getitem__, backbone, views=VIEWS, maps=True, batch=21))
    averaged = dict(embed_images([0, 1, 2], images.__getitem__, Colours(), views=VIEWS, batch=21))
    for number, image in enumerate(images):
        expected = np.stack([backbone.preprocessing.prepare(image, view).ravel() for view in VIEWS])
        found = results[number]
        np.testing.assert_allclose(found.views, expected, rtol=1e-6)
        np.testing.assert_allclose(found.features, average_views(expected[None])[0], rtol=1e-6)
        np.testing.assert_allclose(found.maps.mean(axis=0), expected[0], rtol=1e-6)
        np.testing.assert_allclose(averaged[number], found.features, rtol=1e-6)


def test_a_batch_counts_views():
    backbone = Colours()
    list(embed_images(range(9), lambda _: noise(6, 5), backbone, views=views_of(3), batch=7))
    assert backbone.batches == [3, 6, 6, 6, 6]


def test_views_and_maps_are_columns_of_the_parts(tmp_path):
    photos = paint_classes(tmp_path / "photos")
    done = extract(list_folder(photos), Maps(), tmp_path / "out", views=3, maps=True, part_rows=5)
    plain, found = FeatureSet.load(done.folder), FeatureSet.load(done.folder, also=["views", "maps"])
    assert plain.views is plain.maps is None
    assert (found.views.shape, found.maps.shape, found.maps.dtype) == ((12, 3, 12), (12, 4, 12), np.float16)
    np.testing.assert_allclose(average_views(found.views), found.features, rtol=1e-6)
    np.testing.assert_allclose(found.maps.mean(axis=1), found.views[:, 0], rtol=1e-2)
    single = FeatureSet.load(extract(list_folder(photos), Colours(), tmp_path / "single").folder, also=["views"])
    np.testing.assert_allclose(found.views[:, 0], single.features, rtol=1e-6)
    assert single.views is None
    report = json.loads((done.folder / "extraction.json").read_text())
    assert (report["views"], report["maps"]) == (["centre", "centre, flipped", "wide"], True)


def test_a_part_is_written_in_row_groups_of_bounded_size(tmp_path, monkeypatch):
    photos = paint_classes(tmp_path / "photos")
    expected = contents(extract(list_folder(photos), Maps(), tmp_path / "one", views=2, maps=True).folder)
    assert pq.ParquetFile(tmp_path / "one" / "part-000000.parquet").num_row_groups == 1
    assert len(expected) == 2
    monkeypatch.setattr("p3dc.images.extraction_parts.GROUP_BYTES", 900)
    extract(list_folder(photos), Maps(), tmp_path / "two", views=2, maps=True)
    assert pq.ParquetFile(tmp_path / "two" / "part-000000.parquet").num_row_groups == 4  # of three rows of 336 bytes
    one, two = (FeatureSet.load(tmp_path / name, also=["views", "maps"]) for name in ("one", "two"))
    for name in ("features", "views", "maps", "ids"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_a_folder_is_continued_with_the_same_views_and_maps_only(tmp_path):
    photos = paint_classes(tmp_path / "photos")
    extract(list_folder(photos), Maps(), tmp_path / "out", views=2, maps=True, part_rows=5)
    before = contents(tmp_path / "out")
    (tmp_path / "out" / "part-000001.parquet").unlink()
    again = extract(list_folder(photos), Maps(), tmp_path / "out", views=2, maps=True, part_rows=5)
    assert (again.n_kept, contents(tmp_path / "out")) == (7, before)
    for other, sentence in (
        ({"views": 3, "maps": True}, "of 2 views, not of 3"),
        ({"views": 2}, "with maps, not without"),
        ({}, "views"),
    ):
        with pytest.raises(InputError, match=sentence):
            extract(list_folder(photos), Maps(), tmp_path / "out", part_rows=5, **other)


def test_maps_that_16_bits_cannot_hold_are_a_failure(tmp_path):
    class Huge(Maps):
        def _embed_maps(self, batch):
            return 1e6 * super()._embed_maps(batch)

    photos = paint_classes(tmp_path / "photos", n_each=1)
    done = extract(list_folder(photos), Huge(), tmp_path / "out", maps=True)
    assert done.n_rows == 0
    assert "too large for 16 bits" in done.failures[0][1]


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_a_set_keeps_its_views_and_maps_in_a_file(tmp_path, rng, ending):
    views, maps = rng.uniform(size=(4, 2, 3)), rng.uniform(size=(4, 5, 3)).astype(np.float16)
    FeatureSet(views.mean(axis=1), list("abab"), views=views, maps=maps).save(tmp_path / f"set.{ending}")
    found = FeatureSet.load(tmp_path / f"set.{ending}", also=["views", "maps"])
    np.testing.assert_array_equal(found.views, views)
    np.testing.assert_array_equal(found.maps, maps)
    assert FeatureSet.load(tmp_path / f"set.{ending}", also=["maps"]).views is None


def test_other_shapes_and_names_are_refused(tmp_path, rng):
    with pytest.raises(InputError, match=r"views are float64 of shape \(4, 2\)\. They must be floats, \(4, n, 3\)"):
        FeatureSet(np.ones((4, 3)), list("abab"), views=np.ones((4, 2)))
    FeatureSet(np.ones((4, 3)), list("abab")).save(tmp_path / "set.npz")
    with pytest.raises(InputError, match="also names 'crops'. It may name views and maps"):
        FeatureSet.load(tmp_path / "set.npz", also=["crops"])


def test_a_classifier_remembers_its_views(tmp_path):
    photos = paint_classes(tmp_path / "photos")
    classifier = ImageClassifier.from_folder(photos, backbone=Colours(), priors=None, reject=None, views=3)
    file = next(iter(list_folder(photos)))
    image, how = Image.open(file.path).convert("RGB"), Colours().preprocessing
    expected = average_views(np.stack([how.prepare(image, view).ravel() for view in views_of(3)])[None])[0]
    np.testing.assert_allclose(classifier.examples[0].features, expected, rtol=1e-6)
    classifier.save(tmp_path / "model.safetensors")
    loaded = ImageClassifier.load(tmp_path / "model.safetensors", Colours())
    assert loaded.views == classifier.at((0.0, 0.5)).views == classifier.with_examples(classifier.examples).views == 3
    assert loaded.add(photos).support.shape == loaded.support.shape  # the same photos in the same views
    found, again = next(loaded.predict([file.path])), next(loaded.predict([file.path], views=1))
    assert found == next(classifier.predict([file.path]))
    assert found.probability != again.probability
    assert loaded.label_together([file.path]).predictions[0].probability == pytest.approx(found.probability)
    assert explain(loaded, file.path).prediction.probability == found.probability
    backbone = Colours()
    list(ImageClassifier.load(tmp_path / "model.safetensors", backbone).predict([file.path]))
    assert backbone.batches == [3]


def test_a_wrong_number_is_refused_before_photos_are_read(tmp_path):
    with pytest.raises(InputError, match="views is 9"):
        ImageClassifier.from_folder(tmp_path / "nowhere", views=9)


def test_a_view_has_a_name():
    assert [View("wide").name, View("whole", flip=True).name] == ["wide", "whole, flipped"]
