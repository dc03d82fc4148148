import os
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from p3dc import FeatureSet, P3DCClassifier, Priors, method
from p3dc.errors import InputError
from p3dc.io.safetensors import read_arrays, write_arrays
from tests import reference
from tests.conftest import paper

FACTS = ["settings", "temperature", "pile_balance", "reject", "unknown_below", "classes", "class_type", "priors"]
ARRAYS = ["support", "labels", "prior_prototypes", "prior_counts", "prior_lengths", "prior_axes", "prior_gains"]


@pytest.mark.filterwarnings("ignore:.*all zeros")
@parametrize_with_checks(
    [
        paper(),
        paper(power=1.0),
        paper(attention="unit"),
        paper(attention="mean"),
        P3DCClassifier(),
    ]
)
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)


@pytest.mark.parametrize("attention", method.ATTENTIONS)
@pytest.mark.parametrize("weights", [(0.0, 0.9), (0.7, 0.0), (0.2, 0.4)])
def test_decision_function_gives_the_cosines_of_the_plain_loop(task, priors, attention, weights):
    support, labels, queries, _ = task
    classifier = paper(priors, alpha=weights[0], beta=weights[1], attention=attention).fit(support, labels)
    codes = np.searchsorted(classifier.classes_, labels)
    expected = reference.scores(
        support, codes, queries, priors.prototypes, alpha=weights[0], beta=weights[1], attention=attention
    )
    np.testing.assert_allclose(classifier.decision_function(queries), expected, atol=1e-12)
    np.testing.assert_array_equal(classifier.predict(queries), classifier.classes_[expected.argmax(axis=1)])


def test_labels_may_be_strings_and_are_mostly_right(task, priors):
    support, labels, queries, truth = task
    classifier = paper(priors).fit(support, labels)
    assert classifier.classes_.tolist() == ["auk", "robin", "wren"]
    assert classifier.score(queries, truth) > 0.8


def test_without_priors_it_is_the_nearest_prototype_of_normalised_features(task):
    support, labels, queries, _ = task
    classifier = paper(attention="mean").fit(support, labels)
    means = np.array([reference.normalize(support[labels == c]).mean(axis=0) for c in classifier.classes_])
    cosines = reference.normalize(queries) @ reference.normalize(means).T
    np.testing.assert_allclose(classifier.decision_function(queries), cosines, atol=1e-12)


def test_float32_in_float32_out(task, priors):
    support, labels, queries, _ = task
    classifier = paper(priors).fit(support.astype(np.float32), labels)
    assert classifier.calibrated_.dtype == np.float32
    assert classifier.predict_proba(queries.astype(np.float32)).dtype == np.float32
    double = paper(priors).fit(support, labels).decision_function(queries)
    single = classifier.decision_function(queries.astype(np.float32))
    np.testing.assert_allclose(single, double, atol=1e-5)


def test_two_classes_have_one_decision_value(task, priors):
    support, labels, queries, _ = task
    keep = labels != "auk"
    classifier = paper(priors).fit(support[keep], labels[keep])
    decision = classifier.decision_function(queries)
    assert decision.shape == (len(queries),)
    np.testing.assert_array_equal(classifier.predict(queries), np.where(decision > 0, "wren", "robin"))


def test_probabilities_are_the_softmax_of_cosines_over_temperature(task, priors):
    support, labels, queries, _ = task
    classifier = paper(priors, temperature=0.2).fit(support, labels)
    expected = reference.softmax(classifier.decision_function(queries) / 0.2)
    np.testing.assert_allclose(classifier.predict_proba(queries), expected, atol=1e-12)
    with pytest.raises(InputError, match="temperature is 0. It must be a number more than 0"):
        classifier.set_params(temperature=0).fit(support, labels)


@pytest.mark.parametrize("cut", [1, 3, 6])
def test_partial_fit_gives_the_result_of_one_fit_on_everything(task, priors, cut):
    support, labels, queries, _ = task
    whole = paper(priors, alpha=0.2, beta=0.4).fit(support, labels)
    parts = paper(priors, alpha=0.2, beta=0.4)
    parts.partial_fit(support[:cut], labels[:cut]).partial_fit(support[cut:], labels[cut:])
    np.testing.assert_array_equal(parts.classes_, whole.classes_)
    np.testing.assert_array_equal(parts.decision_function(queries), whole.decision_function(queries))


def test_partial_fit_takes_longer_labels_than_before(priors, task):
    support = task[0]
    classifier = paper(priors).partial_fit(support[:1], ["a"]).partial_fit(support[1:2], ["a long name"])
    assert classifier.classes_.tolist() == ["a", "a long name"]


def test_partial_fit_holds_to_the_announced_classes(task):
    support, labels, *_ = task
    with pytest.raises(InputError, match=r"labels outside classes: \['wren'\]"):
        paper().partial_fit(support, labels, classes=["auk", "robin"])


def test_fit_forgets_what_was_there_before(task, priors):
    support, labels, *_ = task
    classifier = paper(priors).fit(support, labels)
    np.testing.assert_array_equal(classifier.fit(support[::-1], labels[::-1]).support_, support[::-1])


def test_explain_lists_the_weights_that_make_the_endpoints(task, priors):
    support, labels, *_ = task
    classifier = paper(priors, alpha=0.3, beta=0.5, n_nearest=3).fit(support, labels)
    table = classifier.explain()
    assert table.column_names == ["support", "label", "level", "prior", "similarity", "weight"]
    rows = table.to_pylist()
    for i, x in enumerate(support):
        ends = []
        for level in ("sample", "task"):
            own = [row for row in rows if row["support"] == i and row["level"] == level]
            assert {row["label"] for row in own} == {labels[i]}
            weights = [row["weight"] for row in own]
            assert weights == sorted(weights, reverse=True)
            assert sum(weights) == pytest.approx(1)
            pull = sum(row["weight"] * priors.prototypes[priors.class_names.index(row["prior"])] for row in own)
            ends.append(reference.normalize(np.sqrt(x) + pull))
        assert len([row for row in rows if row["support"] == i and row["level"] == "sample"]) == 3
        mixed = 0.2 * reference.normalize(x) + 0.3 * ends[0] + 0.5 * ends[1]
        np.testing.assert_allclose(classifier.calibrated_[i], reference.normalize(mixed), atol=1e-12)


def test_there_is_nothing_to_explain_without_priors(task):
    with pytest.raises(InputError, match="there are no priors"):
        paper().fit(*task[:2]).explain()


def test_it_clones_and_pickles(task, priors):
    support, labels, queries, _ = task
    classifier = paper(priors, alpha=0.1, beta=0.3).fit(support, labels)
    copied = clone(classifier)
    assert copied.priors is priors
    with pytest.raises(NotFittedError):
        copied.predict(queries)
    thawed = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(thawed.decision_function(queries), classifier.decision_function(queries))


def test_it_sits_in_a_pipeline_and_in_a_grid_search(novel, priors):
    rows = np.flatnonzero(novel.labels < 3)
    model = make_pipeline(FunctionTransformer(np.abs), paper(priors))
    parameters = {
        "p3dcclassifier__alpha": [0.0, 0.1],
        "p3dcclassifier__beta": [0.0, 0.9],
        "p3dcclassifier__n_nearest": [2],
    }
    search = GridSearchCV(model, parameters, cv=StratifiedKFold(3)).fit(novel.features[rows], novel.labels[rows])
    assert search.best_score_ > 0.8
    assert len(search.cv_results_["params"]) == 4


def test_it_takes_prototypes_as_an_array(task, priors):
    support, labels, queries, _ = task
    one = paper(priors).fit(support, labels).decision_function(queries)
    two = paper(priors.prototypes).fit(support, labels).decision_function(queries)
    np.testing.assert_array_equal(one, two)


def test_many_queries_are_scored_in_blocks(task, priors, monkeypatch):
    support, labels, queries, _ = task
    classifier = paper(priors).fit(support, labels)
    whole = classifier.decision_function(queries)
    sizes = []
    score = method.classify
    monkeypatch.setattr("p3dc.classifier.calibrated_support.QUERY_BYTES", 8 * 3 * (24 + 4) * 7)
    monkeypatch.setattr(method, "classify", lambda block, *rest: sizes.append(len(block)) or score(block, *rest))
    np.testing.assert_allclose(classifier.decision_function(queries), whole, atol=1e-14)
    assert max(sizes) == 7


def test_only_roots_of_calibrated_features_need_them_not_negative(priors):
    assert paper(priors).__sklearn_tags__().input_tags.positive_only
    assert not paper(priors, power=1).__sklearn_tags__().input_tags.positive_only
    assert not paper().__sklearn_tags__().input_tags.positive_only


@pytest.mark.parametrize("labels", [["a", "b", "a"], [3, 1, 3], [2.0, 1.0, 2.0], [True, False, True]])
@pytest.mark.parametrize("with_priors", [True, False])
def test_what_is_saved_is_what_is_loaded(tmp_path, task, priors, labels, with_priors):
    support, _, queries, _ = task
    classifier = paper(priors if with_priors else None, alpha=0.2, beta=0.3, attention="unit", temperature=0.1)
    classifier.fit(support[:3], labels).save(tmp_path / "model.safetensors")
    found = P3DCClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(found.predict_proba(queries), classifier.predict_proba(queries))
    np.testing.assert_array_equal(found.predict(queries), classifier.predict(queries))
    assert found.classes_.dtype == classifier.classes_.dtype
    if with_priors:
        assert found.priors.class_names == priors.class_names
        np.testing.assert_array_equal(found.priors.counts, priors.counts)
        assert found.explain().equals(classifier.explain())
    found.partial_fit(support[3:4], labels[:1])


def test_a_file_from_a_newer_version_or_with_other_keys_is_refused_by_name(tmp_path, task, priors):
    path = tmp_path / "model.safetensors"
    paper(priors).fit(*task[:2]).save(path)
    arrays, facts = read_arrays(path, "classifier", 3, required=ARRAYS, facts=FACTS)
    wrong = facts | {"settings": facts["settings"] | {"sparkle": 1}}
    for version, arrays_now, facts_now, sentence in (
        (2, arrays, facts, "has version 2 of p3dc-classifier, but this p3dc reads version 3.*or write it again"),
        (4, arrays, facts, "has version 4 of p3dc-classifier, but this p3dc reads version 3"),
        (3, arrays | {"extra": np.ones(1)}, facts, "has an unknown array: extra"),
        (3, arrays | {"prior_scatter": np.ones((24, 24))}, facts, "has an unknown array: prior_scatter"),
        (3, arrays, facts | {"note": 1}, "has an unknown entry: note"),
        (3, arrays, wrong, "unknown parameters: sparkle"),
    ):
        write_arrays(path, "classifier", version, arrays_now, facts_now)
        with pytest.raises(InputError, match=sentence):
            P3DCClassifier.load(path)


def test_a_truncated_model_is_refused(tmp_path, task):
    path = tmp_path / "model.safetensors"
    paper().fit(*task[:2]).save(path)
    os.truncate(path, path.stat().st_size - 5)
    with pytest.raises(InputError, match="is damaged or is not a safetensors file"):
        P3DCClassifier.load(path)


def test_labels_of_pandas_and_numbers_of_numpy_can_be_saved(tmp_path, task, priors):
    classifier = paper(priors, n_nearest=np.int64(3), beta=np.float32(0.5), extrapolate=np.bool_(False))
    classifier.fit(task[0], pd.Series(task[1], dtype=object)).save(tmp_path / "model.safetensors")
    found = P3DCClassifier.load(tmp_path / "model.safetensors")
    assert found.predict(task[2]).tolist() == classifier.predict(task[2]).tolist()
    assert found.get_params()["n_nearest"] == 3


def test_parameters_set_after_fit_wait_for_the_next(tmp_path, task, priors):
    support, labels, queries, _ = task
    classifier = paper(priors, beta=0.9, n_nearest=3).fit(support, labels)
    scores, table = classifier.decision_function(queries), classifier.explain()
    classifier.set_params(beta=0.0, n_nearest=1)
    classifier.save(tmp_path / "model.safetensors")
    assert classifier.explain().equals(table)
    np.testing.assert_array_equal(
        P3DCClassifier.load(tmp_path / "model.safetensors").decision_function(queries), scores
    )


def test_damaged_facts_are_refused(tmp_path, task, priors):
    path = tmp_path / "model.safetensors"
    paper(priors).fit(*task[:2]).save(path)
    arrays, facts = read_arrays(path, "classifier", 3, required=ARRAYS, facts=FACTS)
    for change in (
        {"class_type": "O"},
        {"class_type": 5},
        {"classes": ["one"]},
        {"settings": facts["settings"] | {"alpha": "x"}},
        {"settings": facts["settings"] | {"priors": [[1.0]]}},
        {"settings": 5},
        {"temperature": "hot"},
        {"pile_balance": "even"},
        {"reject": 2.0},
        {"reject": 0.5, "unknown_below": None},
        {"classes": facts["classes"][::-1]},
        {"priors": 5},
        {"priors": {"class_names": facts["priors"]["class_names"]}},
        {"priors": facts["priors"] | {"class_names": 5}},
        {"priors": facts["priors"] | {"geometry": {"rest": 1.0}}},
        {"priors": facts["priors"] | {"geometry": 5}},
    ):
        write_arrays(path, "classifier", 3, arrays, facts | change)
        with pytest.raises(InputError, match="is damaged"):
            P3DCClassifier.load(path)
    for name in ("prior_prototypes", "prior_lengths", "prior_axes", "prior_gains"):
        write_arrays(path, "classifier", 3, {key: arrays[key] for key in arrays if key != name}, facts)
        with pytest.raises(InputError, match="is damaged"):
            P3DCClassifier.load(path)


@pytest.mark.parametrize("labels", [["a", None, "b"], ["a", 1, "b"], [0.0, np.nan, 1.0]])
def test_labels_that_are_none_or_mixed_are_refused(task, labels):
    with pytest.raises(ValueError, match="row 1 has|contains NaN"):
        paper().fit(task[0][:3], np.array(labels, dtype=object))


def test_partial_fit_keeps_to_one_type_of_label(task):
    with pytest.raises(InputError, match="Use one type"):
        paper().partial_fit(task[0][:2], [1, 2]).partial_fit(task[0][2:3], ["x"])


def test_numbers_of_numpy_leave_float32_alone(task, priors):
    numbers = {"alpha": np.float64(0.1), "beta": np.float64(0.5), "power": np.float64(0.5), "scale": np.float64(1.0)}
    classifier = paper(priors, temperature=np.float64(0.1), **numbers)
    classifier.fit(task[0].astype(np.float32), task[1])
    assert classifier.calibrated_.dtype == np.float32
    assert classifier.predict_proba(task[2].astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"alpha": 0.5, "beta": 0.6}, r"alpha=0\.5 and beta=0\.6 lie outside the triangle.*extrapolate=True"),
        ({"alpha": -0.1}, "outside the triangle"),
        ({"beta": float("nan")}, "beta is nan"),
        ({"n_nearest": 0}, "n_nearest is 0"),
        ({"n_nearest": 5.0}, "n_nearest is 5.0. It must be a whole number"),
        ({"n_nearest": None}, "n_nearest is None"),
        ({"alpha": "x"}, "alpha is 'x'"),
        ({"scale": "big"}, "scale is 'big'"),
        ({"power": -1}, "power is -1"),
        ({"scale": float("inf")}, "scale is inf"),
        ({"attention": "soft"}, "attention is 'soft'. It must be one of 'raw', 'unit', 'mean'"),
        ({"priors": np.ones((2, 3))}, "support samples have 24 features but the priors have 3"),
        ({"priors": [[np.nan]]}, "prototypes row 0 has NaN"),
    ],
)
def test_bad_parameters_are_refused_in_one_sentence(task, priors, parameters, sentence):
    with pytest.raises(InputError, match=sentence):
        paper(**({"priors": priors} | parameters)).fit(*task[:2])


def test_extrapolation_is_there_for_the_asking(task, priors):
    classifier = paper(priors, alpha=0.7, beta=0.7, extrapolate=True).fit(*task[:2])
    assert np.isfinite(classifier.calibrated_).all()


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (np.nan, "support row 2 has NaN at feature 3"),
        (np.inf, "support row 2 has infinity at feature 3"),
        (-1.0, r"Negative values in data: support row 2 has -1 at feature 3, and power=0\.5 needs.*Use power=1"),
    ],
)
def test_bad_samples_are_refused_with_their_row(task, priors, value, sentence):
    support = task[0].copy()
    support[2, 3] = value
    with pytest.raises(InputError, match=sentence):
        paper(priors).fit(support, task[1])


def test_negative_samples_are_refused_under_any_power_but_one(task, priors):
    for power in (0.3, 2.0):
        with pytest.raises(InputError, match="Negative values in data"):
            paper(priors, power=power).fit(task[0] - 5, task[1])
    with pytest.warns(UserWarning, match="the support is unlike the base features"):
        paper(priors, power=1).fit(task[0] - 5, task[1])


def test_weights_may_miss_one_by_rounding(task, priors):
    paper(priors, alpha=0.5 + 1e-12, beta=0.5).fit(*task[:2])


def test_zeros_under_a_logarithm_are_refused(task, priors):
    support = task[0].copy()
    support[2, 3] = 0
    with pytest.raises(InputError, match="row 2 has 0 at feature 3, and power=0 needs positive features"):
        paper(priors, power=0).fit(support, task[1])


def test_rows_of_zeros_are_refused_where_they_would_be_calibrated(task, priors):
    support, labels, *_ = task
    zeros = np.zeros_like(support[:1])
    with pytest.raises(InputError, match="support row 7 is all zeros and so has no direction. Remove the row"):
        paper(priors).fit(np.vstack([support, zeros]), [*labels, "auk"])
    with pytest.raises(InputError, match="queries row 0 is all zeros"):
        paper(priors).fit(support, labels).predict(zeros)
    classifier = paper().fit(support, labels)
    with pytest.warns(UserWarning, match="queries row 0 is all zeros, so all its cosines are 0"):
        np.testing.assert_array_equal(classifier.decision_function(zeros), [[0, 0, 0]])


def test_queries_of_another_width_are_refused(task, priors):
    classifier = paper(priors).fit(*task[:2])
    with pytest.raises(InputError, match=r"X has 5 features, but P3DCClassifier is expecting 24.*same backbone"):
        classifier.predict(np.ones((2, 5)))


def test_one_class_is_refused(task, priors):
    support = task[0]
    with pytest.raises(InputError, match="one class, 'wren'. Add samples of at least one other class"):
        paper(priors).fit(support, ["wren"] * len(support))
    classifier = paper(priors).partial_fit(support, ["wren"] * len(support))
    with pytest.raises(InputError, match="there is one class, 'wren'"):
        classifier.predict(support)


def test_empty_sets_and_surplus_labels_are_refused(task, priors):
    support, labels, *_ = task
    with pytest.raises(ValueError, match="0 sample"):
        paper(priors).fit(support[:0], labels[:0])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        paper(priors).fit(support, [*labels, "auk"])


def test_priors_of_one_class_and_more_nearest_than_priors_work(task):
    support, labels, queries, truth = task
    priors = Priors(support.mean(axis=0, keepdims=True))
    assert paper(priors, n_nearest=50).fit(support, labels).score(queries, truth) > 0.5


@pytest.mark.parametrize("exponent", [-120, -80, 62, 120])
@pytest.mark.parametrize("priors_too", [False, True])
def test_float32_outside_the_range_of_its_squares_is_labelled_as_inside(exponent, priors_too, rng):
    base, rows = (np.abs(rng.normal(size=(n, 1, 8)) + 0.3 * rng.normal(size=(n, 6, 8))) for n in (9, 3))
    base, rows = base.reshape(-1, 8).astype(np.float32), rows.reshape(-1, 8).astype(np.float32)
    labels, support = np.repeat(np.arange(3), 6), slice(None, None, 6)

    def predict(power):
        priors = (
            Priors.from_features(FeatureSet(np.ldexp(base, power), np.repeat(np.arange(9), 6))) if priors_too else None
        )
        classifier = P3DCClassifier(priors).fit(np.ldexp(rows, power)[support], labels[support])
        return classifier.predict(np.ldexp(rows, power))

    np.testing.assert_array_equal(predict(exponent), predict(0))


def test_products_that_overflow_are_refused(rng):
    rows = np.float32(1e30) * rng.random((4, 3)).astype(np.float32)
    with pytest.raises(InputError, match="products are too large for float32"):
        P3DCClassifier(rows, alpha=0.0, beta=0.9, space="plain").fit(rows[:2], [0, 1])


def test_masked_values_are_refused():
    masked = np.ma.masked_array([[1.0, 0.0], [0.0, 1.0]], mask=[[False, True], [False, False]])
    for call in (
        lambda: P3DCClassifier().fit(masked, [0, 1]),
        lambda: P3DCClassifier().fit(np.eye(2), np.ma.masked_array([0, 1], mask=[True, False])),
        lambda: P3DCClassifier().fit(np.eye(2), [0, 1]).predict(masked),
        lambda: FeatureSet(masked, [0, 1]),
    ):
        with pytest.raises(InputError, match="1 masked values"):
            call()
