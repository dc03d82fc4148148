import json
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.image import imread

from p3dc import FeatureSet, P3DCClassifier, Priors, evaluate, search
from p3dc.baselines import L2N, TCPR
from p3dc.cli import reproduction, research  # noqa: F401
from p3dc.evaluation import report
from p3dc.evaluation.search import gain_outside
from p3dc.evaluation.splits import hold_out
from p3dc.priors import prototypes as priors_module
from tests.conftest import paper


@pytest.fixture
def files(tmp_path, base, validation, novel):
    paths = {}
    for name, features in (("base", base), ("validation", validation), ("novel", novel)):
        paths[name] = tmp_path / f"{name}.npz"
        features.save(paths[name])
    return paths


def test_demo_compares_the_methods_and_saves_heat_maps(p3dc, tmp_path):
    picture, figures = tmp_path / "maps.png", tmp_path / "demo.json"
    status, output, errors = p3dc("demo", "--tasks", 30, "--out", picture, "--json", figures)
    assert status == 0
    assert errors == ""
    rows = [line.split()[0] for line in output.splitlines() if "±" in line]
    assert rows == ["NN", "L2N", "CL2N", "P3DC", "P3DC", "P3DC"]
    assert output.count("P3DC (auto) ") == 1
    assert output.splitlines()[2].count("ECE") == 2
    assert output.count("chosen on the validation classes") == 4
    assert output.count("α, β and scale (chosen for each task)") == 2
    assert imread(picture).shape[1] > 1000
    results = json.loads(figures.read_text())["results"]
    assert [result["n_shot"] for result in results] == [1, 5]
    means = {entry["name"]: entry["mean"] for entry in results[0]["methods"]}
    assert means["P3DC"] > means["L2N"] > means["NN"]
    assert means["P3DC (auto)"] > means["L2N"]
    errors = {entry["name"]: entry.get("calibration_error") for entry in results[0]["methods"]}
    assert errors["NN"] is None
    assert 0 < errors["P3DC (auto)"] < 0.2


def test_evaluate_measures_what_the_library_measures(p3dc, files, tmp_path, priors, novel):
    figures = tmp_path / "figures.json"
    options = ["--way", 4, "--query", 5, "--tasks", 30, "--seed", 2, "--alpha", 0.1, "--beta", 0.3]
    settings = ["--nearest", 3, "--power", 1, "--scale", 0.2, "--attention", "unit", "--attention", "mean"]
    status, output, _ = p3dc(
        "evaluate", "--base", files["base"], "--novel", files["novel"], "--shot", 1, "--shot", 3,
        "--method", "p3dc", "--method", "l2n", "--json", figures, *options, *settings,
    )  # fmt: skip
    assert status == 0
    assert "4 ways, 5 queries a class, 30 tasks" in output
    for result, n_shot in zip(json.loads(figures.read_text())["results"], (1, 3), strict=True):
        for entry, attention in zip(result["methods"], ("unit", "mean"), strict=False):
            classifier = paper(priors, alpha=0.1, beta=0.3, n_nearest=3, power=1, scale=0.2, attention=attention)
            expected = evaluate(classifier, novel, n_way=4, n_shot=n_shot, n_query=5, n_tasks=30, seed=2)
            assert entry["mean"] == expected.mean
        assert [entry["name"] for entry in result["methods"]] == ["P3DC (unit)", "P3DC (mean)", "L2N"]


@pytest.mark.parametrize(("balance", "where"), [(2.0, "inside"), ("equal", "outside")])
def test_evaluate_draws_a_pile_for_each_task(p3dc, files, tmp_path, novel, balance, where):
    figures = tmp_path / "figures.json"
    status, output, _ = p3dc(
        "evaluate", "--base", files["base"], "--novel", files["novel"], "--query", 5, "--tasks", 12, "--json", figures,
        "--method", "l2n", "--auto", "--pile", 20, "--pile-balance", balance, "--pile-unknown", 0.5,
        "--pile-unknown-classes", 2, "--pile-queries", where,
    )  # fmt: skip
    assert status == 0
    assert f"piles of 20 photos ({balance}, 50 % unknown of 2 classes), 12 tasks" in output
    content = json.loads(figures.read_text())
    pile = {"n_pile": 20, "pile_balance": balance, "pile_unknown": 0.5, "pile_queries": where}
    pile["pile_unknown_classes"] = 2
    assert content["protocol"].items() >= pile.items()
    entries = content["results"][0]["methods"]
    assert [entry["name"] for entry in entries] == ["L2N", "P3DC (auto)", "P3DC (auto, pile)"]
    assert entries[0]["mean"] == evaluate(L2N(), novel, n_query=5, n_tasks=12, **pile).mean


def test_evaluate_takes_every_registered_method_that_its_sets_allow(p3dc, files, tmp_path, base, novel, priors):
    sets = [argument for name, path in files.items() for argument in (f"--{name}", path)]
    options = ["--query", 5, "--tasks", 10, "--json", tmp_path / "figures.json"]
    methods = ["matchingnet", "baseline++", "dc-nearest", "tcpr", "deepvoro", "gda", "l2n"]
    named = [argument for method in methods for argument in ("--method", method)]
    status, _, errors = p3dc("evaluate", *sets, *options, *named)
    assert (status, errors) == (0, "")
    entries = json.loads((tmp_path / "figures.json").read_text())["results"][0]["methods"]
    names = ["MatchingNet", "Baseline++", "DC + L2N + NN", "TCPR", "DeepVoro", "GDA", "L2N"]
    assert [entry["name"] for entry in entries] == names
    assert entries[3]["mean"] == evaluate(TCPR(base), novel, n_query=5, n_tasks=10).mean
    priors.save(tmp_path / "priors.safetensors")
    sets = ["--base", tmp_path / "priors.safetensors", "--novel", files["novel"]]
    status, _, errors = p3dc("evaluate", *sets, *options, "--method", "p3dc", "--method", "tcpr")
    sentence = "tcpr needs features of single base samples. Give base features instead of priors."
    assert (status, errors) == (2, f"p3dc: {sentence}\n")


def test_evaluate_chooses_on_validation(p3dc, files, priors, validation):
    sets = [argument for name, path in files.items() for argument in (f"--{name}", path)]
    status, output, _ = p3dc("evaluate", "--query", 5, "--tasks", 20, *sets)
    best = search(priors, validation, n_query=5, n_tasks=20).best
    assert status == 0
    assert f"P3DC, 1 shot: α = {best.alpha:g}, β = {best.beta:g} (chosen on the validation classes)" in output


def test_choosing_on_base_classes_is_refused(p3dc, files):
    status, _, errors = p3dc("search", "--base", files["base"], "--validation", files["base"])
    assert status == 2
    assert "base and validation share 12 classes" in errors


def test_extrapolation_is_there_for_the_asking(p3dc, files):
    options = ["--base", files["base"], "--novel", files["novel"], "--query", 5, "--tasks", 5, "--method", "p3dc"]
    assert p3dc("evaluate", *options, "--alpha", 0.8, "--beta", 0.8, "--extrapolate")[0] == 0


def test_an_interrupted_command_ends_with_130(p3dc, files, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("p3dc.cli.research.run_plan", interrupt)
    assert p3dc("evaluate", "--base", files["base"], "--novel", files["novel"], "--query", 5, "--tasks", 5)[0] == 130


def test_in_a_pipe_no_figure_is_cut_off(p3dc, files):
    shots = [argument for n_shot in range(1, 13) for argument in ("--shot", n_shot)]
    _, output, _ = p3dc(
        "evaluate", "--base", files["base"], "--novel", files["novel"], "--query", 5, "--tasks", 5, *shots
    )
    assert "…" not in output
    assert output.count("±") == 4 * 12 + 3 * 12


def test_reproduce_writes_the_report_and_says_what_is_missing(p3dc, files, tmp_path):
    files["validation"].unlink()
    options = ["--tasks", 5, "--methods", "l2n", "--methods", "nn"]
    status, output, errors = p3dc("reproduce", tmp_path, "--out", tmp_path / "report", *options)
    assert (status, errors) == (0, "")
    assert "not one of the paper's data sets by its classes" in output
    assert "claims" not in output
    first, *_, last = output.splitlines()
    assert first == f"5 tasks of {tmp_path}; finished parts are kept in {tmp_path / 'report'}"
    assert last == f"Report: {tmp_path / 'report' / 'report.html'}"
    assert "no validation features" in output
    assert "held-out base classes, never on novel ones" in (tmp_path / "report" / "report.md").read_text()


def test_an_interrupted_reproduction_says_how_to_go_on(p3dc, files, tmp_path, monkeypatch):
    """It begins with a line, in a pipe too, and ends with another."""

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("p3dc.cli.reproduction.reproduce", stop)
    status, output, errors = p3dc("reproduce", tmp_path, "--out", "report", "--quick")
    assert status == 130
    assert output == f"100 tasks of {tmp_path}; finished parts are kept in report\n"
    assert errors.strip() == "p3dc: stopped. Run the same command again to go on from the finished parts in report."


def test_reproduce_refuses_what_it_does_not_know(p3dc, tmp_path):
    assert (
        "there is no method 'magic'" in p3dc("reproduce", tmp_path, "--out", tmp_path / "out", "--methods", "magic")[2]
    )
    assert "has no base features" in p3dc("reproduce", tmp_path, "--out", tmp_path / "out")[2]


def test_reproduce_refuses_a_data_set_that_cannot_be_the_papers(p3dc, files, tmp_path):
    run = ("reproduce", tmp_path, "--out", tmp_path / "out")
    assert "12 base and 8 novel classes, but CUB has 100 and 50" in p3dc(*run, "--as", "cub")[2]
    status, _, errors = p3dc(*run, "--protocol", "release")
    assert (status, "Say which it is: --as miniimagenet" in errors) == (2, True)


def test_search_lists_the_best_points(p3dc, files, tmp_path, priors, validation):
    status, output, _ = p3dc(
        "search", "--base", files["base"], "--validation", files["validation"], "--query", 5, "--tasks", 30,
        "--step", 0.5, "--margin", 0.5, "--json", tmp_path / "grid.json", "--figure", tmp_path / "grid.svg",
    )  # fmt: skip
    expected = search(priors, validation, n_query=5, n_tasks=30, step=0.5, margin=0.5)
    assert status == 0
    assert str(expected) in output
    content = json.loads((tmp_path / "grid.json").read_text())
    np.testing.assert_array_equal(content["grid"]["accuracy"], expected.accuracy)
    assert "<svg" in (tmp_path / "grid.svg").read_text()


def test_priors_are_built_and_merged_and_serve_as_base(p3dc, files, tmp_path, base, priors):
    half = np.arange(len(base)) % 2 == 0
    for name, rows in (("one", half), ("two", ~half)):
        FeatureSet(base.features[rows], base.labels[rows], base.class_names).save(tmp_path / f"{name}.parquet")
    status, output, _ = p3dc("priors", tmp_path / "one.parquet", "--out", tmp_path / "one.safetensors")
    assert status == 0
    assert "Priors(12 base classes, 24 features) from 180 rows" in output
    merged = tmp_path / "merged.safetensors"
    assert p3dc("priors", tmp_path / "one.safetensors", tmp_path / "two.parquet", "--out", merged)[0] == 0
    found = Priors.load(merged)
    assert set(found.class_names) == set(priors.class_names)
    assert found.counts.tolist() == [30] * 12
    assert p3dc("evaluate", "--base", merged, "--novel", files["novel"], "--query", 5, "--tasks", 5)[0] == 0


def test_priors_of_unlabelled_features_are_clusters_that_merge_and_serve_as_base(p3dc, files, tmp_path, base, priors):
    halves = [tmp_path / "one.parquet", tmp_path / "two.npz"]
    for path, rows in zip(halves, np.array_split(np.arange(len(base)), 2), strict=True):
        FeatureSet(base.features[rows], base.labels[rows], base.class_names).save(path)
    out, labelled, merged = (tmp_path / f"{name}.safetensors" for name in ("clusters", "labelled", "merged"))
    status, output, _ = p3dc("priors", *halves, "--unlabelled", "--out", out)
    assert (status, "Priors(19 clusters, 24 features) from 360 rows" in output) == (0, True)
    expected = Priors.from_unlabelled(base)
    np.testing.assert_allclose(Priors.load(out).prototypes, expected.prototypes, rtol=1e-6)
    assert Priors.load(out).geometry.tightness == pytest.approx(expected.geometry.tightness, rel=1e-6)
    priors.save(labelled)
    status, output, _ = p3dc("priors", labelled, out, "--out", merged)
    assert (status, "Priors(12 base classes, 19 clusters, 24 features)" in output) == (0, True)
    assert p3dc("evaluate", "--base", merged, "--novel", files["novel"], "--query", 5, "--tasks", 5, "--auto")[0] == 0
    status, _, errors = p3dc("priors", labelled, "--unlabelled", "--out", merged)
    assert status == 2
    assert errors == f"p3dc: {labelled} holds priors, which have no rows to cluster. Merge them without --unlabelled.\n"


def test_the_geometry_of_merged_priors_is_learned_once(p3dc, tmp_path, base, monkeypatch):
    for i in (0, 1):
        FeatureSet(base.features[i::2], base.labels[i::2], base.class_names).save(tmp_path / f"{i}.parquet")
    learned = []
    learn = priors_module.learn_geometry
    monkeypatch.setattr(priors_module, "learn_geometry", lambda *known: learned.append(known) or learn(*known))
    out = tmp_path / "priors.safetensors"
    assert p3dc("priors", tmp_path / "0.parquet", tmp_path / "1.parquet", "--out", out)[0] == 0
    assert len(learned) == 1
    assert Priors.load(out).geometry is not None
    assert len(learned) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--alpha", "0.5"], "only one of --alpha and --beta is given"),
        (["--alpha", "0.5", "--beta", "0.6"], "outside the triangle"),
        (["--tasks", "0"], "n_tasks is 0"),
        (["--shot", "99"], "these have fewer: novel-0 (30)"),
        (["--method", "magic"], "there is no method 'magic'"),
        (["--attention", "loud"], "attention is 'loud'"),
        (["--base", "{novel}"], "base and novel share 8 classes"),
        (["--base", "{unnamed}", "--novel", "{unnamed}"], "base and novel share 240 identical rows"),
        (["--shot", "1", "--shot", "99"], "99 shots and 5 queries need 104 rows"),
        (["--json", "{folder}"], "is a folder"),
        (["--validation", "{novel}"], "novel and validation share 8 classes"),
        (["--novel", "{folder}"], "holds no .parquet parts"),
        (["--novel", "{folder}/gone.npz"], "gone.npz does not exist"),
        (["--json", "{folder}/gone/out.json"], "gone is not a folder. Make it first."),
        (["--pile", "999"], "the pile has 999 photos of the classes of its task"),
        (["--pile", "9", "--pile-balance", "odd"], "pile_balance is 'odd'"),
        (["--pile", "9", "--pile-queries", "under"], "pile_queries is 'under'"),
        (["--shot", "many"], "Invalid value for '--shot'"),
        (["--colour", "red"], "No such option: --colour"),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(p3dc, files, tmp_path, arguments, sentence):
    folder = tmp_path / "empty"
    folder.mkdir()
    unnamed = FeatureSet.load(files["novel"])
    FeatureSet(unnamed.features, unnamed.labels).save(tmp_path / "unnamed.npz")
    filled = [argument.format(folder=folder, unnamed=tmp_path / "unnamed.npz", **files) for argument in arguments]
    options = ["--base", files["base"], "--novel", files["novel"], "--query", 5, "--tasks", 5]
    status, _, errors = p3dc("evaluate", *options, *filled)
    assert status == 2
    assert errors.startswith("p3dc: ")
    assert sentence in errors
    assert errors.count("\n") == 1


def test_outputs_have_their_ending(p3dc, files):
    status, _, errors = p3dc("priors", files["base"], "--out", "priors.npz")
    assert (status, errors) == (2, "p3dc: priors.npz ends in '.npz'. Priors are written as .safetensors.\n")
    status, _, errors = p3dc("demo", "--out", "map.gif")
    assert (status, errors) == (2, "p3dc: map.gif ends in '.gif'. Figures are written as .png, .svg or .pdf.\n")


def test_missing_options_and_unknown_commands_are_named(p3dc):
    assert p3dc("evaluate")[2] == "p3dc: Missing option '--base'.\n"
    assert p3dc("dance")[2] == "p3dc: No such command 'dance'.\n"
    status, output, _ = p3dc()
    assert status == 2
    assert "demo" in output


def test_an_unreadable_file_is_named(p3dc, files):
    files["novel"].unlink()
    files["novel"].symlink_to("/proc/self/mem")
    status, _, errors = p3dc("evaluate", "--base", files["base"], "--novel", files["novel"])
    assert status == 2
    assert errors.count("\n") == 1


def test_the_installed_command_runs():
    help_text = subprocess.run([sys.executable, "-m", "p3dc", "--help"], capture_output=True, text=True, check=True)
    for command in ("demo", "evaluate", "search", "priors"):
        assert command in help_text.stdout


def test_evaluate_with_auto_and_unknown_queries_shows_the_confidence(p3dc, files, tmp_path, priors, novel):
    figures = tmp_path / "figures.json"
    status, output, errors = p3dc(
        "evaluate", "--base", files["base"], "--novel", files["novel"], "--query", 5, "--tasks", 30,
        "--auto", "--unknown", 6, "--nearest", 3, "--json", figures,
    )  # fmt: skip
    assert (status, errors) == (0, "")
    heading, *rows = output.splitlines()[2:8]
    assert heading.split() == ["method", "1", "shot", "gain", "over", "L2N", "ECE", "AUROC"]
    assert [row.split("  ")[0] for row in rows] == ["NN", "L2N", "CL2N", "P3DC", "P3DC (auto)"]
    assert "P3DC (auto), 1 shot: α, β and scale (chosen for each task)" in output
    expected = evaluate(P3DCClassifier(priors, n_nearest=3), novel, n_query=5, n_tasks=30, n_unknown=6)
    assert f"{expected.calibration_error:.3f}" in rows[-1]
    assert f"{expected.auroc.mean():.3f}" in rows[-1]
    content = json.loads(figures.read_text())
    entry = content["results"][0]["methods"][-1]
    assert content["protocol"]["n_unknown"] == 6
    assert entry["mean"] == expected.mean
    assert entry["calibration_error"] == pytest.approx(expected.calibration_error)
    assert entry["auroc"]["mean"] == pytest.approx(expected.auroc.mean())


def test_without_unknown_queries_there_is_no_column_for_them(p3dc, files):
    options = ["--base", files["base"], "--novel", files["novel"], "--query", 5, "--tasks", 5]
    _, output, _ = p3dc("evaluate", *options)
    assert "ECE" in output
    assert "AUROC" not in output
    assert "P3DC (auto)" not in output
    status, _, errors = p3dc("evaluate", *options, "--way", 8, "--unknown", 3)
    assert (status, errors) == (2, "p3dc: all 8 classes are in each task, so there are no others. Lower n_way.\n")


def test_search_without_validation_holds_base_classes_out(p3dc, files, tmp_path, base):
    options = ["--query", 5, "--tasks", 30, "--step", 0.5, "--scale", 0.1, "--scale", 1, "--nearest", 1, "--nearest", 5]
    status, output, errors = p3dc("search", "--base", files["base"], *options, "--json", tmp_path / "grid.json")
    kept, aside = hold_out(base)
    expected = search(
        Priors.from_features(kept), aside, n_query=5, n_tasks=30, step=0.5, scale=[0.1, 1.0], n_nearest=[1, 5]
    )
    assert (status, errors) == (0, "")
    assert output.splitlines()[0].split() == ["α", "β", "scale", "M", "accuracy"]
    assert str(expected) in output
    assert "outside the triangle" not in output
    content = json.loads((tmp_path / "grid.json").read_text())
    assert content["gain_outside"] is None
    np.testing.assert_array_equal(content["grid"]["accuracy"], expected.accuracy)
    np.testing.assert_array_equal(content["grid"]["scale"], expected.scale)
    np.testing.assert_array_equal(content["grid"]["n_nearest"], expected.n_nearest)
    assert content["best"]["scale"] == expected.best.scale


def test_search_outside_the_triangle_says_whether_it_pays(p3dc, files, tmp_path, priors, validation):
    options = ["--query", 5, "--tasks", 30, "--step", 0.5, "--margin", 0.5, "--seed", 2]
    sets = ["--base", files["base"], "--validation", files["validation"]]
    drawing = {"n_query": 5, "n_tasks": 30, "seed": 2}
    for extra, settings in (([], {}), (["--auto"], {"space": "whitened"})):
        _, output, _ = p3dc("search", *sets, *options, *extra, "--json", tmp_path / "grid.json")
        result = search(priors, validation, step=0.5, margin=0.5, **drawing, **settings)
        expected = gain_outside(result, priors, validation, **drawing)
        assert str(result) in output
        assert output.splitlines()[-1] == report.outside_line(expected)
        content = json.loads((tmp_path / "grid.json").read_text())
        assert content["gain_outside"]["mean"] == pytest.approx(expected.mean)
        assert content["gain_outside"]["interval"] == pytest.approx(expected.interval)


def test_a_heat_map_of_several_scales_is_that_of_the_best(p3dc, files, tmp_path):
    options = ["--query", 5, "--tasks", 10, "--step", 0.5, "--scale", 0.1, "--scale", 1]
    assert p3dc("search", "--base", files["base"], *options, "--figure", tmp_path / "grid.svg")[0] == 0
    assert "<svg" in (tmp_path / "grid.svg").read_text()


def test_no_classes_can_be_held_out_of_priors(p3dc, tmp_path, priors):
    path = tmp_path / "priors.safetensors"
    priors.save(path)
    status, _, errors = p3dc("search", "--base", path)
    assert status == 2
    assert errors == f"p3dc: {path} holds priors, and classes cannot be held out of priors. Give --validation.\n"


def test_too_few_base_classes_cannot_be_held_out(p3dc, tmp_path):
    FeatureSet(np.eye(5) + 0.1, list("abcde")).save(tmp_path / "base.npz")
    status, _, errors = p3dc("search", "--base", tmp_path / "base.npz")
    assert status == 2
    assert "5 base classes are too few to hold some out" in errors
    assert errors.count("\n") == 1


def test_priors_of_a_file_serve_the_auto_row(p3dc, files, tmp_path, priors):
    priors.save(tmp_path / "priors.safetensors")
    options = ["--novel", files["novel"], "--query", 5, "--tasks", 5, "--auto"]
    outputs = [p3dc("evaluate", "--base", path, *options) for path in (files["base"], tmp_path / "priors.safetensors")]
    assert outputs[0] == outputs[1]
    assert outputs[0][0] == 0
