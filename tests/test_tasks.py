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


BALANCES = st.sampled_from(["equal", "one"]) | st.floats(0.01, 100)


@settings(deadline=None)
@given(st.integers(1, 12), BALANCES, st.floats(0, 1), st.integers(2, 5), st.integers(0, 20))
def test_a_pile_has_the_photos_that_were_asked_for_and_none_of_the_task(n_pile, balance, share, n_way, seed):
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(7), [18, 21, 19, 40, 18, 20, 30]))
    sampler = TaskSampler(labels, n_way=n_way, n_shot=2, n_query=4, seed=seed)
    tasks = sampler.draw(15)
    excluded = sampler.unknown_queries(tasks, 3)
    piles = sampler.piles(tasks, n_pile, balance=balance, unknown=share, excluded=excluded)
    assert piles.rows.shape == piles.classes.shape == (15, n_pile)
    n_unknown = round(n_pile * share)
    for i, (rows, classes) in enumerate(zip(piles.rows, piles.classes, strict=True)):
        assert len(set(rows)) == n_pile
        assert not set(rows) & {*tasks.support[i].ravel(), *tasks.queries[i].ravel(), *excluded[i]}
        known = classes >= 0
        np.testing.assert_array_equal(labels[rows[known]], tasks.classes[i][classes[known]])
        assert not np.isin(labels[rows[~known]], tasks.classes[i]).any()
        counts = np.bincount(classes[known], minlength=n_way)
        assert (counts.sum(), (~known).sum()) == (n_pile - n_unknown, n_unknown)
        if balance == "equal":
            assert np.ptp(counts) <= 1
        if balance == "one":
            assert np.count_nonzero(counts) <= 1


@settings(deadline=None)
@given(st.integers(1, 23), BALANCES, st.sampled_from([0.0, 0.5]))
def test_piles_do_not_depend_on_the_size_of_batches(size, balance, unknown):
    sampler = TaskSampler(LABELS, n_way=3, n_shot=2, n_query=4, seed=5)
    options = {"n_pile": 3, "balance": balance, "unknown": unknown}
    whole = sampler.piles(sampler.draw(23), **options)
    parts, done = [], 0
    for tasks in sampler.batches(23, size=size):
        parts.append(sampler.piles(tasks, **options, start=done))
        done += len(tasks)
    np.testing.assert_array_equal(np.concatenate([part.rows for part in parts]), whole.rows)
    np.testing.assert_array_equal(np.concatenate([part.classes for part in parts]), whole.classes)


def test_piles_depend_on_the_seed_and_do_not_change_the_tasks():
    one, two, other = (TaskSampler(LABELS, n_way=3, n_shot=2, n_query=4, seed=seed) for seed in (5, 5, 6))
    before = one.draw(20)
    np.testing.assert_array_equal(one.piles(before, 4).rows, two.piles(two.draw(20), 4).rows)
    np.testing.assert_array_equal(one.draw(20).queries, before.queries)
    assert (other.piles(other.draw(20), 4).rows != one.piles(before, 4).rows).any()


def test_the_concentration_is_that_of_a_dirichlet_distribution():
    sampler = TaskSampler(np.repeat(np.arange(6), 200), n_way=5, n_shot=1, n_query=1, seed=0)
    tasks = sampler.draw(3000)
    for concentration in (0.5, 2.0):
        piles = sampler.piles(tasks, 100, balance=concentration)
        shares = np.array([np.bincount(classes, minlength=5) for classes in piles.classes]) / 100
        np.testing.assert_allclose(shares.mean(axis=0), 0.2, atol=0.015)
        total = 5 * concentration
        variance = 0.16 * (1 + total / 100) / (1 + total)  # of multinomial shares of 100 draws
        np.testing.assert_allclose(shares.var(axis=0), variance, rtol=0.15)


def test_what_a_class_has_too_few_of_goes_to_the_others():
    sampler = TaskSampler(np.repeat(np.arange(3), [4, 6, 50]), n_way=3, n_shot=1, n_query=1, seed=0)
    tasks = sampler.draw(50)
    piles = sampler.piles(tasks, 54, balance=0.001)
    for drawn, classes in zip(tasks.classes, piles.classes, strict=True):
        np.testing.assert_array_equal(np.bincount(classes)[np.argsort(drawn)], [2, 4, 48])


def test_all_unused_rows_are_equally_likely_in_a_pile():
    labels = np.repeat(np.arange(4), [8, 8, 4, 6])
    sampler = TaskSampler(labels, n_way=2, n_shot=1, n_query=1, seed=0)
    tasks = sampler.draw(20_000)
    piles = sampler.piles(tasks, 4, unknown=0.5)
    here = np.sort(tasks.classes, axis=1).tolist()
    own = piles.rows[[classes == [0, 1] for classes in here]]
    counts = np.bincount(own.ravel(), minlength=len(labels))
    for rows in (labels == 0, labels == 1, labels >= 2):
        assert np.abs(counts[rows] / counts[rows].mean() - 1).max() < 0.12
    assert counts[labels < 2].sum() == counts[labels >= 2].sum()


@pytest.mark.parametrize(
    ("n_pile", "options", "sentence"),
    [
        (0, {}, "n_pile is 0"),
        (13, {}, "the pile has 13 photos of the classes of its task, but .* may have only 12 left. Lower n_pile"),
        (4, {"balance": "one"}, "the pile has 4 photos .* only 3 left"),
        (16, {"balance": 2.0}, "the pile has 16 photos .* only 15 left"),
        (20, {"unknown": 1.5}, "pile_unknown is 1.5. It must be a share from 0 to 1"),
        (50, {"unknown": 0.9}, "the pile has 45 photos of other classes, but a task may have only 28 of them"),
        (5, {"balance": "odd"}, "pile_balance is 'odd'. Choose equal, one, or a concentration above 0"),
        (5, {"balance": 0.0}, "pile_balance is 0.0"),
        (5, {"balance": float("nan")}, "pile_balance is nan"),
    ],
)
def test_impossible_piles_are_refused(n_pile, options, sentence):
    sampler = TaskSampler(LABELS, n_way=4, n_shot=2, n_query=4, seed=0)
    with pytest.raises(InputError, match=sentence):
        sampler.piles(sampler.draw(1), n_pile, **options)


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(0, 20))
def test_the_unknown_photos_of_a_pile_may_be_of_few_classes(n_classes, seed):
    sampler = TaskSampler(LABELS, n_way=3, n_shot=2, n_query=4, seed=seed)
    tasks = sampler.draw(20)
    few = sampler.piles(tasks, 12, unknown=0.5, n_unknown_classes=n_classes)
    for rows, classes, own in zip(few.rows, few.classes, tasks.classes, strict=True):
        found = set(LABELS[rows[classes < 0]])
        assert len(found) <= n_classes
        assert not found & set(own)
    with pytest.raises(InputError, match="pile_unknown_classes is 0"):
        sampler.piles(tasks, 12, unknown=0.5, n_unknown_classes=0)
    with pytest.raises(InputError, match="the pile has 10 photos of other classes, but a task may have only 9 of them"):
        sampler.piles(tasks, 12, unknown=0.8, n_unknown_classes=1)


def test_unknown_photos_of_a_pile_need_other_classes():
    sampler = TaskSampler(LABELS, n_way=7, n_shot=2, n_query=4, seed=0)
    assert sampler.piles(sampler.draw(1), 7).rows.shape == (1, 7)
    with pytest.raises(InputError, match="all 7 classes are in each task, so there are no others. Lower n_way"):
        sampler.piles(sampler.draw(1), 8, unknown=0.5)
