import pickle

import numpy as np
import pytest

from p3dc import FeatureSet
from p3dc.errors import InputError
from p3dc.reproduce.datasets import load_data_set

MINI_IMAGENET = {
    "base": (
        "house finch, robin, triceratops, green mamba, harvestman, toucan, jellyfish, dugong, walker hound, saluki, "
        "gordon setter, komondor, boxer, tibetan mastiff, french bulldog, newfoundland, miniature poodle, arctic fox, "
        "ladybug, three-toed sloth, rock beauty, aircraft carrier, ashcan, barrel, beer bottle, carousel, chime, clog, "
        "cocktail shaker, dishrag, dome, file, fire screen, frying pan, hair slide, holster, lipstick, oboe, organ, "
        "parallel bars, pencil box, photocopier, prayer rug, reel, slot, snorkel, solar dish, spider web, stage, tank, "
        "tile roof, tobacco shop, unicycle, upright, wok, worm fence, yawl, street sign, consomme, hotdog, orange, "
        "cliff, bolete, ear"
    ),
    "novel": (
        "nematode, king crab, golden retriever, malamute, dalmatian, african hunting dog, lion, ant, "
        "black-footed ferret, bookshop, crate, cuirass, electric guitar, hourglass, mixing bowl, school bus, "
        "scoreboard, theater curtain, vase, trifle"
    ),
}


def write_plk(path, features):
    by_class = {}
    for row, label in zip(features.features, features.labels, strict=True):
        by_class.setdefault(features.class_names[label], []).append(row)
    path.write_bytes(pickle.dumps(by_class))


def test_sets_are_found_whatever_their_format(folder, base, validation):
    data = load_data_set(folder)
    assert data.name == "birds"
    assert not data.held_out
    assert data.paper_name is None
    np.testing.assert_array_equal(data.validation.features, validation.features)
    assert data.selection_base is data.base
    assert data.base.class_names == base.class_names


def test_the_names_of_the_s2m2_release_are_found(tmp_path, base, validation, novel):
    for name, features in (("base", base), ("val", validation), ("novel", novel)):
        write_plk(tmp_path / f"{name}_features.plk", features)
    assert load_data_set(tmp_path).validation.class_names == validation.class_names


def test_without_validation_base_classes_are_held_out_and_novel_ones_never_seen(folder, base):
    (folder / "validation.parquet").unlink()
    data = load_data_set(folder)
    assert data.held_out
    assert set(data.validation.class_names) == {"base-0", "base-3", "base-6", "base-8", "base-11"}
    assert set(data.selection_priors.class_names) == set(base.class_names) - set(data.validation.class_names)
    assert len(data.priors) == len(base.class_names)


@pytest.mark.parametrize("lift", [str, str.upper, lambda name: name.replace(" ", "_"), lambda name: f"003.{name}"])
def test_the_papers_data_sets_are_known_by_the_names_of_their_classes(tmp_path, lift):
    for role, names in MINI_IMAGENET.items():
        names = [lift(name) for name in names.split(", ")]
        FeatureSet(np.random.default_rng(len(names)).random((len(names), 3)), names[::-1]).save(
            tmp_path / f"{role}.npz"
        )
    assert load_data_set(tmp_path).paper_name == "miniImageNet"


def test_one_class_more_is_another_data_set(tmp_path):
    for role, names in MINI_IMAGENET.items():
        names = [*names.split(", "), f"another {role}"]
        FeatureSet(np.random.default_rng(len(names)).random((len(names), 3)), names).save(tmp_path / f"{role}.npz")
    assert load_data_set(tmp_path).paper_name is None


def test_numbers_of_classes_do_not_make_a_data_set_the_papers(imposter):
    assert load_data_set(imposter).paper_name is None
    assert load_data_set(imposter, "miniImageNet").paper_name == "miniImageNet"
    assert load_data_set(imposter, "miniimagenet").paper_name == "miniImageNet"


def test_what_the_user_says_must_be_possible(imposter):
    with pytest.raises(InputError, match="64 base and 20 novel classes, but CUB has 100 and 50. Leave --as cub out"):
        load_data_set(imposter, "cub")
    with pytest.raises(InputError, match="no data set 'imagenet'. Choose from miniimagenet, tieredimagenet, cub"):
        load_data_set(imposter, "imagenet")


@pytest.mark.data
@pytest.mark.parametrize(("name", "paper_name"), [("miniimagenet-resnet12", "miniImageNet"), ("cub-lite0", "CUB")])
def test_the_features_at_hand_are_recognised(data_folder, name, paper_name):
    assert load_data_set(data_folder / name).paper_name == paper_name


def test_missing_sets_and_common_classes_are_refused(folder, novel, tmp_path):
    novel.save(folder / "validation.npz")
    with pytest.raises(InputError, match="validation and novel share 8 classes"):
        load_data_set(folder)
    (folder / "novel.npz").unlink()
    with pytest.raises(InputError, match="has no novel features. Name the file one of novel, novel_features"):
        load_data_set(folder)
    with pytest.raises(InputError, match="is not a folder"):
        load_data_set(tmp_path / "gone")


def test_too_few_base_classes_cannot_stand_in(tmp_path, novel):
    FeatureSet(np.eye(5) + 0.1, list("abcde")).save(tmp_path / "base.npz")
    novel.save(tmp_path / "novel.npz")
    with pytest.raises(InputError, match="5 base classes are too few to hold some out"):
        load_data_set(tmp_path)
