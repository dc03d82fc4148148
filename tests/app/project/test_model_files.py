"""Model files out of the service and into it."""

import csv
import io
import json
import struct
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from p3dc import ImageClassifier
from p3dc.app.http.limits import RequestLimits
from p3dc.app.project.project import Project
from p3dc.app.project.state import ProjectLimits, State
from p3dc.images.backbones.loading import load_backbone
from p3dc.images.examples import Example, thumbnail
from tests.app.conftest import COLOURS, Mosaic, add, files, make, picture, teach, told

RAW = {"Content-Type": "application/octet-stream"}


@pytest.fixture
def model(taught):
    """The model file of three colours."""
    answer = taught.get("/v1/model")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == 'attachment; filename="p3dc-model.safetensors"'
    return answer.content


def put(client, content):
    return client.put("/v1/model", content=content, headers=RAW)


def held(client):
    """What a project holds, by names."""
    state = client.get("/v1/project").json()
    names = {each["id"]: each["name"] for each in state["classes"]}
    photos = [(photo["name"], names.get(photo["class"])) for photo in state["photos"]]
    return list(names.values()), photos, state["point"], state["reject"], state["n_base_classes"]


def load(content, tmp_path, backbone=None):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    return ImageClassifier.load(path, backbone or Mosaic())


def saved(classifier, tmp_path):
    classifier.save(tmp_path / "saved.safetensors")
    return (tmp_path / "saved.safetensors").read_bytes()


def examples(n_each=2, small=None):
    rng = np.random.default_rng(0)
    jpeg = thumbnail(Image.new("RGB", (20, 20), "teal")) if small is None else small
    return [
        Example(f"{label}/{n}.png", label, rng.random(12, dtype=np.float32), jpeg)
        for label in ("b", "a")
        for n in range(n_each)
    ]


@pytest.mark.parametrize("point", [None, (0.2, 0.6)])
def test_a_model_that_was_saved_labels_as_the_service_does(taught, tmp_path, point):
    if point:
        taught.put("/v1/point", json={"alpha": point[0], "beta": point[1]})
    classifier = load(taught.get("/v1/model").content, tmp_path)
    assert classifier.point == point
    rows = np.stack([taught.project.pictures[identity].features for identity in taught.asked])
    shown = taught.get("/v1/view").json()["labels"]
    labels = classifier.label(rows) if point else classifier.label_unlabelled()
    for found, expected in zip(shown, labels, strict=True):
        assert (found["label"], found["unknown"]) == (expected.label, expected.rejected)
        assert found["probability"] == pytest.approx(expected.probability, abs=1e-6)
    assert [example.key for example in classifier.examples] == 3 * ["0.png", "1.png", "2.png", "3.png"]


def test_a_model_fills_another_project_that_labels_the_same(taught, serve, model):
    other = serve(priors="none", reject=None)
    make(other, "old")
    asked = [("x.png", picture(COLOURS["rust"], 70)), ("y.png", picture((170, 130, 250), 71))]
    add(other, None, *asked)
    before = held(other)
    answer = put(other, model)
    assert answer.status_code == 200
    classes, photos, point, reject, n_base = held(other)
    assert sorted(classes) == sorted(COLOURS)
    assert len(photos) == 12
    assert (point, reject, n_base) == (None, 0.2, 20)
    taught.delete("/v1/photos")  # the photos to be labelled help in their own project only
    ours = taught.post("/v1/classify", files=files(*asked)).json()["predictions"]
    theirs = other.post("/v1/classify", files=files(*asked)).json()["predictions"]
    for one, two in zip(ours, theirs, strict=True):
        assert one | {"probability": 0, "runner_up_probability": 0} == two | {
            "probability": 0,
            "runner_up_probability": 0,
        }
        assert one["probability"] == pytest.approx(two["probability"], abs=1e-6)
    assert other.get("/v1/project").json()["undo"] == "Load model"
    other.post("/v1/undo")
    assert held(other) == before


@pytest.mark.parametrize("below", [None, 0.321])
@pytest.mark.parametrize("point", [None, (0.2, 0.6)])
def test_a_threshold_that_was_set_by_hand_comes_with_the_model_and_a_chosen_one_is_chosen_again(
    taught, serve, point, below
):
    if point:
        taught.put("/v1/point", json={"alpha": point[0], "beta": point[1]})
    if below:
        taught.put("/v1/unknown", json={"below": below})
    other = serve()
    assert put(other, taught.get("/v1/model").content).status_code == 200
    assert other.get("/v1/project").json()["unknown_below"] == below
    for name in ("unknown_below", "unknown_chosen"):
        assert other.get("/v1/view").json()[name] == pytest.approx(taught.get("/v1/view").json()[name], abs=1e-9)


def test_a_model_outlasts_the_process_with_its_priors(serve, tmp_path, model, backbone):
    first = serve(tmp_path / "project", priors="none")
    put(first, model)
    shown = held(first), first.get("/v1/view").json()
    first.project.store.close()
    again = serve(tmp_path / "project", priors="none")
    assert (held(again), again.get("/v1/view").json()) == shown


def test_small_pictures_of_a_model_are_drawn_anew(serve, backbone, tmp_path):
    client = serve()
    written = io.BytesIO()
    Image.new("RGB", (300, 300), "teal").save(written, "JPEG", comment=b"<script>")
    classifier = ImageClassifier(backbone, examples(small=written.getvalue() + b"<html>"), None, reject=None)
    assert put(client, saved(classifier, tmp_path)).status_code == 200
    assert held(client)[1] == [("b/0.png", "b"), ("b/1.png", "b"), ("a/0.png", "a"), ("a/1.png", "a")]
    for photo in client.project.state.photos:
        small = client.get(f"/v1/photos/{photo.id}/thumbnail").content
        assert b"<script>" not in small
        assert b"<html>" not in small
        assert Image.open(io.BytesIO(small)).size == (160, 160)


def jpeg(size):
    written = io.BytesIO()
    Image.new("RGB", size).save(written, "JPEG")
    return written.getvalue()


@pytest.mark.parametrize("small", [jpeg((6000, 6000)), picture(), b"", b"\xff\xd8\xff<html>", jpeg((20, 20))[:200]])
def test_a_model_with_pictures_that_are_no_small_jpegs_is_refused(client, backbone, tmp_path, small):
    content = saved(ImageClassifier(backbone, examples(small=small), None), tmp_path)
    assert "thumbnail" in told(put(client, content), 422, "invalid")
    assert client.get("/v1/project").json()["revision"] == 0


def test_a_file_that_is_no_model_is_refused_in_a_sentence_without_its_path(client, model, tmp_path, base):
    base.save(tmp_path / "priors.safetensors")
    others = [
        b"",
        b"x",
        b"\x00" * 100,
        struct.pack("<Q", 2**60) + b"{}",
        model[: len(model) // 2],
        model[:-1],
        model + b"x",
        picture(),
        (tmp_path / "priors.safetensors").read_bytes(),
    ]
    before = client.get("/v1/project").json()
    for content in others:
        sentence = told(put(client, content), 422, "invalid")
        assert "/tmp" not in sentence
        assert "deserializ" not in sentence
        assert str(tmp_path) not in sentence
    assert client.get("/v1/project").json() == before


def altered(model, change):
    """Change the facts of a model file."""
    (size,) = struct.unpack("<Q", model[:8])
    head = json.loads(model[8 : 8 + size])
    change(head["__metadata__"])
    written = json.dumps(head).encode()
    return struct.pack("<Q", len(written)) + written + model[8 + size :]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("classes", ["olive", "olive ", "teal"]),
        ("classes", ["", "rust", "teal"]),
        ("classes", ["unknown", "rust", "teal"]),
        ("classes", ["x" * 5000, "rust", "teal"]),
        ("classes", ["olive"]),
        ("classes", "olive"),
        ("keys", []),
        ("keys", None),
        ("reject", 7),
        ("reject", "x"),
        ("settings", {"alpha": 2.0, "beta": 3.0}),
        ("settings", {"alpha": -1.0, "beta": 0.5}),
        ("settings", {"alpha": "a"}),
        ("settings", [3]),
        ("backbone", None),
        ("backbone", {"name": "mosaic", "digest": "0" * 64}),
        ("priors", None),
        ("priors", {}),
    ],
)
def test_a_model_whose_facts_do_not_hold_together_is_refused(client, model, name, value):
    before = client.get("/v1/project").json()

    def change(facts):
        for key, text in facts.items():
            found = json.loads(text) if text[:1] in "{[" else {}
            if isinstance(found, dict) and name in found:
                facts[key] = json.dumps(found | {name: value})
                return
        assert name in facts, "the test knows the file"
        facts[name] = json.dumps(value)

    answer = put(client, altered(model, change))
    assert answer.status_code in (409, 422), answer.text
    told(answer, answer.status_code, "invalid" if answer.status_code == 422 else "conflict")
    assert client.get("/v1/project").json() == before


@pytest.mark.parametrize("value", [1e300, 1e-300])
def test_a_model_with_features_that_are_too_large_or_too_small_is_refused(client, backbone, tmp_path, value):
    odd = [replace(each, features=each.features.astype(np.float64)) for each in examples()]
    odd[0] = replace(odd[0], features=np.full(12, value))
    content = saved(ImageClassifier(backbone, odd, None, reject=None), tmp_path)
    told(put(client, content), 422, "invalid")
    assert client.get("/v1/project").json()["revision"] == 0


def test_a_model_larger_than_a_project_is_refused(serve, model):
    told(put(serve(project_limits=ProjectLimits(photos=11)), model), 409, "conflict")
    told(put(serve(project_limits=ProjectLimits(classes=2)), model), 409, "conflict")
    answer = put(serve(limits=RequestLimits(model_bytes=2000)), model)
    assert told(answer, 413, "too_large") == "The request is larger than 1 kB. Send less at once."


def test_a_model_is_sent_as_a_file(client, model):
    told(client.put("/v1/model", files={"file": model}), 415, "not_a_file")
    told(client.put("/v1/model", json={}), 415, "not_a_file")


def test_predict_reads_a_model_of_the_service(serve, p3dc, tmp_path):
    backbone = load_backbone()
    project = Project(None, backbone, State(reject=0.2))
    client = serve(project=project)
    teach(client, 2)
    images = {f"{name}.png": picture(colour, 50) for name, colour in COLOURS.items()}
    for name, content in images.items():
        (tmp_path / name).write_bytes(content)
    asked = add(client, None, *images.items())
    (tmp_path / "model.safetensors").write_bytes(client.get("/v1/model").content)
    shown = {each["id"]: each for each in client.get("/v1/view").json()["labels"]}
    status, output, errors = p3dc("predict", tmp_path / "model.safetensors", *(tmp_path / name for name in images))
    assert (status, errors) == (0, "")
    rows = list(csv.DictReader(io.StringIO(output)))
    for identity, row in zip(asked, rows, strict=True):
        assert row["label"] == shown[identity]["label"]
        assert float(row["probability"]) == pytest.approx(shown[identity]["probability"], abs=2e-4)
    assert client.get("/v1/project").json()["n_base_classes"] == 1000
    project.store.close()
