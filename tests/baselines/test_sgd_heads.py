import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from p3dc import FeatureSet, evaluate
from p3dc.baselines import L2N
from p3dc.baselines.contract import task_generators
from p3dc.baselines.sgd_heads import BaselinePP, NegativeCosine, S2M2Head
from p3dc.baselines.tcpr import TCPR, remove
from p3dc.errors import InputError
from tests.reference import normalize, softmax

LABELS = np.array([0, 1, 0, 2, 0, 2, 1])
HEADS = [BaselinePP(n_epochs=20), NegativeCosine(n_epochs=20), S2M2Head(n_epochs=20)]


def draws(support, n_way, n_epochs, random_state=0):
    """The first weights and the orders that belong to a task."""
    rng = task_generators(support[None], random_state)[0]
    n_support, n_features = support.shape
    first = rng.uniform(-1 / np.sqrt(n_features), 1 / np.sqrt(n_features), (n_way, n_features))
    return first, rng.permuted(np.tile(np.arange(n_support), (n_epochs, 1)), axis=1)


def plain_head(samples, labels, first, orders, *, scale, weight_norm):
    """Train all D weights of one head, one sample and one class at a time; return the factors of the queries."""
    weights = first.copy()
    gains = np.linalg.norm(first, axis=1) if weight_norm else np.ones(len(first))
    speed = gain_speed = None
    for order in orders:
        for start in range(0, len(order), 4):
            batch = order[start : start + 4]
            gradient, gain_gradient = np.zeros_like(weights), np.zeros_like(gains)
            for x, label in zip(samples[batch], labels[batch], strict=True):
                products = normalize(weights) @ x
                errors = softmax(scale * gains * products) - np.eye(len(gains))[label]
                for c, w in enumerate(weights):
                    length = np.linalg.norm(w)
                    along = (np.eye(len(x)) - np.outer(w, w) / length**2) @ x / length
                    gradient[c] += errors[c] * scale * gains[c] * along / len(batch)
                    gain_gradient[c] += errors[c] * scale * products[c] / len(batch)
            step, gain_step = gradient + 0.001 * weights, gain_gradient + 0.001 * gains
            speed = step if speed is None else 0.9 * speed + 0.1 * step
            gain_speed = gain_step if gain_speed is None else 0.9 * gain_speed + 0.1 * gain_step
            weights = weights - 0.01 * speed
            if weight_norm:
                gains = gains - 0.01 * gain_speed
    return scale * gains[:, None] * normalize(weights)


def torch_head(samples, labels, first, orders, *, scale, weight_norm):
    """Train the same head with PyTorch's own layer, gradient and optimiser."""
    import torch
    from torch.nn import functional
    from torch.nn.utils.parametrizations import weight_norm as learn_lengths

    samples, targets = torch.from_numpy(samples), torch.from_numpy(labels)
    layer = torch.nn.Linear(*first.T.shape, bias=False, dtype=torch.float64)
    layer.weight.data = torch.from_numpy(first.copy())
    if weight_norm:
        learn_lengths(layer)

    def rows():
        return layer.weight if weight_norm else functional.normalize(layer.weight)

    sgd = torch.optim.SGD(layer.parameters(), lr=0.01, momentum=0.9, dampening=0.9, weight_decay=0.001)
    for order in torch.from_numpy(orders):
        for batch in order.split(4):
            sgd.zero_grad()
            functional.cross_entropy(scale * samples[batch] @ rows().T, targets[batch]).backward()
            sgd.step()
    return scale * rows().detach().numpy()


def plain_centroid(support, base, power, n_nearest):
    mean = np.mean([x**power for x in support], axis=0)
    base = normalize(base.astype(float))
    cosines = base @ normalize(mean)
    nearest = np.argsort(-cosines, kind="stable")[:n_nearest]
    return normalize(sum(np.sqrt(cosines[i]) * base[i] for i in nearest))


def plain_remove(rows, power, centroid):
    return np.array([normalize(x**power) - (normalize(x**power) @ centroid) * centroid for x in rows])


@pytest.fixture
def samples(rng):
    return rng.gamma(0.7, 1.0, (len(LABELS), 20)), rng.gamma(0.7, 1.0, (11, 20))


@pytest.fixture
def tasks(rng):
    return rng.gamma(0.7, 1.0, (3, len(LABELS), 24)), rng.gamma(0.7, 1.0, (3, 11, 24))


@parametrize_with_checks(HEADS)
def test_scikit_learn_accepts_them(estimator, check):
    check(estimator)


@pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)
@pytest.mark.parametrize("n_features", [20, 3])
@pytest.mark.parametrize("twice", [False, True])
def test_training_in_the_span_is_training_of_all_weights(samples, head, n_features, twice):
    support, queries = (rows[:, :n_features] for rows in samples)
    if twice:
        support[3] = support[0]
    first, orders = draws(support, 3, head.n_epochs)
    rows = plain_head(normalize(support), LABELS, first, orders, scale=head.scale, weight_norm=head.weight_norm)
    scores = clone(head).fit(support, LABELS).decision_function(queries)
    np.testing.assert_allclose(scores, normalize(queries) @ rows.T, rtol=0, atol=1e-8)


@pytest.mark.torch
@pytest.mark.parametrize("weight_norm", [False, True])
def test_pytorch_trains_the_same_head(samples, weight_norm):
    support, _ = samples
    first, orders = draws(support, 3, 20)
    plain = plain_head(support, LABELS, first, orders, scale=3.0, weight_norm=weight_norm)
    torch = torch_head(support, LABELS, first, orders, scale=3.0, weight_norm=weight_norm)
    np.testing.assert_allclose(plain, torch, rtol=0, atol=1e-10)


@pytest.mark.torch
def test_first_weights_are_in_the_range_of_a_linear_layer_of_pytorch(samples):
    import torch

    first, _ = draws(samples[0], 500, 0)
    torch.manual_seed(0)
    layer = torch.nn.Linear(20, 500, bias=False)
    assert np.abs(first).max() == pytest.approx(layer.weight.abs().max().item(), rel=1e-3)


def test_defaults_are_those_of_the_publications(base):
    settings = [(m.scale, m.n_epochs) for m in (BaselinePP(), NegativeCosine(), S2M2Head(), TCPR(base))]
    assert settings == [(2, 100), (5, 100), (2, 300), (5, 100)]
    assert (TCPR(base).power, TCPR(base).n_nearest) == (0.7, 15000)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_task_does_not_depend_on_its_neighbours(tasks, base, dtype):
    support, queries = (rows.astype(dtype) for rows in tasks)
    for method in (*HEADS, TCPR(base, n_nearest=50, n_epochs=20)):
        together = method.score_tasks(method.learn_tasks(support, LABELS), queries)
        assert together.dtype == dtype
        for i in range(len(support)):
            alone = clone(method).fit(support[i], LABELS).decision_function(queries[i])
            np.testing.assert_allclose(together[i], alone, rtol=0, atol=1e-4 if dtype == np.float32 else 1e-10)


def test_the_seed_changes_the_head_and_repeats_it(samples):
    support, queries = samples
    scores = [NegativeCosine(random_state=s).fit(support, LABELS).decision_function(queries) for s in (0, 0, 1)]
    np.testing.assert_array_equal(scores[0], scores[1])
    assert np.abs(scores[0] - scores[2]).max() > 1e-3


def test_a_sample_of_zeros_has_finite_scores(samples):
    support, queries = samples
    support[2] = queries[0] = 0
    scores = BaselinePP().fit(support, LABELS).decision_function(queries)
    assert np.isfinite(scores).all()
    assert not scores[0].any()


def test_heads_are_about_as_good_as_the_class_mean(novel, base):
    options = {"n_shot": 3, "n_query": 5, "n_tasks": 50}
    reference = evaluate(L2N(), novel, **options).mean
    for method in (BaselinePP(scale=4.0), NegativeCosine(), S2M2Head(), TCPR(base)):
        assert evaluate(method, novel, **options).mean > reference - 0.04


@pytest.mark.parametrize("n_nearest", [1, 40, 15000])
def test_tcpr_is_its_plain_restatement(tasks, base, n_nearest):
    method = TCPR(base, n_nearest=n_nearest, n_epochs=20)
    for support, queries in zip(*tasks, strict=True):
        centroid = plain_centroid(support, base.features, 0.7, n_nearest)
        left, asked = (plain_remove(rows, 0.7, centroid) for rows in (support, queries))
        first, orders = draws(support, 3, 20)
        rows = plain_head(left, LABELS, first, orders, scale=5.0, weight_norm=False)
        scores = method.fit(support, LABELS).decision_function(queries)
        np.testing.assert_allclose(scores, asked @ rows.T, rtol=0, atol=1e-8)
        again = plain_head(normalize(left), LABELS, first, orders, scale=5.0, weight_norm=False)
        assert np.abs(scores - asked @ again.T).max() > 1e-3  # normalised once more, it would be another head


def test_nothing_is_left_along_the_centroid(tasks, base):
    support, queries = tasks
    heads, centroids = TCPR(base, n_nearest=40, n_epochs=20).learn_tasks(support, LABELS)
    np.testing.assert_allclose(np.linalg.norm(centroids, axis=-1), 1)
    for rows in (support**0.7, queries**0.7):
        left = remove(rows, centroids)
        np.testing.assert_allclose(left @ centroids[..., None], 0, atol=1e-12)
        np.testing.assert_allclose(left[1], plain_remove(rows[1], 1, centroids[1]), rtol=0, atol=1e-12)
    assert heads.shape == (3, 3, 24)


def test_chunks_of_tasks_and_blocks_of_base_features_change_nothing(tasks, base, monkeypatch):
    method = TCPR(base, n_nearest=40, n_epochs=0)
    whole = method.learn_tasks(tasks[0], LABELS)
    monkeypatch.setattr("p3dc.baselines.tcpr.CHUNK_BYTES", 1)
    monkeypatch.setattr("p3dc._arrays.BLOCK_BYTES", 8 * 24 * 7)
    for left, right in zip(whole, method.learn_tasks(tasks[0], LABELS), strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-12)


def test_base_features_that_point_away_weigh_nothing(tasks, base):
    support, queries = tasks
    away = FeatureSet(np.concatenate([base.features, -base.features]), np.tile(base.labels, 2))
    options = {"power": 1.0, "n_epochs": 20}
    scores = [TCPR(b, **options).fit(support[0], LABELS).decision_function(queries[0]) for b in (base, away)]
    np.testing.assert_allclose(*scores, rtol=0, atol=1e-10)


def test_tcpr_refuses_what_it_cannot_use(tasks, base):
    support, queries = tasks[0][0], tasks[1][0]
    method = TCPR(base, n_epochs=1).fit(support, LABELS)
    with pytest.raises(InputError, match="Negative values in data: the support row 0"):
        clone(method).fit(-support, LABELS)
    with pytest.raises(InputError, match="Negative values in data: the queries row 0"):
        method.predict(-queries)
    with pytest.raises(InputError, match="Extract both with the same backbone"):
        clone(method).fit(support[:, :5], LABELS)
    with pytest.raises(InputError, match="n_nearest is 0"):
        TCPR(base, n_nearest=0).fit(support, LABELS)
