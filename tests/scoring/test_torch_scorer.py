"""The engine on devices of torch. Run with the torch extra: ``pytest -m torch``."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from p3dc import FeatureSet, P3DCClassifier, Priors, compare, evaluate, sample_tasks, search
from p3dc._arrays import as_numpy
from p3dc.baselines import NN
from p3dc.errors import InputError
from p3dc.evaluation.search import grid
from p3dc.method import ATTENTIONS
from p3dc.scoring.device_memory import open_device
from p3dc.scoring.kernel import corner_weights, inner_products, mix_and_attend
from p3dc.tasks import Tasks
from tests.conftest import PAPER, make_features, make_signed, paper
from tests.scoring.scorers import plain_scorer, whitened_scorer
from tests.scoring.test_numpy_scorer import ANY_TASK, plain_correct, plain_scores

pytestmark = pytest.mark.torch

POINTS = [grid(0.5), np.array([[0.2, 0.4]]), np.array([[-0.5, 1.2], [2.0, -0.4]])]


def on(device, scorer, *arguments, memory=2**26, **options):
    """Make a scorer on a device."""
    return scorer(*arguments, device=open_device(device, memory), **options)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    **ANY_TASK,
    points=st.sampled_from(POINTS),
    share=st.sampled_from([0.0, 0.03, 0.5]),
)
def test_scores_and_predictions_are_those_of_the_plain_loop(
    device, seed, n_way, n_shot, n_query, n_nearest, power, scale, attention, points, share
):
    features, base = make_features(seed, 6, 40), make_features(seed + 1, 40, 1)
    priors = base.features.astype(float)
    tasks = sample_tasks(features.labels, n_way=n_way, n_shot=n_shot, n_query=n_query, n_tasks=4, seed=seed)
    options = {"n_nearest": n_nearest, "power": power, "scale": scale, "attention": attention}
    with patch("p3dc.scoring.torch_tables.TABLE_SHARE", share):
        scorer = on(device, plain_scorer, features.features, priors, points, **options, memory=2**24)
    expected = plain_scores(features.features, tasks, priors, *points.T, **options)
    np.testing.assert_allclose(scorer.scores(tasks), expected, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(scorer.correct(tasks), plain_correct(expected))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 1000),
    n_way=st.integers(2, 5),
    n_shot=st.integers(1, 4),
    attention=st.sampled_from(ATTENTIONS),
    n_nearest=st.sampled_from([1, 5, 100]),
    with_priors=st.booleans(),
    points=st.sampled_from([None, *POINTS]),
)
def test_scores_in_the_whitened_space_are_those_of_numpy(
    device, seed, n_way, n_shot, attention, n_nearest, with_priors, points
):
    base, features = make_signed(1, 12, 10, 8, home=0.5), make_signed(seed, 6, 8, 8, home=0.5)
    priors = Priors.from_features(base) if with_priors else None
    tasks = sample_tasks(features.labels, n_way=n_way, n_shot=n_shot, n_query=3, n_tasks=4, seed=seed)
    options = {"n_nearest": n_nearest, "attention": attention}
    expected = whitened_scorer(features.features, priors, points, **options)
    scorer = on(device, whitened_scorer, features.features, priors, points, **options)
    np.testing.assert_allclose(scorer.scores(tasks), expected.scores(tasks), rtol=0, atol=1e-10)
    np.testing.assert_array_equal(scorer.correct(tasks), expected.correct(tasks))


@pytest.mark.parametrize("n_shot", [1, 3])
@pytest.mark.parametrize("points", POINTS[:2])
def test_without_priors_the_scores_are_those_of_numpy(device, novel, n_shot, points):
    tasks = sample_tasks(novel.labels, n_shot=n_shot, n_query=4, n_tasks=20, seed=0)
    expected = plain_scorer(novel.features, None, points)
    scorer = on(device, plain_scorer, novel.features, None, points)
    np.testing.assert_allclose(scorer.scores(tasks), expected.scores(tasks), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(scorer.correct(tasks), expected.correct(tasks))


@pytest.mark.parametrize("factor", [1e-25, 0.05, 20.0, 1e3, 1e12])
def test_scores_are_precise_whatever_the_norm_of_the_features(device, factor):
    features, base = make_features(1, 6, 20, n_features=64), make_features(2, 9, 1, n_features=64)
    rows, priors = features.features.astype(float) * factor, base.features.astype(float) * factor
    tasks = sample_tasks(features.labels, n_shot=5, n_query=3, n_tasks=10, seed=0)
    points = grid(0.5)
    scorer = on(device, plain_scorer, rows, priors, points)
    expected = plain_scores(rows, tasks, priors, *points.T)
    np.testing.assert_allclose(scorer.scores(tasks), expected, rtol=0, atol=1e-7)
    np.testing.assert_array_equal(scorer.correct(tasks), plain_correct(expected))


@pytest.mark.parametrize("n_shot", [1, 3])
@pytest.mark.parametrize("kind", ["plain", "whitened"])
def test_classes_that_are_level_go_to_the_first_as_with_numpy(device, n_shot, kind):
    """Every class has the same rows, so that each task has classes with the same samples."""
    one = make_features(1, 1, 4, n_features=8).features
    features, labels = np.tile(one, (6, 1)), np.repeat(np.arange(6), 4)
    priors = Priors.from_features(make_features(1, 12, 10, n_features=8))
    tasks = sample_tasks(labels, n_way=4, n_shot=n_shot, n_query=1, n_tasks=40, seed=0)
    same = np.sort(tasks.support % 4, axis=2)
    assert (same[:, :1] == same[:, 1:]).all(axis=2).any()
    scorer = {"plain": plain_scorer, "whitened": whitened_scorer}[kind]
    points = [(0.0, 0.9), (0.3, 0.3)] if kind == "plain" else None
    expected = scorer(features, priors, points).correct(tasks)
    np.testing.assert_array_equal(on(device, scorer, features, priors, points).correct(tasks), expected)


@pytest.mark.parametrize("points", [np.array([[0.1, 0.7]]), grid(0.25)])
def test_memory_changes_the_number_of_parts_and_nothing_else(device, novel, priors, points):
    tasks = sample_tasks(novel.labels, n_shot=3, n_query=4, n_tasks=60, seed=0)
    tabled, n_parts = [], []
    for scorer in (plain_scorer, whitened_scorer):
        expected = scorer(novel.features, priors, points).correct(tasks)
        for memory in (2**28, 2**21, 500_000):
            parts = []
            found = on(device, scorer, novel.features, priors, points, memory=memory)
            counts = found.correct(tasks, watch=lambda part, _, parts=parts: parts.append(part))
            np.testing.assert_array_equal(counts, expected)
            n_parts.append(len(parts))
            tabled.append(getattr(found.source, "tabled", {}))
    assert tabled[0] == {"priors": True, "both": True, "rows": True}
    assert tabled[1] != tabled[0]
    assert n_parts[0] == n_parts[3] == 1 < min(n_parts[2], n_parts[5])


def test_memory_that_is_too_small_is_told(device, novel, priors):
    for scorer in (plain_scorer, whitened_scorer):
        arguments = device, scorer, novel.features, priors, [(0.0, 0.9)]
        with pytest.raises(InputError, match=r"features and priors take [\d,]+ bytes, but 10,000 may be used. Raise"):
            on(*arguments, memory=10_000)
        crowded = on(*arguments, memory=120_000)
        with pytest.raises(InputError, match=r"one task takes [\d,]+ bytes, but of the 120,000 .* Raise memory"):
            crowded.correct(sample_tasks(novel.labels, n_tasks=1))


def test_a_device_without_enough_memory_is_told(novel, priors, monkeypatch):
    import torch

    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    scorer = on("cpu", plain_scorer, novel.features, priors.prototypes, [(0.0, 0.9)])
    monkeypatch.setattr(type(scorer.source), "corners", full)
    with pytest.raises(InputError, match="cpu ran out of memory .* Lower memory"):
        scorer.correct(sample_tasks(novel.labels, n_tasks=1))


def test_whoever_watches_sees_all_scores(device, novel, priors):
    tasks = sample_tasks(novel.labels, n_shot=2, n_query=4, n_tasks=25, seed=0)
    scorer = on(device, plain_scorer, novel.features, priors.prototypes, [(0.0, 0.9), (0.3, 0.3)], memory=2**21)
    seen = np.full((25, 5, 20, 2), np.nan)

    def watch(part, scores):
        seen[part] = scores.numpy(force=True)

    scorer.correct(tasks, watch)
    np.testing.assert_allclose(seen.transpose(0, 3, 2, 1), scorer.scores(tasks), atol=1e-12)


def test_tasks_may_already_be_on_the_device(device, novel, priors):
    import torch

    tasks = sample_tasks(novel.labels, n_tasks=20)
    there = Tasks(*(torch.as_tensor(rows, device=device) for rows in (tasks.classes, tasks.support, tasks.queries)))
    scorer = on(device, plain_scorer, novel.features, priors.prototypes, [(0.0, 0.9)])
    np.testing.assert_array_equal(scorer.correct(there), scorer.correct(tasks))


@pytest.mark.parametrize("settings", [PAPER, {}], ids=["given", "auto"])
def test_evaluations_on_a_device_are_those_of_numpy(device, novel, priors, settings):
    rivals = {"NN": NN(), "P3DC": P3DCClassifier(priors, **settings)}
    drawing = {"n_shot": 3, "n_query": 5, "n_tasks": 50, "n_unknown": 7}
    expected = compare(rivals, novel, **drawing)
    found = compare(rivals, novel, **drawing, device=device, memory="100MB")
    for name in rivals:
        np.testing.assert_array_equal(found.scores[name].accuracy, expected.scores[name].accuracy)
    one, two = found.scores["P3DC"], expected.scores["P3DC"]
    assert one.calibration_error == pytest.approx(two.calibration_error, abs=1e-3)
    np.testing.assert_allclose(one.auroc, two.auroc, atol=0.06)  # a float32 tie is half a pair
    alone = evaluate(rivals["P3DC"], novel, **drawing, device=device)
    np.testing.assert_array_equal(alone.accuracy, two.accuracy)


@pytest.mark.parametrize("settings", [{"scale": 1.0}, {"space": "whitened"}, {"scale": [0.1, 1.0]}])
def test_searches_on_a_device_are_those_of_numpy(device, validation, priors, settings):
    drawing = {"n_shot": 2, "n_query": 5, "n_tasks": 50, "step": 0.25, **settings}
    expected, found = search(priors, validation, **drawing), search(priors, validation, **drawing, device=device)
    np.testing.assert_array_equal(found.accuracy, expected.accuracy)
    np.testing.assert_allclose(found.interval, expected.interval)


def test_progress_is_told_on_a_device_too(device, novel, priors):
    told = []
    evaluate(paper(priors), novel, n_tasks=30, device=device, progress=lambda *state: told.append(state))
    assert told[-1] == (30, 30)


def test_the_commands_compute_on_the_device(device, p3dc, tmp_path, base, validation, novel):
    paths = {}
    for name, features in (("base", base), ("validation", validation), ("novel", novel)):
        paths[name] = tmp_path / f"{name}.npz"
        FeatureSet(features.features, features.labels, features.class_names).save(paths[name])
    files = [part for name, path in paths.items() for part in (f"--{name}", path)]
    tables = []
    for where in ((), ("--device", device, "--memory", "50MB")):
        code, out, _ = p3dc("evaluate", *files, "--tasks", 40, "--auto", *where)
        assert code == 0
        tables.append([line for line in out.splitlines() if "P3DC" in line])
    assert tables[0] == tables[1]
    found = [p3dc("search", *files[:4], "--tasks", 40, *where)[1] for where in ((), ("--device", device))]
    assert found[0] == found[1]


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("n_shot", [1, 4])
def test_the_kernel_of_a_device_is_that_of_numpy(device, n_shot, attention):
    import torch

    rng = np.random.default_rng(0)
    corners, queries, points = rng.normal(size=(3, 4 * n_shot, 3, 6)), rng.normal(size=(3, 7, 6)), grid(0.25)
    known = inner_products(corners, queries, corner_weights(*points.T), 4)
    there = [torch.as_tensor(array, device=device) for array in known[:3]]
    for uniform in (True, False):
        expected, found = (mix_and_attend(*arrays, uniform=uniform) for arrays in (known[:3], there))
        for one, two in zip(expected, found, strict=True):
            np.testing.assert_allclose(as_numpy(two), one, rtol=0, atol=1e-12)
