"""What the page saves is read by the package, and what it opens is what was saved."""

import csv

import pytest
from playwright.sync_api import expect

from p3dc import ImageClassifier
from p3dc.app.example_set import example_set
from tests.page.conftest import answered, at, card, labels_told, percent, save, wait_for_labels, wait_until

pytestmark = pytest.mark.browser


def test_a_saved_model_gives_the_labels_of_the_page(examples, visit, tmp_path):
    page = visit(examples)
    at(page, "beta").fill("0.4")
    wait_until(lambda: examples.project()["point"])
    wait_for_labels(page, examples)
    path = save(page, "Model", tmp_path)
    assert path.name == "p3dc-model.safetensors"
    model = ImageClassifier.load(path)
    assert model.point == (0, 0.4)
    assert {(each.key, each.label) for each in model.examples} == {
        (example.name, example.label) for example in example_set() if example.label
    }
    photos = []
    for example in example_set():
        if example.label is None:
            photos.append(tmp_path / example.name)
            photos[-1].write_bytes(example.content)
    names = {photo["id"]: photo["name"] for photo in examples.project()["photos"]}
    told = {names[key]: shown for key, shown in labels_told(examples.get("view")).items()}
    for photo, found in zip(photos, model.predict(photos), strict=True):
        label, probability, _ = told[photo.name]
        assert found.label == label
        assert found.rejected or percent(found.probability) == probability


def test_an_opened_model_replaces_the_project_until_it_is_undone(examples, visit, tmp_path):
    page = visit(examples)
    wait_for_labels(page, examples)
    path = save(page, "Model", tmp_path)
    card(page, "robin").get_by_role("button", name="Menu of robin", exact=True).click()
    page.get_by_role("menuitem", name="Delete class").click()
    expect(card(page, "robin")).to_have_count(0)
    page.get_by_label("Open a model file").set_input_files(path)
    expect(page.get_by_role("status")).to_contain_text("p3dc-model.safetensors is open.")
    expect(card(page, "robin").locator(".size")).to_have_text("2 photos")
    expect(at(page, "result")).to_have_count(0)
    assert examples.sizes() == {"robin": 2, "blue tit": 2, "kingfisher": 2, "cardinal": 2, "magpie": 2, None: 0}
    page.get_by_role("button", name="Undo: Load model").click()
    expect(card(page, "robin")).to_have_count(0)
    wait_for_labels(page, examples)


def test_a_file_that_is_no_model_is_refused_in_words(examples, visit):
    before = examples.project()
    page = visit(examples)
    page.foreseen.add(answered(422))
    wait_for_labels(page, examples)
    page.get_by_label("Open a model file").set_input_files(
        [{"name": "poem.safetensors", "mimeType": "application/octet-stream", "buffer": b"roses are red"}]
    )
    expect(page.get_by_role("alert")).to_be_visible()
    assert "/" not in page.get_by_role("alert").inner_text(), "no path of the server"
    expect(at(page, "result")).to_have_count(12)
    assert examples.project() == before


def test_the_table_holds_the_labels_of_the_page(examples, visit, tmp_path):
    page = visit(examples)
    wait_for_labels(page, examples)
    path = save(page, "Labels as CSV", tmp_path)
    assert path.name == "p3dc-labels.csv"
    with path.open(newline="", encoding="utf-8") as file:
        rows = {row["path"]: row for row in csv.DictReader(file)}
    names = {photo["id"]: photo["name"] for photo in examples.project()["photos"]}
    told = {names[found["id"]]: found for found in examples.get("view")["labels"]}
    assert rows.keys() == told.keys()
    for name, row in rows.items():
        assert row["label"] == told[name]["label"]
        assert float(row["probability"]) == pytest.approx(told[name]["probability"], abs=1e-4)
        assert row["runner_up"] == told[name]["runner_up"]
