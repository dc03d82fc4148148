import json
import re
import sys

import numpy as np
import pytest

from p3dc import P3DCClassifier, evaluate, search
from p3dc.errors import InputError
from p3dc.reproduce.experiments import Plan
from p3dc.reproduce.run import reproduce
from p3dc.reproduce.tables import unmeasured
from tests.conftest import paper

QUICK = ("nn", "l2n", "cl2n", "dc-nearest", "deepvoro", "gda")
SMALL = {"n_tasks": 20, "slow_tasks": 5, "select_tasks": 10}


@pytest.fixture(scope="module")
def report(tmp_path_factory, base, validation, novel):
    root = tmp_path_factory.mktemp("report")
    data = root / "birds"
    data.mkdir()
    for name, features in (("base", base), ("validation", validation), ("novel", novel)):
        features.save(data / f"{name}.npz")
    [study] = reproduce([data], root / "out", Plan(**SMALL, methods=QUICK))
    return data, root / "out", study


def test_all_files_are_there(report):
    _, out, _ = report
    assert {path.name for path in out.iterdir()} >= {"report.html", "report.md", "report.json", "figures"}
    tables = {path.name for path in (out / "tables").iterdir()}
    assert tables == {"summary.tex", *(f"birds-table-{n}.tex" for n in (1, 2, 3, 4))}
    figures = {path.name for path in (out / "figures").iterdir()}
    assert figures == {f"birds-figure-{n}.{ending}" for n in (3, 4) for ending in ("png", "svg")}


def test_the_page_needs_no_other_file(report):
    _, out, _ = report
    page = (out / "report.html").read_text()
    sources = re.findall(r'src="([^"]{0,30})', page)
    assert len(sources) == 2
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert all(link.startswith("#") for link in re.findall(r'href="([^"]*)', page))
    assert "<script" not in page


def test_rows_are_those_of_the_library(report, priors, validation, novel):
    _, out, study = report
    options = {"n_shot": 5, "n_tasks": 20}
    best = search(priors, validation, **options).best
    assert study.weights[5, "raw"] == (best.alpha, best.beta)
    expected = evaluate(paper(priors, alpha=best.alpha, beta=best.beta), novel, **options)
    np.testing.assert_array_equal(study.table_1["p3dc", 5].scores.accuracy, expected.accuracy)
    text = f"{100 * expected.mean:.2f} ± {100 * expected.interval:.2f}"
    assert text in (out / "report.md").read_text()
    assert text in (out / "report.html").read_text()


def test_table_3_uses_the_weights_of_five_ways(report, priors, novel):
    _, _, study = report
    alpha, beta = study.weights[1, "raw"]
    expected = evaluate(paper(priors, alpha=alpha, beta=beta), novel, n_way=7, n_tasks=20)
    np.testing.assert_array_equal(study.table_3["p3dc", 7].scores.accuracy, expected.accuracy)
    assert {n_way for _, n_way in study.table_3} == {5, 7}


def test_the_same_seed_gives_the_same_json_apart_from_times(report, tmp_path):
    data, out, _ = report
    reproduce([data], tmp_path / "again", Plan(**SMALL, methods=QUICK))
    one, two = (json.loads((folder / "report.json").read_text()) for folder in (out, tmp_path / "again"))
    for content in (one, two):
        del content["seconds"]
    assert json.dumps(one) == json.dumps(two)


def test_several_processes_write_the_same_report(report, tmp_path):
    """Also with a method that fails in its process for want of feature maps."""
    data, out, _ = report
    seen = []
    reproduce(
        [data],
        tmp_path / "again",
        Plan(**SMALL, methods=[*QUICK, "mcl-katz"]),
        lambda title: seen.append(title) or (lambda *done: seen.append(done)),
        n_jobs=2,
    )
    one, two = (json.loads((folder / "report.json").read_text()) for folder in (out, tmp_path / "again"))
    [rows], [more] = ([study["table_1"] for study in content["studies"]] for content in (one, two))
    assert [row for row in more if row["key"] != "mcl-katz"] == rows
    assert one["studies"][0]["table_3"] == two["studies"][0]["table_3"]
    title = "birds: compared methods, 2 at a time"
    steps = [part for part in seen[seen.index(title) + 1 :] if isinstance(part, tuple)]
    assert steps[0][0] == 1
    assert steps[0][1] > len(QUICK)
    assert not [part for part in seen if isinstance(part, str) and "shot" in part]  # nothing is left to compute


def test_finished_parts_are_not_computed_again(report):
    data, out, _ = report
    told = []
    before = (out / "report.json").read_text()
    reproduce([data], out, Plan(**SMALL, methods=QUICK), lambda title: told.append(title))
    assert set(told) == {"timing", "figures"}
    again = json.loads((out / "report.json").read_text())
    assert again["studies"] == json.loads(before)["studies"]


def test_a_run_with_fewer_methods_keeps_the_rows_of_the_others(report):
    data, out, _ = report
    before = json.loads((out / "report.json").read_text())["studies"]
    reproduce([data], out, Plan(**SMALL, methods=["l2n"]))
    assert json.loads((out / "report.json").read_text())["studies"] == before


def test_the_report_says_how_it_was_made(report):
    data, out, _ = report
    text = (out / "report.md").read_text()
    methods = " ".join(f"--methods {key}" for key in ("nn", "l2n", "cl2n", "deepvoro", "dc-nearest", "gda"))
    assert f"p3dc reproduce {data} --out {out} --tasks 20 {methods}\n" in text
    assert f"numpy {np.__version__}" in text
    assert "C. Ma et al." in text
    assert "S. Yang" not in text  # DC was not measured


def test_the_adaptive_default_is_a_row(report, priors, novel):
    _, _, study = report
    expected = evaluate(P3DCClassifier(priors), novel, n_shot=5, n_tasks=20)
    np.testing.assert_array_equal(study.table_1["p3dc-auto", 5].scores.accuracy, expected.accuracy)


def test_other_classes_than_the_papers_get_no_paper_column_and_no_count(imposter, tmp_path):
    """The number of classes, 64, 16 and 20, is miniImageNet's."""
    plan = Plan(n_tasks=5, slow_tasks=5, select_tasks=5, methods=("l2n", "cl2n", "baseline++"))
    reproduce([imposter], tmp_path / "out", plan)
    text = (tmp_path / "out" / "report.md").read_text()
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert not any("paper" in line for line in tables)
    assert "68.68" not in text
    assert "claims hold" not in text
    [study] = json.loads((tmp_path / "out" / "report.json").read_text())["studies"]
    assert study["claims"] == []
    assert all(row["published"] is None for table in ("table_1", "table_3", "table_4") for row in study[table])

    reproduce([imposter], tmp_path / "out", plan, known_as=["miniimagenet"])
    text = (tmp_path / "out" / "report.md").read_text()
    assert "68.68 ± 0.44" in text
    assert "claims hold" in text


def test_notes_stand_only_where_their_marks_do(report):
    _, out, _ = report
    text = (out / "report.md").read_text()
    assert not any(mark in text for mark in "†‡◇")
    assert "of the same tasks" not in text


def test_the_released_protocol_needs_a_data_set_of_the_paper(imposter, tmp_path):
    plan = Plan(**SMALL, protocol="release", methods=["l2n"])
    with pytest.raises(InputError, match="Say which it is: --as miniimagenet or tieredimagenet or cub"):
        reproduce([imposter], tmp_path / "out", plan)
    with pytest.raises(InputError, match="--as is given 2 times for 1 folders"):
        reproduce([imposter], tmp_path / "out", plan, known_as=["cub", "cub"])
    [study] = reproduce([imposter], tmp_path / "out", plan, known_as=["miniimagenet"])
    assert study.weights[1, "raw"] == (0.0, 0.9)


def test_an_interrupted_run_goes_on_where_it_was(report, tmp_path):
    data, _, _ = report
    told = []

    def stop(title):
        told.append(title)
        if len(told) == 8:
            raise KeyboardInterrupt

    plan = Plan(**SMALL, methods=QUICK)
    with pytest.raises(KeyboardInterrupt):
        reproduce([data], tmp_path / "out", plan, stop)
    first = told[:7]
    told.clear()
    told += [None] * 8
    reproduce([data], tmp_path / "out", plan, stop)
    assert not set(first) & set(told[8:])


def test_the_bar_moves_while_parameters_are_chosen_and_tasks_are_run(report, tmp_path):
    data, _, _ = report
    calls = {}

    def start(title):
        return lambda done, total: calls.setdefault(title, []).append((done, total))

    reproduce([data], tmp_path / "out", Plan(**SMALL, methods=("gda", "l2n")), start)
    assert set(calls["GDA, 5-way 1-shot: choosing parameters"]) == {(10, 10)}
    assert len(calls["GDA, 5-way 1-shot: choosing parameters"]) == 5
    assert calls["GDA, 5-way 1-shot"] == calls["L2N + NN, 5-way 1-shot"] == [(20, 20)]


@pytest.mark.torch
def test_the_bar_moves_while_a_module_trains_on_one_thread(report, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    data, _, _ = report
    before, calls = torch.get_num_threads(), []
    monkeypatch.setattr("p3dc.baselines.restorenet.RestoreNet.__init__.__defaults__", (None, 0, 7))
    torch.set_num_threads(2)

    def start(title):
        return lambda done, total: calls.append((title, done, total, torch.get_num_threads()))

    try:
        reproduce([data], tmp_path / "out", Plan(**SMALL, methods=("restorenet",)), start)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert [call[1:] for call in calls if call[0] == "RestoreNet (2020): training"] == [(i, 7, 1) for i in range(1, 8)]
    assert ("RestoreNet (2020), 5-way 1-shot", 20, 20, 1) in calls


def test_without_torch_rows_say_what_to_install(report, monkeypatch, tmp_path):
    data, _, _ = report
    monkeypatch.setitem(sys.modules, "torch", None)
    [study] = reproduce([data], tmp_path / "out", Plan(**SMALL, methods=("restorenet", "l2n")))
    assert study.table_1["restorenet", 1].scores is None
    assert [line.partition(" is trained")[0] for line in unmeasured(study)] == [
        "RestoreNet (2020) not measured: this method"
    ]
    assert 'pip install "p3dc-shot[torch]"' in (tmp_path / "out" / "report.html").read_text().replace("&quot;", '"')


def test_bad_plans_are_refused(folder, tmp_path):
    with pytest.raises(InputError, match="there is no method 'magic'"):
        Plan(methods=["magic"])
    with pytest.raises(InputError, match="protocol is 'mine'"):
        Plan(protocol="mine")
    with pytest.raises(InputError, match="two folders have the same name"):
        reproduce([folder, folder], tmp_path / "out", Plan())
