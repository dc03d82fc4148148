"""Evaluation on a Ray cluster: every score is that of one process."""

import os
import signal

import numpy as np
import pytest

from p3dc import P3DCClassifier, Priors, compare, search
from p3dc.baselines import L2N, NN
from p3dc.cluster.evaluation import run_on_ray
from p3dc.errors import InputError
from p3dc.evaluation.executors import run_serially
from tests.conftest import paper

DRAWING = {"n_shot": 2, "n_query": 5, "n_tasks": 950, "seed": 3}


class Gated(L2N):
    """Stops before it learns until the gate is open."""

    def __init__(self, gate):
        self.gate = gate

    def learn_tasks(self, support, labels):
        self.gate.pass_through()
        return super().learn_tasks(support, labels)


def assert_equal(here, there):
    assert list(here.scores) == list(there.scores)
    for one, two in zip(here.scores.values(), there.scores.values(), strict=True):
        np.testing.assert_array_equal(one.accuracy, two.accuracy)
        assert one.calibration_error == two.calibration_error
        if one.auroc is not None:
            np.testing.assert_array_equal(one.auroc, two.auroc)


@pytest.mark.ray
def test_scores_are_those_of_one_process(two_workers, novel, priors):
    classifiers = {"a": P3DCClassifier(priors), "b": paper(priors, beta=0.4), "c": NN()}
    calls = []
    here = compare(classifiers, novel, **DRAWING, n_unknown=7)
    there = compare(
        classifiers, novel, **DRAWING, n_unknown=7, executor=run_on_ray, progress=lambda *seen: calls.append(seen)
    )
    assert_equal(here, there)
    assert here.scores["a"].auroc is not None
    assert calls == [(done, 950) for done in (*range(100, 1000, 100), 950)]


@pytest.mark.ray
def test_a_grid_is_that_of_one_process(two_workers, validation, priors):
    options = {**DRAWING, "step": 0.5, "scale": [1.0, 0.1]}
    here, there = (search(priors, validation, **options, executor=executor) for executor in (run_serially, run_on_ray))
    np.testing.assert_array_equal(here.accuracy, there.accuracy)
    np.testing.assert_array_equal(here.interval, there.interval)
    assert here.best == there.best


@pytest.mark.ray
def test_mistakes_and_warnings_come_back(two_workers, novel, priors):
    with pytest.raises(InputError, match=r"^the features have 24 features but the priors have 3"):
        compare([paper(np.ones((4, 3)))], novel, **DRAWING, executor=run_on_ray)
    bare = Priors(priors.prototypes)
    with pytest.warns(UserWarning, match="the priors have no geometry") as told:
        compare([P3DCClassifier(bare)], novel, **DRAWING, executor=run_on_ray)
    assert len(told) == 1


@pytest.mark.ray
def test_a_killed_worker_loses_no_task(two_workers, novel, gate, meanwhile):
    running = meanwhile(compare, [Gated(gate)], novel, **DRAWING, executor=run_on_ray)
    (_, pid), _ = gate.waiting(2)
    os.kill(pid, signal.SIGKILL)
    gate.open()
    there = running.result()
    np.testing.assert_array_equal(
        there.scores["Gated"].accuracy, compare([L2N()], novel, **DRAWING).scores["L2N"].accuracy
    )
