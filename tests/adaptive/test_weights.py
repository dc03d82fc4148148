import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p3dc.adaptive import weights
from p3dc.adaptive.space import class_averages
from tests.reference import normalize

seeds = st.integers(0, 10_000)


def members_of(counts):
    """Mark the class of each sample, (S, N), for so many samples of each class."""
    return np.repeat(np.eye(len(counts), dtype=bool), counts, axis=0)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_typical_shots_are_the_harmonic_mean(counts):
    found = weights.typical_shots(members_of(counts))
    assert found == pytest.approx(len(counts) / sum(1 / count for count in counts))
    assert min(counts) - 1e-9 <= found <= np.mean(counts) + 1e-9


def pulled(seed, n_way, n_shot, n_features=6):
    """Unit samples and where they are pulled to: for some seeds towards the truth, for others anywhere."""
    rng = np.random.default_rng(seed)
    truth = normalize(rng.normal(size=(n_way, 1, n_features)))
    support = normalize(truth + 0.4 * rng.normal(size=(n_way, n_shot, n_features))).reshape(-1, n_features)
    pulls = rng.uniform(-1, 2) * np.repeat(truth[:, 0], n_shot, axis=0) + 0.5 * rng.normal(size=support.shape)
    return support, support + pulls, class_averages(members_of([n_shot] * n_way))


def chosen_beta(support, task_ends, averages, shots, tightness):
    return weights.choose_beta(weights.relevance(support, task_ends, averages), support, task_ends, shots, tightness)


def test_relevance_is_the_mean_cosine_of_class_means_to_what_pulls_them():
    support, ends, averages = pulled(3, 3, 2)
    cosines = []
    for c in range(3):
        own = slice(2 * c, 2 * c + 2)
        cosines.append(normalize(support[own].mean(axis=0)) @ normalize((ends - support)[own].mean(axis=0)))
    found = weights.relevance(support, ends, averages)
    assert found.shape == (1, 1)
    assert found.item() == pytest.approx(np.mean(cosines))


@given(seeds, st.integers(1, 5), st.integers(1, 4), st.floats(0.01, 0.99))
def test_the_weight_of_the_pull_lies_between_none_and_all_and_falls_with_the_shots(seed, n_way, n_shot, tightness):
    support, ends, averages = pulled(seed, n_way, n_shot)
    found = [chosen_beta(support, ends, averages, shots, tightness).item() for shots in (1, 1.5, 2, 5, 20, 1e6)]
    assert 0 <= min(found) <= max(found) <= 1
    assert (np.diff(found) <= 1e-12).all()


@given(seeds, st.integers(1, 4), st.floats(0.05, 0.95))
def test_tighter_classes_are_pulled_less(seed, n_shot, tightness):
    loose, tight = (chosen_beta(*pulled(seed, 3, n_shot), n_shot, each) for each in (tightness, tightness + 0.04))
    assert tight <= loose + 1e-12


@pytest.mark.parametrize("length", [0.1, 0.5])
def test_pulls_that_point_away_weigh_nothing(length):
    support, _, averages = pulled(1, 3, 2)
    towards = np.repeat(normalize(averages @ support), 2, axis=0)
    assert chosen_beta(support, support - length * towards, averages, 2, 0.5).item() == 0
    assert chosen_beta(support, support + length * towards, averages, 2, 0.5).item() > 0


def test_pulls_across_weigh_nothing():
    support, pulls = np.eye(4)[:2], np.eye(4)[2:]
    assert chosen_beta(support, support + pulls, np.eye(2), 1, 0.5).item() == 0


def modelled_cosine(beta, support, end, known):
    """How near the calibrated sample is to the truth, if sample and pull err independently of each other.

    The sample has the cosine √known to the truth; the pull has the one that explains how near the two are.
    """
    pull = end - support
    near = support @ normalize(pull)
    truth = np.linalg.solve([[1, near], [near, 1]], [np.sqrt(known), near / np.sqrt(known)])
    direction = truth[0] * support + truth[1] * normalize(pull)  # of the truth, within the plane of both
    return normalize((1 - beta) * support + beta * normalize(end)) @ direction


@settings(max_examples=100, deadline=None)
@given(
    angle=st.floats(0.05, 3.0),
    length=st.floats(0.1, 2.0),
    shots=st.floats(1, 20),
    tightness=st.floats(0.1, 0.98),
)
def test_the_weight_of_the_pull_makes_the_modelled_cosine_largest(angle, length, shots, tightness):
    support, pull = np.array([1.0, 0.0, 0.0]), length * np.array([np.cos(angle), np.sin(angle), 0.0])
    end = support + pull
    found = chosen_beta(support[None], end[None], np.ones((1, 1)), shots, tightness).item()
    known = tightness**2 / (tightness**2 + (1 - tightness**2) / shots)
    if np.cos(angle) <= 1e-9:
        assert found == 0
        return
    best = max(modelled_cosine(beta, support, end, known) for beta in np.linspace(0, 1, 201))
    assert modelled_cosine(found, support, end, known) >= best - 1e-9


def test_the_weight_of_the_pull_is_somewhere_inside_for_some_tasks():
    support, pull = np.array([[1.0, 0.0]]), 0.8 * np.array([[np.cos(1.2), np.sin(1.2)]])
    assert 0.1 < chosen_beta(support, support + pull, np.ones((1, 1)), 5, 0.6).item() < 0.9


def test_each_task_has_its_own_weight():
    tasks = [pulled(seed, 3, 2) for seed in range(6)]
    support, ends = (np.stack([task[i] for task in tasks]) for i in (0, 1))
    together = chosen_beta(support, ends, tasks[0][2], 2, 0.5)
    assert together.shape == (6, 1, 1)
    assert len(np.unique(together.round(6))) > 2
    np.testing.assert_allclose(together.ravel(), [chosen_beta(*task, 2, 0.5).item() for task in tasks])
