"""One task at every point, against calibrating anew."""

import numpy as np
import pytest

from p3dc import FeatureSet, Priors
from p3dc.classifier.calibrated_support import calibrate_alone, stranger_threshold
from p3dc.classifier.leave_one_out import MOST_HELD_OUT, LeaveOneOut, Strangers, Triangle

POINTS = [None, (0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.3, 0.5), (0.2, 0.2)]


@pytest.fixture(scope="module")
def priors():
    rng = np.random.default_rng(3)
    labels = np.repeat(np.arange(12), 10)
    return Priors.from_features(
        FeatureSet(rng.uniform(size=(12, 20))[labels] + 0.4 * rng.uniform(size=(120, 20)), labels)
    )


@pytest.fixture
def task():
    rng = np.random.default_rng(5)
    labels = np.array([0, 0, 0, 1, 2, 2, 2, 2, 3, 3])
    return rng.uniform(size=(4, 20))[labels] + 0.5 * rng.uniform(size=(10, 20)), labels


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("known", [True, False])
def test_cosines_are_those_of_a_calibration_at_the_point(priors, task, point, known):
    support, labels = task
    queries = np.random.default_rng(6).uniform(size=(7, 20))
    base = priors if known else None
    expected = calibrate_alone(support, labels, base, point=point).cosines(queries)
    found = Triangle(calibrate_alone(support, labels, base), queries).cosines(point)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("point", POINTS)
def test_a_calibration_moves_to_a_point(priors, task, point):
    moved = calibrate_alone(*task, priors).at(*(point or (0.1, 0.7)))
    anew = calibrate_alone(*task, priors, point=point or (0.1, 0.7))
    np.testing.assert_allclose(moved.samples, anew.samples, atol=1e-14)
    assert (moved.alpha, moved.beta) == (anew.alpha, anew.beta)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("known", [True, False])
def test_the_threshold_is_that_of_calibrating_without_each_class(priors, task, point, known):
    base = priors if known else None
    expected = stranger_threshold(*task, lambda rows, own: calibrate_alone(rows, own, base, point=point), 0.4)
    assert Strangers(*task, base).threshold(0.4, point) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("point", POINTS)
def test_leave_one_out_is_what_the_others_say(priors, task, point):
    support, labels = task
    held = LeaveOneOut(support, labels, priors)
    assert held.rows.tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9], "the sample that is alone in its class has no turn"
    expected = []
    for row in held.rows:
        rest = np.arange(10) != row
        calibrated = calibrate_alone(support[rest], labels[rest], priors, point=point)
        expected.append(calibrated.cosines(support[[row]])[0].argmax() == labels[row])
    assert held.right(point).tolist() == expected


def test_of_many_samples_some_have_a_turn():
    labels = np.repeat(np.arange(3), 40)
    held = LeaveOneOut(np.eye(3)[labels] + 0.1, labels, None)
    assert len(held.rows) == MOST_HELD_OUT
    assert held.n_possible == 120
    assert set(labels[held.rows]) == {0, 1, 2}
    assert held.right().all()


def test_nobody_has_a_turn_where_all_are_alone():
    held = LeaveOneOut(np.eye(3), np.arange(3), None)
    assert held.right().shape == (0,)
