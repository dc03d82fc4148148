"""Statistics of results."""

import numpy as np
import pytest

from p3dc.confidence.metrics import Reliability
from p3dc.evaluation.results import (
    BatchResult,
    Comparison,
    TaskScores,
    half_width,
    mean_and_interval,
    paired_difference,
)


def test_intervals_from_sums_are_those_of_the_values(rng):
    counts = rng.integers(0, 75, (40, 3))
    mean, interval = mean_and_interval(np.stack([counts.sum(axis=0), (counts**2).sum(axis=0)]), 40)
    np.testing.assert_allclose(mean, counts.mean(axis=0))
    np.testing.assert_allclose(interval, [half_width(column) for column in counts.T])


def test_scores_of_batches_are_joined_in_order(rng):
    confidence, right = rng.uniform(0.2, 1, (2, 50)), rng.uniform(size=(2, 50)) < 0.6
    parts, whole = [Reliability(), Reliability()], Reliability()
    for part, *predictions in zip(parts, confidence, right, strict=True):
        part.add(*predictions)
        whole.add(*predictions)
    batches = [BatchResult(np.full(2, i), np.full(2, i / 2), part) for i, part in enumerate(parts)]
    scores = TaskScores.from_batches(batches)
    assert scores.accuracy.tolist() == [0, 0, 1, 1]
    assert scores.auroc.tolist() == [0, 0, 0.5, 0.5]
    assert scores.calibration_error == whole.error
    plain = TaskScores.from_batches([BatchResult(np.ones(3))])
    assert (plain.calibration_error, plain.auroc) == (None, None)


def test_differences_are_those_of_the_tasks_that_both_have():
    one, two = TaskScores(np.array([0.5, 0.7, 0.9])), TaskScores(np.array([0.4, 0.4]))
    mean, interval = paired_difference(one, two)
    np.testing.assert_allclose((mean, interval), (0.2, half_width(np.array([0.1, 0.3]))))


def test_a_lost_task_is_worse_by_more_than_five_points():
    reference = TaskScores(np.array([0.8, 0.8, 0.8, 0.8]))
    found = Comparison({"a": reference, "b": TaskScores(np.array([0.9, 0.75, 0.74, 0.2]))}).difference("b", "a")
    assert found.lost == 0.5
    assert found.mean == pytest.approx(-0.1525)
