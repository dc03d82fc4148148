import importlib.util
import io
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from p3dc.app.example_set import example_set
from p3dc.images.backbone_priors import backbone_priors
from p3dc.images.backbones.loading import load_backbone
from p3dc.images.classifier import UNKNOWN, ImageClassifier
from p3dc.images.decoding import read_image_file
from p3dc.images.embedding import embed_images
from p3dc.images.examples import Example

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_example_photos.py"


@pytest.fixture(scope="module")
def pictures():
    return example_set()


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("make_example_photos", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def subject(picture):
    return picture.name.rpartition(" ")[0]


def test_no_two_pictures_are_alike(pictures):
    assert len({each.name for each in pictures}) == len({each.content for each in pictures}) == len(pictures)


def test_each_picture_is_a_small_rgb_image_and_all_of_them_are_a_small_file(pictures, script):
    for picture in pictures:
        with Image.open(io.BytesIO(picture.content)) as image:
            assert (image.format, image.mode, image.size) == ("WEBP", "RGB", (script.SIZE, script.SIZE))
    assert script.OUT.stat().st_size < 300_000


def test_the_script_draws_the_pictures_that_ship(pictures, script):
    expected = [(label, f"{name} {number}.webp") for label, name, number in script.example_set()]
    assert [(picture.label, picture.name) for picture in pictures] == expected
    for place in (2, 14, 30, 31):
        _, name, number = list(script.example_set())[place]
        drawn = np.asarray(script.draw(name, number), dtype=float)
        shipped = np.asarray(read_image_file(io.BytesIO(pictures[place].content)), dtype=float)
        assert np.abs(drawn - shipped).mean() < 4, "but for what compression loses"
        np.testing.assert_array_equal(drawn, np.asarray(script.draw(name, number)))


def test_five_classes_have_five_examples_and_two_queries_and_two_unknown_things_follow(pictures):
    labelled, queries = pictures[:25], pictures[25:]
    classes = Counter(picture.label for picture in labelled)
    assert list(classes.values()) == [5] * 5
    assert all(subject(picture) == picture.label for picture in labelled)
    assert {picture.label for picture in queries} == {None}
    subjects = Counter(map(subject, queries))
    assert {name: subjects.pop(name) for name in classes} == dict.fromkeys(classes, 2)
    assert list(subjects.values()) == [1, 1]


def test_five_examples_of_each_suffice_to_label_the_others_and_to_reject_unknown_things(pictures):
    backbone = load_backbone()
    embedded = list(embed_images(pictures, lambda picture: read_image_file(io.BytesIO(picture.content)), backbone))
    examples = [Example(each.name, each.label, features, b"") for each, features in embedded if each.label]
    classifier = ImageClassifier(backbone, examples, backbone_priors(backbone))
    queries = [(subject(each), features) for each, features in embedded if each.label is None]
    truth = [name if name in classifier.classes else UNKNOWN for name, _ in queries]
    assert [found.label for found in classifier.label(np.stack([features for _, features in queries]))] == truth
