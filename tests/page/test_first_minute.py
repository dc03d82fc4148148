"""From an empty page to labels, as a new user does it: by mouse, by touch and only by keyboard."""

import pytest
from playwright.sync_api import expect

from tests.page.conftest import (
    DESKTOP,
    NO_NETWORK,
    PHONE,
    at,
    blues,
    card,
    is_down,
    reds,
    result,
    wait_for_labels,
    wait_until,
)

pytestmark = pytest.mark.browser
sizes = pytest.mark.parametrize("look", [DESKTOP, PHONE], ids=["desktop", "phone"])


def shown(page):
    """Read what the page shows of a project."""
    return page.evaluate(
        """() => {
            const texts = (selector) => [...document.querySelectorAll(selector)].map((one) => one.textContent);
            const values = (selector) => [...document.querySelectorAll(selector)].map((one) => one.value);
            const names = (selector) =>
                [...document.querySelectorAll(selector)].map((one) => one.getAttribute("aria-label"));
            return {
                classes: values("[data-test=class-name]"),
                sizes: texts(".class .size"),
                photos: names("[data-test=photo]"),
                labels: texts("[data-test=result]"),
                point: values("#alpha, #beta"),
                auto: document.querySelector("[data-test=auto]").getAttribute("aria-pressed"),
                accuracy: texts("[data-test=accuracy]"),
                map: names("#map .point"),
                undo: names("#undo, #redo"),
                kept: texts("#kept"),
            };
        }"""
    )


def tab_to(page, name):
    """Go on with the Tab key until a control has the focus whose name begins so."""
    for _ in range(150):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            """() => {
                const { activeElement: here } = document;
                const name = here.getAttribute("aria-label") ?? here.textContent.trim();
                return here.matches("[data-test=result]") ? here.title : name;
            }"""
        )
        if focused.startswith(name):
            return
    raise AssertionError(f"no Tab leads to {name}")


def savable(page):
    """List what the menu offers to save."""
    page.get_by_role("button", name="Save", exact=True).click()
    found = page.locator("#menu [data-test^=save-]").all_inner_texts()
    page.keyboard.press("Escape")
    return found


def choose_by_key(page, key, files):
    with page.expect_file_chooser() as chosen:
        page.keyboard.press(key)
    chosen.value.set_files(files)


@sizes
def test_one_press_gives_the_example_set_with_labels_in_view(empty, visit, look):
    page = visit(empty, **look)
    page.get_by_role("button", name="Try the example set").click()
    told = wait_for_labels(page, empty)
    assert len(told) == 12
    expect(at(page, "class-card")).to_have_count(5)
    expect(at(page, "photo")).to_have_count(10)
    first = at(page, "result").first
    expect(first).to_be_in_viewport()
    expect(first).to_be_focused()
    expect(page.get_by_role("button", name="Undo: Example set")).to_be_enabled()
    wait_until(lambda: first.locator("img").evaluate("(image) => image.naturalWidth") > 0)


@sizes
def test_the_example_set_shows_what_base_classes_do(empty, visit, look):
    page = visit(empty, **look)
    page.get_by_role("button", name="Try the example set").click()
    told = wait_for_labels(page, empty)
    expect(page.get_by_text("The base classes, 48 other drawn birds, fit these photos")).to_be_visible()
    expect(page.locator("#about")).to_contain_text("48 other drawn birds as base classes")
    arrows = at(page, "map-arrow").evaluate_all("(all) => all.map((one) => one.getTotalLength())")
    assert len(arrows) == 10
    assert min(arrows) > 3
    result(page, "robin 7.webp").get_by_role("button", name="Why?").click()
    expect(page.get_by_role("dialog")).to_contain_text("At α = β = 0, where nothing pulls, it would be magpie.")
    expect(page.get_by_role("dialog")).to_contain_text("-breasted bird")
    page.keyboard.press("Escape")
    at(page, "triangle-handle").focus()
    page.keyboard.press("Home")
    line = page.get_by_text("changed by moving the point")
    expect(line).to_contain_text("robin 7.webp from robin to magpie")
    assert len(told) == 12


@sizes
def test_own_photos_get_labels_as_soon_as_there_are_two_classes(empty, visit, look):
    page = visit(empty, **look)
    page.get_by_role("button", name="Make your first class").click()
    page.keyboard.type("red")
    page.get_by_role("button", name="New class", exact=True).click()
    expect(at(page, "hint")).to_have_text("Add photos of two classes to get labels.")
    page.get_by_label("Add photos to red").set_input_files(reds(3))
    expect(card(page, "red").locator(".size")).to_have_text("3 photos")
    expect(at(page, "hint")).to_have_text("Add photos of a second class to get labels.")
    page.get_by_label("Add photos to be labelled").set_input_files([*reds(1, 20), *blues(1, 20)])
    expect(at(page, "label")).to_have_text(["No label yet", "No label yet"])
    assert savable(page) == ["Photos in class folders (zip)"]

    at(page, "new-class-name").fill("blue")
    at(page, "new-class").click()
    page.get_by_label("Add photos to blue").set_input_files(blues(3))
    wait_for_labels(page, empty)
    expect(at(page, "hint")).to_be_hidden()
    for name, label in (("red 20.png", "red"), ("blue 20.jpg", "blue")):
        expect(result(page, name).locator("[data-test=label]")).to_have_text(label)
    assert savable(page) == ["Labels as CSV", "Photos in class folders (zip)", "Model"]
    assert empty.sizes() == {"red": 3, "blue": 3, None: 2}


@sizes
def test_a_reload_and_a_restart_of_the_server_give_the_same_page(examples, visit, look):
    page = visit(examples, **look)
    name = at(page, "class-name").first
    name.fill("redbreast")
    name.press("Enter")
    at(page, "alpha").fill("0.25")
    wait_until(lambda: examples.project()["point"])
    card(page, "redbreast").get_by_role("button", name="Menu of robin 2.webp").click()
    page.get_by_role("menuitem", name="Delete").click()
    expect(card(page, "redbreast").locator(".size")).to_have_text("1 photo")
    page.get_by_role("button", name="Undo: Delete 1 photo").click()
    expect(card(page, "redbreast").locator(".size")).to_have_text("2 photos")
    wait_for_labels(page, examples)
    before = shown(page)
    assert before["classes"][0] == "redbreast"
    assert before["point"] == ["0.25", "0.75"]
    assert before["undo"] == ["Undo: α 0.25, β 0.75", "Redo: Delete 1 photo"]

    page.reload()
    wait_until(lambda: shown(page) == before)

    page.foreseen.add(NO_NETWORK)
    examples.stop()
    assert is_down(examples)
    at(page, "redo").click()
    expect(page.get_by_text("The service does not answer. Trying again")).to_be_visible()
    examples.start()
    expect(at(page, "connection")).to_be_hidden()
    wait_until(lambda: shown(page) == before)
    at(page, "redo").click()
    expect(card(page, "redbreast").locator(".size")).to_have_text("1 photo")


def teach_by_key(page):
    """Make two classes of three photos without a pointer, and go on to the photos to be labelled."""
    expect(page.get_by_role("button", name="Make your first class")).to_be_visible()
    tab_to(page, "Make your first class")
    page.keyboard.press("Enter")
    for name, files in (("red", reds(3)), ("blue", blues(3))):
        expect(at(page, "new-class-name")).to_be_focused()
        page.keyboard.type(name)
        page.keyboard.press("Enter")
        expect(page.get_by_label(f"Add photos to {name}")).to_be_focused()
        choose_by_key(page, "Enter", files)
        expect(card(page, name).locator(".size")).to_have_text("3 photos")
        if name == "red":
            tab_to(page, "Take photos for red")
            page.keyboard.press("Tab")
    tab_to(page, "Add photos to be labelled")


def test_the_first_minute_needs_nothing_but_a_keyboard(empty, visit):
    page = visit(empty)
    page.on("filechooser", lambda _: None)  # from here on no dialog of the system opens
    teach_by_key(page)
    choose_by_key(page, "Space", [*reds(1, 30), *blues(1, 30)])
    wait_for_labels(page, empty)
    expect(page.locator("#announce")).to_contain_text("red 30.png: red")

    tab_to(page, "Sort")
    page.keyboard.type("By name")
    tab_to(page, "blue 30.jpg")
    page.keyboard.press("ArrowRight")
    expect(result(page, "red 30.png")).to_be_focused()
    page.keyboard.press("w")
    expect(page.get_by_role("dialog")).to_contain_text("Most like red")
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("dialog")).to_contain_text("Most like blue")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(result(page, "red 30.png")).to_be_focused()

    page.keyboard.press("Enter")
    expect(card(page, "red").locator(".size")).to_have_text("4 photos")
    page.keyboard.press("Control+z")
    expect(card(page, "red").locator(".size")).to_have_text("3 photos")

    tab_to(page, "How much examples lean")
    for key in ["ArrowDown"] * 4 + ["ArrowRight"] * 2:
        page.keyboard.press(key)
    point = wait_until(lambda: empty.project()["point"])
    assert point["beta"] > point["alpha"] > 0
    page.keyboard.press("Control+z")
    wait_until(lambda: empty.project()["point"] is None)


def test_photos_are_labelled_from_the_first_class_to_the_saved_labels_without_a_pointer(empty, visit):
    page = visit(empty)
    page.on("filechooser", lambda _: None)
    teach_by_key(page)
    choose_by_key(page, "Space", [*reds(2, 30), *blues(2, 30)])
    expect(at(page, "result")).to_have_count(4)
    wait_for_labels(page, empty)
    tab_to(page, "Sort")
    page.keyboard.type("By name")
    tab_to(page, "blue 30.jpg")

    page.keyboard.press("Enter")  # accept
    expect(card(page, "blue").locator(".size")).to_have_text("4 photos")
    expect(result(page, "blue 31.jpg")).to_be_focused()
    page.keyboard.press("1")  # correct: red
    expect(card(page, "red").locator(".size")).to_have_text("4 photos")
    expect(result(page, "red 30.png")).to_be_focused()
    page.keyboard.press("Control+z")
    expect(card(page, "red").locator(".size")).to_have_text("3 photos")
    wait_for_labels(page, empty)
    page.keyboard.press("End")
    expect(result(page, "red 31.png")).to_be_focused()
    page.keyboard.press("t")
    page.keyboard.type("crimson")
    page.keyboard.press("Enter")
    expect(card(page, "crimson").locator(".size")).to_have_text("1 photo")
    assert empty.sizes() == {"red": 3, "blue": 4, "crimson": 1, None: 2}
    wait_for_labels(page, empty)

    page.keyboard.press("Shift+Tab")
    tab_back_to(page, "Save")
    page.keyboard.press("Enter")
    with page.expect_download() as saved:
        page.keyboard.press("Enter")
    rows = saved.value.path().read_text(encoding="utf-8").splitlines()
    assert len(rows) == 5, "a line of names and all four photos that were asked"
    assert sum(row.endswith(",user") for row in rows) == 2


def tab_back_to(page, name):
    for _ in range(150):
        here = page.evaluate("() => document.activeElement.getAttribute('aria-label') ?? ''")
        if here.startswith(name):
            return
        page.keyboard.press("Shift+Tab")
    raise AssertionError(f"no Tab leads back to {name}")
