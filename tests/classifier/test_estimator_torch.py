"""The classifier on tensors. Run with the torch extra: ``pytest -m torch``."""

import pickle

import numpy as np
import pytest

from p3dc import P3DCClassifier
from p3dc.errors import InputError
from p3dc.method import ATTENTIONS
from tests.conftest import PAPER, paper

pytestmark = pytest.mark.torch

SETTINGS = {
    "plain": PAPER | {"alpha": 0.2, "beta": 0.5},
    "adaptive": {},
    "whitened": {"alpha": 0.2, "beta": 0.5},
    "logarithm": PAPER | {"power": 0},
}


@pytest.fixture
def pair(task, priors, device):
    """Make a classifier twice: fitted to arrays and to tensors, with queries of both kinds."""
    import torch

    support, names, queries, _ = task
    _, labels = np.unique(names, return_inverse=True)

    def make(with_priors=True, dtype="float64", **settings):
        known = priors if with_priors else None
        x, asked = (rows.astype(dtype) for rows in (support + 0.01, queries + 0.01))
        arrays = P3DCClassifier(known, **settings).fit(x, labels)
        move = lambda rows: torch.as_tensor(rows, device=device)  # noqa: E731
        tensors = P3DCClassifier(known, **settings).fit(move(x), move(labels))
        return arrays, asked, tensors, move(asked)

    return make


def assert_same(found, expected, device, tolerance=1e-10):
    import torch

    assert isinstance(found, torch.Tensor)
    assert found.device.type == device
    assert str(found.dtype) == f"torch.{expected.dtype}"
    np.testing.assert_allclose(found.numpy(force=True), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("with_priors", [True, False])
def test_tensors_give_tensors_with_the_values_of_arrays(pair, device, settings, attention, dtype, with_priors):
    arrays, asked, tensors, there = pair(with_priors, dtype, attention=attention, **settings)
    tolerance = 1e-10 if dtype == "float64" else 2e-4
    for name in ("decision_function", "predict_proba", "score_samples"):
        assert_same(getattr(tensors, name)(there), getattr(arrays, name)(asked), device, tolerance)
    assert_same(tensors.predict(there), arrays.predict(asked), device)
    assert_same(tensors.calibrated_, arrays.calibrated_, device, tolerance)
    assert tensors.beta_ == pytest.approx(arrays.beta_, abs=1e-6)


@pytest.mark.parametrize("settings", [PAPER, {}], ids=["given", "auto"])
def test_unknown_tensors_are_rejected_as_arrays_are(pair, device, settings):
    arrays, asked, tensors, there = pair(reject=0.999, **settings)
    expected = arrays.predict(asked)
    assert {-1} < set(expected.tolist())
    assert_same(tensors.predict(there), expected, device)
    assert tensors.unknown_below_ == pytest.approx(arrays.unknown_below_)


@pytest.mark.parametrize("settings", [PAPER, {}], ids=["given", "auto"])
def test_what_was_fitted_to_either_kind_takes_queries_of_both(pair, device, settings):
    arrays, asked, tensors, there = pair(**settings)
    expected = arrays.predict_proba(asked)
    assert_same(arrays.predict_proba(there), expected, device)
    found = tensors.predict_proba(asked)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, expected, atol=1e-10)
    assert_same(arrays.predict_proba(there.float()), expected, device, 1e-5)


def test_text_labels_come_back_as_text(task, device):
    import torch

    support, names, queries, _ = task
    fitted = paper().fit(torch.as_tensor(support, device=device), names)
    found = fitted.predict(torch.as_tensor(queries, device=device))
    np.testing.assert_array_equal(found, paper().fit(support, names).predict(queries))
    assert found.dtype.kind == "U"


@pytest.mark.parametrize("settings", [PAPER, {}], ids=["given", "auto"])
def test_a_classifier_of_tensors_is_saved_explained_pickled_and_taught_more(pair, device, tmp_path, settings):
    arrays, asked, tensors, there = pair(**settings)
    tensors.save(tmp_path / "model.safetensors")
    loaded = P3DCClassifier.load(tmp_path / "model.safetensors")
    expected = arrays.predict_proba(asked)
    assert isinstance(loaded.support_, np.ndarray)
    np.testing.assert_allclose(loaded.predict_proba(asked), expected, atol=1e-10)
    assert_same(loaded.predict_proba(there), expected, device)
    assert tensors.explain().num_rows == arrays.explain().num_rows
    assert_same(pickle.loads(pickle.dumps(tensors)).predict_proba(there), expected, device)
    arrays.partial_fit(asked[:3], [7, 7, 7])
    for more in (there[:3], asked[:3]):
        taught = pickle.loads(pickle.dumps(tensors)).partial_fit(more, [7, 7, 7])
        assert_same(taught.predict(there), arrays.predict(asked), device)


def test_whole_and_half_numbers_are_taken(device):
    import torch

    rows = torch.tensor([[1, 0, 2], [0, 3, 1]], device=device)
    for dtype in (torch.int64, torch.float16, torch.bfloat16):
        found = paper().fit(rows.to(dtype), torch.tensor([4, 9])).predict(rows.to(dtype))
        assert found.tolist() == [4, 9]


def test_gradients_are_left_alone(device):
    import torch

    rows = torch.eye(2, device=device, requires_grad=True)
    assert not paper().fit(rows, [0, 1]).predict_proba(rows).requires_grad


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda rows: rows[0], r"X has shape \(24,\). It must have two axes"),
        (lambda rows: rows[:0], r"X has shape \(0, 24\)"),
        (lambda rows: rows * float("nan"), "support row 0 has NaN at feature 0"),
        (lambda rows: rows / 0, "support row 0 has infinity at feature"),
        (lambda rows: rows * 0, "support row 0 is all zeros"),
        (lambda rows: rows - 100, "Negative values in data: support row 0"),
        (lambda rows: rows[:, :5], "support samples have 5 features but the priors have 24"),
    ],
)
def test_bad_tensors_are_refused_in_the_sentences_of_arrays(task, priors, device, change, sentence):
    import torch

    rows = torch.as_tensor(task[0] + 0.01, device=device)
    with pytest.raises(InputError, match=sentence):
        paper(priors).fit(change(rows), task[1])


def test_other_mistakes_with_tensors_are_told(task, device):
    import torch

    rows = torch.as_tensor(task[0], device=device)
    with pytest.raises(InputError, match=r"labels have shape \(3,\), but there are 7 rows"):
        paper().fit(rows, torch.arange(3))
    fitted = paper().fit(rows, task[1])
    with pytest.raises(InputError, match="X has 5 features, but P3DCClassifier is expecting 24 features as input"):
        fitted.predict(rows[:, :5])
