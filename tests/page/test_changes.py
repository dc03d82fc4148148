"""Rename, move, delete and add: the page, the service and undo agree."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.page.conftest import (
    PHONE,
    answered,
    at,
    blues,
    card,
    choice,
    drop,
    labels_shown,
    reds,
    result,
    wait_for_labels,
    wait_until,
)

pytestmark = pytest.mark.browser
SCRIPT = "<img src=x onerror=alert(1)>"
UNREADABLE = {"name": "../etc/torn.jpg", "mimeType": "image/jpeg", "buffer": b"\xff\xd8\xff nothing more"}


def held(served):
    """What a project holds, apart from the number of its revision and what could be done again."""
    return {name: value for name, value in served.project().items() if name not in ("revision", "redo")}


def rename(page, old, new):
    name = card(page, old).get_by_role("textbox", name="Name of the class")
    name.fill(new)
    name.press("Enter")


def test_a_new_name_of_a_class_is_shown_everywhere_and_undone(examples, visit):
    before = held(examples)
    page = visit(examples)
    wait_for_labels(page, examples)
    rename(page, "robin", "Erithacus rubecula")
    expect(card(page, "Erithacus rubecula")).to_be_visible()
    expect(page.locator("#map .prototype text").filter(has_text="Erithacus rubecula")).to_be_visible()
    wait_until(lambda: "Erithacus rubecula" in {label for label, *_ in labels_shown(page).values()})
    wait_for_labels(page, examples)
    page.get_by_role("button", name="Undo: Rename robin").click()
    expect(card(page, "robin")).to_be_visible()
    wait_for_labels(page, examples)
    assert held(examples) == before
    page.get_by_role("button", name="Redo: Rename robin").click()
    expect(card(page, "Erithacus rubecula")).to_be_visible()


def test_a_name_that_is_taken_is_refused_in_words_and_the_old_one_comes_back(examples, visit):
    page = visit(examples)
    page.foreseen.add(answered(409))
    rename(page, "robin", "magpie")
    expect(page.get_by_role("alert")).to_contain_text("There is a class 'magpie' already. Choose another name.")
    expect(at(page, "class-name").first).to_have_value("robin")
    page.get_by_role("button", name="Close this message").click()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_escape_leaves_a_name_as_it_was(examples, visit):
    page = visit(examples)
    name = at(page, "class-name").first
    name.fill("half a na")
    name.press("Escape")
    expect(name).to_have_value("robin")
    assert examples.project()["classes"][0]["name"] == "robin"


def test_a_script_in_a_name_is_nothing_but_text(examples, visit):
    page = visit(examples)
    wait_for_labels(page, examples)
    rename(page, "robin", SCRIPT)
    expect(card(page, SCRIPT)).to_be_visible()
    labelled = at(page, "result").filter(has=page.get_by_text(SCRIPT, exact=True)).first
    labelled.get_by_role("button", name="Why?").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"Most like {SCRIPT}")
    page.get_by_role("textbox", name="Name of the photo").fill(f"{SCRIPT}.jpg")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Close", exact=True).click()
    expect(result(page, f"{SCRIPT}.jpg")).to_be_visible()
    card(page, SCRIPT).get_by_role("button", name=f"Menu of {SCRIPT}").click()
    page.get_by_role("menuitem", name="Delete class").click()
    expect(page.get_by_role("status")).to_contain_text(f"The class {SCRIPT} is deleted, with its photos.")
    assert page.locator("img[src=x], [onerror]").count() == 0


def test_a_photo_is_moved_by_its_menu(examples, visit):
    before = held(examples)
    page = visit(examples)
    card(page, "robin").get_by_role("button", name="Menu of robin 2.webp").click()
    page.get_by_role("menuitem", name="Move to …").click()
    choice(page, "magpie").click()
    expect(card(page, "magpie").locator(".size")).to_have_text("3 photos")
    expect(card(page, "magpie").get_by_role("button", name="robin 2.webp. Nearer to robin")).to_be_visible()
    assert examples.sizes()["robin"] == 1
    page.get_by_role("button", name="Undo: Move 1 photo").click()
    expect(card(page, "robin").locator(".size")).to_have_text("2 photos")
    assert held(examples) == before
    card(page, "robin").get_by_role("button", name="robin 2.webp", exact=True).click(button="right")
    expect(page.get_by_role("menuitem", name="Move to …")).to_be_visible()


def test_a_photo_is_moved_by_dragging_it_to_another_class(examples, visit):
    page = visit(examples)
    named = re.compile(r"^robin 1\.webp")  # a doubt may follow, since it is no blue tit
    tile = at(page, "class-card").locator(".tile").filter(has=page.get_by_label(named))
    tile.drag_to(card(page, "blue tit"))
    expect(card(page, "blue tit").locator(".size")).to_have_text("3 photos")
    assert examples.sizes() == {"robin": 1, "blue tit": 3, "kingfisher": 2, "cardinal": 2, "magpie": 2, None: 12}
    tile.drag_to(at(page, "ask-drop"))
    expect(result(page, "robin 1.webp")).to_be_visible()
    wait_for_labels(page, examples)
    assert examples.sizes()[None] == 13


def test_saying_what_a_photo_is_teaches_it(examples, visit):
    page = visit(examples, **PHONE)
    wait_for_labels(page, examples)
    asked = result(page, "robin 6.webp")
    asked.get_by_role("button", name="This is … robin 6.webp").click()
    choice(page, "robin").click()
    expect(asked).to_have_count(0)
    expect(card(page, "robin").locator(".size")).to_have_text("3 photos")
    assert examples.sizes() == {"robin": 3, "blue tit": 2, "kingfisher": 2, "cardinal": 2, "magpie": 2, None: 11}


def test_a_deleted_photo_comes_back_by_the_message_about_it(examples, visit):
    before = held(examples)
    page = visit(examples)
    wait_for_labels(page, examples)
    result(page, "magpie 7.webp").get_by_role("button", name="Delete magpie 7.webp").click()
    expect(at(page, "result")).to_have_count(11)
    page.get_by_role("status").get_by_role("button", name="Undo").click()
    expect(at(page, "result")).to_have_count(12)
    assert held(examples) == before
    page.get_by_role("button", name="cardinal 2.webp", exact=True).focus()
    page.keyboard.press("Delete")
    expect(card(page, "cardinal").locator(".size")).to_have_text("1 photo")
    page.keyboard.press("Control+z")
    expect(card(page, "cardinal").locator(".size")).to_have_text("2 photos")
    assert held(examples) == before


def test_a_deleted_class_comes_back_with_its_photos_and_its_place(examples, visit):
    before = held(examples)
    page = visit(examples)
    wait_for_labels(page, examples)
    card(page, "kingfisher").get_by_role("button", name="Menu of kingfisher", exact=True).click()
    page.get_by_role("menuitem", name="Delete class").click()
    expect(card(page, "kingfisher")).to_have_count(0)
    wait_for_labels(page, examples)
    assert "kingfisher" not in {label for label, *_ in labels_shown(page).values()}
    page.keyboard.press("Control+z")
    expect(card(page, "kingfisher").locator(".size")).to_have_text("2 photos")
    wait_for_labels(page, examples)
    assert held(examples) == before
    page.keyboard.press("Control+Shift+z")
    expect(card(page, "kingfisher")).to_have_count(0)


def test_cleared_photos_come_back(examples, visit):
    page = visit(examples)
    wait_for_labels(page, examples)
    page.get_by_role("button", name="Clear").click()
    expect(at(page, "result")).to_have_count(0)
    expect(page.get_by_role("status")).to_contain_text("12 photos cleared.")
    page.get_by_role("button", name="Undo: Clear photos").click()
    wait_for_labels(page, examples)


def test_files_dropped_on_a_class_land_in_it_and_elsewhere_are_labelled(examples, visit):
    page = visit(examples)
    wait_for_labels(page, examples)
    drop(page, card(page, "cardinal"), reds(2))
    expect(card(page, "cardinal").locator(".size")).to_have_text("4 photos")
    drop(page, at(page, "ask-drop"), blues(1))
    drop(page, page.locator("header.top"), blues(1, 1))
    for name in ("blue 0.jpg", "blue 1.jpg"):
        expect(result(page, name)).to_be_visible()
    wait_for_labels(page, examples)
    assert examples.sizes() == {"robin": 2, "blue tit": 2, "kingfisher": 2, "cardinal": 4, "magpie": 2, None: 14}


def test_a_pasted_picture_is_labelled(examples, visit):
    page = visit(examples)
    wait_for_labels(page, examples)
    page.evaluate(
        """async () => {
            const canvas = Object.assign(document.createElement("canvas"), { width: 90, height: 90 });
            canvas.getContext("2d").fillRect(0, 0, 50, 50);
            const blob = await new Promise((take) => canvas.toBlob(take));
            const clipboardData = new DataTransfer();
            clipboardData.items.add(new File([blob], "pasted.png", { type: "image/png" }));
            window.dispatchEvent(new ClipboardEvent("paste", { clipboardData, cancelable: true, bubbles: true }));
        }"""
    )
    expect(result(page, "pasted.png")).to_be_visible()
    wait_for_labels(page, examples)


def test_one_message_names_the_file_that_cannot_be_read_and_the_others_are_added(examples, visit):
    page = visit(examples)
    page.get_by_label("Add photos to magpie").set_input_files([*reds(5), UNREADABLE, *reds(5, 5)])
    alert = page.get_by_role("alert")
    expect(alert).to_have_count(1)
    expect(alert).to_contain_text("1 file could not be added.")
    expect(alert.get_by_role("listitem")).to_have_count(1)
    expect(alert.get_by_role("listitem")).to_contain_text("torn.jpg")
    expect(card(page, "magpie").locator(".size")).to_have_text("12 photos")
    assert examples.sizes()["magpie"] == 12
    names = [photo["name"] for photo in examples.project()["photos"]]
    assert {f"red {k}.png" for k in range(10)} <= set(names)


def test_where_no_file_can_be_read_the_message_says_so_and_nothing_changes(examples, visit):
    before = held(examples)
    page = visit(examples)
    page.foreseen.add(answered(415))
    wait_for_labels(page, examples)
    page.get_by_label("Add photos to be labelled").set_input_files(
        [{"name": "notes.txt", "mimeType": "text/plain", "buffer": b"not a picture"}]
    )
    expect(page.get_by_role("alert")).to_contain_text("notes.txt")
    expect(at(page, "result")).to_have_count(12)
    assert held(examples) == before


def test_the_camera_teaches_and_asks(examples, visit):
    page = visit(examples, **PHONE, permissions=["camera"])
    card(page, "magpie").get_by_role("button", name="Take photos for magpie with the camera").click()
    camera = page.get_by_role("dialog", name="Camera")
    expect(camera.get_by_label("Add to")).to_have_value(examples.project()["classes"][4]["id"])
    wait_until(lambda: camera.locator("video").evaluate("(video) => video.videoWidth") > 0)
    camera.get_by_role("button", name="Take photo").click()
    expect(camera.get_by_role("status")).to_have_text("1 taken")
    box = camera.get_by_label("Add to").bounding_box()
    assert box["width"] > 180, "the names of classes can be read"
    camera.get_by_label("Add to").select_option("Photos to be labelled")
    camera.get_by_role("button", name="Take photo").click()
    camera.get_by_role("button", name="Close").click()
    expect(camera).to_have_count(0)
    expect(card(page, "magpie").locator(".size")).to_have_text("3 photos")
    expect(at(page, "result")).to_have_count(13)
    wait_for_labels(page, examples)
    assert examples.sizes()["magpie"] == 3


def test_a_camera_that_may_not_be_used_is_explained(examples, visit):
    page = visit(examples)
    page.evaluate(
        """() => {
            navigator.mediaDevices.getUserMedia = async () => { throw new DOMException("no", "NotAllowedError"); };
        }"""
    )
    at(page, "ask-camera").click()
    camera = page.get_by_role("dialog", name="Camera")
    expect(camera.get_by_role("status")).to_contain_text("The browser may not use the camera.")
    expect(camera.get_by_role("button", name="Take photo")).to_be_disabled()


def test_a_project_is_told_in_the_words_of_the_service(examples, visit):
    page = visit(examples)
    wait_for_labels(page, examples)
    project = examples.project()
    drawn = page.evaluate(
        """() => [...document.querySelectorAll("[data-test=class-card]")].map((card) => [
            card.dataset.class,
            card.querySelector("[data-test=class-name]").value,
            [...card.querySelectorAll("[data-photo]")].map((tile) => tile.dataset.photo),
        ])"""
    )
    told = [
        [each["id"], each["name"], [photo["id"] for photo in project["photos"] if photo["class"] == each["id"]]]
        for each in project["classes"]
    ]
    assert json.dumps(drawn) == json.dumps(told)
    expect(at(page, "kept")).to_have_text(f"Kept in {project['kept_in']}")


def test_the_camera_labels_what_it_sees_and_records_while_a_button_is_held(examples, visit):
    page = visit(examples, permissions=["camera"])
    wait_for_labels(page, examples)
    asking = set()
    most = []

    def asked(request):
        if request.url.endswith("/v1/classify"):
            asking.add(request)
            most.append(len(asking))

    page.on("request", asked)
    for end in ("requestfinished", "requestfailed"):
        page.on(end, lambda request: asking.discard(request))
    card(page, "magpie").get_by_role("button", name="Take photos for magpie with the camera").click()
    camera = page.get_by_role("dialog", name="Camera")
    bars = at(camera, "live").get_by_role("listitem")
    expect(bars).to_have_count(2)
    wait_until(lambda: len(most) > 2 or page.wait_for_timeout(100))
    assert max(most) == 1, "one picture at a time"
    before = examples.project()["undo"]
    at(camera, "record").focus()
    page.keyboard.down("Space")
    expect(camera.get_by_role("status")).to_have_text(re.compile(r"Recording: ([3-9]|\d\d) photos"))
    page.keyboard.up("Space")
    expect(camera.get_by_role("status")).to_contain_text("taken")
    taken = int(camera.get_by_role("status").inner_text().split()[0])
    assert taken >= 3
    page.keyboard.press("Escape")
    expect(card(page, "magpie").locator(".size")).to_have_text(f"{2 + taken} photos")
    page.keyboard.press("Control+z")
    expect(card(page, "magpie").locator(".size")).to_have_text("2 photos")
    assert examples.project()["undo"] == before, "a recording is one step"
