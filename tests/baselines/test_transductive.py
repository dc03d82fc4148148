"""Methods that label all queries together: each against a plain restatement, one task and one sample at a time."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from p3dc import compare
from p3dc.baselines import BDCSPN, L2N, PTMAP, AlphaTIM, LaplacianShot, SoftKMeans
from p3dc.baselines.registry import METHODS, TABLE_1, TRANSDUCTIVE
from p3dc.baselines.transductive import rectify
from p3dc.errors import InputError
from p3dc.evaluation.protocol import KEYS
from p3dc.reproduce import table1
from tests.reference import normalize, softmax


@pytest.fixture(params=[(4, 1, 3, 2), (1, 1, 1, 1), (5, 5, 5, 5)], ids=["unequal", "one shot", "five shots"])
def task(request, novel):
    support = np.concatenate([np.flatnonzero(novel.labels == c)[:k] for c, k in enumerate(request.param)])
    queries = np.setdiff1d(np.flatnonzero(novel.labels < 4), support)[::3]
    features = novel.features.astype(float)
    return features[support], novel.labels[support], features[queries]


def methods(priors):
    return [SoftKMeans(n_iter=3), BDCSPN(priors), LaplacianShot(priors), AlphaTIM(n_iter=20), PTMAP()]


def class_means(rows, labels):
    return np.array([rows[labels == c].mean(axis=0) for c in range(4)])


def squared(a, b):
    return np.array([[np.sum((x - y) ** 2) for y in b] for x in a])


def assert_differ_by_a_constant_of_each_query(actual, expected):
    np.testing.assert_allclose(actual - actual[:, :1], expected - expected[:, :1], atol=1e-9)


def expected_failures(estimator):
    failures = {"check_methods_subset_invariance": "scores depend on the other queries"}
    if isinstance(estimator, PTMAP):
        failures["check_classifiers_train"] = "two features, centred and normalised, are too few for three classes"
    return failures


@parametrize_with_checks(
    [SoftKMeans(), BDCSPN(), LaplacianShot(), AlphaTIM(n_iter=10), PTMAP()],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_accepts_them(estimator, check):
    check(estimator)


def test_many_tasks_at_once_are_scored_like_one_at_a_time(priors, rng):
    support, queries = rng.gamma(1.0, 1.0, (3, 7, 24)), rng.gamma(1.0, 1.0, (3, 9, 24))
    labels = np.array([0, 1, 2, 0, 1, 2, 1])
    for method in methods(priors):
        together = method.score_tasks(method.learn_tasks(support, labels), queries)
        for i in range(3):
            alone = method.fit(support[i], labels).decision_function(queries[i])
            np.testing.assert_allclose(together[i], alone, rtol=1e-9, err_msg=str(method))


def test_the_order_of_the_queries_does_not_matter(task, priors, rng):
    support, labels, queries = task
    order = rng.permutation(len(queries))
    for method in methods(priors):
        scores = method.fit(support, labels).decision_function(queries)
        np.testing.assert_allclose(
            method.decision_function(queries[order]), scores[order], rtol=1e-6, err_msg=str(method)
        )


def test_one_query_and_one_class_have_finite_scores(priors, rng):
    support = rng.gamma(1.0, 1.0, (1, 2, 24))
    for labels in (np.array([0, 1]), np.array([0, 0])):
        for method in methods(priors):
            scores = method.score_tasks(method.learn_tasks(support, labels), support[:, :1])
            assert np.isfinite(scores).all(), method


def test_with_one_shot_the_queries_help(novel, priors):
    comparison = compare([L2N(), *methods(priors)], novel, n_way=4, n_query=15, n_tasks=40)
    first, *others = (scores.mean for scores in comparison.scores.values())
    assert all(other > first for other in others)


def test_soft_k_means_refines_prototypes_with_soft_assignments(task):
    support, labels, queries = task
    rows, asked = normalize(support), normalize(queries)
    prototypes = class_means(rows, labels)
    for _ in range(2):
        belonging = softmax(-3.0 * squared(asked, prototypes))
        for c in range(4):
            total = rows[labels == c].sum(axis=0) + sum(b[c] * q for b, q in zip(belonging, asked, strict=True))
            prototypes[c] = total / (np.sum(labels == c) + belonging[:, c].sum())
    actual = SoftKMeans(scale=3.0, n_iter=2).fit(support, labels).decision_function(queries)
    assert_differ_by_a_constant_of_each_query(actual, -squared(asked, prototypes))


def test_soft_k_means_without_refinement_is_the_nearest_prototype(task):
    support, labels, queries = task
    expected = squared(normalize(queries), class_means(normalize(support), labels)).argmin(axis=1)
    np.testing.assert_array_equal(SoftKMeans(n_iter=0).fit(support, labels).predict(queries), expected)


def plain_rectification(rows, labels, asked, scale):
    prototypes = class_means(rows, labels)
    shifted = asked + rows.mean(axis=0) - asked.mean(axis=0)
    shares = [[] for _ in prototypes]
    for x in (*rows, *shifted):
        cosines = normalize(prototypes) @ normalize(x)
        c = int(np.argmax(cosines))
        shares[c].append(softmax(scale * cosines)[c] * x)
    return np.array([np.mean(share, axis=0) for share in shares])


@pytest.mark.parametrize("centred", [False, True])
def test_bd_cspn_is_the_cosine_to_rectified_prototypes(task, priors, centred):
    support, labels, queries = task
    mean = priors.mean if centred else 0
    rows, asked = normalize(support - mean), normalize(queries - mean)
    prototypes = plain_rectification(rows, labels, asked, 7.0)
    expected = [[normalize(q) @ normalize(p) for p in prototypes] for q in asked]
    actual = BDCSPN(priors if centred else None, scale=7.0).fit(support, labels).decision_function(queries)
    np.testing.assert_allclose(actual, expected)


def test_a_class_that_no_sample_is_nearest_to_keeps_its_prototype():
    support = np.array([[[1.0, 0.0], [-1.0, 0.01], [1.0, 0.1], [-1.0, 0.1]]])
    own = np.array([[[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]]])
    queries = np.array([[[1.0, 0.0], [-1.0, 0.0]]])
    prototypes = rectify(support, own, queries, 10.0)
    np.testing.assert_allclose(prototypes[0, 2], [0.0, 0.1])


@pytest.mark.parametrize("weight", [None, 1.3])
def test_laplacianshot_updates_assignments_by_those_of_neighbours(task, priors, weight):
    support, labels, queries = task
    rows, asked = normalize(support - priors.mean), normalize(queries - priors.mean)
    unary = squared(asked, plain_rectification(rows, labels, asked, 10.0))
    neighbours = [np.argsort(row)[1:4] for row in squared(asked, asked)]  # the first is the query itself
    actual = LaplacianShot(priors, weight=weight, n_neighbors=4, n_iter=6).fit(support, labels)
    if weight is None:
        weight = 0.3 if len(support) == 20 else 0.7
    assigned = softmax(-unary)
    for _ in range(6):
        assigned = np.array(
            [softmax(-a + weight * assigned[own].sum(axis=0)) for a, own in zip(unary, neighbours, strict=True)]
        )
    np.testing.assert_allclose(actual.decision_function(queries), assigned)


def test_laplacianshot_without_neighbours_is_the_nearest_rectified_prototype(task):
    support, labels, queries = task
    asked = normalize(queries)
    prototypes = plain_rectification(normalize(support), labels, asked, 10.0)
    actual = LaplacianShot(weight=0.0).fit(support, labels).predict(queries)
    np.testing.assert_array_equal(actual, squared(asked, prototypes).argmin(axis=1))


def tim_loss(weights, rows, labels, asked, alpha):
    right = [softmax(-15 / 2 * squared([x], weights)[0])[c] for x, c in zip(rows, labels, strict=True)]
    predicted = softmax(-15 / 2 * squared(asked, weights))

    def entropy(p):
        return (1 - np.sum(p**alpha)) / (alpha - 1)

    return -np.mean(np.log(right)) - entropy(predicted.mean(axis=0)) + np.mean([entropy(p) for p in predicted])


@pytest.mark.parametrize("alpha", [None, 3.0])
def test_alpha_tim_descends_the_alpha_mutual_information_by_adam(task, alpha):
    """Differences of the loss stand for its gradient."""
    support, labels, queries = task
    support, queries = support[:, :5], queries[::4, :5]
    rows, asked = normalize(support), normalize(queries)
    method = AlphaTIM(alpha=alpha, n_iter=3, learning_rate=0.01).fit(support, labels)
    if alpha is None:
        alpha = {4: 2.0, 10: 5.0, 20: 7.0}[len(support)]
    weights = class_means(rows, labels)
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, 4):
        gradient = np.zeros_like(weights)
        for place in np.ndindex(weights.shape):
            ahead, behind = weights.copy(), weights.copy()
            ahead[place] += 1e-5
            behind[place] -= 1e-5
            losses = [tim_loss(moved, rows, labels, asked, alpha) for moved in (ahead, behind)]
            gradient[place] = (losses[0] - losses[1]) / 2e-5
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        weights -= 0.01 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    actual, expected = method.decision_function(queries), -15 / 2 * squared(asked, weights)
    np.testing.assert_allclose(actual - actual[:, :1], expected - expected[:, :1], atol=1e-4)


def plain_sinkhorn(cost, scale):
    plan, before = np.exp(-scale * cost), np.zeros(len(cost))
    while np.max(np.abs(plan.sum(axis=1) - before)) > 1e-6:
        before = plan.sum(axis=1)
        plan /= plan.sum(axis=1, keepdims=True)
        plan *= len(plan) / 4 / plan.sum(axis=0)
    return plan


def test_pt_map_moves_centres_towards_balanced_assignments(task):
    support, labels, queries = task
    rows, asked = (normalize((part + 1e-6) ** 0.5) for part in (support, queries))
    rows, asked = (normalize(part - part.mean(axis=0)) for part in (rows, asked))
    centres = class_means(rows, labels)
    for _ in range(5):
        plan = plain_sinkhorn(squared(asked, centres), 8.0)
        for c in range(4):
            total = rows[labels == c].sum(axis=0) + plan[:, c] @ asked
            centres[c] += 0.3 * (total / (np.sum(labels == c) + plan[:, c].sum()) - centres[c])
    method = PTMAP(scale=8.0, step=0.3, n_epochs=5).fit(support, labels)
    expected = plain_sinkhorn(squared(asked, centres), 8.0)
    np.testing.assert_allclose(method.decision_function(queries), expected, atol=1e-10)


def test_pt_map_assigns_equal_numbers_to_all_classes(task):
    support, labels, queries = task
    assigned = PTMAP().fit(support, labels).decision_function(queries)
    np.testing.assert_allclose(assigned.sum(axis=0), len(queries) / 4)
    np.testing.assert_allclose(assigned.sum(axis=1), 1, atol=1e-3)


def test_pt_map_refuses_negative_features_where_it_takes_their_root(task):
    support, labels, queries = task
    with pytest.raises(InputError, match="Negative values in data"):
        PTMAP().fit(support - 5, labels)
    with pytest.raises(InputError, match="Negative values in data"):
        PTMAP().fit(support, labels).predict(queries - 5)
    assert len(PTMAP(power=1).fit(support - 5, labels).predict(queries - 5)) == len(queries)


@pytest.mark.parametrize("method", [BDCSPN, LaplacianShot])
def test_priors_of_another_width_are_refused(task, priors, method):
    support, labels, _ = task
    with pytest.raises(InputError, match="Extract both with the same backbone"):
        method(priors).fit(support[:, :5], labels)


def test_they_are_evaluated_but_not_rows_of_table_1():
    keys = {key for key, method in METHODS.items() if method.family == TRANSDUCTIVE}
    assert keys == {"soft-k-means", "bd-cspn", "laplacianshot", "alpha-tim", "pt-map"}
    assert keys <= set(KEYS)
    assert set(METHODS) - keys == set(TABLE_1)
    assert not keys & set(table1.TITLES)
