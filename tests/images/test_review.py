"""The review of labelled photos before anything is predicted."""

import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from p3dc import ImageClassifier
from p3dc.images.examples import Example
from p3dc.images.review import SAME, nearest_classes
from tests.images.conftest import COLOURS, paint
from tests.images.test_extraction import Colours


def look(folder, priors=None, reject=None):
    return ImageClassifier.from_folder(folder, backbone=Colours(), priors=priors, reject=reject).review


def test_good_photos_are_counted_and_nothing_is_found(photos):
    shutil.rmtree(photos / "rust")
    paint(photos / "rust" / "only.png", COLOURS["rust"])
    found = look(photos)
    assert list(found.shots.items()) == [("olive", 4), ("rust", 1), ("teal", 4)]
    assert (found.duplicates, found.misfiled) == ((), ())
    assert (found.relevance, found.beta) == (None, 0.0)


def test_a_photo_that_is_there_twice_is_found_whatever_its_name_format_and_class(photos):
    shutil.copy(photos / "olive" / "2.png", photos / "olive" / "copy.png")
    with Image.open(photos / "rust" / "0.png") as image:
        image.save(photos / "rust" / "saved.jpg", quality=95)
    shutil.copy(photos / "rust" / "3.png", photos / "teal" / "moved.png")
    assert look(photos).duplicates == (
        ("olive/2.png", "olive/copy.png"),
        ("rust/0.png", "rust/saved.jpg"),
        ("rust/3.png", "teal/moved.png"),
    )


def test_three_of_the_same_are_three_pairs(photos):
    for name in ("a.png", "b.png"):
        shutil.copy(photos / "teal" / "3.png", photos / "teal" / name)
    assert look(photos).duplicates == (
        ("teal/3.png", "teal/a.png"),
        ("teal/3.png", "teal/b.png"),
        ("teal/a.png", "teal/b.png"),
    )


@pytest.mark.parametrize(("cosine", "n_found"), [(SAME + 1e-5, 1), (SAME - 1e-5, 0)])
def test_only_photos_that_are_nearly_the_same_are_duplicates(cosine, n_found):
    near = np.array([cosine, np.sqrt(1 - cosine**2), 0.0])
    rows = [np.array([7.0, 0.0, 0.0]), 0.1 * near, np.array([0.0, 0.0, 1.0])]
    examples = [Example(str(i), "ab"[i // 2], row, b"") for i, row in enumerate(rows)]
    assert len(ImageClassifier(Colours(), examples).review.duplicates) == n_found


@pytest.mark.parametrize("known", [True, False])
def test_a_photo_in_the_wrong_folder_is_found(photos, colour_priors, known):
    paint(photos / "olive" / "wrong.png", COLOURS["teal"], seed=50)
    found = look(photos, colour_priors if known else None)
    assert found.misfiled == (("olive/wrong.png", "olive", "teal"),)
    assert found.duplicates == ()


def test_a_review_shows_how_the_priors_fit(photos, colour_priors):
    classifier = ImageClassifier.from_folder(photos, backbone=Colours(), priors=colour_priors)
    assert classifier.review.relevance == classifier.calibrated.relevance
    assert classifier.review.beta == classifier.calibrated.beta
    assert -1 <= classifier.review.relevance <= 1


def plain_nearest(rows, labels):
    nearest = []
    for i, row in enumerate(rows):
        best, where = -np.inf, None
        for c in range(labels.max() + 1):
            others = [rows[j] for j in range(len(rows)) if labels[j] == c and j != i]
            mean = np.sum(others, axis=0)
            cosine = np.inf if not others else row @ mean / np.linalg.norm(mean) / np.linalg.norm(row)
            if cosine > best:
                best, where = cosine, c
        nearest.append(where)
    return nearest


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    counts=st.lists(st.integers(1, 5), min_size=2, max_size=6),
    n_features=st.integers(2, 8),
)
def test_the_nearest_class_is_that_of_a_plain_loop(seed, counts, n_features):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    rows = rng.normal(size=(len(labels), n_features))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    before = rows.copy()
    assert nearest_classes(rows, labels).tolist() == plain_nearest(rows, labels)
    np.testing.assert_array_equal(rows, before)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), n_classes=st.integers(2, 6))
def test_the_only_photo_of_a_class_is_never_in_the_wrong_folder(seed, n_classes):
    rng = np.random.default_rng(seed)
    rows = rng.gamma(0.5, 1.0, (n_classes + 2, 12)) + 1e-3
    names = ["many"] * 3 + [f"single-{i}" for i in range(n_classes - 1)]
    rows[3] = rows[:3].mean(axis=0)  # a single photo that looks like another class
    examples = [Example(f"{i}.jpg", name, row, b"") for i, (name, row) in enumerate(zip(names, rows, strict=True))]
    found = ImageClassifier(Colours(), examples).review
    assert not [key for key, label, _ in found.misfiled if label != "many"]
    assert found.shots["many"] == 3
