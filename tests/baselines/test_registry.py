"""One registry of the compared methods, which the package, the docs and the commands agree with."""

import inspect
from pathlib import Path

import numpy as np
import pytest

from p3dc import baselines, evaluate
from p3dc.baselines.registry import METHODS, TABLE_1, Method, Sources, methods_table
from p3dc.baselines.trained import TrainedMethod
from p3dc.errors import InputError
from p3dc.reproduce import table1

DOCS = Path(__file__).parents[2] / "docs"


def test_every_exported_method_is_registered_once():
    assert sorted(method.kind.__name__ for method in METHODS.values()) == dir(baselines)
    assert all(getattr(baselines, method.kind.__name__) is method.kind for method in METHODS.values())
    with pytest.raises(AttributeError, match="module 'p3dc.baselines' has no attribute 'magic'"):
        _ = baselines.magic
    assert all(key == method.key for key, method in METHODS.items())


def test_the_page_of_methods_has_the_table_of_the_registry():
    assert f"\n{methods_table()}\n" in (DOCS / "explanation" / "methods.md").read_text()


def test_every_method_says_what_differs_from_its_publication():
    assert all(method.kind.differs for method in METHODS.values())


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_needs_are_those_of_the_constructor(method):
    accepted = set(inspect.signature(method.kind).parameters)
    assert {"priors", "base"} & set(method.needs) == {"priors", "base"} & accepted
    assert ("torch" in method.needs) == issubclass(method.kind, TrainedMethod)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_every_method_is_built_from_what_it_needs(method, priors, base, validation):
    sources = Sources(
        priors,
        base if "base" in method.needs else None,
        validation=(lambda one: evaluate(one, validation, n_query=5, n_tasks=3).mean)
        if "validation" in method.needs
        else None,
        maps=4 if "maps" in method.needs else None,
    )
    assert type(method.build(sources)) is method.kind


def test_logistic_regression_is_tuned_on_validation_classes(priors, base, validation):
    tried = []

    def accuracy(classifier):
        tried.append((classifier.C, classifier.centred, classifier.priors))
        return -abs(classifier.C - 9) + classifier.centred

    chosen = METHODS["logistic"].build(Sources(priors, base, base, accuracy))
    assert (chosen.C, chosen.centred, chosen.priors) == (10.0, True, priors)
    assert {each[:2] for each in tried} == {(C, centred) for C in (0.01, 0.1, 1, 10, 100) for centred in (False, True)}
    assert all(each[2] is priors for each in tried)

    tried.clear()
    chosen = METHODS["logistic"].build(Sources(priors, base, validation, accuracy))
    assert chosen.priors is priors
    held = validation.features.mean(axis=0, dtype=float)
    assert all(np.allclose(each[2].mean, held) for each in tried)  # never the classes that it is validated on


@pytest.mark.parametrize(
    ("key", "need"), [("dc", "base"), ("gda", "base"), ("gda", "validation"), ("logistic", "validation")]
)
def test_what_is_missing_is_one_sentence(key, need, priors, base):
    sentence = {"base": "Give base features instead of priors", "validation": "Add validation features"}[need]
    with pytest.raises(InputError, match=rf"^{key} needs .*\. {sentence}\.$"):
        METHODS[key].build(Sources(priors, None if need == "base" else base))


def test_parameters_are_chosen_with_the_base_classes_of_the_selection(priors, base, validation):
    seen = []

    def accuracy(classifier):
        seen.append(getattr(classifier, "base", None))
        return 0.0

    chosen = METHODS["gda"].build(Sources(priors, base, validation, accuracy))
    assert all(part is validation for part in seen)
    assert (chosen.base, chosen.shrinkage) == (base, 0.5)


def test_the_published_scale_of_baseline_pp_differs_on_cub(priors):
    scales = [METHODS["baseline++"].build(Sources(priors, data_set=name)).scale for name in (None, "CUB")]
    assert scales == [2.0, 4.0]


@pytest.mark.parametrize("key", ["deepvoro", "deepvoro++"])
def test_the_published_shifts_of_deepvoro_differ_with_one_shot(key, priors, base):
    seen = []

    def accuracy(classifier):
        seen.append(classifier.shift)
        return 0.0

    names = (None, "miniImageNet", "tieredImageNet", "CUB")
    for n_shot, shifts in ((1, [0.02, 0.02, 0.1, 0.5]), (5, [0.02] * 4)):
        for name, shift in zip(names, shifts, strict=True):
            seen.clear()
            sources = Sources(priors, base, validation=accuracy, data_set=name, n_shot=n_shot)
            assert METHODS[key].build(sources).shift == shift
            assert set(seen) == {shift}  # chosen on validation classes with the same shifts


def test_a_title_is_the_name_and_the_year():
    assert Method("a", baselines.NN, "A", "family", "Wren et al., 2031").title == "A (2031)"
    assert Method("a", baselines.NN, "A", "family").title == "A"
    assert Method("a", baselines.NN, "A", "family", "Wren et al., 2031", row="A + B").title == "A + B"


def test_table_1_has_every_method_of_its_families_and_ours_before_those_that_the_paper_has_not():
    rows = table1.rows()
    assert {key for _, key in rows} == set(table1.TITLES)
    families = list(dict.fromkeys(family for family, _ in rows))
    assert families[-2:] == ["P3DC-Shot", "Not in the paper's table"]
    assert len(families) == 7
    assert [key for _, key in rows if key in METHODS] == list(TABLE_1)


@pytest.mark.parametrize("key", [key for key, method in METHODS.items() if "torch" not in method.needs])
def test_the_registry_knows_which_methods_take_roots(key, base, priors):
    method = METHODS[key]
    sources = [{"priors": priors, "base": base}[need] for need in method.needs if need in ("priors", "base")]
    assert method.kind(*sources).__sklearn_tags__().input_tags.positive_only == method.takes_roots
