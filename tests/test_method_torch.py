"""The same functions on torch tensors. Run with the torch extra: ``pytest -m torch``."""

import numpy as np
import pytest

from p3dc import method

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("attention", method.ATTENTIONS)
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_torch_gives_the_scores_of_numpy(dtype, attention, power):
    import torch

    rng = np.random.default_rng(0)
    support, queries, priors = ((rng.gamma(0.7, 1.0, s) + 1e-3).astype(dtype) for s in ((2, 6, 8), (2, 5, 8), (7, 8)))
    present = np.array([[True, True], [True, False], [True, True]])
    options = {"alpha": 0.2, "beta": 0.5, "n_nearest": 3, "power": power}

    calibrated = method.calibrate(support, priors, **options)
    scores = method.classify(queries, calibrated.reshape(2, 3, 2, 8), present, attention)
    tensor = method.calibrate(torch.from_numpy(support), torch.from_numpy(priors), **options)
    tensor_scores = method.classify(
        torch.from_numpy(queries), tensor.reshape(2, 3, 2, 8), torch.from_numpy(present), attention
    )

    assert tensor_scores.dtype == getattr(torch, dtype)
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(tensor_scores.numpy(), scores, atol=tolerance)


@pytest.mark.parametrize(
    ("dtype", "exponent"), [("float32", -120), ("float32", 120), ("float64", -1000), ("float64", 1000)]
)
def test_torch_normalises_where_squares_leave_the_range(dtype, exponent):
    import torch

    x = (np.random.default_rng(0).gamma(0.7, 1.0, (3, 8)) + 1e-3).astype(dtype)
    found = method.l2_normalize(torch.from_numpy(np.ldexp(x, exponent))).numpy()
    np.testing.assert_allclose(found, method.l2_normalize(x), rtol=0, atol=4 * np.finfo(dtype).eps)


def test_torch_chooses_the_same_priors_among_equals():
    import torch

    values = np.array([[1.0, 2.0, 2.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    for n_nearest in (1, 2, 4, 9):
        expected = method.nearest_priors(values, n_nearest)
        np.testing.assert_array_equal(method.nearest_priors(torch.from_numpy(values), n_nearest).numpy(), expected)


def test_gradients_flow_through_the_whole_method():
    import torch

    generator = torch.Generator().manual_seed(0)
    support, queries, priors = (torch.rand(n, 8, generator=generator, dtype=torch.float64) + 0.1 for n in (6, 4, 5))
    support.requires_grad_()
    calibrated = method.calibrate(support, priors, alpha=0.2, beta=0.4)
    method.classify(queries, calibrated.reshape(3, 2, 8)).sum().backward()
    assert support.grad is not None
    assert torch.isfinite(support.grad).all()
