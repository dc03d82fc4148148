import asyncio
import importlib
import io
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from p3dc import ImageClassifier
from p3dc.app.example_set import example_priors, example_set
from p3dc.app.project.model_files import load_model, write_model
from p3dc.app.project.project import Project
from p3dc.app.project.state import DRAWN_BIRDS, State
from p3dc.app.service import Service
from p3dc.images.backbone_priors import backbone_priors
from p3dc.images.backbones.loading import load_backbone
from p3dc.images.classifier import REJECT, UNKNOWN
from p3dc.images.decoding import read_image_file
from p3dc.images.embedding import embed_images
from p3dc.images.examples import Example
from p3dc.images.explanation import base_classes

SCRIPTS = Path(__file__).parents[2] / "scripts"
SAVED, TAKEN_FOR = "robin 7.webp", "magpie"


@pytest.fixture(scope="module")
def pictures():
    return example_set(shots=5)


@pytest.fixture(scope="module")
def scripts():
    """The scripts that draw the photos and the base classes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        return [importlib.import_module(name) for name in ("make_example_photos", "make_example_priors")]


@pytest.fixture(scope="module")
def script(scripts):
    return scripts[0]


def load_example_set(backbone):
    """Open a project in memory and fill it with the example set."""
    service = Service(Project(None, backbone, State(reject=REJECT)), 10**6)
    asyncio.run(service.load_example_set())
    return service


@pytest.fixture(scope="module")
def service():
    served = load_example_set(load_backbone())
    yield served
    served.close()


def labels(service, point=None, *, pile=True):
    """Label the photos of the example set, by their names."""
    session = service.session()
    found = session.labels(session.at(point, pile=pile))
    return {photo.name: label.label for photo, label in zip(session.to_label, found, strict=True)}


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


@pytest.mark.parametrize("shots", [1, 2, 5])
def test_five_classes_have_examples_and_two_queries_and_two_unknown_things_follow(shots):
    pictures = example_set(shots)
    labelled, queries = pictures[: 5 * shots], pictures[5 * shots :]
    classes = Counter(picture.label for picture in labelled)
    assert list(classes.values()) == [shots] * 5
    assert all(subject(picture) == picture.label for picture in labelled)
    assert {picture.label for picture in queries} == {None}
    subjects = Counter(map(subject, queries))
    assert {name: subjects.pop(name) for name in classes} == dict.fromkeys(classes, 2)
    assert list(subjects.values()) == [1, 1]


def test_the_page_takes_two_examples_of_each():
    assert example_set() == example_set(shots=2)


def test_five_examples_of_each_suffice_to_label_the_others_and_to_reject_unknown_things(pictures):
    backbone = load_backbone()
    embedded = list(embed_images(pictures, lambda picture: read_image_file(io.BytesIO(picture.content)), backbone))
    examples = [Example(each.name, each.label, features, b"") for each, features in embedded if each.label]
    classifier = ImageClassifier(backbone, examples, backbone_priors(backbone))
    queries = [(subject(each), features) for each, features in embedded if each.label is None]
    truth = [name if name in classifier.classes else UNKNOWN for name, _ in queries]
    assert [found.label for found in classifier.label(np.stack([features for _, features in queries]))] == truth


def test_the_base_classes_are_other_birds_with_names_and_a_small_file(scripts):
    photos, species = scripts[0], scripts[1].species()
    priors = example_priors()
    assert sorted(priors.class_names) == sorted(species)
    assert len(set(priors.class_names)) == len(set(species.values())) == 48
    assert all(re.fullmatch(r"[a-z]+-capped, [a-z]+-breasted bird", name) for name in species)
    assert not set(species.values()) & set(photos.BIRDS.values())
    assert priors.geometry is not None
    assert photos.OUT.with_name("example-priors.safetensors").stat().st_size < 500_000


def test_the_script_draws_the_base_classes_that_ship(scripts):
    make, priors = scripts[1], example_priors()
    drawings = list(make.all_drawings())
    assert Counter(each.name for each in drawings) == dict.fromkeys(priors.class_names, 12)
    own = [each for each in drawings if each.name == drawings[0].name]
    mean = np.mean([features for _, features in embed_images(own, make.read, load_backbone())], axis=0)
    shipped = priors.prototypes[priors.class_names.index(own[0].name)]
    np.testing.assert_allclose(mean, shipped, atol=0.01)


def test_base_classes_pull_in_the_example_set_and_save_a_label(service):
    _, beta = service.session().classifier.weights
    assert beta > 0.2
    names = {photo.name for photo in service.project.state.to_label}
    right = {name: name.rpartition(" ")[0] for name in names}
    right |= {"hot-air balloon 1.webp": UNKNOWN, "mushroom 1.webp": UNKNOWN}
    assert labels(service) == right
    assert labels(service, pile=False)[SAVED] == right[SAVED] != TAKEN_FOR, "base classes save it, not other photos"
    unpulled = labels(service, (0.0, 0.0))
    assert unpulled[SAVED] == TAKEN_FOR
    session = service.session()
    photo = next(photo for photo in session.to_label if photo.name == SAVED)
    features = session.pictures[photo.id].features
    assert session.label_unpulled(session.at(None), features) == TAKEN_FOR
    assert session.label_unpulled(session.at((0.0, 0.0)), features) is None


def test_the_map_has_an_arrow_for_each_example(service):
    session = service.session()
    found = session.map(session.at(None))
    assert (np.linalg.norm(found.after - found.before, axis=1) > 0.05).all()


def test_explanations_name_drawn_birds(service):
    classifier = service.session().at(None)
    pulls = base_classes(classifier, range(len(classifier.examples)))
    assert all(pulls)
    assert {pull.name for each in pulls for pull in each} <= set(example_priors().class_names)


def test_the_same_network_in_integers_keeps_its_own_base_classes():
    service = load_example_set(load_backbone("efficientnet-lite0-int8"))
    assert service.project.state.priors == "backbone"
    service.close()


def test_undo_and_an_emptied_project_bring_the_priors_of_the_backbone_back():
    service = load_example_set(load_backbone())
    project = service.project
    assert project.state.priors == DRAWN_BIRDS
    assert project.store.kept_priors() == set(), "they come with the package"
    for each in project.state.classes:
        project.change("Delete class", lambda state, each=each: state.delete_class(each.id))
    assert project.state.priors == DRAWN_BIRDS
    project.change("Clear photos", State.clear)
    assert project.state.priors == "backbone"
    project.undo()
    assert project.state.priors == DRAWN_BIRDS
    while project.undoable:
        project.undo()
    assert project.state.priors == "backbone"
    service.close()


def test_a_saved_model_has_the_base_classes_and_can_be_opened(service, tmp_path):
    session = service.session()
    path = tmp_path / "model.safetensors"
    path.write_bytes(write_model(session.state, session.at(None)))
    backbone = service.project.backbone
    assert ImageClassifier.load(path, backbone).priors.class_names == example_priors().class_names
    other = Project(tmp_path / "other", backbone, State(reject=REJECT))
    load_model(other, path)
    other.close()
    again = Project(tmp_path / "other", backbone, State(reject=REJECT))
    np.testing.assert_array_equal(again.priors(again.state.priors).prototypes, example_priors().prototypes)
    again.close()
