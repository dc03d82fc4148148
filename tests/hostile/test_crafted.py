"""Files that are whole, with a digest that fits, whose content makes no sense."""

import numpy as np
import pytest

from p3dc import FeatureSet, P3DCClassifier, Priors
from p3dc.classifier import file
from p3dc.errors import InputError
from p3dc.images.backbone_priors import ARRAYS, NUMBERS, Scatter
from p3dc.io.safetensors import read_arrays, write_arrays
from p3dc.priors.geometry import SCATTERS
from p3dc.priors.prototypes import OPTIONAL
from tests.hostile.files import BASE, NAMES, NOVEL, _fitted


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.safetensors"


def rewritten_classifier(path, arrays=(), **facts):
    _fitted().save(path)
    found = read_arrays(path, "classifier", 3, required=file.ARRAYS, optional=file.OPTIONAL_ARRAYS, facts=file.FACTS)
    write_arrays(path, "classifier", 3, found[0] | dict(arrays), found[1] | facts)


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"class_type": "<U500000000"}, None),
        ({"unknown_below": float("nan")}, "unknown_below is nan"),
        ({"unknown_below": float("inf")}, "unknown_below is inf"),
        ({"unknown_below": "0.5"}, "unknown_below is '0.5'"),
        ({"unknown_below": 10**400}, "unknown_below is 1000"),
        ({"temperature": 10**400}, "temperature is 1000"),
        ({"classes": [1, "a", "b"]}, "not all of type"),
        ({"classes": ["a", "b", "b\0"]}, "ends in a NUL"),
        ({"classes": [0, 1, 10**400], "class_type": "int64"}, "is damaged"),
        ({"classes": [0.0, 1.0, float("nan")], "class_type": "float64"}, "is damaged"),
        ({"settings": {"scale": 1e308}}, "scale is 1e"),
        ({"settings": {"alpha": 10**400}}, "alpha is 1000"),
    ],
)
def test_facts_of_a_classifier_that_make_no_sense_are_refused(path, facts, sentence):
    rewritten_classifier(path, **facts)
    if sentence is None:
        assert P3DCClassifier.load(path).predict(NOVEL.features).tolist() == NAMES.tolist()
    else:
        with pytest.raises(InputError, match=sentence):
            P3DCClassifier.load(path)


@pytest.mark.parametrize("labels", [[-1, 0, 1, 2, 0, 1], [0, 0, 1, 1, 2, 3], [0, 0, 1, 1, 0, 0]])
def test_labels_that_name_no_class_are_refused(path, labels):
    rewritten_classifier(path, {"labels": np.array(labels)})
    with pytest.raises(InputError, match="its labels name no classes"):
        P3DCClassifier.load(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scatter", np.nan),
        ("lengths", 5e-324),
        ("lengths", -1),
        ("lengths", np.inf),
        ("gains", 1e308),
        ("axes", 3e38),
    ],
)
def test_arrays_of_priors_that_make_no_sense_are_refused(path, name, value):
    Priors.from_features(BASE).save(path)
    optional, facts = [*OPTIONAL, *SCATTERS], ["class_names", "geometry"]
    arrays, found = read_arrays(path, "priors", 2, required=["prototypes"], optional=optional, facts=facts)
    write_arrays(path, "priors", 2, arrays | {name: np.full_like(arrays[name], value)}, found)
    with pytest.raises(InputError, match="its geometry is damaged"):
        Priors.load(path)


@pytest.mark.parametrize("number", [10**400, float("nan"), float("inf"), "1", None, [1]])
@pytest.mark.parametrize("name", ["rest", "tightness", "spread"])
def test_numbers_of_a_geometry_that_make_no_sense_are_refused(path, name, number):
    Priors.from_features(BASE).save(path)
    optional, facts = [*OPTIONAL, *SCATTERS], ["class_names", "geometry"]
    arrays, found = read_arrays(path, "priors", 2, required=["prototypes"], optional=optional, facts=facts)
    write_arrays(path, "priors", 2, arrays, found | {"geometry": found["geometry"] | {name: number}})
    with pytest.raises(InputError, match="its geometry is damaged"):
        Priors.load(path)


@pytest.mark.parametrize("number", [10**400, float("nan"), -1.0, None])
def test_a_distance_that_makes_no_sense_is_refused(path, number):
    Scatter.from_priors(Priors.from_features(BASE)).save(path)
    arrays, found = read_arrays(path, "geometry", 1, required=ARRAYS, facts=NUMBERS)
    write_arrays(path, "geometry", 1, arrays, found | {"distance": number})
    with pytest.raises(InputError, match="is damaged"):
        Scatter.load(path)


def test_names_that_differ_by_a_trailing_nul_are_refused():
    rows = np.eye(2)
    with pytest.raises(InputError, match="ends in a NUL"):
        FeatureSet(rows, ["a", "a\0"])
    with pytest.raises(InputError, match="ends in a NUL"):
        FeatureSet(rows, [0, 1], ["a", "a\0"])
    with pytest.raises(InputError, match="ends in a NUL"):
        P3DCClassifier().fit(rows, ["a", "a\0"])
    with pytest.raises(InputError, match="Give all labels as text or all as numbers"):
        P3DCClassifier().fit(rows, [1, "a"])
