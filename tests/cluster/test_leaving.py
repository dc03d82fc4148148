"""A machine that leaves in the middle, and does not come back."""

from functools import partial

import numpy as np
import pytest

from p3dc import compare
from p3dc.baselines import L2N
from p3dc.cluster.evaluation import run_on_ray
from p3dc.cluster.extraction import extract
from p3dc.cluster.priors import average
from p3dc.images.extraction import extract as extract_here
from p3dc.images.sources import list_folder
from tests.cluster.test_evaluation import DRAWING, Gated
from tests.cluster.test_extraction import PARTS, load_gated
from tests.cluster.test_priors import assert_close, here, parts  # noqa: F401
from tests.images.test_extraction import Colours, contents, make_photos

pytestmark = pytest.mark.ray


def leave(gate, leaving):
    """Remove the node when all three workers are at work, and let the others continue."""
    node, remove = leaving
    assert node in dict(gate.waiting(3))
    remove()
    gate.open()


def test_extraction_loses_no_row_and_doubles_none(leaving, tmp_path, gate, meanwhile):
    photos = make_photos(tmp_path / "photos")
    expected = extract_here(list_folder(photos), Colours(), tmp_path / "expected", **PARTS)
    running = meanwhile(extract, list_folder(photos), partial(load_gated, gate), tmp_path / "out", **PARTS)
    leave(gate, leaving)
    assert running.result().failures == expected.failures
    assert contents(tmp_path / "out") == contents(expected.folder)


def test_evaluation_loses_no_task(leaving, novel, gate, meanwhile):
    running = meanwhile(compare, [Gated(gate)], novel, **DRAWING, executor=run_on_ray)
    leave(gate, leaving)
    here = compare([L2N()], novel, **DRAWING).scores["L2N"]
    np.testing.assert_array_equal(running.result().scores["Gated"].accuracy, here.accuracy)


def test_priors_lose_no_part(leaving, parts):  # noqa: F811
    """Its sums are lost with it, done or not, and made again by the others."""
    _, remove = leaving
    gone = []

    def leave_once(done, _):
        if not gone:
            gone.append(done)
            remove()

    assert_close(average(parts, leave_once), here(parts))
    assert gone[0] < 20
