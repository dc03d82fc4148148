"""Clusters of tensors. Run with the torch extra: ``pytest -m torch``."""

import numpy as np
import pytest

from p3dc import Priors
from p3dc.errors import InputError
from p3dc.priors.unlabelled import learn_centres

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tensors_are_clustered_as_arrays_are(base, device, dtype):
    import torch

    rows = base.features.astype(dtype)
    found, expected = (Priors.from_unlabelled(each) for each in (torch.as_tensor(rows, device=device), rows))
    np.testing.assert_array_equal(found.counts, expected.counts)
    np.testing.assert_allclose(found.prototypes, expected.prototypes, rtol=1e-6)
    assert found.central == expected.central
    assert found.geometry.tightness == pytest.approx(expected.geometry.tightness, rel=1e-5)


def test_centres_are_learned_on_the_device_of_a_stream(base, device):
    import torch

    parts = [torch.tensor(part, device=device) for part in np.array_split(base.features, 4)]
    centres, n_rows = learn_centres([torch.zeros((2, 24), device=device), *parts])
    assert (centres.device.type, centres.dtype, n_rows) == (torch.device(device).type, torch.float32, 360)
    np.testing.assert_allclose(centres.numpy(force=True), learn_centres(np.array_split(base.features, 4))[0], atol=1e-5)


def test_whole_numbers_and_gradients_are_accepted(base, device):
    import torch

    whole = torch.as_tensor(np.rint(10 * base.features).astype(int), device=device)
    assert len(Priors.from_unlabelled(whole)) == 19
    assert len(Priors.from_unlabelled(whole.double().requires_grad_())) == 19


def test_tensors_that_cannot_be_clustered_are_refused(device):
    import torch

    with pytest.raises(InputError, match="features row 1 has NaN at feature 0"):
        Priors.from_unlabelled(torch.tensor([[1.0, 2.0], [float("nan"), 1.0]], device=device))
    with pytest.raises(InputError, match=r"features have shape \(4,\)"):
        Priors.from_unlabelled(torch.ones(4, device=device))
