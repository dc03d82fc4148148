"""The whitened space, the rule for β and the threshold of unknowns on torch tensors.

Run with the torch extra: ``pytest -m torch``.
"""

import numpy as np
import pytest

from p3dc.adaptive import weights
from p3dc.adaptive.space import WhitenedSpace, class_averages, task_centre
from p3dc.confidence.open_set import unknown_threshold

pytestmark = pytest.mark.torch

MEMBERS = np.repeat(np.eye(3, dtype=bool), [1, 3, 2], axis=0)


def assert_same(function, *arguments):
    """Call with NumPy's arrays and with torch's tensors, both in float64."""
    import torch

    expected = function(*arguments)
    tensors = [torch.from_numpy(each) if isinstance(each, np.ndarray) else each for each in arguments]
    found = function(*tensors)
    if isinstance(expected, float):
        assert isinstance(found, float)
        assert found == pytest.approx(expected, abs=1e-12)
        return expected
    assert isinstance(found, torch.Tensor)
    assert found.dtype == torch.float64
    assert tuple(found.shape) == expected.shape
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-12)
    return expected


def test_torch_averages_classes_and_counts_shots_as_numpy_does():
    assert_same(class_averages, MEMBERS)
    assert assert_same(weights.typical_shots, MEMBERS) == pytest.approx(3 / (1 + 1 / 3 + 1 / 2))


@pytest.mark.parametrize("away", [0.0, 0.5, 20.0])
@pytest.mark.parametrize("shape", [(4, 5), (3, 4, 5), (2, 3, 4, 5), (3, 1, 5)])
def test_torch_finds_the_centre_of_numpy_and_normalises_as_it_does(away, shape):
    rng = np.random.default_rng(0)
    home, means = rng.normal(size=5), rng.normal(size=shape)
    means = home + means + away
    centre = assert_same(task_centre, means, home)
    assert_same(lambda rows, seen_from: WhitenedSpace(None, seen_from).centred(rows), rng.normal(size=shape), centre)


def test_torch_stays_at_home_where_everything_is_there():
    assert_same(task_centre, np.ones((2, 5)), np.ones(5))


@pytest.mark.parametrize("sign", [1.0, 0.2, -1.0])
@pytest.mark.parametrize("shots", [1.0, 4.5])
def test_torch_weighs_pulls_as_numpy_does(sign, shots):
    rng = np.random.default_rng(0)
    support = rng.normal(size=(4, 6, 5))
    support /= np.linalg.norm(support, axis=-1, keepdims=True)
    ends = support + sign * (0.5 * support + 0.3 * rng.normal(size=support.shape))
    agreed = assert_same(weights.relevance, support, ends, class_averages(MEMBERS))
    weight = assert_same(weights.choose_beta, agreed, support, ends, shots, 0.6)
    assert weight.shape == (4, 1, 1)
    assert (weight > 0).all() == (sign > 0)


@pytest.mark.parametrize("spread", [None, 0.03])
def test_torch_finds_the_threshold_of_numpy(spread):
    cosines = np.random.default_rng(0).uniform(-1, 1, 12)
    assert_same(unknown_threshold, cosines, 3, 0.9, spread)
