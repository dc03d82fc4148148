"""The commands for photos, most of them with a tiny network of one's own."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version

import pytest
from safetensors import SafetensorError

from p3dc import FeatureSet, ImageClassifier, Priors
from p3dc.cli import COMMANDS
from p3dc.cli.photos import COLUMNS
from p3dc.images.backbones.loading import load_backbone
from tests.conftest import TOML, make_features
from tests.images.conftest import COLOURS, paint, paint_classes

SLOW = ("sklearn", "scipy", "torch", "matplotlib", "pandas")


@pytest.fixture
def label(p3dc, network):
    """Run predict with the tiny network and return its status, rows and errors."""

    def call(*arguments):
        status, output, errors = p3dc("predict", *arguments, "--backbone", network)
        return status, rows_of(output), errors

    return call


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def is_one_sentence(errors):
    return errors.startswith("p3dc: ") and errors.count("\n") == 1


def test_extract_writes_the_features_of_every_photo(p3dc, photos, network, tmp_path):
    out, report = tmp_path / "features", tmp_path / "report.json"
    status, output, errors = p3dc("extract", photos, "--out", out, "--backbone", network, "--json", report)
    assert (status, errors) == (0, "")
    assert output == f"12 of 12 images extracted to {out}\n"
    found = FeatureSet.load(out)
    assert found.class_names == ("olive", "rust", "teal")
    assert found.features.shape == (12, 108)
    assert json.loads(report.read_text()) == {"folder": str(out), "rows": 12, "files": 12, "failures": []}


def test_extract_continues_and_reports_photos_that_cannot_be_read(p3dc, photos, network, tmp_path):
    (photos / "rust" / "1.png").write_bytes(b"")
    out, report = tmp_path / "features", tmp_path / "report.json"
    command = ["extract", photos, "--out", out, "--backbone", network, "--batch", 3]
    first = p3dc(*command, "--json", report)
    assert first == (
        0,
        f"11 of 12 images extracted to {out}\n",
        "p3dc: rust/1.png: The file is empty. Fetch it again.\n",
    )
    assert json.loads(report.read_text())["failures"] == [
        {"id": "rust/1.png", "why": "The file is empty. Fetch it again."}
    ]
    status, output, errors = p3dc(*command)
    assert (status, errors) == (0, first[2])
    assert output == f"11 of 12 images extracted to {out}, 12 of them by an earlier run\n"


def test_extract_takes_a_flat_folder_and_a_csv(p3dc, photos, network, tmp_path):
    assert p3dc("extract", photos / "teal", "--out", tmp_path / "flat", "--backbone", network)[0] == 0
    assert FeatureSet.load(tmp_path / "flat").class_names == ("",)
    table = tmp_path / "some.csv"
    table.write_text("path,label\nphotos/teal/3.png,sea\nphotos/rust/0.png,iron\n")
    assert p3dc("extract", table, "--out", tmp_path / "table", "--backbone", network)[0] == 0
    found = FeatureSet.load(tmp_path / "table")
    assert found.ids.tolist() == ["photos/teal/3.png", "photos/rust/0.png"]
    assert [found.class_names[label] for label in found.labels] == ["sea", "iron"]


def test_extract_refuses_another_network_in_the_same_folder(p3dc, photos, network, tmp_path):
    out = tmp_path / "features"
    p3dc("extract", photos, "--out", out, "--backbone", network)
    other = shutil.copy(network, tmp_path / "other.onnx")
    (tmp_path / "other.toml").write_text(TOML.replace("short_side = 8", "short_side = 7"))
    status, _, errors = p3dc("extract", photos, "--out", out, "--backbone", other)
    assert status == 2
    assert is_one_sentence(errors)
    assert "of another backbone: tiny" in errors


def test_fit_prints_its_review(p3dc, photos, network, tmp_path):
    shutil.copy(photos / "olive" / "2.png", photos / "olive" / "copy.png")
    paint(photos / "rust" / "wrong.png", COLOURS["teal"], seed=50)
    (photos / "teal" / "3.png").write_bytes(b"")
    out, report = tmp_path / "model.safetensors", tmp_path / "report.json"
    status, output, errors = p3dc("fit", photos, "--out", out, "--backbone", network, "--json", report)
    assert status == 0
    assert errors == "p3dc: teal/3.png: The file is empty. Fetch it again.\n"
    assert output.splitlines() == [
        "3 classes, 13 photos: olive 5, rust 5, teal 3",
        "the same photo twice: olive/2.png and olive/copy.png",
        "rust/wrong.png looks more like teal than like the rest of rust",
        "there are no base classes, so examples are not calibrated",
        f"Model: {out}",
    ]
    assert json.loads(report.read_text()) == {
        "shots": {"olive": 5, "rust": 5, "teal": 3},
        "duplicates": [["olive/2.png", "olive/copy.png"]],
        "misfiled": [{"photo": "rust/wrong.png", "label": "rust", "nearer_to": "teal"}],
        "failures": [{"photo": "teal/3.png", "why": "The file is empty. Fetch it again."}],
        "relevance": None,
        "beta": 0.0,
        "backbone": {"name": "tiny", "digest": load_backbone(network).digest},
    }
    assert len(ImageClassifier.load(out, network).examples) == 13


def test_fit_writes_what_the_library_writes(p3dc, photos, network, fitted, tmp_path):
    out = tmp_path / "again.safetensors"
    assert p3dc("fit", photos, "--out", out, "--backbone", network)[0] == 0
    one, two = (ImageClassifier.load(path, network) for path in (out, fitted))
    assert (one.reject, one.point, one.priors) == (two.reject, two.point, two.priors)
    assert [(each.key, each.label, each.thumbnail) for each in one.examples] == [
        (each.key, each.label, each.thumbnail) for each in two.examples
    ]
    assert one.label(two.support) == two.label(two.support)


def test_fit_takes_priors_and_a_share_to_turn_away(p3dc, photos, network, tmp_path):
    base = make_features(4, 9, 12, n_features=108)
    Priors.from_features(base).save(tmp_path / "priors.safetensors")
    out = tmp_path / "model.safetensors"
    options = ["fit", photos, "--out", out, "--backbone", network]
    status, output, _ = p3dc(*options, "--priors", tmp_path / "priors.safetensors", "--reject", 0.4)
    found = ImageClassifier.load(out, network)
    assert status == 0
    assert f"9 base classes {'do not pull' if found.review.beta == 0 else 'pull with weight'}" in output
    assert f"(relevance {found.review.relevance:+.2f})" in output
    assert found.priors.class_names == base.class_names
    assert found.reject == 0.4
    assert p3dc(*options, "--priors", "none", "--reject", 0)[0] == 0
    found = ImageClassifier.load(out, network)
    assert (found.priors, found.reject) == (None, None)


def test_fit_and_predict_with_the_default_network(p3dc, photos, tmp_path):
    out = tmp_path / "model.safetensors"
    status, output, errors = p3dc("fit", photos, "--out", out)
    assert (status, errors) == (0, "")
    assert "1,000 base classes" in output
    status, output, errors = p3dc("predict", out, photos / "rust" / "1.png", photos / "teal")
    assert (status, errors) == (0, "")
    assert rows_of(output)[0]["label"] == "rust"
    assert len(rows_of(output)) == 5


@pytest.mark.parametrize(
    ("support", "options", "sentence"),
    [
        ("photos", ["--out", "model.npz"], "model.npz ends in '.npz'. Models are written as .safetensors."),
        ("photos", ["--out", "none/model.safetensors"], "none is not a folder. Make it first."),
        ("photos", ["--json", "none/report.json"], "none is not a folder. Make it first."),
        ("photos", ["--priors", "none.safetensors"], "none.safetensors is not a file"),
        ("photos", ["--reject", "1.5"], "reject is 1.5. It must be a number between 0 and 1"),
        ("photos", ["--backbone", "resnet"], "there is no backbone 'resnet'"),
        ("photos/teal", [], "0.png in {root}/photos/teal has no class. Put the photos of each class into a folder."),
        ("empty", [], "empty holds no images"),
        ("one", [], "{root}/one has photos of one class, 'teal'. Add a class."),
        ("bad", [], "none of the 2 photos in {root}/bad can be read. The file is empty."),
        ("gone", [], "gone is not a folder"),
        ("gone.csv", [], "gone.csv is not a file"),
    ],
)
def test_fit_refuses_in_a_sentence(p3dc, photos, network, tmp_path, monkeypatch, support, options, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    shutil.copytree(photos / "teal", tmp_path / "one" / "teal")
    for name in ("a", "b"):
        (tmp_path / "bad" / name).mkdir(parents=True)
        (tmp_path / "bad" / name / "1.jpg").touch()
    given = ["--out", "model.safetensors", "--backbone", network, *options]
    status, output, errors = p3dc("fit", tmp_path / support, *given)
    assert (status, output) == (2, "")
    assert is_one_sentence(errors)
    assert sentence.format(root=tmp_path) in errors
    assert not (tmp_path / "model.safetensors").exists()


def test_predict_prints_what_it_writes(label, photos, network, fitted, tmp_path):
    new = paint(tmp_path / "new, photo.png", COLOURS["rust"], seed=60)
    table, report = tmp_path / "labels.csv", tmp_path / "report.json"
    given = [photos / "teal", new, photos / "olive" / "0.png"]
    status, rows, errors = label(fitted, *given, "--csv", table, "--json", report)
    assert status == 0
    assert tuple(rows[0]) == COLUMNS
    assert rows == rows_of(table.read_text())
    assert [row["path"] for row in rows] == [
        *(str(photos / "teal" / f"{i}.png") for i in range(4)),
        str(new),
        str(photos / "olive" / "0.png"),
    ]
    expected = list(ImageClassifier.load(fitted, network).predict(row["path"] for row in rows))
    for row, found in zip(rows, expected, strict=True):
        assert (row["label"], row["runner_up"], row["failure"]) == (found.label, found.runner_up, "")
        assert float(row["probability"]) == pytest.approx(found.probability, abs=5e-5)
        assert float(row["runner_up_probability"]) == pytest.approx(found.runner_up_probability, abs=5e-5)
    counts = json.loads(report.read_text())
    assert sum(counts["labels"].values()) == 6
    assert counts["failures"] == []
    listed = ", ".join(f"{name} {count}" for name, count in sorted(counts["labels"].items()))
    assert errors == f"6 photos labelled in {table}: {listed}\n"


def test_predict_goes_on_past_photos_that_cannot_be_read(label, photos, fitted, tmp_path):
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"no photo")
    report = tmp_path / "report.json"
    status, rows, errors = label(fitted, bad, photos / "teal" / "1.png", tmp_path / "gone.jpg", "--json", report)
    assert status == 0
    assert [row["label"] == "" for row in rows] == [True, False, True]
    assert [row["probability"] == row["runner_up"] == "" for row in rows] == [True, False, True]
    assert rows[2]["failure"] == "The file does not exist, or not any more. Put it back, or leave it out."
    assert errors.splitlines() == [
        f"p3dc: {bad}: {rows[0]['failure']}",
        f"p3dc: {rows[2]['path']}: {rows[2]['failure']}",
    ]
    assert [entry["path"] for entry in json.loads(report.read_text())["failures"]] == [str(bad), rows[2]["path"]]


def test_predict_fails_where_no_photo_can_be_read(label, fitted, tmp_path):
    status, rows, errors = label(fitted, tmp_path / "a.jpg", tmp_path / "b.jpg")
    assert status == 2
    assert len(rows) == 2
    last = "p3dc: none of the 2 photos could be read. Look at the reasons above."
    assert errors.splitlines()[-1] == last
    assert len(errors.splitlines()) == 3


def test_photos_of_other_classes_are_counted_as_unknown(label, photos, network, tmp_path):
    root = paint_classes(tmp_path / "warm", colours={"gold": (220, 150, 10), "moss": (150, 190, 10)})
    ImageClassifier.from_folder(root, backbone=network).save(tmp_path / "warm.safetensors")
    far = paint(tmp_path / "far.png", (10, 15, 230))
    _, (row,), errors = label(tmp_path / "warm.safetensors", far, "--csv", tmp_path / "labels.csv")
    assert row["label"] == "unknown"
    assert row["runner_up"] in ("gold", "moss")
    assert row["probability"] == row["runner_up_probability"]
    assert errors.endswith("labels.csv: unknown 1\n")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["{root}/photos/teal/0.png", "{root}/photos"], "0.png is damaged or is not a safetensors file"),
        (["{root}/gone.safetensors", "{root}/photos"], "gone.safetensors is not a file"),
        (["{root}/priors.safetensors", "{root}/photos"], "of format 'p3dc-priors', not 'p3dc-images'"),
        (["{root}/model.safetensors", "{root}/empty"], "empty holds no images"),
        (["{root}/model.safetensors", "{root}/photos", "--csv", "{root}/none/a.csv"], "none is not a folder. Make it"),
        (["{root}/model.safetensors", "{root}/photos", "--csv", "{root}/photos"], "it is a folder"),
        (["{root}/model.safetensors"], "Missing argument 'photos'."),
        (
            ["{root}/model.safetensors", "{root}/photos", "--backbone", "efficientnet-lite0"],
            "was made with the backbone tiny",
        ),
        (["{root}/model.safetensors", "{root}/photos", "--backbone", "tiny"], "there is no backbone 'tiny'"),
        (["{root}/lite0.safetensors", "{root}/photos"], "was made with the backbone efficientnet-lite0"),
    ],
)
def test_predict_refuses_in_a_sentence(p3dc, photos, network, fitted, tmp_path, options, sentence, priors):
    (tmp_path / "empty").mkdir()
    priors.save(tmp_path / "priors.safetensors")
    if "lite0" in options[0]:
        ImageClassifier.from_folder(photos, priors=None).save(tmp_path / "lite0.safetensors")
    filled = [option.format(root=tmp_path) for option in options]
    if "--backbone" not in options:
        filled += ["--backbone", network]
    status, output, errors = p3dc("predict", *filled)
    assert (status, output) == (2, "")
    assert is_one_sentence(errors)
    assert sentence in errors


@pytest.fixture
def pile(tmp_path):
    """A folder with five photos of each class and six of another colour."""
    paint_classes(tmp_path / "pile", n_each=5, first=50)
    return paint_classes(tmp_path / "pile", n_each=6, colours={"blue": (10, 15, 230)})


def test_label_goes_from_two_folders_to_labels_and_groups(p3dc, photos, pile, tmp_path):
    (pile / "blue" / "bad.png").touch()
    table, report, model = tmp_path / "labels.csv", tmp_path / "report.json", tmp_path / "model.safetensors"
    status, output, errors = p3dc("label", photos, pile, "--csv", table, "--json", report, "--save", model)
    assert status == 0
    assert errors == f"p3dc: {pile}/blue/bad.png: The file is empty. Fetch it again.\n"
    rows = rows_of(table.read_text())
    assert tuple(rows[0]) == (*COLUMNS, "group")
    kinds = [row["path"].split("/")[-2] for row in rows]
    assert [row["label"] for row in rows] == ["unknown"] * 6 + [""] + kinds[7:]
    assert [row["group"] for row in rows] == ["1"] * 6 + [""] * 16
    facts = json.loads(report.read_text())
    assert facts["labels"] == {"olive": 5, "rust": 5, "teal": 5, "unknown": 6}
    assert [entry["path"] for entry in facts["failures"]] == [f"{pile}/blue/bad.png"]
    (group,) = facts["groups"]
    assert sorted(group) == [row["path"] for row in rows[:6]]
    assert output.splitlines() == [
        f"21 photos labelled in {table}: olive 5, rust 5, teal 5, unknown 6",
        f"labels of 21 photos refined each other (use {facts['unlabelled_use']:.2f})",
        f"6 photos look like one another and like none of your classes: {', '.join(group[:3])}, …",
        f"Model: {model}",
    ]
    saved = ImageClassifier.load(model)
    assert saved.groups == [group]
    assert [found.label for found in saved.label_unlabelled()] == [row["label"] for row in rows if row["label"]]


def test_label_prints_rows_where_no_file_is_wanted(p3dc, photos, pile, network):
    status, output, errors = p3dc("label", photos, pile, "--backbone", network)
    assert status == 0
    assert len(rows_of(output)) == 21
    first, second = errors.splitlines()
    assert first.startswith("21 photos labelled: ")
    assert second == "there are no base classes to compare photos by, so each photo was labelled on its own"


def test_with_a_promise_of_equal_classes_nothing_is_grouped_apart(p3dc, photos, tmp_path):
    new = paint_classes(tmp_path / "new", n_each=5, first=50)
    status, output, _ = p3dc("label", photos, new, "--equal", "--csv", tmp_path / "labels.csv", "--reject", 0)
    assert status == 0
    assert "olive 5, rust 5, teal 5" in output
    assert "labels of 15 photos refined each other" in output


def test_fit_keeps_unlabelled_photos_for_predict(p3dc, photos, pile, tmp_path):
    out, report = tmp_path / "model.safetensors", tmp_path / "report.json"
    (pile / "blue" / "bad.png").touch()
    status, output, errors = p3dc("fit", photos, "--unlabelled", pile, "--out", out, "--json", report)
    assert status == 0
    assert errors == f"p3dc: {pile}/blue/bad.png: The file is empty. Fetch it again.\n"
    assert "labels of 21 photos refined each other (use 0." in output
    assert "\n6 photos look like one another and like none of your classes: " in output
    facts = json.loads(report.read_text())
    assert (0 < facts["unlabelled_use"] < 1, len(facts["groups"])) == (True, 1)
    new = [paint(tmp_path / f"{name}.png", colour, seed=77) for name, colour in COLOURS.items()]
    status, output, _ = p3dc("predict", out, *new)
    assert status == 0
    plain = ImageClassifier.from_folder(photos)
    expected = list(plain.label_together(sorted(pile.glob("*/*.png"))).classifier.predict(new))
    assert [row["label"] for row in rows_of(output)] == [found.label for found in expected] == [*COLOURS]
    likely = [float(row["probability"]) for row in rows_of(output)]
    assert likely == pytest.approx([found.probability for found in expected], abs=1e-4)
    assert likely != pytest.approx([found.probability for found in plain.predict(new)], abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["label", "photos"], "Missing argument 'photos'."),
        (["label", "gone", "pile"], "gone is not a folder"),
        (["label", "photos", "empty"], "empty holds no images"),
        (["label", "photos/teal", "pile"], "has no class. Put the photos of each class into a folder."),
        (["label", "photos", "pile", "--csv", "none/labels.csv"], "none is not a folder. Make it first."),
        (["label", "photos", "pile", "--save", "model.npz"], "model.npz ends in '.npz'. Models are written as"),
        (["label", "photos", "pile", "--reject", "2"], "reject is 2.0. It must be a number between 0 and 1"),
        (["fit", "photos", "--out", "m.safetensors", "--unlabelled", "empty"], "empty holds no images"),
    ],
)
def test_label_refuses_in_a_sentence(p3dc, photos, pile, network, tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    status, output, errors = p3dc(*arguments, "--backbone", network)
    assert (status, output) == (2, "")
    assert is_one_sentence(errors)
    assert sentence in errors


def test_label_and_fit_fail_where_no_photo_can_be_read(p3dc, photos, network, tmp_path):
    model = tmp_path / "model.safetensors"
    for command, kind in (
        (["label", photos, tmp_path / "a.jpg", "--save", model], ""),
        (["fit", photos, "--unlabelled", tmp_path / "a.jpg", "--out", model], "unlabelled "),
    ):
        status, _, errors = p3dc(*command, "--backbone", network)
        assert status == 2
        last = f"p3dc: none of the 1 {kind}photos could be read. Look at the reasons above."
        assert errors.splitlines()[-1] == last
        assert len(errors.splitlines()) == 2
        assert not model.exists()


def test_a_model_of_a_network_of_ones_own_asks_for_it(p3dc, photos, fitted):
    for command in (
        ["predict", fitted, photos],
        ["add", fitted, photos],
        ["explain", fitted, photos / "teal" / "0.png"],
    ):
        status, _, errors = p3dc(*command)
        assert status == 2
        assert is_one_sentence(errors)
        assert "was made with the backbone tiny. Give its .onnx file or folder as the backbone." in errors


def test_add_brings_a_new_class(p3dc, label, network, fitted, tmp_path):
    plum = paint(tmp_path / "more" / "plum" / "0.png", (120, 20, 120))
    paint(tmp_path / "more" / "olive" / "again.png", COLOURS["olive"], seed=0)
    (tmp_path / "more" / "olive" / "bad.png").touch()
    report = tmp_path / "report.json"
    status, output, errors = p3dc("add", fitted, tmp_path / "more", "--backbone", network, "--json", report)
    assert status == 0
    assert errors == "p3dc: olive/bad.png: The file is empty. Fetch it again.\n"
    assert output.splitlines() == [
        "1 photo was there already and left out",
        "4 classes, 13 photos: olive 4, plum 1, rust 4, teal 4",
        "there are no base classes, so examples are not calibrated",
        f"Model: {fitted}",
    ]
    assert json.loads(report.read_text())["shots"]["plum"] == 1
    assert label(fitted, plum)[1][0]["label"] == "plum"


def test_add_leaves_the_model_where_photos_cannot_be_used(p3dc, photos, network, fitted):
    before = fitted.read_bytes()
    status, _, errors = p3dc("add", fitted, photos / "teal", "--backbone", network)
    assert status == 2
    assert "has no class" in errors
    assert fitted.read_bytes() == before


def test_explain_draws_and_prints(p3dc, photos, network, fitted, tmp_path):
    photo, picture, report = photos / "rust" / "2.png", tmp_path / "why.svg", tmp_path / "why.json"
    status, output, errors = p3dc("explain", fitted, photo, "--out", picture, "--backbone", network, "--json", report)
    assert (status, errors) == (0, "")
    first, *neighbours, last = output.splitlines()
    content = json.loads(report.read_text())
    assert first.startswith(f"{photo}: {content['label']} (")
    assert len(neighbours) == len(content["neighbours"]) == 5
    assert "rust/2.png" in neighbours[0]
    assert last == f"Picture: {picture}"
    assert "<svg" in picture.read_text()


def test_explain_refuses_in_a_sentence(p3dc, photos, network, fitted, tmp_path):
    photo = photos / "rust" / "2.png"
    for options, sentence in (
        ([photo, "--out", "why.gif"], "why.gif ends in '.gif'. Figures are written as .png, .svg or .pdf."),
        ([tmp_path / "gone.jpg", "--out", tmp_path / "why.png"], "gone.jpg: The file does not exist"),
        ([photo, "--out", tmp_path / "none" / "why.png"], "none is not a folder"),
    ):
        status, output, errors = p3dc("explain", fitted, *options, "--backbone", network)
        assert (status, output) == (2, "")
        assert is_one_sentence(errors)
        assert sentence in errors
    assert not (tmp_path / "why.png").exists()


def test_a_network_without_its_preprocessing_is_refused_with_an_example(p3dc, photos, network, tmp_path):
    alone = shutil.copy(network, tmp_path / "alone.onnx")
    out = tmp_path / "model.safetensors"
    status, _, errors = p3dc("fit", photos, "--out", out, "--backbone", alone)
    assert status == 2
    assert "alone.onnx has no alone.toml next to it" in errors
    (tmp_path / "alone.toml").write_text(TOML)
    assert p3dc("fit", photos, "--out", out, "--backbone", alone)[0] == 0
    status, output, _ = p3dc("predict", out, photos / "rust", "--backbone", alone)
    assert status == 0
    assert {row["label"] for row in rows_of(output)} <= {"rust", "unknown"}
    (tmp_path / "alone.toml").write_text(TOML.replace("short_side = 8", "short_side = 9"))
    status, _, errors = p3dc("predict", out, photos / "rust", "--backbone", alone)
    assert status == 2
    assert "was made with the backbone alone" in errors


def command_line(*arguments):
    return [sys.executable, "-m", "p3dc", *map(str, arguments)]


def test_the_whole_csv_is_written_though_the_reader_of_the_pipe_left(tmp_path, network, fitted):
    many = paint_classes(tmp_path / "many", n_each=30)
    table = tmp_path / "labels.csv"
    command = command_line("predict", fitted, many, "--csv", table, "--backbone", network)
    quoted = " ".join(f"'{part}'" for part in command)
    done = subprocess.run(
        ["bash", "-c", f"{quoted} | head -1; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, ",".join(COLUMNS) + "\n")
    assert done.stderr.startswith(f"90 photos labelled in {table}: ")
    assert done.stderr.count("\n") == 1
    assert len(rows_of(table.read_text())) == 90


def test_a_pipe_that_is_closed_from_the_start(photos, tmp_path, network, fitted):
    """The pipe is closed from the start, so every write to it fails."""
    table = tmp_path / "labels.csv"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    for options, status in ((["--csv", table], 0), ([], 1)):
        reading, writing = os.pipe()
        os.close(reading)
        command = command_line("predict", fitted, photos, "--backbone", network, *options)
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, env=buffered, text=True, check=False)
        os.close(writing)
        assert done.returncode == status
        assert "Error" not in done.stderr
        assert "Exception" not in done.stderr
    assert len(rows_of(table.read_text())) == 12


def test_photos_are_labelled_without_what_is_slow_to_import(photos, network, fitted):
    code = f"""
import sys
import p3dc.cli.photos
print([name for name in {SLOW!r} if name in sys.modules])
sys.argv = ["p3dc", "predict", {str(fitted)!r}, {str(photos)!r}, "--backbone", {str(network)!r}]
try:
    p3dc.cli.main()
finally:
    print([name for name in {SLOW!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, header, *rows, last = done.stdout.splitlines()
    assert first == last == "[]"
    assert header == ",".join(COLUMNS)
    assert len(rows) == 12


def test_the_version_is_that_of_the_package(p3dc):
    assert p3dc("--version") == (0, f"p3dc {version('p3dc-shot')}\n", "")


def test_help_lists_all_commands():
    done = subprocess.run(command_line("--help"), capture_output=True, text=True, check=True)
    names = {name for names in COMMANDS.values() for name in names}
    assert len(names) == 13
    listed = {word for line in done.stdout.splitlines() for word in line.split()[:2]}
    assert names <= listed


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("extract", ["--out", "--backbone", "--batch", "--json"]),
        ("fit", ["--out", "--priors", "--backbone", "--reject", "--unlabelled", "--json"]),
        ("predict", ["--csv", "--backbone", "--json"]),
        ("label", ["--csv", "--priors", "--backbone", "--reject", "--equal", "--save", "--json"]),
        ("explain", ["--out", "--backbone", "--json"]),
        ("add", ["--backbone", "--json"]),
    ],
)
def test_each_command_has_its_help(p3dc, command, options):
    for flag in ("--help", "-h"):
        status, output, errors = p3dc(command, flag)
        assert (status, errors) == (0, "")
        assert f"p3dc {command}" in output
        assert all(option in output for option in options)


def test_nothing_that_is_read_is_overwritten(p3dc, fitted, photos, network, tmp_path):
    photo = shutil.copy(photos / "teal" / "0.png", tmp_path / "explanation.png")
    listing = tmp_path / "list.csv"
    listing.write_text("path,label\nphotos/teal/0.png,teal\nphotos/rust/0.png,rust\n")
    same, new = tmp_path / "same.json", tmp_path / "new.safetensors"
    for command in (
        ["explain", fitted, photo, "--out", photo],
        ["explain", fitted, photo, "--out", tmp_path / "e.png", "--json", fitted],
        ["predict", fitted, photos, "--csv", fitted],
        ["label", photos, photo, "--csv", photo],
        ["label", photos, fitted, "--save", fitted],
        ["label", listing, photos, "--json", listing],
        ["fit", photos, "--unlabelled", fitted, "--out", fitted],
        ["predict", fitted, photo, "--csv", photo],
        ["predict", fitted, photos, "--csv", same, "--json", same],
        ["fit", listing, "--out", new, "--json", listing],
        ["fit", photos, "--out", new, "--json", new],
        ["add", fitted, photos, "--json", fitted],
    ):
        before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
        status, _, errors = p3dc(*command, "--backbone", network)
        assert status == 2, command
        assert is_one_sentence(errors)
        assert "is to be written" in errors
        assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_changed_photos_are_extracted_again(p3dc, photos, network, tmp_path):
    out, broken = tmp_path / "features", photos / "teal" / "1.png"
    good = broken.read_bytes()
    broken.write_bytes(good[:60])
    assert "teal/1.png" in p3dc("extract", photos, "--out", out, "--backbone", network)[2]
    broken.write_bytes(good)
    paint(photos / "rust" / "0.png", (1, 2, 250), seed=7)
    status, output, errors = p3dc("extract", photos, "--out", out, "--backbone", network)
    assert (status, errors) == (0, "")
    assert output.startswith("12 of 12")
    assert "earlier" not in output
    fresh = tmp_path / "fresh"
    p3dc("extract", photos, "--out", fresh, "--backbone", network)
    assert (FeatureSet.load(out).features == FeatureSet.load(fresh).features).all()


def test_two_that_add_at_once_both_count(fitted, network, tmp_path):
    new = {f"new-{n}": paint(tmp_path / f"more-{n}" / f"new-{n}" / "a.png", (60 * n, 9, 9)) for n in (1, 2, 3)}
    command = [sys.executable, "-m", "p3dc", "add", str(fitted)]
    running = [
        subprocess.Popen([*command, str(path.parent.parent), "--backbone", str(network)], stdout=subprocess.DEVNULL)
        for path in new.values()
    ]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert set(new) <= set(ImageClassifier.load(fitted, network).classes)


def test_a_closed_screen_does_not_cost_the_file(fitted, photos, network, tmp_path):
    command = f"{sys.executable} -m p3dc predict {fitted} {photos} --backbone {network} --csv {tmp_path}/out.csv"
    for redirection in (">&-", "> /dev/full", "2>&-"):
        assert subprocess.run(f"{command} {redirection}", shell=True, stdout=subprocess.DEVNULL).returncode == 0
        assert (tmp_path / "out.csv").read_text().count("\n") == 13
        (tmp_path / "out.csv").unlink()


def test_a_photo_that_cannot_be_asked_for_stops_no_other(label, fitted, photos):
    status, rows, errors = label(fitted, photos / "teal" / "0.png", "x" * 300 + ".jpg", photos / "rust" / "0.png")
    assert status == 0
    assert [row["label"] for row in rows] == ["teal", "", "rust"]
    assert errors.count("\n") == 1


def test_two_names_with_the_same_readable_form_are_two_photos(p3dc, photos, network, tmp_path):
    odd = os.fsdecode(os.fsencode(photos / "teal") + b"/caf\xe9.png")
    shutil.copy(photos / "teal" / "0.png", odd)
    shutil.copy(photos / "teal" / "1.png", photos / "teal" / "caf\\xe9.png")
    status, output, _ = p3dc("fit", photos, "--out", tmp_path / "m.safetensors", "--backbone", network)
    assert status == 0
    assert "teal 6" in output


def test_skipped_files_are_counted(p3dc, photos, network, tmp_path):
    for name in ("1.DOCX", "2.docx", "notes"):
        (photos / "teal" / name).touch()
    status, _, errors = p3dc("fit", photos, "--out", tmp_path / "m.safetensors", "--backbone", network)
    assert status == 0
    assert errors == "p3dc: 3 files that do not end like an image are skipped: .docx 2, no ending 1\n"


def test_where_nothing_can_be_read_nothing_is_done(p3dc, fitted, network, tmp_path):
    (tmp_path / "bad" / "new").mkdir(parents=True)
    (tmp_path / "bad" / "new" / "a.jpg").write_text("no photo")
    before = fitted.read_bytes()
    for command in (["add", fitted, tmp_path / "bad"], ["extract", tmp_path / "bad", "--out", tmp_path / "features"]):
        status, _, errors = p3dc(*command, "--backbone", network)
        assert status == 2
        assert "could be read" in errors
    assert fitted.read_bytes() == before


@pytest.mark.parametrize(
    "thumbnail",
    [b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n", b"junk", b"\xff\xd8\xff"],
)
def test_a_model_cannot_bring_pictures_of_other_kinds(p3dc, fitted, photos, network, tmp_path, thumbnail):
    classifier = ImageClassifier.load(fitted, network)
    hostile = [replace(example, thumbnail=thumbnail) for example in classifier.examples]
    classifier.with_examples(hostile).save(fitted)
    picture = tmp_path / "e.png"
    status, _, errors = p3dc("explain", fitted, photos / "teal" / "0.png", "--out", picture, "--backbone", network)
    assert status == 2
    assert is_one_sentence(errors)
    assert "thumbnail in the model is damaged" in errors
    assert not picture.exists()


def test_the_threshold_is_kept_in_the_model(fitted, network, monkeypatch):
    expected = ImageClassifier.load(fitted, network).fitted.unknown_below
    monkeypatch.setattr("p3dc.classifier.fitted.LeaveOneClassOut", lambda *_: pytest.fail("found again"))
    assert ImageClassifier.load(fitted, network).fitted.unknown_below == expected


def test_a_full_disk_is_reported_in_a_sentence(p3dc, photos, network, tmp_path, monkeypatch):
    def full(*_, **__):
        raise SafetensorError("No space left on device")

    monkeypatch.setattr("p3dc.io.safetensors.save_file", full)
    status, _, errors = p3dc("fit", photos, "--out", tmp_path / "m.safetensors", "--backbone", network)
    assert status == 2
    assert is_one_sentence(errors)
    assert "No space left on device" in errors
    assert not list(tmp_path.glob("*.safetensors"))


def test_views_are_remembered_by_the_model(p3dc, photos, network, tmp_path):
    model = tmp_path / "model.safetensors"
    arguments = ("--backbone", network, "--priors", "none", "--reject", 0)
    assert p3dc("fit", photos, "--out", model, *arguments, "--views", 3)[0] == 0
    assert ImageClassifier.load(model, network).views == 3
    same, single = (
        p3dc("predict", model, photos / "rust", "--backbone", network, *more) for more in ((), ("--views", 1))
    )
    assert (same[0], single[0]) == (0, 0)
    assert same[1] != single[1]
    together = p3dc("label", photos, photos / "rust", *arguments, "--views", 3)
    assert [row["label"] for row in rows_of(together[1])] == ["rust"] * 4
    status, _, errors = p3dc("fit", photos, "--out", model, *arguments, "--views", 9)
    assert status == 2
    assert is_one_sentence(errors)


def test_rows_that_need_photos_are_evaluated(p3dc, network, tmp_path):
    from tests.images.backbones.test_onnx_network import model

    pooled = tmp_path / "pooled.onnx"
    nodes = [("Relu", ["pixels"], ["maps"], {}), ("GlobalAveragePool", ["maps"], ["features"], {})]
    pooled.write_bytes(model(nodes))
    shutil.copy(network.with_suffix(".toml"), pooled.with_suffix(".toml"))
    sets = []
    for number, role in enumerate(("base", "validation", "novel")):
        colours = {f"{role}-{name}": tuple(c + number for c in colour) for name, colour in COLOURS.items()}
        folder = paint_classes(tmp_path / "photos" / role, n_each=6, colours=colours, first=100 * number)
        more = [] if role == "base" else ["--maps"]
        sets += [f"--{role}", tmp_path / role]
        arguments = ["extract", folder, "--out", tmp_path / role, "--backbone", pooled, "--views", 2]
        assert p3dc(*arguments, *more)[0] == 0
    tasks = ["--way", 3, "--query", 3, "--tasks", 5]
    methods = [word for key in ("deepvoro", "deepvoro++", "mcl-katz") for word in ("--method", key)]
    status, output, _ = p3dc("evaluate", *sets, *tasks, *methods)
    assert status == 0
    assert all(name in output for name in ("DeepVoro", "DeepVoro++", "MCL-Katz"))
    sets[-1] = tmp_path / "base"
    status, _, errors = p3dc("evaluate", "--base", sets[3], "--novel", sets[1], *tasks, "--method", "mcl-katz")
    assert (status, errors) == (
        2,
        "p3dc: mcl-katz needs feature maps from before the pooling. Extract the features with --maps.\n",
    )


def test_a_csv_names_photos_to_label(label, fitted, photos, tmp_path):
    named = sorted(photos.rglob("*.png"))[:3]
    (tmp_path / "some.csv").write_text("path\n" + "".join(f"{path}\n" for path in named))
    status, rows, _ = label(fitted, tmp_path / "some.csv")
    assert (status, [row["path"] for row in rows]) == (0, [str(path) for path in named])
