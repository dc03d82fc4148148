import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import MultinomialNB
from sklearn.neighbors import KNeighborsClassifier

from p3dc import FeatureSet, P3DCClassifier, compare, evaluate, sample_tasks
from p3dc.baselines import DC, L2N, NN, DeepVoro
from p3dc.confidence.metrics import Reliability
from p3dc.errors import InputError
from p3dc.evaluation.results import TaskScores
from p3dc.evaluation.runners import WithoutPile
from p3dc.tasks import TaskSampler
from tests.conftest import PAPER, make_signed, paper


class Subclassed(P3DCClassifier):
    """Takes the slow path."""


class Constant:
    """Not from scikit-learn; always answers the first label it saw."""

    def fit(self, X, y):
        self.label = y[0]

    def predict(self, X):
        return np.full(len(X), self.label)


@pytest.mark.parametrize("n_shot", [1, 4])
@pytest.mark.parametrize("attention", ["raw", "unit", "mean"])
def test_the_fast_path_gives_the_accuracies_of_fit_and_predict(novel, priors, n_shot, attention):
    parameters = {"alpha": 0.3, "beta": 0.5, "attention": attention}
    features = FeatureSet(novel.features.astype(float), novel.labels, novel.class_names)
    fast = P3DCClassifier(priors, **parameters)
    slow = Subclassed(priors, **parameters)
    comparison = compare([fast, slow], features, n_shot=n_shot, n_query=6, n_tasks=60, seed=4)
    np.testing.assert_array_equal(*(scores.accuracy for scores in comparison.scores.values()))


def test_accuracy_is_that_of_each_task(novel):
    tasks = sample_tasks(novel.labels, n_way=4, n_shot=2, n_query=5, n_tasks=30, seed=9)
    expected = []
    for support, queries in zip(tasks.support, tasks.queries, strict=True):
        model = L2N().fit(novel.features[support.ravel()], np.repeat(range(4), 2))
        expected.append(np.mean(model.predict(novel.features[queries.ravel()]) == np.repeat(range(4), 5)))
    scores = evaluate(L2N(), novel, n_way=4, n_shot=2, n_query=5, n_tasks=30, seed=9)
    np.testing.assert_allclose(scores.accuracy, expected)
    assert scores.mean == pytest.approx(np.mean(expected))
    assert scores.interval == pytest.approx(1.96 * np.std(expected, ddof=1) / np.sqrt(30))


def test_evaluation_leaves_any_classifier_as_it_was(novel):
    fitted = LogisticRegression().fit(novel.features[:60], novel.labels[:60])
    before = fitted.coef_.copy()
    evaluate(fitted, novel, n_query=5, n_tasks=2)
    np.testing.assert_array_equal(fitted.coef_, before)


class Column(Constant):
    """Predicts a column, as some libraries do."""

    def predict(self, X):
        return super().predict(X)[:, None]


class Strings(Constant):
    def predict(self, X):
        return super().predict(X).astype(str)


def test_a_column_of_predictions_counts_once(novel):
    np.testing.assert_allclose(evaluate(Column(), novel, n_query=5, n_tasks=3).accuracy, 0.2)


def test_predictions_that_are_no_labels_are_refused(novel):
    with pytest.raises(InputError, match="Strings predicts shape .* one of the labels that it was fitted to"):
        evaluate(Strings(), novel, n_query=5, n_tasks=3)


def test_anything_with_fit_and_predict_can_be_evaluated(novel):
    scores = evaluate(Constant(), novel, n_query=5, n_tasks=20)
    np.testing.assert_allclose(scores.accuracy, 0.2)
    assert evaluate(LogisticRegression(), novel, n_shot=5, n_query=5, n_tasks=5).mean > 0.6


def test_evaluation_leaves_the_classifier_as_it_was(novel):
    fitted = L2N().fit(novel.features[:40], novel.labels[:40])
    before = fitted.predict(novel.features)
    evaluate(fitted, novel, n_query=5, n_tasks=3)
    np.testing.assert_array_equal(fitted.predict(novel.features), before)


def test_any_classifier_is_given_float32_for_float16(novel):
    seen = set()

    class Recording(Constant):
        def fit(self, X, y):
            seen.add(X.dtype)
            super().fit(X, y)

    evaluate(Recording(), FeatureSet(novel.features.astype(np.float16), novel.labels), n_query=5, n_tasks=2)
    assert seen == {np.dtype(np.float32)}


def test_float16_features_are_evaluated_like_float32(novel, priors):
    half = FeatureSet(novel.features.astype(np.float16), novel.labels)
    single = FeatureSet(half.features.astype(np.float32), novel.labels)
    for classifier in (paper(priors), L2N()):
        one, two = (evaluate(classifier, f, n_query=5, n_tasks=20).accuracy for f in (half, single))
        np.testing.assert_array_equal(one, two)


def test_differences_are_paired(novel):
    comparison = compare({"a": NN(), "b": L2N()}, novel, n_query=5, n_tasks=40)
    gain = comparison.scores["b"].accuracy - comparison.scores["a"].accuracy
    [difference] = comparison.differences
    assert (difference.name, difference.reference) == ("b", "a")
    assert difference.mean == pytest.approx(gain.mean())
    assert difference.interval == pytest.approx(1.96 * gain.std(ddof=1) / np.sqrt(40))
    assert comparison.difference("a", "b").mean == pytest.approx(-difference.mean)


def test_classifiers_of_one_class_get_different_names(novel, priors):
    comparison = compare([paper(), paper(priors), NN()], novel, n_query=5, n_tasks=3)
    assert list(comparison.scores) == ["P3DCClassifier", "P3DCClassifier (2)", "NN"]


def test_scores_do_not_depend_on_the_other_classifiers(novel, priors):
    options = {"n_query": 5, "n_tasks": 30, "seed": 2}
    alone = evaluate(paper(priors), novel, **options)
    together = compare([NN(), paper(priors)], novel, **options)
    np.testing.assert_array_equal(alone.accuracy, together.scores["P3DCClassifier"].accuracy)


def test_progress_is_reported_until_the_end(novel, priors):
    told = []
    evaluate(paper(priors), novel, n_query=5, n_tasks=1200, progress=lambda *step: told.append(step))
    assert told == [(done, 1200) for done in range(100, 1201, 100)]


def test_results_know_their_own_sentence():
    assert str(TaskScores(np.full(2000, 0.7))) == "70.00 ± 0.00 % (95 % CI, 2,000 tasks)"
    assert np.isnan(TaskScores(np.array([0.7])).interval)


def test_bad_requests_are_refused_in_one_sentence(novel, priors):
    with pytest.raises(InputError, match="no classifiers to compare"):
        compare([], novel)
    with pytest.raises(InputError, match="outside the triangle"):
        evaluate(paper(priors, alpha=0.9, beta=0.9), novel)
    with pytest.raises(InputError, match=r"novel-0 \(30\)"):
        evaluate(paper(priors), novel, n_query=40)


CHOOSING = [PAPER, PAPER | {"alpha": 0.2, "beta": 0.3, "attention": "unit"}, {}, {"beta": 0.5}, {"scale": 3.0}]


def one_by_one(classifier, features, n_unknown, **drawing):
    """A fitted classifier for each task, with the rows of its queries and of its unknown queries."""
    n_tasks = drawing.pop("n_tasks")
    sampler = TaskSampler(features.labels, **drawing)
    tasks = sampler.draw(n_tasks)
    outside = sampler.unknown_queries(tasks, n_unknown)
    labels = np.repeat(range(drawing["n_way"]), drawing["n_shot"])
    for support, queries, unknown in zip(tasks.support, tasks.queries, outside, strict=True):
        model = clone(classifier).fit(features.features[support.ravel()].astype(float), labels)
        yield model, features.features[queries.ravel()].astype(float), features.features[unknown].astype(float)


DRAWING = {"n_way": 4, "n_shot": 2, "n_query": 5, "n_tasks": 130, "seed": 9}


@pytest.mark.parametrize("parameters", CHOOSING)
def test_calibration_error_and_auroc_are_those_of_each_fitted_classifier(novel, priors, parameters):
    classifier = P3DCClassifier(priors, **parameters)
    reliability, areas = Reliability(), []
    for model, queries, unknown in one_by_one(classifier, novel, 7, **DRAWING):
        probabilities = model.predict_proba(queries)
        reliability.add(probabilities.max(axis=1), probabilities.argmax(axis=1) == np.repeat(range(4), 5))
        found = np.concatenate([model.score_samples(queries), model.score_samples(unknown)])
        areas.append(roc_auc_score([1] * 20 + [0] * 7, found))
    scores = evaluate(classifier, novel, n_unknown=7, **DRAWING)
    assert scores.calibration_error == pytest.approx(reliability.error, abs=1e-4)
    np.testing.assert_allclose(scores.auroc, areas, atol=1e-2)
    np.testing.assert_allclose(scores.auroc.mean(), np.mean(areas), atol=1e-4)


def test_the_auroc_of_a_baseline_is_that_of_its_decision_function(novel):
    areas = []
    for model, queries, unknown in one_by_one(L2N(), novel, 7, **DRAWING):
        found = np.concatenate([model.decision_function(rows).max(axis=1) for rows in (queries, unknown)])
        areas.append(roc_auc_score([1] * 20 + [0] * 7, found))
    scores = evaluate(L2N(), novel, n_unknown=7, **DRAWING)
    np.testing.assert_allclose(scores.auroc.mean(), np.mean(areas), atol=1e-4)
    assert scores.calibration_error is None


def test_the_temperature_changes_only_the_calibration_error(novel, priors):
    cold, warm = (evaluate(paper(priors, temperature=t), novel, n_query=5, n_tasks=60) for t in (0.001, None))
    np.testing.assert_array_equal(cold.accuracy, warm.accuracy)
    assert cold.calibration_error > warm.calibration_error


def test_unknown_queries_change_no_accuracy(novel, priors):
    rivals = {"p3dc": paper(priors), "auto": P3DCClassifier(priors), "l2n": L2N(), "any": Constant()}
    drawing = {"n_query": 5, "n_tasks": 110}
    alone, together = (compare(rivals, novel, n_unknown=n, **drawing).scores for n in (0, 6))
    for name in rivals:
        np.testing.assert_array_equal(alone[name].accuracy, together[name].accuracy)
        assert alone[name].calibration_error == together[name].calibration_error
        assert alone[name].auroc is None
        assert (together[name].auroc is None) == (name == "any")
    assert together["auto"].auroc.shape == (110,)


@pytest.mark.parametrize("n_shot", [1, 4])
@pytest.mark.parametrize("attention", ["raw", "unit", "mean"])
@pytest.mark.parametrize("parameters", [{}, {"alpha": 0.3, "beta": 0.5}, {"scale": 3.0}])
def test_the_whitened_space_takes_a_fast_path_too(novel, priors, n_shot, attention, parameters):
    rivals = [kind(priors, **parameters, attention=attention) for kind in (P3DCClassifier, Subclassed)]
    comparison = compare(rivals, novel, n_shot=n_shot, n_query=4, n_tasks=20, seed=4)
    np.testing.assert_array_equal(*(scores.accuracy for scores in comparison.scores.values()))


def test_priors_without_geometry_are_left_out_with_a_warning(novel, priors):
    drawing = {"n_query": 5, "n_tasks": 20}
    with pytest.warns(UserWarning, match="the priors have no geometry, because they were given as means"):
        scores = evaluate(P3DCClassifier(priors.prototypes), novel, **drawing)
    np.testing.assert_array_equal(scores.accuracy, evaluate(P3DCClassifier(), novel, **drawing).accuracy)


def test_scores_print_the_calibration_error_and_the_auroc():
    accuracy = np.array([0.6, 0.8])
    assert str(TaskScores(accuracy, 0.0456)).endswith("(95 % CI, 2 tasks), calibration error 0.046")
    both = TaskScores(accuracy, 0.0456, np.array([0.7, 0.9]))
    assert str(both).endswith(", calibration error 0.046, AUROC of unknowns 0.800")


def test_unknown_queries_that_cannot_be_drawn_are_refused(novel, priors):
    with pytest.raises(InputError, match="all 8 classes are in each task"):
        evaluate(paper(priors), novel, n_way=8, n_query=5, n_unknown=3)
    with pytest.raises(InputError, match="n_unknown is -1"):
        evaluate(paper(priors), novel, n_query=5, n_unknown=-1)
    with pytest.raises(InputError, match="only the whitened space can choose them"):
        evaluate(P3DCClassifier(priors, space="plain"), novel, n_query=5)


@pytest.mark.parametrize("kind", [KNeighborsClassifier, LogisticRegression])
def test_any_classifier_with_probabilities_has_a_calibration_error_and_an_auroc(novel, kind):
    classifier = kind() if kind is LogisticRegression else kind(n_neighbors=3)
    reliability, areas = Reliability(), []
    for model, queries, unknown in one_by_one(classifier, novel, 7, **DRAWING):
        probabilities = model.predict_proba(queries)
        reliability.add(probabilities.max(axis=1), model.predict(queries) == np.repeat(range(4), 5))
        largest = np.concatenate([probabilities, model.predict_proba(unknown)]).max(axis=1)
        areas.append(roc_auc_score([1] * 20 + [0] * 7, largest))
    scores = evaluate(classifier, novel, n_unknown=7, **DRAWING)
    assert scores.calibration_error == pytest.approx(reliability.error, abs=1e-4)
    np.testing.assert_allclose(scores.auroc.mean(), np.mean(areas), atol=1e-3)


@pytest.mark.parametrize("parameters", [PAPER, {}, {"reject": 0.5}])
def test_a_subclass_has_the_measures_of_its_parent(novel, priors, parameters):
    rivals = [kind(priors, **parameters) for kind in (P3DCClassifier, Subclassed)]
    one, two = compare(rivals, novel, n_unknown=7, **DRAWING).scores.values()
    assert two.calibration_error == pytest.approx(one.calibration_error, abs=1e-4)
    np.testing.assert_allclose(two.auroc, one.auroc, atol=1e-2)


def test_pairs_and_mappings_are_evaluated_like_sets(novel):
    expected = evaluate(L2N(), novel, n_query=5, n_tasks=20)
    pair = (novel.features, novel.labels)
    by_class = {name: novel.features[novel.labels == label] for label, name in enumerate(novel.class_names)}
    for features in (pair, by_class):
        np.testing.assert_array_equal(evaluate(L2N(), features, n_query=5, n_tasks=20).accuracy, expected.accuracy)
        found = compare([L2N()], features, n_query=5, n_tasks=20).scores["L2N"]
        np.testing.assert_array_equal(found.accuracy, expected.accuracy)


def plain_unequal(classifier, features, shots, *, n_way, n_query, n_tasks, seed):
    """The accuracy of each task whose classes have these numbers of samples, (T, N)."""
    most = int(np.max(shots))
    tasks = sample_tasks(features.labels, n_way=n_way, n_shot=most, n_query=n_query, n_tasks=n_tasks, seed=seed)
    found = []
    for support, queries, own in zip(tasks.support, tasks.queries, shots, strict=True):
        rows = np.concatenate([samples[:number] for samples, number in zip(support, own, strict=True)])
        model = clone(classifier).fit(features.features[rows], np.repeat(range(n_way), own))
        predicted = model.predict(features.features[queries.ravel()])
        found.append(np.mean(predicted == np.repeat(range(n_way), n_query)))
    return found


UNEQUAL = {"n_way": 3, "n_query": 4, "n_tasks": 30, "seed": 3}


@pytest.mark.parametrize("make", [L2N, P3DCClassifier, Subclassed, LogisticRegression])
def test_classes_may_differ_in_their_shots(novel, priors, make):
    classifier = make(priors) if issubclass(make, P3DCClassifier) else make()
    each = evaluate(classifier, novel, n_shot=(1, 5, 2), **UNEQUAL)
    np.testing.assert_allclose(each.accuracy, plain_unequal(classifier, novel, [(1, 5, 2)] * 30, **UNEQUAL))
    drawn = [np.random.default_rng([3, 3, i]).choice(np.arange(1, 5), 3) for i in range(30)]
    assert len(np.unique(drawn)) == 4
    scores = evaluate(classifier, novel, n_shot=range(1, 5), **UNEQUAL)
    np.testing.assert_allclose(scores.accuracy, plain_unequal(classifier, novel, drawn, **UNEQUAL))


def test_equal_numbers_of_shots_are_those_of_one_number(novel, priors):
    for classifier in (L2N(), P3DCClassifier(priors)):
        one, two, three = (evaluate(classifier, novel, n_shot=n, **UNEQUAL) for n in (2, (2, 2, 2), range(2, 3)))
        np.testing.assert_array_equal(one.accuracy, two.accuracy)
        np.testing.assert_array_equal(one.accuracy, three.accuracy)


def test_a_pile_is_learned_from_with_unequal_shots_too(novel, priors):
    drawing = UNEQUAL | {"n_tasks": 5, "n_pile": 12}
    found = evaluate(P3DCClassifier(priors), novel, n_shot=range(1, 4), **drawing)
    alone = evaluate(WithoutPile(P3DCClassifier(priors)), novel, n_shot=range(1, 4), **drawing)
    assert found.accuracy.shape == alone.accuracy.shape == (5,)


@pytest.mark.parametrize(
    ("n_shot", "sentence"),
    [
        ((1, 5), r"n_shot has 2 numbers for 3 ways\. .* range\(1, 6\)"),
        ((1, 0, 2), "n_shot is 0. It must be at least 1"),
        (range(3, 3), "which has no numbers"),
        ("many", "n_shot is 'many'. It must be a whole number, or one for each class"),
        (1.5, "n_shot is 1.5. It must be a whole number"),
    ],
)
def test_shots_that_mean_nothing_are_refused(novel, n_shot, sentence):
    with pytest.raises(InputError, match=sentence):
        evaluate(L2N(), novel, n_shot=n_shot, **UNEQUAL)


def test_a_fresh_seed_is_reported_and_gives_the_same_tasks_again(novel):
    fresh = [evaluate(L2N(), novel, n_query=5, n_tasks=30, seed=None) for _ in range(2)]
    assert fresh[0].seed != fresh[1].seed
    again = evaluate(L2N(), novel, n_query=5, n_tasks=30, seed=fresh[0].seed)
    np.testing.assert_array_equal(again.accuracy, fresh[0].accuracy)
    assert compare([L2N()], novel, n_query=5, n_tasks=3, seed=4).scores["L2N"].seed == 4


def test_true_shows_a_bar_on_a_terminal_and_nothing_in_a_pipe(novel, monkeypatch, capsys):
    evaluate(L2N(), novel, n_query=5, n_tasks=3, progress=True)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    evaluate(L2N(), novel, n_query=5, n_tasks=3, progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "tasks" in shown.err
    assert "3/3" in shown.err


SIGNED = make_signed(2, 8, 30)


def test_classifiers_that_take_roots_are_left_out_of_signed_features(priors, base):
    rivals = {"paper": paper(priors), "auto": P3DCClassifier(priors), "dc": DC(base), "voro": DeepVoro()}
    rivals |= {"bayes": MultinomialNB(), "plain": WithoutPile(paper(priors)), "power 1": paper(priors, power=1)}
    sentence = "Left out: paper, dc, voro, bayes, plain, because a root of negative .* auto, the adaptive"
    with pytest.warns(UserWarning, match=sentence):
        found = compare(rivals, SIGNED, n_query=5, n_tasks=5)
    assert list(found.scores) == ["auto", "power 1"]
    assert list(found.left_out) == ["paper", "dc", "voro", "bayes", "plain"]
    assert str(found).splitlines()[-1].startswith("Left out: paper, dc, voro")
    with pytest.raises(InputError, match="Negative values in data: dc, voro cannot be run, because"):
        compare({"dc": DC(base), "voro": DeepVoro()}, SIGNED, n_query=5, n_tasks=5)
    with pytest.raises(InputError, match="Negative values in data"):
        evaluate(paper(priors), SIGNED, n_query=5, n_tasks=5)
