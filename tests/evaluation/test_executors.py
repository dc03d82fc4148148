"""Every executor runs the same tasks in the same order."""

import pickle
import threading
from dataclasses import replace

import numpy as np
import pytest

from p3dc import P3DCClassifier, compare, evaluate, sample_tasks, search
from p3dc.baselines import L2N
from p3dc.errors import InputError
from p3dc.evaluation.executors import (
    BATCH,
    Batch,
    Drawing,
    run_in_processes,
    run_prefetching,
    run_serially,
    shares_of,
    step_progress,
)
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


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_every_process_draws_the_same_piles_by_their_numbers(novel, where):
    drawing = replace(DRAWING, n_unknown=0, n_pile=9, pile_balance=2.0, pile_unknown=0.4, pile_queries=where)
    draw = drawing.on(novel)
    whole, part = draw(range(30)), pickle.loads(pickle.dumps(draw))(range(10, 20))
    np.testing.assert_array_equal(part.piles.rows, whole.piles.rows[10:20])
    rows, own = whole.queries()
    expected = whole.piles.classes if where == "inside" else np.tile(np.repeat(range(4), 3), (30, 1))
    np.testing.assert_array_equal(own, expected)
    known = own >= 0
    classes = np.take_along_axis(whole.tasks.classes, np.maximum(own, 0), axis=1)
    assert (novel.labels[rows] == classes)[known].all()


def test_the_pile_has_none_of_the_unknown_queries_outside_it(novel):
    draw = replace(DRAWING, n_unknown=40, n_pile=60, pile_unknown=0.8, pile_queries="outside").on(novel)
    batch = draw(range(20))
    for pile, unknown in zip(batch.piles.rows, batch.unknown, strict=True):
        assert not set(pile) & set(unknown)
    np.testing.assert_array_equal(batch.queries()[0][:, -40:], batch.unknown)
    assert (batch.queries()[1][:, -40:] == -1).all()


def test_the_pile_leaves_tasks_and_queries_as_they_are(novel):
    plain, piled = (replace(DRAWING, n_unknown=0, n_pile=n).on(novel)(range(20)).tasks for n in (0, 12))
    np.testing.assert_array_equal(plain.support, piled.support)
    np.testing.assert_array_equal(plain.queries, piled.queries)


def test_steps_make_one_progress():
    calls = []
    for step in (0, 1):
        step_progress(lambda *seen: calls.append(seen), step, 2)(5, 10)
    assert calls == [(5, 20), (15, 20)]
    assert step_progress(None, 0, 2) is None


def test_results_do_not_depend_on_the_number_of_processes(novel, priors):
    rivals = {"l2n": L2N(), "auto": P3DCClassifier(priors)}
    drawing = {"n_query": 5, "n_tasks": 450, "n_unknown": 4, "n_shot": 2}
    told = []
    one = compare(rivals, novel, **drawing)
    two = compare(rivals, novel, **drawing, n_jobs=2, progress=lambda *step: told.append(step))
    for name in rivals:
        np.testing.assert_array_equal(one.scores[name].accuracy, two.scores[name].accuracy)
        np.testing.assert_array_equal(one.scores[name].auroc, two.scores[name].auroc)
        assert one.scores[name].calibration_error == two.scores[name].calibration_error
    assert told == [(share.stop, 450) for share in shares_of(450, 2)]
    grids = [search(priors, novel, n_query=5, n_tasks=150, step=0.5, n_jobs=n_jobs) for n_jobs in (1, 2)]
    np.testing.assert_array_equal(grids[0].accuracy, grids[1].accuracy)


def test_warnings_and_errors_of_other_processes_are_given_here(novel, priors):
    with pytest.warns(UserWarning, match="the priors have no geometry"):
        evaluate(P3DCClassifier(priors.prototypes), novel, n_query=5, n_tasks=150, n_jobs=2)
    with pytest.raises(InputError, match="only the whitened space can choose them"):
        evaluate(P3DCClassifier(priors, space="plain"), novel, n_query=5, n_tasks=150, n_jobs=2)


def test_a_worker_makes_its_runner_once(novel):
    made = []

    def make_runner():
        made.append(1)
        return lambda batch: len(batch.tasks)

    assert sum(run_in_processes(DRAWING.on(novel), make_runner, 430, n_jobs=1)) == 430  # in this process
    assert len(made) == 1
    assert [len(share) for share in shares_of(430, 1)] == [100, 100, 100, 100, 30]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_jobs": 0}, "n_jobs is 0. It must be a whole number, -1 for all cores"),
        ({"n_jobs": 1.5}, "n_jobs is 1.5"),
        ({"n_jobs": 2, "executor": run_serially}, "n_jobs is 2, but an executor is given too"),
    ],
)
def test_numbers_of_processes_that_mean_nothing_are_refused(novel, options, sentence):
    with pytest.raises(InputError, match=sentence):
        evaluate(L2N(), novel, n_query=5, n_tasks=3, **options)
