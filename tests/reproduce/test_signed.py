"""Features with negative entries: every command runs what is defined for them and names the rest."""

import json

import pytest

from p3dc.reproduce.datasets import load_data_set
from p3dc.reproduce.experiments import Plan
from p3dc.reproduce.run import reproduce
from tests.conftest import make_features, make_signed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("signed")
    for seed, (name, n_classes) in enumerate({"base": 12, "validation": 6, "novel": 6}.items()):
        make_signed(seed, n_classes, 24, home=1.0, prefix=name).save(path / f"{name}.npz")
    return path


def test_the_report_leaves_out_the_rows_that_are_not_defined(folder, tmp_path):
    methods = ["l2n", "simpleshot", "gda", "dc", "deepvoro"]
    plan = Plan(n_tasks=12, select_tasks=4, methods=methods)
    with pytest.warns(UserWarning, match=r"Left out: P3DC-Shot as in the paper, .*DC \(2021\).*, because .* auto, "):
        assert reproduce([folder], tmp_path, plan) == []
    [study] = json.loads((tmp_path / "report.json").read_text())["studies"]
    assert list(study["left_out"]) == ["P3DC-Shot as in the paper", "DC (2021)", "DeepVoro (2022)"]
    for result in study["results"]:
        names = [row["name"] for row in result["methods"]]
        assert names == ["L2N + NN", "SimpleShot (2019)", "GDA", "P3DC (auto)"]
        assert all(0.2 < row["mean"] <= 1 for row in result["methods"])
    text = (tmp_path / "report.md").read_text()
    assert "a root of negative features is not defined" in text
    assert "| P3DC (auto) |" in text
    assert (tmp_path / "report.html").exists()


def test_folders_of_both_kinds_are_refused(folder, tmp_path):
    plain = tmp_path / "plain"
    plain.mkdir()
    for seed, name in enumerate(("base", "validation", "novel")):
        make_features(seed, 6, 24, prefix=name).save(plain / f"{name}.npz")
    load_data_set(plain)
    with pytest.raises(ValueError, match="has negative features, but not all folders do"):
        reproduce([plain, folder], tmp_path / "out", Plan(n_tasks=12))


@pytest.mark.filterwarnings("default:Searched in the whitened space")
def test_evaluate_and_search_run_what_is_defined(p3dc, folder, tmp_path):
    files = ["--base", folder / "base.npz", "--validation", folder / "validation.npz"]
    found = tmp_path / "found.json"
    few = ["--tasks", 12, "--query", 5, "--json", found]
    status, output, errors = p3dc("evaluate", *files, "--novel", folder / "novel.npz", "--auto", *few)
    assert (status, errors) == (0, "")
    assert "P3DC (auto)" in output
    assert output.count("Left out: P3DC, because a root of negative features is not defined; auto, ") == 1
    [result] = json.loads(found.read_text())["results"]
    assert [row["name"] for row in result["methods"]] == ["NN", "L2N", "CL2N", "P3DC (auto)"]
    assert "auto" in result["left_out"]["P3DC"]

    status, output, errors = p3dc("evaluate", *files, "--novel", folder / "novel.npz", "--method", "p3dc", *few)
    assert (status, output) == (2, "")
    assert "p3dc cannot be run, because a root of negative features is not defined; auto, the adaptive" in errors

    status, output, errors = p3dc("search", *files, "--step", 0.5, *few)
    assert status == 0
    assert "best of 6 points" in output
    assert errors.startswith("p3dc: Searched in the whitened space and not in the paper's, because a root of negative")
    content = json.loads(found.read_text())
    assert content["settings"]["space"] == "whitened"
    assert content["note"].endswith("takes features of any sign.")
