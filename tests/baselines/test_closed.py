"""Methods without training: each against a plain restatement or a limit that is known."""

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression as Solver
from sklearn.linear_model import Ridge
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_info, threadpool_limits

from p3dc import compare
from p3dc.baselines import (
    DC,
    GDA,
    L2N,
    DCNearest,
    DeepVoro,
    DeepVoroPP,
    LogisticRegression,
    MatchingNet,
    MetaOptNetRidge,
    MetaOptNetSVM,
    ProtoNet,
    dc,
    logistic,
)
from p3dc.baselines.deepvoro import N_VIEWS, view
from p3dc.errors import InputError
from tests.conftest import make_features
from tests.reference import normalize, softmax


@pytest.fixture
def task(novel):
    """Unequal shots of four classes."""
    support = np.concatenate([np.flatnonzero(novel.labels == c)[:k] for c, k in ((0, 4), (1, 1), (2, 3), (3, 2))])
    queries = np.setdiff1d(np.flatnonzero(novel.labels < 4), support)
    features = novel.features.astype(float)
    return features[support], novel.labels[support], features[queries]


@parametrize_with_checks([ProtoNet(), MatchingNet(), MetaOptNetRidge(), MetaOptNetSVM(), LogisticRegression()])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_accepts_them(estimator, check):
    check(estimator)


def methods(base, priors):
    return [
        ProtoNet(),
        MatchingNet(),
        MetaOptNetRidge(),
        MetaOptNetSVM(),
        LogisticRegression(),
        GDA(base),
        DCNearest(priors),
        DC(base, n_draws=30),
        DeepVoro(),
        DeepVoroPP(base),
    ]


def test_many_tasks_at_once_are_scored_like_one_at_a_time(base, priors, rng):
    support, queries = rng.gamma(1.0, 1.0, (3, 7, 24)), rng.gamma(1.0, 1.0, (3, 4, 24))
    labels = np.array([0, 1, 2, 0, 1, 2, 1])
    for method in methods(base, priors):
        together = method.score_tasks(method.learn_tasks(support, labels), queries)
        for i in range(3):
            alone = method.fit(support[i], labels).decision_function(queries[i])
            np.testing.assert_allclose(together[i], alone, rtol=1e-6, atol=1e-8, err_msg=str(method))


def test_all_are_much_better_than_chance(base, priors, novel):
    comparison = compare(methods(base, priors), novel, n_shot=2, n_query=5, n_tasks=20)
    assert all(scores.mean > 0.6 for scores in comparison.scores.values())


def test_protonet_ranks_by_distance_to_the_mean(task):
    support, labels, queries = task
    means = np.array([support[labels == c].mean(axis=0) for c in range(4)])
    expected = np.array([[-np.sum((q - m) ** 2) + np.sum(q**2) for m in means] for q in queries])
    np.testing.assert_allclose(ProtoNet().fit(support, labels).decision_function(queries), expected, atol=1e-9)


def test_matchingnet_sums_attention(task):
    support, labels, queries = task
    attention = softmax(100 * normalize(queries) @ normalize(support).T)
    expected = np.stack([attention[:, labels == c].sum(axis=1) for c in range(4)], axis=1)
    np.testing.assert_allclose(MatchingNet().fit(support, labels).decision_function(queries), expected, atol=1e-12)


def test_metaoptnet_svm_is_the_solver_of_scikit_learn(task):
    support, labels, queries = task
    solver = LinearSVC(C=0.1, multi_class="crammer_singer", fit_intercept=False, max_iter=100_000, random_state=0)
    expected = solver.fit(support, labels).decision_function(queries)
    np.testing.assert_allclose(MetaOptNetSVM().fit(support, labels).decision_function(queries), expected)


def test_metaoptnet_ridge_is_ridge_regression_onto_one_hot_labels(task):
    support, labels, queries = task
    solver = Ridge(alpha=50.0, fit_intercept=False).fit(support, np.eye(4)[labels])
    actual = MetaOptNetRidge().fit(support, labels).decision_function(queries)
    np.testing.assert_allclose(actual, solver.predict(queries), atol=1e-10)


def test_logistic_regression_sees_normalised_features(task):
    support, labels, queries = task
    solver = Solver(max_iter=1000, tol=1e-8).fit(normalize(support), labels)
    actual = LogisticRegression().fit(support, labels).decision_function(queries)
    np.testing.assert_allclose(actual, solver.decision_function(normalize(queries)), atol=1e-3)
    scaled = LogisticRegression().fit(7 * support, labels).decision_function(queries)
    np.testing.assert_allclose(scaled, actual, atol=1e-8)


def test_logistic_regression_of_two_classes_agrees_with_its_solver(task):
    support, labels, queries = task
    two = labels < 2
    solver = Solver(max_iter=1000, tol=1e-8).fit(normalize(support[two]), labels[two])
    actual = LogisticRegression().fit(support[two], labels[two]).decision_function(queries)
    np.testing.assert_allclose(actual, solver.decision_function(normalize(queries)), atol=1e-3)


@pytest.mark.parametrize("C", [0.3, 30.0])
def test_centred_logistic_regression_subtracts_the_mean_of_the_base_first(task, priors, base, C):
    support, labels, queries = task
    mean = base.features.mean(axis=0, dtype=float)
    solver = Solver(C=C, max_iter=1000, tol=1e-8).fit(normalize(support - mean), labels)
    actual = LogisticRegression(priors, C=C, centred=True).fit(support, labels).decision_function(queries)
    np.testing.assert_allclose(actual, solver.decision_function(normalize(queries - mean)), atol=0.05)
    with pytest.raises(InputError, match="Extract both with the same backbone"):
        LogisticRegression(priors, centred=True).fit(support[:, :5], labels)
    with pytest.raises(InputError, match="centred is True, but there are no priors"):
        LogisticRegression(centred=True).fit(support, labels)


def test_gda_is_linear_discriminant_analysis_with_the_covariance_of_the_base(task, base):
    support, labels, queries = task
    rows = normalize(base.features.astype(float))
    centred = np.concatenate([rows[base.labels == c] - rows[base.labels == c].mean(axis=0) for c in range(12)])
    covariance = centred.T @ centred / len(centred)
    covariance = 0.7 * covariance + 0.3 * np.trace(covariance) / 24 * np.eye(24)
    means = [normalize(support[labels == c]).mean(axis=0) for c in range(4)]
    inverse = np.linalg.inv(covariance)
    expected = np.array([[-0.5 * (q - m) @ inverse @ (q - m) for m in means] for q in normalize(queries)])
    actual = GDA(base, shrinkage=0.3).fit(support, labels).decision_function(queries)
    np.testing.assert_allclose(actual - actual[:, :1], expected - expected[:, :1], atol=1e-8)


def test_gda_of_the_base_itself_is_linear_discriminant_analysis(base):
    rows = normalize(base.features.astype(float))
    expected = LinearDiscriminantAnalysis(solver="lsqr", priors=np.full(12, 1 / 12)).fit(rows, base.labels)
    actual = GDA(base, shrinkage=0.0).fit(base.features.astype(float), base.labels)
    np.testing.assert_array_equal(actual.predict(base.features), expected.predict(rows))


def test_a_sphere_of_covariance_makes_gda_the_nearest_mean(task, base):
    support, labels, queries = task
    means = np.array([normalize(support[labels == c]).mean(axis=0) for c in range(4)])
    expected = [np.argmin(np.sum((means - q) ** 2, axis=1)) for q in normalize(queries)]
    np.testing.assert_array_equal(GDA(base, shrinkage=1.0).fit(support, labels).predict(queries), expected)


def plain_dc_mean(x, prototypes):
    nearest = np.argsort([np.linalg.norm(np.sqrt(x) - p) for p in prototypes])[:2]
    return (prototypes[nearest].sum(axis=0) + np.sqrt(x)) / 3, nearest


def test_dc_nearest_is_the_cosine_to_calibrated_means(task, priors):
    support, labels, queries = task
    means = np.array([normalize(plain_dc_mean(x, priors.prototypes)[0]) for x in support])
    classes = [normalize(means[labels == c].mean(axis=0)) for c in range(4)]
    expected = normalize(np.sqrt(queries)) @ np.array(classes).T
    np.testing.assert_allclose(DCNearest(priors).fit(support, labels).decision_function(queries), expected, atol=1e-12)


def test_dc_draws_from_the_calibrated_distribution():
    """Mean and covariance of many draws are those of the formula."""
    base = make_features(4, 3, 50, n_features=4)
    method = DC(base)
    draws = method._draw(np.random.default_rng(1), np.array([0, 2]), 60_000) @ method._statistics().axes.T
    rows = base.features.astype(float)
    covariance = (np.cov(rows[base.labels == 0].T) + np.cov(rows[base.labels == 2].T)) / 2 + 0.21
    np.testing.assert_allclose(draws.mean(axis=0), 0, atol=0.05 * np.sqrt(covariance.max()))
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.03 * covariance.max())
    assert len(np.unique(draws, axis=0)) == len(draws)


def test_normal_draws_have_the_moments_of_the_distribution():
    draws = dc._normals(np.random.default_rng(0), 501, 401).astype(float)
    assert draws.shape == (501, 401)
    assert np.isfinite(draws).all()
    moments = [(draws**power).mean() for power in (1, 2, 3, 4)]
    np.testing.assert_allclose(moments, [0, 1, 0, 3], atol=0.04)
    flat = draws.ravel()
    pairs = flat[: len(flat) // 2], flat[len(flat) // 2 : len(flat) // 2 * 2]  # a cosine and a sine of the same angle
    assert abs((pairs[0] * pairs[1]).mean()) < 0.02
    assert abs((pairs[0] ** 2 * pairs[1] ** 2).mean() - 1) < 0.03


@pytest.mark.parametrize("n_way", [2, 4])
def test_scaled_steps_reach_the_optimum_of_plain_logistic_regression(rng, n_way, monkeypatch):
    monkeypatch.setattr(logistic, "TOLERANCE", 1e-6)
    labels, spreads = np.arange(400) % n_way, np.array([0.1, 1.0, 3.0, 10.0])
    samples = (rng.normal(size=(n_way, 4))[labels] + rng.normal(size=(400, 4)) * spreads).astype(np.float32)
    weights, intercepts = logistic.solve_scaled(samples, labels, spreads**2)
    solver = Solver(tol=1e-9, max_iter=10_000).fit(samples.astype(float), labels)
    expected = solver.predict_proba(samples.astype(float))
    scores = (samples @ weights.T + intercepts).astype(float)
    actual = np.exp(scores - scores.max(axis=1, keepdims=True))
    actual /= actual.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(actual, expected, atol=2e-3)
    np.testing.assert_allclose(weights.sum(axis=0), 0, atol=1e-3)


def test_dc_draws_anew_for_every_sample_and_every_task(monkeypatch):
    """No two draws of the same base class are alike, also where a sample is repeated."""
    base, seen = make_features(4, 3, 50, n_features=400), []
    draw = DC._draw
    monkeypatch.setattr(DC, "_draw", lambda *given: seen.append(draw(*given)) or seen[-1])
    rows = np.ones((2, 3, 400))
    rows[1] *= 1.01
    DC(base, n_draws=80, spread=0.0, n_nearest=1).learn_tasks(rows, np.array([0, 1, 1]))
    unit = normalize(np.concatenate(seen).astype(float))
    cosines = np.abs(unit @ unit.T)[~np.eye(len(unit), dtype=bool)]
    assert len(unit) == 2 * (80 + 40 + 40)
    assert cosines.max() < 0.95


def test_dc_keeps_its_solver_to_one_thread_and_restores_the_limit(task, base, monkeypatch):
    def threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    seen, solve = [], dc.solve_scaled
    monkeypatch.setattr(dc, "solve_scaled", lambda *given, **named: seen.append(threads()) or solve(*given, **named))
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        DC(base, n_draws=4).fit(*task[:2])
        assert threads() == before
    assert [set(each) for each in seen] == [{1}]


def test_dc_without_draws_is_logistic_regression_on_transformed_samples(task, base):
    support, labels, queries = task
    solver = Solver(max_iter=1000, tol=1e-8).fit(np.sqrt(support), labels)
    expected = solver.decision_function(np.sqrt(queries))
    np.testing.assert_allclose(DC(base, n_draws=0).fit(support, labels).decision_function(queries), expected, atol=5e-3)


def test_dc_with_draws_of_no_spread_sees_only_calibrated_means(task):
    support, labels, queries = task
    single = make_features(9, 5, 1)
    means = np.array([plain_dc_mean(x, single.features.astype(float))[0] for x in support])
    counts = np.bincount(labels)
    drawn = np.concatenate([np.sqrt(support), np.repeat(means, 12 // counts[labels], axis=0)])
    solver = Solver(max_iter=1000, tol=1e-6).fit(drawn, np.r_[labels, np.repeat(labels, 12 // counts[labels])])
    actual = DC(single, n_draws=12, spread=0.0).fit(support, labels).decision_function(queries)
    np.testing.assert_allclose(actual, solver.decision_function(np.sqrt(queries)), atol=0.02)


def test_views_are_the_published_transforms(rng):
    x = rng.gamma(1.0, 1.0, (3, 5))
    unit = normalize(x)
    expected = [unit**0.5, unit**0.75, unit, *(np.log(unit + 0.02 * j) for j in range(1, 6))]
    assert len(expected) == N_VIEWS == 8
    for number, values in enumerate(expected):
        np.testing.assert_allclose(view(x, number), values)
        np.testing.assert_allclose(
            view(x, number, shift=0.5), np.log(unit + 0.5 * (number - 2)) if number > 2 else values
        )


@pytest.mark.parametrize("shift", [0.02, 0.5])
def test_deepvoro_averages_distances_over_views(task, shift):
    support, labels, queries = task
    each = []
    for number in (0, 4):
        means = [view(support, number, shift=shift)[labels == c].mean(axis=0) for c in range(4)]
        each.append([[np.linalg.norm(q - m) for m in means] for q in view(queries, number, shift=shift)])
    actual = DeepVoro(views=(0, 4), shift=shift).fit(support, labels).decision_function(queries)
    np.testing.assert_allclose(actual, -np.mean(each, axis=0), atol=1e-7)


def test_deepvoro_of_the_plain_view_at_one_shot_is_l2n(novel):
    comparison = compare([L2N(), DeepVoro(views=(2,))], novel, n_query=5, n_tasks=30)
    np.testing.assert_array_equal(*(scores.accuracy for scores in comparison.scores.values()))


@pytest.mark.parametrize(("number", "shift"), [(1, 0.02), (4, 0.5)])
def test_deepvoro_plus_plus_adds_what_base_classes_see(task, base, number, shift):
    support, labels, queries = task
    rows = view(base.features.astype(np.float32), number, shift=shift)
    prototypes = np.array([rows[base.labels == c].mean(axis=0) for c in range(12)])
    means = np.array([view(support, number, shift=shift)[labels == c].mean(axis=0) for c in range(4)])

    def to_base(z):
        return np.array([np.linalg.norm(z - p) for p in prototypes])

    union = sorted({b for mean in means for b in np.argsort(to_base(mean))[:3]})
    expected = []
    for q in view(queries, number, shift=shift):
        first = np.array([np.linalg.norm(q - mean) for mean in means])
        surrogates = [normalize(to_base(q)[union]) - normalize(to_base(mean)[union]) for mean in means]
        second = np.array([s @ s for s in surrogates])
        expected.append(-(first / first.sum() + 0.4 * second / second.sum()))
    method = DeepVoroPP(base, number=number, n_nearest=3, weight=0.4, shift=shift)
    np.testing.assert_allclose(method.fit(support, labels).decision_function(queries), expected, atol=1e-5)


def test_roots_of_negative_features_are_refused(task, base, priors):
    support, labels, _ = task
    for method in (DC(base), DCNearest(priors), DeepVoro(), DeepVoroPP(base)):
        with pytest.raises(InputError, match="Negative values in data"):
            method.fit(support - 5, labels)
