"""The reasons for a label, and what else can be done where they are shown."""

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from p3dc import Priors
from p3dc.images.examples import thumbnail
from p3dc.priors.central import CentralRow
from tests.page.conftest import DESKTOP, PHONE, Served, at, card, choice, percent, result, wait_for_labels, wait_until

pytestmark = pytest.mark.browser
sizes = pytest.mark.parametrize("look", [DESKTOP, PHONE], ids=["desktop", "phone"])


def identity(served, name):
    return next(photo["id"] for photo in served.project()["photos"] if photo["name"] == name)


def bars(found):
    """Read the names and values next to bars."""
    items = found.get_by_role("listitem").all_inner_texts()
    return [tuple(item.replace("−", "-").split("\n")) for item in items]


@sizes
def test_the_reasons_are_those_of_the_service(examples, visit, look):
    page = visit(examples, **look)
    wait_for_labels(page, examples)
    opener = result(page, "cardinal 6.webp").get_by_role("button", name="Why?")
    opener.focus()
    opener.click()
    why = page.get_by_role("dialog")
    told = examples.get(f"photos/{identity(examples, 'cardinal 6.webp')}/explanation")
    expect(why).to_contain_text(f"Most like {told['label']}")
    assert bars(at(why, "cosines")) == [(each["label"], f"{each['cosine']:.2f}") for each in told["cosines"]]
    neighbours = at(why, "neighbour")
    expect(neighbours).to_have_count(len(told["neighbours"]))
    for item, each in zip(neighbours.all(), told["neighbours"], strict=True):
        expect(item).to_contain_text(f"{each['label']} {each['name']} · cosine {each['cosine']:.2f}")
        pulls = [(pull["name"], percent(pull["weight"])) for pull in each["base_classes"]]
        assert bars(at(item, "pulled-by")) == pulls
    page.keyboard.press("Escape")
    expect(why).to_have_count(0)
    expect(opener).to_be_focused()


def test_an_example_tells_what_pulled_it_and_a_neighbour_leads_on(examples, visit):
    page = visit(examples)
    at(page, "beta").fill("0.6")
    wait_until(lambda: examples.project()["point"])
    page.get_by_role("button", name="robin 2.webp", exact=True).click()
    why = page.get_by_role("dialog")
    expect(why).to_contain_text("You said this is robin.")
    told = examples.get(f"photos/{identity(examples, 'robin 2.webp')}/explanation")
    assert told["beta"] == 0.6
    expect(why).to_contain_text("At α 0.00, β 0.60 base classes make up 60 % of it.")
    pulls = [(pull["name"], percent(pull["weight"])) for pull in told["base_classes"]]
    assert pulls
    assert bars(at(why, "pulled-by").first) == pulls
    nearest = told["neighbours"][0]
    at(why, "neighbour-photo").first.click()
    expect(why.get_by_role("textbox", name="Name of the photo")).to_have_value(nearest["name"])
    expect(why).to_contain_text(f"You said this is {nearest['label']}.")


def test_a_photo_is_renamed_moved_and_deleted_from_its_reasons(examples, visit):
    page = visit(examples)
    wait_for_labels(page, examples)
    card(page, "robin").get_by_role("button", name="Menu of robin 2.webp").click()
    page.get_by_role("menuitem", name="Rename").click()
    name = page.get_by_role("dialog").get_by_role("textbox", name="Name of the photo")
    expect(name).to_be_focused()
    page.keyboard.type("in the snow.jpg")
    page.keyboard.press("Enter")
    wait_until(lambda: "in the snow.jpg" in [photo["name"] for photo in examples.project()["photos"]])
    page.get_by_role("dialog").get_by_role("button", name="Move to").click()
    choice(page, "magpie").click()
    expect(page.get_by_role("textbox", name="Name of the photo")).to_have_value("robin 1.webp")
    page.keyboard.press("Escape")
    moved = card(page, "magpie").get_by_role("button", name="in the snow.jpg", exact=False).first
    expect(moved).to_be_visible()
    moved.click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("textbox", name="Name of the photo")).to_have_value("magpie 1.webp")
    page.keyboard.press("Escape")
    expect(card(page, "magpie").locator(".size")).to_have_text("2 photos")
    assert examples.sizes()["robin"] == 1
    for _ in range(3):
        undone = at(page, "undo").get_attribute("aria-label")
        page.keyboard.press("Control+z")
        expect(at(page, "undo")).not_to_have_attribute("aria-label", undone)
    expect(card(page, "robin").get_by_role("button", name="robin 2.webp", exact=True)).to_be_visible()
    assert examples.project()["undo"] == "Example set"


def test_the_map_is_walked_by_keys_and_enter_says_why(examples, visit):
    page = visit(examples)
    wait_for_labels(page, examples)
    here = page.locator("#map .point[tabindex='0']")
    here.focus()
    first = here.get_attribute("aria-label")
    assert first.endswith("taught as robin")
    expect(page.locator(".tip")).to_contain_text(first.split(",")[0])
    page.keyboard.press("ArrowLeft")
    last = here.get_attribute("aria-label")
    page.keyboard.press("Enter")
    expect(page.get_by_role("textbox", name="Name of the photo")).to_have_value(last.split(",")[0])
    page.keyboard.press("Escape")
    expect(here).to_be_focused()
    expect(here).to_have_attribute("aria-label", last)


@pytest.fixture
def clustered(tmp_path):
    """Serve the example set with base classes that are clusters, each with two central photos."""
    jpeg = thumbnail(Image.new("RGB", (40, 30), "teal"))
    rng = np.random.default_rng(0)
    rows = np.abs(2 * np.repeat(rng.normal(size=(10, 1280)), 12, axis=0) + rng.normal(size=(120, 1280)))
    plain = Priors.from_unlabelled(rows)
    assert plain.geometry is not None
    named = [[CentralRow(f"{n}.jpg", jpeg), CentralRow("17", jpeg)] for n in range(len(plain))]
    path = tmp_path / "clusters.safetensors"
    plain.with_central(named).save(path)
    served = Served("--priors", path, "--project", tmp_path / "project")
    served.post("drawings")
    yield served
    served.stop()


def test_a_cluster_shows_its_central_photos_in_place_of_a_name(clustered, visit):
    page = visit(clustered)
    wait_for_labels(page, clustered)
    page.get_by_role("button", name="robin 2.webp", exact=True).click()
    row = at(page.get_by_role("dialog"), "pulled-by").first.get_by_role("listitem").first
    told = clustered.get(f"photos/{identity(clustered, 'robin 2.webp')}/explanation")["base_classes"][0]
    pictures = at(row, "central").get_by_role("img")
    names = [each["name"] for each in told["central"]]
    wait_until(lambda: [each.get_attribute("alt") for each in pictures.all()] == names)
    wait_until(lambda: pictures.first.evaluate("picture => picture.naturalWidth") == 40)
    expect(row).not_to_contain_text("cluster")


def test_arrow_keys_lead_from_photo_to_photo_and_a_class_leads_on(examples, visit):
    page = visit(examples)
    wait_for_labels(page, examples)
    at(page, "sort").select_option("By name")
    names = page.evaluate("() => [...document.querySelectorAll('[data-test=result]')].map((one) => one.title)")
    at(page, "result").first.focus()
    page.keyboard.press("w")
    name = page.get_by_role("textbox", name="Name of the photo")
    expect(name).to_have_value(names[0])
    expect(at(page, "why-previous")).to_be_disabled()
    page.keyboard.press("ArrowRight")
    expect(name).to_have_value(names[1])
    at(page, "why-next").click()
    expect(name).to_have_value(names[2])
    page.keyboard.press("ArrowLeft")
    expect(name).to_have_value(names[1])
    page.keyboard.press("5")
    expect(name).to_have_value(names[2])
    wait_until(lambda: examples.sizes()["magpie"] == 3)
    at(page, "why-accept").click()
    expect(name).to_have_value(names[3])
    wait_until(lambda: examples.sizes()[None] == 10)
