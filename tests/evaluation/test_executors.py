"""Every executor runs the same tasks in the same order."""

import threading

import numpy as np
import pytest

from p3dc import sample_tasks
from p3dc.errors import InputError
from p3dc.evaluation.executors import BATCH, Batch, Drawing, run_prefetching, run_serially, step_progress
from p3dc.tasks import BLOCK

DRAWING = Drawing(n_way=4, n_shot=2, n_query=3, seed=5, n_unknown=6)


@pytest.mark.parametrize("n_tasks", [1, BATCH, BLOCK + 30, 2 * BLOCK + 1])
def test_prefetching_runs_the_tasks_of_serial_execution(novel, n_tasks):
    draw = DRAWING.on(novel)
    serial, prefetched = (
        list(run(draw, lambda: lambda batch: batch, n_tasks)) for run in (run_serially, run_prefetching)
    )
    for part in (lambda batch: batch.tasks.queries, lambda batch: batch.unknown):
        one, two = (np.concatenate([part(batch) for batch in batches]) for batches in (serial, prefetched))
        np.testing.assert_array_equal(one, two)
        assert len(one) == n_tasks
    expected = sample_tasks(novel.labels, n_way=4, n_shot=2, n_query=3, n_tasks=n_tasks, seed=5)
    np.testing.assert_array_equal(np.concatenate([batch.tasks.support for batch in serial]), expected.support)


def test_prefetching_draws_the_next_batch_while_one_runs():
    second = threading.Event()

    def draw(numbers):
        if numbers.start:
            second.set()
        return Batch(numbers)

    def run(batch):
        assert second.wait(timeout=30)
        return batch.tasks

    assert list(run_prefetching(draw, lambda: run, BLOCK + 1)) == [range(BLOCK), range(BLOCK, BLOCK + 1)]


@pytest.mark.parametrize("run", [run_serially, run_prefetching])
def test_the_runner_is_made_once_and_its_errors_are_raised(novel, run):
    made = []

    def make_runner():
        made.append(1)
        return lambda batch: len(batch.tasks)

    assert sum(run(DRAWING.on(novel), make_runner, 2 * BLOCK)) == 2 * BLOCK
    assert len(made) == 1
    with pytest.raises(InputError, match="n_unknown is -1"):
        list(run(Drawing(4, 2, 3, 5, -1).on(novel), make_runner, 1))


def test_steps_make_one_progress():
    calls = []
    for step in (0, 1):
        step_progress(lambda *seen: calls.append(seen), step, 2)(5, 10)
    assert calls == [(5, 20), (15, 20)]
    assert step_progress(None, 0, 2) is None
