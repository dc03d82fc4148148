import io
import json

import numpy as np
import pytest
from rich.console import Console

from p3dc import P3DCClassifier, evaluate, search
from p3dc.errors import InputError
from p3dc.evaluation import report
from p3dc.evaluation.protocol import EvaluationPlan, run_plan
from p3dc.evaluation.results import Difference
from tests.conftest import paper

SMALL = {"n_query": 5, "n_tasks": 40, "seed": 1}


@pytest.fixture
def result(priors, validation, novel):
    plan = EvaluationPlan(**SMALL, attentions=("raw", "unit"))
    return plan, run_plan(plan, 3, priors=priors, validation=validation, novel=novel)


def test_weights_are_chosen_on_validation_and_measured_on_novel(result, priors, validation, novel):
    _, found = result
    for name, attention in (("P3DC", "raw"), ("P3DC (unit)", "unit")):
        best = search(priors, validation, n_shot=3, attention=attention, **SMALL).best
        assert (found.choices[name].alpha, found.choices[name].beta) == (best.alpha, best.beta)
        classifier = paper(priors, alpha=best.alpha, beta=best.beta, attention=attention)
        expected = evaluate(classifier, novel, n_shot=3, **SMALL).accuracy
        np.testing.assert_array_equal(found.comparison.scores[name].accuracy, expected)


def test_given_weights_are_not_searched(priors, validation, novel):
    plan = EvaluationPlan(**SMALL, methods=["p3dc"], point=(0.1, 0.2), settings={"scale": 0.1})
    found = run_plan(plan, 1, priors=priors, validation=validation, novel=novel)
    assert found.choices["P3DC"].search is None
    expected = evaluate(paper(priors, alpha=0.1, beta=0.2, scale=0.1), novel, **SMALL)
    assert found.comparison.scores["P3DC"].mean == expected.mean


def test_without_validation_the_weights_are_the_defaults(priors, novel):
    found = run_plan(EvaluationPlan(**SMALL, methods=["p3dc"]), 1, priors=priors, novel=novel)
    assert (found.choices["P3DC"].alpha, found.choices["P3DC"].beta) == (0.0, 0.9)
    assert report.choice_lines([found]) == ["P3DC, 1 shot: α = 0, β = 0.9 (default)"]


def test_progress_runs_once_from_start_to_end(priors, validation, novel):
    told = []
    plan = EvaluationPlan(**SMALL, methods=["p3dc"], attentions=["raw", "mean"])
    options = {"priors": priors, "validation": validation, "novel": novel}
    run_plan(plan, 1, **options, progress=lambda *step: told.append(step))
    assert told == [(40, 120), (80, 120), (120, 120)]


def test_the_search_has_the_settings_of_the_classifier(priors, validation, novel):
    settings = {"n_nearest": 2, "power": 1.0, "scale": 0.3}
    found = run_plan(
        EvaluationPlan(**SMALL, methods=["p3dc"], settings=settings),
        1,
        priors=priors,
        validation=validation,
        novel=novel,
    )
    assert found.choices["P3DC"].search.settings == settings | {"attention": "raw", "space": "plain"}
    expected = search(priors, validation, **settings, **SMALL)
    np.testing.assert_array_equal(found.choices["P3DC"].search.accuracy, expected.accuracy)


def test_unknown_attentions_are_refused():
    with pytest.raises(InputError, match="attention is 'loud'"):
        EvaluationPlan(methods=["nn"], attentions=["loud"])


def test_unknown_methods_are_refused():
    with pytest.raises(
        InputError, match="there is no method 'svm'. Choose from matchingnet, protonet, .*, pt-map, p3dc, auto"
    ):
        EvaluationPlan(methods=["svm"])


def test_the_table_shows_accuracies_and_paired_gains(result):
    _, found = result
    console = Console(width=120, file=io.StringIO())
    console.print(report.results_table([found]))
    text = console.file.getvalue()
    scores, gain = found.comparison.scores["P3DC"], found.comparison.difference("P3DC", "L2N")
    assert f"{100 * scores.mean:.2f} ± {100 * scores.interval:.2f}" in text
    assert f"{100 * gain.mean:+.2f} ± {100 * gain.interval:.2f}" in text
    assert [line.split()[0] for line in text.splitlines()] == ["method", "NN", "L2N", "CL2N", "P3DC", "P3DC"]


def test_json_holds_all_that_was_measured(result):
    plan, found = result
    content = json.loads(json.dumps(report.results_json(plan, [found])))
    methods = {entry["name"]: entry for entry in content["results"][0]["methods"]}
    assert content["protocol"]["n_tasks"] == 40
    assert methods["NN"]["mean"] == found.comparison.scores["NN"].mean
    assert methods["P3DC"]["gain_over_l2n"]["mean"] == found.comparison.difference("P3DC", "L2N").mean
    assert len(methods["P3DC"]["search"]["grid"]["accuracy"]) == 66
    assert "gain_over_l2n" not in methods["L2N"]


def test_the_auto_row_chooses_for_each_task(priors, validation, novel):
    plan = EvaluationPlan(
        **SMALL, n_unknown=6, methods=["l2n", "auto"], settings={"n_nearest": 3, "power": 1, "scale": 0.2}
    )
    found = run_plan(plan, 2, priors=priors, validation=validation, novel=novel)
    assert list(found.comparison.scores) == ["L2N", "P3DC (auto)"]
    expected = evaluate(P3DCClassifier(priors, n_nearest=3), novel, n_shot=2, n_unknown=6, **SMALL)
    scores = found.comparison.scores["P3DC (auto)"]
    np.testing.assert_array_equal(scores.accuracy, expected.accuracy)
    np.testing.assert_array_equal(scores.auroc, expected.auroc)
    assert scores.calibration_error == expected.calibration_error
    assert found.choices["P3DC (auto)"].search is None
    assert report.choice_lines([found]) == ["P3DC (auto), 2 shots: α, β and scale (chosen for each task)"]


def test_table_and_json_show_the_confidence(priors, novel):
    plan = EvaluationPlan(**SMALL, n_unknown=6, methods=["nn", "l2n", "p3dc", "auto"])
    found = run_plan(plan, 1, priors=priors, novel=novel)
    table = report.results_table([found])
    assert [column.header for column in table.columns] == ["method", "1 shot", "gain over L2N", "ECE", "AUROC"]
    cells = {name: cells for name, *cells in zip(*(column.cells for column in table.columns), strict=True)}
    assert cells["NN"][2] == ""
    for name, scores in found.comparison.scores.items():
        assert cells[name][3] == f"{scores.auroc.mean():.3f}"
    auto = found.comparison.scores["P3DC (auto)"]
    assert cells["P3DC (auto)"][2] == f"{auto.calibration_error:.3f}"
    content = json.loads(json.dumps(report.results_json(plan, [found])))
    entry = {entry["name"]: entry for entry in content["results"][0]["methods"]}
    assert content["protocol"]["n_unknown"] == 6
    assert entry["P3DC (auto)"]["calibration_error"] == auto.calibration_error
    assert entry["P3DC (auto)"]["auroc"]["mean"] == pytest.approx(auto.auroc.mean())
    assert entry["P3DC (auto)"]["auroc"]["interval"] == pytest.approx(1.96 * auto.auroc.std(ddof=1) / np.sqrt(40))
    assert entry["P3DC (auto)"]["alpha"] is None
    assert entry["P3DC (auto)"]["origin"] == "chosen for each task"
    assert "calibration_error" not in entry["NN"]
    assert "auroc" in entry["NN"]


def test_without_unknown_queries_or_probabilities_there_are_no_columns_for_them(priors, novel):
    found = run_plan(EvaluationPlan(**SMALL, methods=["nn", "l2n"]), 1, priors=priors, novel=novel)
    columns = report.results_table([found]).columns
    assert [column.header for column in columns] == ["method", "1 shot", "gain over L2N"]


def test_the_line_on_the_outside_is_careful():
    sure = report.outside_line(Difference("outside", "inside", 0.02, 0.01))
    assert sure.startswith("outside the triangle is better: best outside less best inside +2.00 ± 1.00 points")
    for mean, interval in ((0.01, 0.02), (-0.02, 0.01), (0.01, float("nan"))):
        assert "is not surely better" in report.outside_line(Difference("outside", "inside", mean, interval))


def test_the_table_of_a_search_shows_what_was_varied(priors, validation):
    for options, varied in (({}, []), ({"scale": [0.1, 1.0]}, ["scale"]), ({"n_nearest": [1, 5]}, ["M"])):
        result = search(priors, validation, step=0.5, **options, **SMALL)
        table = report.search_table(result, n_best=3)
        assert [column.header for column in table.columns] == ["α", "β", *varied, "accuracy"]
        assert len(table.rows) == 3
        content = report.search_json(result)
        assert set(content["grid"]) == {"alpha", "beta", "accuracy", "interval"} | (set(options))
        assert content["gain_outside"] is None
        json.dumps(content)
