import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p3dc import Priors
from p3dc.adaptive.space import WhitenedSpace, class_averages, members, task_centre
from tests.conftest import make_signed
from tests.reference import normalize

seeds = st.integers(0, 10_000)


def test_class_averages_average_the_samples_of_each_class(rng):
    belonging = members(rng.permutation([0, 1, 1, 1, 2, 2]))
    rows = rng.normal(size=(6, 4))
    expected = [rows[belonging[:, c]].mean(axis=0) for c in range(3)]
    np.testing.assert_allclose(class_averages(belonging) @ rows, expected)


@given(seeds, st.integers(2, 6), st.floats(0, 10))
def test_the_centre_lies_between_base_mean_and_the_mean_of_the_task(seed, n_way, distance):
    rng = np.random.default_rng(seed)
    base_mean = rng.normal(size=5)
    means = base_mean + distance * rng.normal(size=5) + rng.normal(size=(n_way, 5))
    task = means.mean(axis=0)
    [centre] = task_centre(means, base_mean)
    share = (centre - base_mean) @ (task - base_mean) / np.sum((task - base_mean) ** 2)
    assert 0 <= share <= 1
    np.testing.assert_allclose(centre, base_mean + share * (task - base_mean), atol=1e-12)
    doubt = np.mean(np.var(means, axis=0, ddof=1)) * 5 / n_way
    assert share == pytest.approx(max(0, 1 - doubt / np.sum((task - base_mean) ** 2)))


def test_the_centre_is_base_mean_where_the_task_may_well_be_there(rng):
    base_mean = rng.normal(size=5)
    spread = np.array([[1.0, 0, 0, 0, 0], [-1.0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(task_centre(base_mean + spread, base_mean), base_mean[None])
    np.testing.assert_allclose(task_centre(base_mean + spread + 0.1, base_mean), base_mean[None], atol=1e-12)
    np.testing.assert_array_equal(task_centre(np.stack([base_mean, base_mean]), base_mean), base_mean[None])


def test_the_centre_goes_with_the_task_where_it_is_far_away(rng):
    base_mean, means = rng.normal(size=5), rng.normal(size=(4, 5))
    far = means + 1e4
    np.testing.assert_allclose(task_centre(far, base_mean), far.mean(axis=0, keepdims=True), atol=1e-3)


def test_one_class_alone_does_not_move_the_centre(rng):
    base_mean = rng.normal(size=5)
    np.testing.assert_allclose(task_centre(rng.normal(size=(1, 5)) + 100, base_mean), base_mean[None], atol=1e-12)


def test_each_task_has_its_own_centre(rng):
    base_mean, means = rng.normal(size=5), rng.normal(size=(3, 4, 5)) + rng.normal(size=(3, 1, 5))
    together = task_centre(means, base_mean)
    assert together.shape == (3, 1, 5)
    np.testing.assert_allclose(together, [task_centre(task, base_mean) for task in means], atol=1e-14)


def test_vectors_in_the_space_of_a_task_are_unit_as_seen_from_its_centre(rng):
    rows, centre = rng.normal(size=(2, 6, 5)), rng.normal(size=(2, 1, 5))
    found = WhitenedSpace(None, centre).centred(rows)
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), 1)
    np.testing.assert_allclose(found, normalize(rows - centre))


def test_queries_and_support_come_into_the_same_space(rng):
    geometry = Priors.from_features(make_signed(1, 12, 10, n_features=8)).geometry
    support, averages = rng.normal(size=(6, 8)), class_averages(members(np.array([0, 0, 0, 1, 1, 1])))
    whitened = WhitenedSpace(geometry).whiten(support)
    space = WhitenedSpace(geometry).centred_on(whitened, averages)
    centre = task_centre(averages @ whitened, geometry.mean)
    np.testing.assert_allclose(space.transform(support), normalize(geometry.whiten(normalize(support)) - centre))


def test_cosines_to_base_classes_from_the_centre_follow_from_inner_products(rng):
    geometry = Priors.from_features(make_signed(1, 12, 10, n_features=8)).geometry
    centre = geometry.mean + 0.3 * rng.normal(size=(1, geometry.mean.shape[0]))
    rows = np.concatenate([rng.normal(size=(4, centre.shape[1])), centre])
    cosines, lengths = WhitenedSpace(geometry, centre).prior_cosines(rows, rows @ geometry.prototypes.T)
    centred = geometry.prototypes - centre
    np.testing.assert_allclose(lengths, np.linalg.norm(centred, axis=1))
    np.testing.assert_allclose(cosines[:4], normalize(rows[:4] - centre) @ normalize(centred).T, atol=1e-12)
    np.testing.assert_allclose(cosines[4], 0, atol=1e-12)  # a row in the centre has no direction


def test_without_a_geometry_only_directions_are_taken(rng):
    rows, space = rng.normal(size=(4, 5)), WhitenedSpace(None)
    assert space.centred_on(rows, np.eye(4)) is space
    np.testing.assert_allclose(space.transform(rows), normalize(rows))
