import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p3dc import sample_tasks
from p3dc.errors import InputError
from p3dc.tasks import TaskSampler

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(7), [9, 12, 10, 30, 9, 11, 20]))


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 10))
def test_task_i_is_the_same_however_many_are_drawn(few, many, seed):
    options = {"n_way": 3, "n_shot": 2, "n_query": 4, "seed": seed}
    one = sample_tasks(LABELS, n_tasks=few, **options)
    two = sample_tasks(LABELS, n_tasks=many, **options)
    n = min(few, many)
    np.testing.assert_array_equal(one.support[:n], two.support[:n])
    np.testing.assert_array_equal(one.queries[:n], two.queries[:n])


def test_batches_are_the_same_tasks():
    sampler = TaskSampler(LABELS, n_way=3, n_shot=2, n_query=4, seed=5)
    whole = sampler.draw(23)
    parts = list(sampler.batches(23, size=10))
    assert [len(part) for part in parts] == [10, 10, 3]
    np.testing.assert_array_equal(np.concatenate([part.queries for part in parts]), whole.queries)


def test_rows_belong_to_their_class_and_none_is_used_twice():
    tasks = sample_tasks(LABELS, n_way=4, n_shot=3, n_query=6, n_tasks=500, seed=1)
    rows = np.concatenate([tasks.support, tasks.queries], axis=2)
    assert (LABELS[rows] == tasks.classes[:, :, None]).all()
    assert all(len(set(task.ravel())) == 4 * 9 for task in rows)
    assert all(len(set(task)) == 4 for task in tasks.classes)


def test_other_seeds_give_other_tasks():
    one, two = (sample_tasks(LABELS, n_tasks=20, n_query=5, seed=seed) for seed in (0, 1))
    assert (one.queries != two.queries).any()


def test_classes_rows_and_orders_are_equally_likely():
    labels = np.repeat([0, 1, 2], 4)
    n_tasks = 60_000
    tasks = sample_tasks(labels, n_way=2, n_shot=1, n_query=1, n_tasks=n_tasks, seed=3)
    pairs = np.unique(tasks.classes, axis=0, return_counts=True)[1]
    assert len(pairs) == 6
    rows = np.concatenate([tasks.support, tasks.queries], axis=2)[:, 0]
    outcomes = np.unique(rows, axis=0, return_counts=True)[1]
    assert len(outcomes) == 3 * 4 * 3
    for counts in (pairs, outcomes):
        expected = n_tasks / len(counts)
        assert np.abs(counts - expected).max() < 4.5 * np.sqrt(expected)


def test_every_row_of_a_class_can_be_used():
    tasks = sample_tasks(np.repeat([0, 1], 10), n_way=2, n_shot=4, n_query=6, n_tasks=3, seed=0)
    for support, queries in zip(tasks.support, tasks.queries, strict=True):
        assert set(support.ravel()) | set(queries.ravel()) == set(range(20))


def test_labels_may_be_strings():
    labels = np.array(["wren"] * 5 + ["robin"] * 5)
    tasks = sample_tasks(labels, n_way=2, n_shot=1, n_query=2, n_tasks=4, seed=0)
    assert (np.array(["robin", "wren"])[tasks.classes][..., None] == labels[tasks.support]).all()


def test_classes_with_too_few_rows_are_named():
    with pytest.raises(InputError, match=r"20 rows of each class.*sparrow \(3\)") as error:
        sample_tasks([0] * 30 + [1] * 3 + [2] * 40, n_way=2, n_shot=5, class_names=["wren", "sparrow", "robin"])
    assert "wren" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_way": 9}, "9 ways need 9 classes, but there are 7"),
        ({"n_way": 1}, "n_way is 1. It must be at least 2"),
        ({"n_shot": 0}, "n_shot is 0"),
        ({"n_query": 0}, "n_query is 0"),
        ({"n_tasks": 0}, "n_tasks is 0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_impossible_tasks_are_refused(options, sentence):
    with pytest.raises(InputError, match=sentence):
        sample_tasks(LABELS, **({"n_query": 4} | options))


@settings(deadline=None)
@given(st.integers(2, 6), st.integers(1, 5), st.integers(0, 20))
def test_unknown_queries_are_never_of_the_classes_of_their_task(n_way, n_unknown, seed):
    sampler = TaskSampler(LABELS, n_way=n_way, n_shot=2, n_query=4, seed=seed)
    tasks = sampler.draw(30)
    rows = sampler.unknown_queries(tasks, n_unknown)
    assert rows.shape == (30, n_unknown)
    assert not (LABELS[rows][:, :, None] == tasks.classes[:, None]).any()


@pytest.mark.parametrize("size", [1, 7, 10, 23])
def test_unknown_queries_do_not_depend_on_the_size_of_batches(size):
    sampler = TaskSampler(LABELS, n_way=3, n_shot=2, n_query=4, seed=5)
    whole = sampler.unknown_queries(sampler.draw(23), 4)
    parts, done = [], 0
    for tasks in sampler.batches(23, size=size):
        parts.append(sampler.unknown_queries(tasks, 4, start=done))
        done += len(tasks)
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_unknown_queries_depend_only_on_the_seed_and_do_not_change_the_tasks():
    one, two, other = (TaskSampler(LABELS, n_way=3, n_shot=2, n_query=4, seed=seed) for seed in (5, 5, 6))
    before = one.draw(20)
    np.testing.assert_array_equal(one.unknown_queries(before, 4), two.unknown_queries(two.draw(20), 4))
    np.testing.assert_array_equal(one.draw(20).queries, before.queries)
    assert (other.unknown_queries(before, 4) != one.unknown_queries(before, 4)).any()


def test_all_unknown_classes_and_all_their_rows_are_equally_likely():
    labels = np.repeat([0, 1, 2, 3], [10, 4, 4, 5])
    sampler = TaskSampler(labels, n_way=2, n_shot=1, n_query=1, seed=0)
    tasks = sampler.draw(20_000)
    rows = sampler.unknown_queries(tasks, 1)[:, 0]
    for taken in ({0, 1}, {0, 3}, {2, 3}):
        own = rows[[set(classes) == taken for classes in tasks.classes.tolist()]]
        for c in {0, 1, 2, 3} - taken:
            assert np.mean(labels[own] == c) == pytest.approx(0.5, abs=0.05)
            found, counts = np.unique(own[labels[own] == c], return_counts=True)
            assert found.tolist() == np.flatnonzero(labels == c).tolist()
            assert counts.max() < 1.35 * counts.mean()


def test_unknown_queries_need_other_classes_and_a_number():
    sampler = TaskSampler(LABELS, n_way=7, n_shot=2, n_query=4, seed=0)
    with pytest.raises(InputError, match="all 7 classes are in each task, so there are no others. Lower n_way"):
        sampler.unknown_queries(sampler.draw(1), 3)
    sampler = TaskSampler(LABELS, n_way=3, n_shot=2, n_query=4, seed=0)
    for number in (0, -1, 1.5):
        with pytest.raises(InputError, match=f"n_unknown is {number}"):
            sampler.unknown_queries(sampler.draw(1), number)
