import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p3dc.adaptive import rule as auto
from tests.reference import normalize

seeds = st.integers(0, 10_000)


def members_of(counts):
    """Mark the class of each sample, (S, N), for so many samples of each class."""
    return np.repeat(np.eye(len(counts), dtype=bool), counts, axis=0)


def test_class_averages_average_the_samples_of_each_class(rng):
    members = members_of([1, 3, 2])[rng.permutation(6)]
    rows = rng.normal(size=(6, 4))
    expected = [rows[members[:, c]].mean(axis=0) for c in range(3)]
    np.testing.assert_allclose(auto.class_averages(members) @ rows, expected)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_typical_shots_are_the_harmonic_mean(counts):
    found = auto.typical_shots(members_of(counts))
    assert found == pytest.approx(len(counts) / sum(1 / count for count in counts))
    assert min(counts) - 1e-9 <= found <= np.mean(counts) + 1e-9


@given(seeds, st.integers(2, 6), st.floats(0, 10))
def test_the_centre_lies_between_home_and_the_mean_of_the_task(seed, n_way, distance):
    rng = np.random.default_rng(seed)
    home = rng.normal(size=5)
    means = home + distance * rng.normal(size=5) + rng.normal(size=(n_way, 5))
    task = means.mean(axis=0)
    [centre] = auto.task_centre(means, home)
    share = (centre - home) @ (task - home) / np.sum((task - home) ** 2)
    assert 0 <= share <= 1
    np.testing.assert_allclose(centre, home + share * (task - home), atol=1e-12)
    doubt = np.mean(np.var(means, axis=0, ddof=1)) * 5 / n_way
    assert share == pytest.approx(max(0, 1 - doubt / np.sum((task - home) ** 2)))


def test_the_centre_is_home_where_the_task_may_well_be_there(rng):
    home = rng.normal(size=5)
    spread = np.array([[1.0, 0, 0, 0, 0], [-1.0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(auto.task_centre(home + spread, home), home[None])
    np.testing.assert_allclose(auto.task_centre(home + spread + 0.1, home), home[None], atol=1e-12)
    np.testing.assert_array_equal(auto.task_centre(np.stack([home, home]), home), home[None])


def test_the_centre_goes_with_the_task_where_it_is_far_away(rng):
    home, means = rng.normal(size=5), rng.normal(size=(4, 5))
    far = means + 1e4
    np.testing.assert_allclose(auto.task_centre(far, home), far.mean(axis=0, keepdims=True), atol=1e-3)


def test_one_class_alone_does_not_move_the_centre(rng):
    home = rng.normal(size=5)
    np.testing.assert_allclose(auto.task_centre(rng.normal(size=(1, 5)) + 100, home), home[None], atol=1e-12)


def test_each_task_has_its_own_centre(rng):
    home, means = rng.normal(size=5), rng.normal(size=(3, 4, 5)) + rng.normal(size=(3, 1, 5))
    together = auto.task_centre(means, home)
    assert together.shape == (3, 1, 5)
    np.testing.assert_allclose(together, [auto.task_centre(task, home) for task in means], atol=1e-14)


def test_prepared_vectors_are_unit_as_seen_from_the_centre(rng):
    rows, centre = rng.normal(size=(2, 6, 5)), rng.normal(size=(2, 1, 5))
    found = auto.prepare(rows, centre)
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), 1)
    np.testing.assert_allclose(found, normalize(rows - centre))


def pulled(seed, n_way, n_shot, n_features=6):
    """Unit samples and where they are pulled to: for some seeds towards the truth, for others anywhere."""
    rng = np.random.default_rng(seed)
    truth = normalize(rng.normal(size=(n_way, 1, n_features)))
    support = normalize(truth + 0.4 * rng.normal(size=(n_way, n_shot, n_features))).reshape(-1, n_features)
    pulls = rng.uniform(-1, 2) * np.repeat(truth[:, 0], n_shot, axis=0) + 0.5 * rng.normal(size=support.shape)
    return support, support + pulls, auto.class_averages(members_of([n_shot] * n_way))


def pull_weight(support, task_ends, averages, shots, tightness):
    return auto.pull_weight(auto.agreement(support, task_ends, averages), support, task_ends, shots, tightness)


def test_agreement_is_the_mean_cosine_of_class_means_to_what_pulls_them():
    support, ends, averages = pulled(3, 3, 2)
    cosines = []
    for c in range(3):
        own = slice(2 * c, 2 * c + 2)
        cosines.append(normalize(support[own].mean(axis=0)) @ normalize((ends - support)[own].mean(axis=0)))
    found = auto.agreement(support, ends, averages)
    assert found.shape == (1, 1)
    assert found.item() == pytest.approx(np.mean(cosines))


@given(seeds, st.integers(1, 5), st.integers(1, 4), st.floats(0.01, 0.99))
def test_the_weight_of_the_pull_lies_between_none_and_all_and_falls_with_the_shots(seed, n_way, n_shot, tightness):
    support, ends, averages = pulled(seed, n_way, n_shot)
    found = [pull_weight(support, ends, averages, shots, tightness).item() for shots in (1, 1.5, 2, 5, 20, 1e6)]
    assert 0 <= min(found) <= max(found) <= 1
    assert (np.diff(found) <= 1e-12).all()


@given(seeds, st.integers(1, 4), st.floats(0.05, 0.95))
def test_tighter_classes_are_pulled_less(seed, n_shot, tightness):
    loose, tight = (pull_weight(*pulled(seed, 3, n_shot), n_shot, each) for each in (tightness, tightness + 0.04))
    assert tight <= loose + 1e-12


@pytest.mark.parametrize("length", [0.1, 0.5])
def test_pulls_that_point_away_weigh_nothing(length):
    support, _, averages = pulled(1, 3, 2)
    towards = np.repeat(normalize(averages @ support), 2, axis=0)
    assert pull_weight(support, support - length * towards, averages, 2, 0.5).item() == 0
    assert pull_weight(support, support + length * towards, averages, 2, 0.5).item() > 0


def test_pulls_across_weigh_nothing():
    support, pulls = np.eye(4)[:2], np.eye(4)[2:]
    assert pull_weight(support, support + pulls, np.eye(2), 1, 0.5).item() == 0


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
    found = pull_weight(support[None], end[None], np.ones((1, 1)), shots, tightness).item()
    known = tightness**2 / (tightness**2 + (1 - tightness**2) / shots)
    if np.cos(angle) <= 1e-9:
        assert found == 0
        return
    best = max(modelled_cosine(beta, support, end, known) for beta in np.linspace(0, 1, 201))
    assert modelled_cosine(found, support, end, known) >= best - 1e-9


def test_the_weight_of_the_pull_is_somewhere_inside_for_some_tasks():
    support, pull = np.array([[1.0, 0.0]]), 0.8 * np.array([[np.cos(1.2), np.sin(1.2)]])
    assert 0.1 < pull_weight(support, support + pull, np.ones((1, 1)), 5, 0.6).item() < 0.9


def test_each_task_has_its_own_weight():
    tasks = [pulled(seed, 3, 2) for seed in range(6)]
    support, ends = (np.stack([task[i] for task in tasks]) for i in (0, 1))
    together = pull_weight(support, ends, tasks[0][2], 2, 0.5)
    assert together.shape == (6, 1, 1)
    assert len(np.unique(together.round(6))) > 2
    np.testing.assert_allclose(together.ravel(), [pull_weight(*task, 2, 0.5).item() for task in tasks])


def test_the_temperature_falls_with_the_shots_to_a_limit():
    assert auto.temperature(1) == pytest.approx(0.0725)
    assert auto.temperature(5) == pytest.approx(0.0545)
    assert auto.temperature(1) > auto.temperature(1.5) > auto.temperature(20) > 0.05


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("n_way", [2, 5, 20])
def test_the_threshold_turns_away_the_share_of_strangers_that_is_asked(n_way, share):
    rng = np.random.default_rng(0)
    found = auto.stranger_threshold(rng.normal(0.1, 0.2, size=4000), n_way, share, None)
    largest = rng.normal(0.1, 0.2, size=(20_000, n_way)).max(axis=1)
    assert np.mean(largest < found) == pytest.approx(share, abs=0.02)


@given(seeds, st.integers(2, 6), st.sampled_from([None, 0.01, 0.2]))
def test_the_threshold_rises_with_the_share(seed, n_way, spread):
    cosines = np.random.default_rng(seed).uniform(-1, 1, size=2 * n_way)
    found = [auto.stranger_threshold(cosines, n_way, share, spread) for share in (0.01, 0.3, 0.6, 0.9, 0.999)]
    assert (np.diff(found) > 0).all()


def test_the_base_classes_count_for_four_strangers_of_their_spread():
    seen = np.array([0.3, 0.5])
    variance = (np.sum((seen - 0.4) ** 2) + 4 * 0.04) / 6
    largest = np.random.default_rng(0).normal(seen.sum() / 6, np.sqrt(variance), size=(200_000, 2)).max(axis=1)
    assert auto.stranger_threshold(seen, 2, 0.9, 0.04) == pytest.approx(np.quantile(largest, 0.9), abs=0.005)
