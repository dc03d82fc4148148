"""Evaluation on tasks with a pile, against a plain loop over the tasks."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KNeighborsClassifier

from p3dc import FeatureSet, P3DCClassifier, compare, evaluate
from p3dc.baselines import L2N
from p3dc.baselines.contract import TaskMethod, class_means, negative_distances
from p3dc.confidence.metrics import Reliability
from p3dc.errors import InputError
from p3dc.evaluation.executors import run_prefetching
from p3dc.evaluation.protocol import EvaluationPlan, run_plan
from p3dc.evaluation.runners import WithoutPile
from p3dc.tasks import TaskSampler


class PileLearner(ClassifierMixin, BaseEstimator):
    """Moves the mean of each class towards the photos of the pile that are nearest to it."""

    def fit(self, X, y, unlabelled=None):
        self.classes_ = np.unique(y)
        self.means_ = np.stack([X[y == c].mean(axis=0) for c in self.classes_])
        self.pile_ = unlabelled
        if unlabelled is not None:
            nearest = self._scores(unlabelled).argmax(axis=1)
            rows = [np.concatenate([X[y == c], unlabelled[nearest == i]]) for i, c in enumerate(self.classes_)]
            self.means_ = np.stack([row.mean(axis=0) for row in rows])
            self.transduction_proba_ = self.predict_proba(unlabelled) ** 0.5
            self.transduction_ = self.classes_[nearest]  # not what predict says
        return self

    def _scores(self, X):
        return -((X[:, None] - self.means_) ** 2).sum(axis=-1)

    def predict(self, X):
        return self.classes_[self._scores(X).argmax(axis=1)]

    def predict_proba(self, X):
        scores = self._scores(X) / 10
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True)

    def score_samples(self, X):
        return self._scores(X).max(axis=1)


class Transductive(TaskMethod):
    """Centres the queries of a task, so that each score depends on all of them."""

    def learn_tasks(self, support, labels):
        return (class_means(support, labels),)

    def score_tasks(self, state, queries):
        (means,) = state
        return negative_distances(queries - queries.mean(axis=1, keepdims=True) + means.mean(axis=1)[:, None], means)


DRAWING = {"n_way": 4, "n_shot": 2, "n_query": 5, "seed": 3}
N_TASKS = 110
PILES = [("equal", 0.0), (2.0, 0.5), ("one", 0.4)]


def tasks_one_by_one(features, n_pile, balance, unknown):
    """The support, its labels, the pile with its classes, and the queries with theirs, of each task."""
    sampler = TaskSampler(features.labels, **DRAWING)
    tasks = sampler.draw(N_TASKS)
    piles = sampler.piles(tasks, n_pile, balance=balance, unknown=unknown)
    rows = features.features
    for i in range(N_TASKS):
        support, queries = tasks.support[i].ravel(), tasks.queries[i].ravel()
        own = np.repeat(range(4), 5)
        yield rows[support], np.repeat(range(4), 2), rows[piles.rows[i]], piles.classes[i], rows[queries], own


def pile_options(balance, unknown, where):
    return {"n_pile": 20, "pile_balance": balance, "pile_unknown": unknown, "pile_queries": where}


@pytest.mark.parametrize(("balance", "unknown"), PILES)
def test_inside_the_pile_its_known_photos_are_classified(novel, balance, unknown):
    accuracy, areas, reliability = [], [], Reliability()
    for support, labels, pile, own, _, _ in tasks_one_by_one(novel, 20, balance, unknown):
        model, known = PileLearner().fit(support, labels, unlabelled=pile), own >= 0
        right = (model.transduction_ == own)[known]
        accuracy.append(right.mean())
        reliability.add(model.transduction_proba_.max(axis=1)[known], right)
        if unknown:
            areas.append(roc_auc_score(known, model.score_samples(pile)))
    found = evaluate(PileLearner(), novel, n_tasks=N_TASKS, **DRAWING, **pile_options(balance, unknown, "inside"))
    np.testing.assert_allclose(found.accuracy, accuracy)
    assert found.calibration_error == pytest.approx(reliability.error)
    if unknown:
        np.testing.assert_allclose(found.auroc, areas)
    else:
        assert found.auroc is None


@pytest.mark.parametrize(("balance", "unknown"), PILES)
def test_outside_the_pile_queries_are_classified_by_what_was_learned_from_it(novel, balance, unknown):
    accuracy, reliability = [], Reliability()
    for support, labels, pile, _, queries, own in tasks_one_by_one(novel, 20, balance, unknown):
        model = PileLearner().fit(support, labels, unlabelled=pile)
        right = model.predict(queries) == own
        accuracy.append(right.mean())
        reliability.add(model.predict_proba(queries).max(axis=1), right)
    options = pile_options(balance, unknown, "outside")
    found = evaluate(PileLearner(), novel, n_tasks=N_TASKS, **DRAWING, **options)
    np.testing.assert_allclose(found.accuracy, accuracy)
    assert found.calibration_error == pytest.approx(reliability.error)
    assert found.auroc is None
    with_unknown = evaluate(PileLearner(), novel, n_tasks=N_TASKS, n_unknown=6, **DRAWING, **options)
    assert with_unknown.auroc.shape == (N_TASKS,)


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_p3dc_learns_from_the_pile(novel, priors, where):
    accuracy, reliability = [], Reliability()
    for support, labels, pile, own, queries, query_classes in tasks_one_by_one(novel, 20, 2.0, 0.5):
        model = P3DCClassifier(priors).fit(support, labels, unlabelled=pile)
        if where == "inside":
            predicted, shares = model.transduction_, model.transduction_proba_
        else:
            predicted, shares, own = model.predict(queries), model.predict_proba(queries), query_classes
        known = own >= 0
        accuracy.append((predicted == own)[known].mean())
        reliability.add(shares.max(axis=1)[known], (predicted == own)[known])
    options = pile_options(2.0, 0.5, where)
    found = evaluate(P3DCClassifier(priors, reject=0.1), novel, n_tasks=N_TASKS, **DRAWING, **options)
    np.testing.assert_array_equal(found.accuracy, accuracy)
    assert found.calibration_error == pytest.approx(reliability.error)
    assert (found.auroc is not None) == (where == "inside")


@pytest.mark.parametrize("unknown", [0.0, 0.5])
def test_without_the_pile_p3dc_only_classifies_its_photos(novel, priors, unknown):
    features = FeatureSet(novel.features.astype(float), novel.labels, novel.class_names)
    accuracy, areas, reliability = [], [], Reliability()
    for support, labels, pile, own, _, _ in tasks_one_by_one(features, 20, 2.0, unknown):
        model, known = P3DCClassifier(priors).fit(support, labels), own >= 0
        right = (model.predict(pile) == own)[known]
        accuracy.append(right.mean())
        reliability.add(model.predict_proba(pile).max(axis=1)[known], right)
        if unknown:
            areas.append(roc_auc_score(known, model.score_samples(pile)))
    options = pile_options(2.0, unknown, "inside")
    classifier = WithoutPile(P3DCClassifier(priors, reject=0.1))
    found = evaluate(classifier, features, n_tasks=N_TASKS, **DRAWING, **options)
    np.testing.assert_array_equal(found.accuracy, accuracy)
    assert found.calibration_error == pytest.approx(reliability.error, abs=1e-4)
    if unknown:
        np.testing.assert_allclose(found.auroc.mean(), np.mean(areas), atol=1e-3)


def test_outside_the_pile_a_classifier_without_it_is_as_if_there_were_none(novel, priors):
    rivals = {"auto": WithoutPile(P3DCClassifier(priors)), "learner": WithoutPile(PileLearner()), "l2n": L2N()}
    options = DRAWING | {"n_tasks": 40}
    plain = compare(rivals, novel, **options, n_unknown=7)
    piled = compare(rivals, novel, **options, n_unknown=7, **pile_options("equal", 0.4, "outside"))
    for name in rivals:
        np.testing.assert_array_equal(plain.scores[name].accuracy, piled.scores[name].accuracy)


@pytest.mark.parametrize("method", [L2N(), Transductive()])
def test_a_baseline_is_given_the_whole_pile_as_its_queries(novel, method):
    accuracy, areas = [], []
    for support, labels, pile, own, _, _ in tasks_one_by_one(novel, 20, 2.0, 0.5):
        scores = method.fit(support, labels).decision_function(pile)
        accuracy.append((scores.argmax(axis=1) == own)[own >= 0].mean())
        areas.append(roc_auc_score(own >= 0, scores.max(axis=1)))
    found = evaluate(method, novel, n_tasks=N_TASKS, **DRAWING, **pile_options(2.0, 0.5, "inside"))
    np.testing.assert_allclose(found.accuracy, accuracy)
    np.testing.assert_allclose(found.auroc, areas, atol=0.02)


def test_any_classifier_classifies_the_known_photos_of_the_pile(novel):
    accuracy = []
    for support, labels, pile, own, _, _ in tasks_one_by_one(novel, 20, "equal", 0.5):
        known = own >= 0
        model = KNeighborsClassifier(1).fit(support, labels)
        accuracy.append((model.predict(pile[known]) == own[known]).mean())
    options = pile_options("equal", 0.5, "inside")
    found = evaluate(KNeighborsClassifier(1), novel, n_tasks=N_TASKS, **DRAWING, **options)
    np.testing.assert_allclose(found.accuracy, accuracy)


def test_executors_agree_on_tasks_with_a_pile(novel):
    options = DRAWING | pile_options(0.5, 0.5, "inside") | {"n_tasks": 130}
    one, two = (evaluate(PileLearner(), novel, **options, executor=run) for run in (None, run_prefetching))
    np.testing.assert_array_equal(one.accuracy, two.accuracy)
    assert one.calibration_error == pytest.approx(two.calibration_error)


def test_a_plan_with_a_pile_has_a_row_that_learns_from_it(novel, priors):
    pile = pile_options(2.0, 0.5, "inside")
    plan = EvaluationPlan(n_way=4, n_query=5, seed=3, n_tasks=12, methods=["l2n", "auto"], **pile)
    found = run_plan(plan, 2, priors=priors, novel=novel)
    assert list(found.comparison.scores) == ["L2N", "P3DC (auto)", "P3DC (auto, pile)"]
    assert list(found.choices) == ["P3DC (auto)", "P3DC (auto, pile)"]
    expected = evaluate(WithoutPile(P3DCClassifier(priors)), novel, n_tasks=12, **DRAWING, **pile)
    np.testing.assert_array_equal(found.comparison.scores["P3DC (auto)"].accuracy, expected.accuracy)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_pile": -1}, "n_pile is -1. It must be at least 0"),
        ({"n_pile": 1000}, "the pile has 1000 photos of the classes of its task, but .* only 92 left"),
        ({"n_pile": 10, "pile_queries": "under"}, "pile_queries is 'under'. Choose inside or outside"),
        ({"n_pile": 10, "pile_unknown": 1.0}, "no photo of the pile is of a class of its task. Lower pile_unknown"),
        ({"n_pile": 10, "pile_unknown": "half"}, "pile_unknown is 'half'"),
        ({"n_pile": 10, "pile_unknown": 0.5, "n_way": 8}, "all 8 classes are in each task, so there are no others"),
        ({"n_pile": 10, "pile_balance": "odd"}, "pile_balance is 'odd'"),
        ({"n_pile": 10, "n_unknown": 5}, "n_unknown adds queries outside the pile. Set pile_unknown"),
    ],
)
def test_piles_that_cannot_be_drawn_are_refused_in_one_sentence(novel, options, sentence):
    with pytest.raises(InputError, match=sentence):
        evaluate(L2N(), novel, n_tasks=3, **(DRAWING | options))


@pytest.mark.parametrize("n_classes", [1, 3])
def test_the_unknown_photos_of_a_pile_are_of_so_many_classes(novel, n_classes):
    seen = []

    class Watching(PileLearner):
        def fit(self, X, y, unlabelled=None):
            seen.append({tuple(row) for row in unlabelled})
            return super().fit(X, y, unlabelled=unlabelled)

    class_of = {tuple(row): label for row, label in zip(novel.features, novel.labels.tolist(), strict=True)}
    options = pile_options("one", 0.8, "outside") | {"pile_unknown_classes": n_classes}
    evaluate(Watching(), novel, n_tasks=N_TASKS, **DRAWING, **options)
    assert [len({class_of[row] for row in rows}) for rows in seen] == [1 + n_classes] * N_TASKS
