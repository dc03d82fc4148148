"""Methods with a trained module. Most need the torch extra: ``pytest -m torch``."""

import copy
import sys

import numpy as np
import pytest
from sklearn.base import clone

from p3dc import FeatureSet, evaluate
from p3dc.baselines import L2N
from p3dc.baselines.anil import ANIL
from p3dc.baselines.leo import LEO
from p3dc.baselines.relationnet import RelationNet
from p3dc.baselines.restorenet import RestoreNet
from p3dc.errors import InputError
from tests.reference import normalize

STEPS = {RestoreNet: 100, RelationNet: 100, LEO: 100, ANIL: 50}
METHODS = [RestoreNet, RelationNet, LEO, ANIL]
ON_TASKS = [RelationNet, LEO, ANIL]
LABELS = np.array([0, 0, 1, 2, 2, 2])  # classes of two, one and three samples

every_method = pytest.mark.parametrize("method", METHODS)


@pytest.fixture
def torch():
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch
    torch.set_num_threads(threads)


@pytest.fixture
def support(rng):
    return rng.gamma(2.0, 1.0, size=(4, len(LABELS), 24)).astype(np.float32)


@pytest.fixture
def queries(rng):
    return rng.gamma(2.0, 1.0, size=(4, 5, 24)).astype(np.float32)


def easy_features(seed):
    """Features of 60 classes that lie far apart."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(60), 21)
    return FeatureSet(rng.gamma(0.6, 1.0, size=(60, 12))[labels] * rng.gamma(20.0, 1 / 20, size=(1260, 12)), labels)


def scores_of(method, support, queries):
    return method.score_tasks(method.learn_tasks(support, LABELS), queries)


def numbers(method, n_way=5):
    """The trained weights in float64."""
    return {name: weight.numpy().astype(float) for name, weight in method._module(n_way).items()}


@pytest.mark.torch
@pytest.mark.parametrize("n_way", [3, 5])
@every_method
def test_they_beat_chance_by_far_on_easy_features(method, n_way, torch):
    base, novel = (easy_features(seed) for seed in (1, 2))
    accuracy = evaluate(method(base, n_steps=STEPS[method]), novel, n_way=n_way, n_shot=3, n_query=5, n_tasks=50).mean
    assert accuracy > 0.7


@pytest.mark.torch
@every_method
def test_one_random_state_trains_one_module(method, torch, base, support, queries):
    first, again, other = (method(base, random_state=seed, n_steps=5) for seed in (3, 3, 4))
    np.testing.assert_array_equal(scores_of(first, support, queries), scores_of(again, support, queries))
    assert (scores_of(first, support, queries) != scores_of(other, support, queries)).any()


@pytest.mark.torch
@every_method
def test_training_lowers_the_loss(method, torch, base):
    trained = method(base, n_steps=60).train()
    batch = next(trained._batches(torch.from_numpy(base.features.copy()), 5))
    start = trained._start({"n_way": 5})
    assert trained._loss(trained._module(), *batch) < trained._loss(start, *batch)


@pytest.mark.torch
@every_method
def test_training_happens_once_and_reports_its_progress(method, torch, base):
    calls = []
    trained = method(base, n_steps=3)
    assert trained.train(progress=lambda done, total: calls.append((done, total))) is trained
    assert calls == [(1, 3), (2, 3), (3, 3)]
    trained.train(progress=lambda done, total: pytest.fail("trained again"))


@pytest.mark.torch
@every_method
def test_training_keeps_to_one_thread(method, torch, base):
    torch.set_num_threads(2)
    seen = []
    method(base, n_steps=2).train(progress=lambda *_: seen.append(torch.get_num_threads()))
    assert (seen, torch.get_num_threads()) == ([1, 1], 2)
    with pytest.raises(KeyboardInterrupt):
        method(base, n_steps=2).train(progress=lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert torch.get_num_threads() == 2


@pytest.mark.torch
@every_method
def test_other_settings_train_again(method, torch, base):
    trained = method(base, n_steps=2).train()
    calls = []
    trained.set_params(n_steps=3).train(progress=lambda done, total: calls.append(done))
    assert calls == [1, 2, 3]


@pytest.mark.torch
@every_method
def test_a_clone_has_the_settings_but_not_the_weights(method, torch, base):
    cloned = clone(method(base, random_state=3, n_steps=2).train())
    assert (cloned.random_state, cloned.n_steps) == (3, 2)
    assert not hasattr(cloned, "_trained")


@pytest.mark.torch
@every_method
def test_the_cache_gives_the_weights_back(method, torch, base, support, queries, tmp_path):
    folder = tmp_path / "made" / "cache"
    expected = scores_of(method(base, cache=folder, n_steps=3), support, queries)
    (path,) = folder.iterdir()
    assert path.name.startswith(method.__name__)
    assert "n_steps=3" in path.name
    n_way = 3 if method is ANIL else 5
    again = method(base, cache=str(folder), n_steps=3)
    again._module(n_way, progress=lambda done, total: pytest.fail("trained again"))
    np.testing.assert_array_equal(scores_of(again, support, queries), expected)


@pytest.mark.torch
@pytest.mark.parametrize("harm", ["truncated", "empty", "changed"])
@every_method
def test_a_damaged_cache_is_trained_again(method, harm, torch, base, tmp_path):
    expected = numbers(method(base, cache=tmp_path, n_steps=3))
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    changed = whole[:-4] + bytes(255 - byte for byte in whole[-4:])
    path.write_bytes({"truncated": whole[: len(whole) // 2], "empty": b"", "changed": changed}[harm])
    found = numbers(method(base, cache=tmp_path, n_steps=3))
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
    method(base, cache=tmp_path, n_steps=3).train(progress=lambda done, total: pytest.fail("trained again"))


@pytest.mark.torch
def test_other_settings_and_other_features_have_their_own_file(torch, base, validation, tmp_path):
    for method in (RestoreNet(base), RestoreNet(base, random_state=1), RestoreNet(validation)):
        method.set_params(cache=tmp_path, n_steps=1).train()
    ANIL(base, cache=tmp_path, n_steps=1).train().train(n_way=4)
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.torch
def test_a_cache_that_is_a_file_is_refused_before_training(torch, base, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be made .* Give another folder"):
        RestoreNet(base, cache=tmp_path / "file").train(progress=lambda done, total: pytest.fail("trained"))


@pytest.mark.torch
@every_method
def test_tasks_together_score_as_each_by_itself(method, torch, base, support, queries, monkeypatch):
    monkeypatch.setattr("p3dc.baselines.leo.MOST_PAIRS", 100)
    trained = method(base, n_steps=5)
    alone = [scores_of(trained, support[t : t + 1], queries[t : t + 1])[0] for t in range(len(support))]
    np.testing.assert_allclose(scores_of(trained, support, queries), alone, rtol=1e-4, atol=1e-5)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@every_method
def test_scores_have_the_type_of_the_queries(method, dtype, torch, base, support, queries):
    trained = method(base, n_steps=1)
    support, queries = support.astype(dtype), queries.astype(dtype)
    support.flags.writeable = queries.flags.writeable = False
    scores = scores_of(trained, support, queries)
    assert scores.dtype == dtype
    assert scores.shape == (4, 5, 3)


@pytest.mark.torch
@every_method
def test_training_leaves_torch_as_it_was(method, torch, base, support, queries):
    def state():
        modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        return *modes, torch.get_num_threads(), torch.get_default_dtype(), torch.get_rng_state().tolist()

    plain = scores_of(method(base, n_steps=3), support, queries)
    torch.set_default_dtype(torch.float64)
    try:
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                before = state()
                np.testing.assert_array_equal(scores_of(method(base, n_steps=3), support, queries), plain)
                assert state() == before
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.torch
@every_method
def test_features_of_another_width_are_refused(method, torch, base, support):
    with pytest.raises(InputError, match="Extract both with the same backbone"):
        method(base, n_steps=1).learn_tasks(support[..., :5], LABELS)


@pytest.mark.torch
@pytest.mark.parametrize("settings", [{"n_steps": 0}, {"n_steps": 2.5}, {"random_state": -1}, {"random_state": None}])
def test_settings_that_mean_nothing_are_refused(settings, torch, base):
    with pytest.raises(InputError, match=f"{next(iter(settings))} is .* It must be a whole number"):
        RestoreNet(base, **settings).train()


@pytest.mark.torch
def test_only_a_feature_set_can_be_the_base(torch, base):
    with pytest.raises(InputError, match="base is of type ndarray"):
        RestoreNet(base.features, n_steps=1).train()


@pytest.mark.torch
@pytest.mark.parametrize("method", ON_TASKS)
def test_small_base_classes_have_fewer_queries(method, torch, base):
    rows = np.concatenate([np.flatnonzero(base.labels == c)[:6] for c in range(6)])
    small = FeatureSet(base.features[rows], base.labels[rows])
    shapes = {
        (s.shape[1] // 5, q.shape[1] // 5) for s, _, q, _ in method(small, n_steps=40)._batches(small.features, 5)
    }
    assert shapes == {(1, 5), (2, 4), (3, 3), (4, 2), (5, 1)}
    with pytest.raises(InputError, match="6 shots and 1 queries need 7 rows of each class"):
        method(small, n_steps=1, n_shot=6).train()


@pytest.mark.torch
def test_restorenet_that_restores_nothing_is_l2n(torch, base, support, queries, monkeypatch):
    method = RestoreNet(base, n_steps=1).train()
    monkeypatch.setattr(method, "_restore", lambda weights, samples: samples)
    expected = scores_of(L2N(), support, queries)
    np.testing.assert_allclose(scores_of(method, support, queries), expected, atol=1e-6)


@pytest.mark.torch
def test_restorenet_averages_halfway_to_the_networks_output(torch, base, support, queries):
    method = RestoreNet(base, n_steps=20)
    w = numbers(method)
    x = normalize(support.astype(float))
    hidden = np.maximum(x @ w["hidden.weight"].T + w["hidden.bias"], 0)
    restored = (x + hidden @ w["output.weight"].T + w["output.bias"]) / 2
    means = np.stack([restored[:, c == LABELS].mean(axis=1) for c in range(3)], axis=1)
    expected = normalize(queries.astype(float)) @ normalize(means).mT
    np.testing.assert_allclose(scores_of(method, support, queries), expected, atol=1e-5)


@pytest.mark.torch
def test_restorenet_learns_to_give_the_class_mean(torch, base):
    method = RestoreNet(base)
    x = normalize(base.features.astype(float))
    means = np.stack([x[base.labels == c].mean(axis=0) for c in range(12)])[base.labels]
    restored = method._restore(method._module(), torch.from_numpy(x.astype(np.float32))).numpy()
    assert np.square(restored - means).sum() < 0.2 * np.square(x - means).sum()


@pytest.mark.torch
def test_relationnet_is_its_network_on_each_pair(torch, base, support, queries):
    method = RelationNet(base, n_steps=5)
    w = numbers(method)
    x, asked = (24**0.5 * normalize(rows.astype(float)) for rows in (support, queries))
    expected = np.empty((4, 5, 3))
    for t, q, c in np.ndindex(expected.shape):
        hidden = np.concatenate([x[t, c == LABELS].mean(axis=0), asked[t, q]])
        for name in ("first", "second"):
            hidden = np.maximum(w[f"{name}.weight"] @ hidden + w[f"{name}.bias"], 0)
        (logit,) = w["output.weight"] @ hidden + w["output.bias"]
        expected[t, q, c] = 1 / (1 + np.exp(-logit))
    np.testing.assert_allclose(scores_of(method, support, queries), expected, atol=1e-5)


def leo_codes(w, x):
    """The code of each class of one task, pair by pair."""
    codes = x @ w["encoder"].T
    related = np.empty((len(x), len(x), 64))
    for i, j in np.ndindex(related.shape[:2]):
        hidden = np.maximum(w["first"] @ np.concatenate([codes[i], codes[j]]), 0)
        related[i, j] = w["third"] @ np.maximum(w["second"] @ hidden, 0)
    return np.stack([related[c == LABELS].mean(axis=(0, 1)) for c in range(3)])


@pytest.mark.torch
def test_leo_without_steps_uses_the_decoded_weights(torch, base, support, queries):
    method = LEO(base, n_steps=5, n_latent_steps=0, n_weight_steps=0)
    w = numbers(method)
    x, asked = (normalize(rows.astype(float)) for rows in (support, queries))
    expected = [q @ (leo_codes(w, s) @ w["decoder"].T).T for s, q in zip(x, asked, strict=True)]
    np.testing.assert_allclose(scores_of(method, support, queries), expected, atol=1e-5)


@pytest.mark.torch
def test_leo_follows_the_gradient_of_the_support_loss(torch, base, support, queries):
    method = LEO(base, n_steps=5)
    w = numbers(method)
    loss = torch.nn.CrossEntropyLoss()
    decoder = torch.from_numpy(w["decoder"])
    expected = []
    for s, q in zip(support, queries, strict=True):
        x, own = torch.from_numpy(normalize(s.astype(float))), torch.from_numpy(LABELS)
        code = torch.from_numpy(leo_codes(w, x.numpy())).requires_grad_()
        for _ in range(5):
            (slope,) = torch.autograd.grad(loss(x @ (code @ decoder.T).T, own), code)
            code = (code - w["latent_rate"][0] * slope).detach().requires_grad_()
        head = (code @ decoder.T).detach().requires_grad_()
        for _ in range(5):
            (slope,) = torch.autograd.grad(loss(x @ head.T, own), head)
            head = (head - w["weight_rate"][0] * slope).detach().requires_grad_()
        expected.append(normalize(q.astype(float)) @ head.detach().numpy().T)
    np.testing.assert_allclose(scores_of(method, support, queries), expected, atol=1e-4)


@pytest.mark.torch
def test_leo_learns_its_rates(torch, base):
    start, trained = LEO(base)._start({"n_way": 5}), LEO(base, n_steps=5)._module()
    assert (start["latent_rate"].item(), start["weight_rate"].item()) == pytest.approx((1, 1e-3))
    assert all(start[name] != trained[name] for name in ("latent_rate", "weight_rate"))


@pytest.mark.torch
def test_anil_follows_the_gradient_of_the_support_loss(torch, base, support, queries):
    method = ANIL(base, n_steps=5)
    w = numbers(method, n_way=3)
    expected = []
    for s, q in zip(support.astype(float), queries.astype(float), strict=True):
        weight, bias = w["weight"], w["bias"][0]
        for _ in range(5):
            slope_weight, slope_bias = np.zeros_like(weight), np.zeros_like(bias)
            for x, own in zip(s, LABELS, strict=True):
                chances = np.exp(weight @ x + bias)
                error = chances / chances.sum() - np.eye(3)[own]
                slope_weight += np.outer(error, x) / len(s)
                slope_bias += error / len(s)
            weight, bias = weight - 0.01 * slope_weight, bias - 0.01 * slope_bias
        expected.append(q @ weight.T + bias)
    np.testing.assert_allclose(scores_of(method, support, queries), expected, atol=1e-5)


@pytest.mark.torch
def test_anil_needs_as_many_base_classes_as_ways(torch, base):
    support = np.ones((1, 13, 24))
    with pytest.raises(InputError, match="13 ways need 13 classes, but there are 12"):
        ANIL(base, n_steps=1).learn_tasks(support, np.arange(13))


@pytest.mark.torch
@every_method
def test_a_copy_keeps_the_weights(method, torch, base, support, queries):
    trained = method(base, n_steps=2)
    expected = scores_of(trained, support, queries)
    copied = copy.deepcopy(trained)
    copied._train = lambda settings, progress: pytest.fail("trained again")
    np.testing.assert_array_equal(scores_of(copied, support, queries), expected)


@every_method
def test_without_torch_the_install_line_is_named(method, base, support, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    line = r'trained with torch, which is not installed\. Install it: pip install "p3dc-shot\[torch\]"'
    with pytest.raises(InputError, match=line):
        method(base).train()
    with pytest.raises(InputError, match=line):
        method(base).learn_tasks(support, LABELS)


@every_method
def test_without_torch_they_are_made_and_cloned(method, base, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert clone(method(base, random_state=5)).random_state == 5
