"""One task at every point, against calibrating anew."""

import numpy as np
import pytest

from p3dc import FeatureSet, Priors
from p3dc.adaptive.settings import Settings
from p3dc.classifier.calibrated_support import calibrate_support
from p3dc.classifier.leave_one_out import MOST_SAMPLES, LeaveOneClassOut, LeaveOneOut, PointScorer
from p3dc.confidence.open_set import unknown_threshold
from p3dc.method import ATTENTIONS

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


def at(point, **settings):
    return Settings(**settings) if point is None else Settings(*point, **settings)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("space", ["whitened", "plain"])
def test_cosines_are_those_of_a_calibration_at_the_point(priors, task, point, known, attention, space):
    support, labels = task
    queries = 3 * np.random.default_rng(6).uniform(size=(7, 20))
    base, settings = priors if known else None, {"attention": attention, "space": space}
    own = (0.1, 0.4) if space == "plain" else None
    expected = calibrate_support(support, labels, base, at(point or own, **settings)).cosines(queries)
    calibrated = calibrate_support(support, labels, base, at(own, **settings))
    [found] = PointScorer([calibrated], [calibrated.transform(queries)]).cosines(point)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("known", [True, False])
def test_the_threshold_is_that_of_calibrating_without_each_class(priors, task, point, known):
    support, labels = task
    base, seen = priors if known else None, []
    for left_out in range(4):
        others = labels != left_out
        rest = np.unique(labels[others], return_inverse=True)[1]
        seen.append(calibrate_support(support[others], rest, base, at(point)).cosines(support[~others]).ravel())
    expected = unknown_threshold(np.concatenate(seen), 4, 0.4, priors.geometry.spread if known else None)
    found = LeaveOneClassOut(support, labels, base, Settings()).threshold(0.4, point)
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("point", POINTS)
def test_leave_one_out_is_what_the_others_predict(priors, task, point):
    support, labels = task
    held = LeaveOneOut(support, labels, priors, Settings())
    assert held.rows.tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9], "the only sample of a class is never left out"
    expected = []
    for row in held.rows:
        rest = np.arange(10) != row
        calibrated = calibrate_support(support[rest], labels[rest], priors, at(point))
        expected.append(calibrated.cosines(support[[row]])[0].argmax())
    assert held.found(point).tolist() == expected


def test_of_many_samples_some_are_left_out():
    labels = np.repeat(np.arange(3), 40)
    held = LeaveOneOut(np.eye(3)[labels] + 0.1, labels, None, Settings())
    assert len(held.rows) == MOST_SAMPLES
    assert held.n_possible == 120
    assert set(labels[held.rows]) == {0, 1, 2}
    assert (held.found() == held.labels).all()


def test_no_sample_is_left_out_where_each_is_the_only_one_of_its_class():
    held = LeaveOneOut(np.eye(3), np.arange(3), None, Settings())
    assert held.found().shape == (0,)
