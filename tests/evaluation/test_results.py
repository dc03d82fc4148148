"""Statistics of results, and results as tables, JSON and figures."""

import json
import sys

import matplotlib as mpl
import numpy as np
import pytest

from p3dc.confidence.metrics import Reliability
from p3dc.errors import InputError
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


NN = TaskScores(np.array([0.5, 0.7, 0.6]), seed=4)
AUTO = TaskScores(np.array([0.6, 0.9, 0.6]), 0.0456, np.array([0.7, 0.9, 0.8]), 4)
BOTH = Comparison({"NN": NN, "<auto>": AUTO}, {"P3DC": "a root is not defined"})


def test_results_are_one_line():
    assert repr(NN) == "TaskScores(60.00 ± 11.32 %, 3 tasks)"
    assert repr(BOTH) == "Comparison(NN, <auto>; 3 tasks)"


def test_results_go_through_json_and_come_back_the_same():
    found = json.loads(json.dumps(AUTO.to_dict(), allow_nan=False))
    assert found["tasks"] == {"accuracy": [0.6, 0.9, 0.6], "auroc": [0.7, 0.9, 0.8]}
    assert (found["mean"], found["interval"]) == (AUTO.mean, AUTO.interval)
    assert (found["calibration_error"], found["n_tasks"], found["seed"]) == (0.0456, 3, 4)
    assert found["auroc"]["mean"] == pytest.approx(0.8)
    both = json.loads(json.dumps(BOTH.to_dict(), allow_nan=False))
    assert both["scores"]["<auto>"] == found
    [difference] = both["differences"]
    assert (difference["name"], difference["reference"]) == ("<auto>", "NN")
    assert difference["mean"] == pytest.approx(0.1)
    assert both["left_out"] == {"P3DC": "a root is not defined"}
    single = TaskScores(np.array([0.7])).to_dict()
    assert single["interval"] is None  # JSON has no NaN
    assert "auroc" not in single


def test_results_are_data_frames():
    pytest.importorskip("pandas")
    tasks = AUTO.to_pandas()
    assert tasks.columns.tolist() == ["accuracy", "auroc"]
    assert tasks["accuracy"].tolist() == [0.6, 0.9, 0.6]
    rows = BOTH.to_pandas()
    assert rows.index.tolist() == ["NN", "<auto>"]
    assert rows.loc["<auto>", "difference"] == pytest.approx(0.1)
    assert rows.loc["<auto>", "auroc"] == pytest.approx(0.8)
    assert rows.loc["NN", "interval"] == pytest.approx(NN.interval)
    assert "auroc" not in Comparison({"NN": NN}).to_pandas()


def test_a_missing_pandas_names_its_install_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="to_pandas needs pandas, .* pip install pandas"):
        NN.to_pandas()


def test_notebooks_show_a_table_without_foreign_markup():
    html = BOTH._repr_html_()
    assert html.count("<tr>") == 3
    assert "<td>&lt;auto&gt;</td>" in html
    assert "<th>gain over NN</th>" in html
    assert "+10.00 ± " in html
    assert "Left out: P3DC, because a root is not defined." in html
    assert "less" not in NN._repr_html_()


def test_plots_are_displays():
    with mpl.rc_context({"backend": "agg"}):
        display = BOTH.plot()
        assert [label.get_text() for label in display.ax_.get_yticklabels()] == ["NN", "<auto>"]
        [means] = [line for line in display.ax_.get_lines() if line.get_marker() == "o"]
        np.testing.assert_allclose(means.get_xdata(orig=False), [60, 70])
        again = NN.plot(display.ax_.figure.subplots())
        assert list(again.accuracies) == [""]
        mpl.pyplot.close("all")
