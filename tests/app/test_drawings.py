import io
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from p3dc.app.drawings import SIZE, drawings
from p3dc.images.backbone_priors import backbone_priors
from p3dc.images.backbones.loading import load_backbone
from p3dc.images.classifier import UNKNOWN, ImageClassifier
from p3dc.images.decoding import read_image_bytes
from p3dc.images.embedding import embed_images
from p3dc.images.examples import Example


@pytest.fixture(scope="module")
def pictures():
    return drawings()


def subject(picture):
    return picture.name.rpartition(" ")[0]


def test_the_same_pictures_are_drawn_each_time(pictures):
    assert drawings() == pictures


def test_no_two_pictures_are_alike(pictures):
    assert len({picture.name for picture in pictures}) == len({picture.jpeg for picture in pictures}) == len(pictures)


def test_each_picture_is_a_small_rgb_jpeg(pictures):
    for picture in pictures:
        with Image.open(io.BytesIO(picture.jpeg)) as image:
            assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (SIZE, SIZE))


def test_five_classes_have_five_examples_and_two_queries_and_two_strangers_follow(pictures):
    labelled, asked = pictures[:25], pictures[25:]
    classes = Counter(picture.label for picture in labelled)
    assert list(classes.values()) == [5] * 5
    assert all(subject(picture) == picture.label for picture in labelled)
    assert {picture.label for picture in asked} == {None}
    queries = Counter(map(subject, asked))
    assert {name: queries.pop(name) for name in classes} == dict.fromkeys(classes, 2)
    assert list(queries.values()) == [1, 1]


def test_five_examples_of_each_suffice_to_label_the_others_and_to_turn_strangers_away(pictures):
    backbone = load_backbone()
    embedded = list(embed_images(pictures, lambda picture: read_image_bytes(picture.jpeg), backbone))
    examples = [Example(each.name, each.label, features, b"") for each, features in embedded if each.label]
    classifier = ImageClassifier(backbone, examples, backbone_priors(backbone))
    asked = [(subject(each), features) for each, features in embedded if each.label is None]
    truth = [name if name in classifier.classes else UNKNOWN for name, _ in asked]
    assert [found.label for found in classifier.label(np.stack([features for _, features in asked]))] == truth
