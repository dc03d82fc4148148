"""The grid of labels: dense, sorted, filtered; accepted and moved in bulk by mouse, by drag and by key."""

import pytest
from playwright.sync_api import expect

from tests.page.conftest import PHONE, at, blues, card, reds, result, wait_for_labels, wait_until

pytestmark = pytest.mark.browser


def selected(page):
    return page.evaluate(
        """() => [...document.querySelectorAll("[data-test=result][aria-selected=true]")].map((one) => one.title)"""
    )


def names(page):
    """Read the names of the photos in the grid, in their order."""
    return page.evaluate("() => [...document.querySelectorAll('[data-test=result]')].map((one) => one.title)")


def current(page):
    """Return the name of the card that has the focus."""
    return page.evaluate("() => document.activeElement.closest('[data-test=result]')?.title ?? null")


def press(page, photo, **how):
    """Click on the picture of a photo, away from its buttons."""
    result(page, photo).click(position={"x": 60, "y": 45}, **how)


def test_at_least_twelve_cards_are_in_view_and_no_name_is_cut(examples, visit):
    page = visit(examples, viewport={"width": 1280, "height": 800})
    wait_for_labels(page, examples)
    at(page, "ask-input").set_input_files([*reds(3), *blues(3)])
    expect(at(page, "result")).to_have_count(18)
    wait_for_labels(page, examples)
    page.evaluate("() => scrollTo(0, 0)")
    in_view = page.evaluate(
        """() => [...document.querySelectorAll("[data-test=result]")].filter((one) => {
            const { top, bottom } = one.getBoundingClientRect();
            return top >= 60 && bottom <= innerHeight;
        }).length"""
    )
    assert in_view >= 12
    cut = page.evaluate(
        """() => [...document.querySelectorAll("[data-test=label], .chip-name, [data-test=class-name]")]
            .filter((one) => one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight + 2)
            .map((one) => one.textContent || one.value)"""
    )
    assert cut == []


def test_results_are_sorted_and_filtered(examples, visit):
    page = visit(examples)
    wait_for_labels(page, examples)
    at(page, "sort").select_option("By name")
    assert names(page) == sorted(names(page))
    at(page, "sort").select_option("By label")
    labels = at(page, "label").all_text_contents()
    assert labels == sorted(labels)
    told = {found["id"]: found for found in examples.get("view")["labels"]}
    at(page, "sort").select_option("Most doubtful first")
    doubts = [told[card.get_attribute("data-photo")]["doubt"] for card in at(page, "result").all()]
    assert doubts == sorted(doubts, reverse=True)
    at(page, "sort").select_option("Most useful first")
    order = [card.get_attribute("data-photo") for card in at(page, "result").all()]
    assert order == examples.get("view")["order"]

    unknown = [key for key, found in told.items() if found["unknown"]]
    at(page, "filter").select_option("Unknown")
    expect(at(page, "result")).to_have_count(len(unknown))
    at(page, "filter").select_option("magpie")
    expect(at(page, "result")).to_have_count(sum(found["label"] == "magpie" for found in told.values()))
    assert set(at(page, "label").all_text_contents()) == {"magpie"}
    at(page, "filter").select_option("Accepted")
    expect(at(page, "result")).to_have_count(0)
    expect(at(page, "results-none")).to_be_visible()
    at(page, "filter").select_option("To be checked")
    expect(at(page, "result")).to_have_count(12)


def test_a_selection_is_accepted_at_once_and_taken_back_in_one_step(examples, visit):
    page = visit(examples)
    told = wait_for_labels(page, examples)
    at(page, "sort").select_option("By name")
    press(page, "blue tit 6.webp")
    press(page, "cardinal 6.webp", modifiers=["Shift"])
    assert selected(page) == ["blue tit 6.webp", "blue tit 7.webp", "cardinal 6.webp"]
    press(page, "blue tit 7.webp", modifiers=["Control"])
    assert selected(page) == ["blue tit 6.webp", "cardinal 6.webp"]
    expect(at(page, "selected")).to_have_text("2 selected")
    page.get_by_role("button", name="Accept", exact=True).click()
    expect(at(page, "result")).to_have_count(10)
    assert examples.sizes() == {"robin": 2, "blue tit": 3, "kingfisher": 2, "cardinal": 3, "magpie": 2, None: 10}
    expect(at(page, "selected")).to_be_hidden()
    at(page, "filter").select_option("Accepted")
    assert names(page) == ["blue tit 6.webp", "cardinal 6.webp"]
    assert at(page, "label").all_text_contents() == ["blue tit", "cardinal"]
    press(page, "blue tit 6.webp")
    page.keyboard.press("u")
    expect(at(page, "result")).to_have_count(1)
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    at(page, "filter").select_option("All")
    expect(at(page, "result")).to_have_count(12)
    assert wait_for_labels(page, examples) == told
    assert examples.project()["undo"] == "Example set"


def test_photos_without_a_label_are_not_accepted_and_the_page_says_so(examples, visit):
    page = visit(examples)
    wait_for_labels(page, examples)
    at(page, "filter").select_option("Unknown")
    n = at(page, "result").count()
    assert n > 0
    at(page, "result").first.focus()
    page.keyboard.press("Control+a")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").last).to_contain_text("without a label cannot be accepted")
    assert examples.sizes()[None] == 12


def test_a_dragged_selection_moves_whole_to_a_chip(examples, visit):
    page = visit(examples)
    wait_for_labels(page, examples)
    at(page, "sort").select_option("By name")
    press(page, "robin 6.webp")
    press(page, "robin 7.webp", modifiers=["Control"])
    chip = at(page, "chip").filter(has_text="magpie")
    result(page, "robin 7.webp").drag_to(chip, source_position={"x": 60, "y": 45})
    expect(card(page, "magpie").locator(".size")).to_have_text("4 photos")
    assert examples.sizes()[None] == 10
    page.keyboard.press("Control+z")
    expect(card(page, "magpie").locator(".size")).to_have_text("2 photos")
    result(page, "robin 6.webp").drag_to(chip, source_position={"x": 60, "y": 45})
    expect(card(page, "magpie").locator(".size")).to_have_text("3 photos")


def test_teach_stays_in_sight_beside_long_results(examples, visit):
    page = visit(examples, viewport={"width": 1280, "height": 600})
    wait_for_labels(page, examples)
    at(page, "ask-input").set_input_files([*reds(12), *blues(12)])
    expect(at(page, "result")).to_have_count(36)
    page.evaluate("() => scrollTo(0, document.scrollingElement.scrollHeight)")
    for chip in at(page, "chip").all():
        expect(chip).to_be_in_viewport()
    at(page, "class-card").last.scroll_into_view_if_needed()
    expect(at(page, "class-card").last).to_be_in_viewport()
    expect(at(page, "result").last).to_be_in_viewport()


def test_keys_move_through_the_grid_select_and_give_classes(examples, visit):
    page = visit(examples)
    wait_for_labels(page, examples)
    at(page, "sort").select_option("By name")
    listed = names(page)
    at(page, "result").first.focus()
    columns = page.evaluate(
        """() => new Set([...document.querySelectorAll("[data-test=result]")].map((one) => one.offsetLeft)).size"""
    )
    for key, place in (
        ("ArrowRight", 1),
        ("ArrowDown", 1 + columns),
        ("ArrowLeft", columns),
        ("ArrowUp", 0),
        ("End", 11),
    ):
        page.keyboard.press(key)
        assert current(page) == listed[place]
    page.keyboard.press("Home")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    assert selected(page) == listed[:3]
    page.keyboard.press("Space")
    assert selected(page) == listed[:2]
    page.keyboard.press("5")
    expect(card(page, "magpie").locator(".size")).to_have_text("4 photos")
    wait_until(lambda: current(page) == listed[2])
    page.keyboard.press("Enter")
    expect(at(page, "result")).to_have_count(9)
    wait_until(lambda: current(page) == listed[3])
    assert page.locator("[data-test=result][tabindex='0']").count() == 1
    page.keyboard.press("Delete")
    expect(at(page, "result")).to_have_count(8)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("accept the label")
    page.keyboard.press("Escape")
    wait_until(lambda: current(page) == listed[4])
    page.keyboard.press("Control+a")
    assert selected(page) == listed[4:]
    page.keyboard.press("Escape")
    assert selected(page) == []
    page.keyboard.press("Space")
    at(page, "choose-selected").press("Enter")
    page.keyboard.press("Enter")
    expect(at(page, "result")).to_have_count(7)
    wait_until(lambda: current(page) == listed[5])


def test_this_is_offers_the_likeliest_first_takes_letters_and_makes_a_new_class(examples, visit):
    page = visit(examples, **PHONE)
    wait_for_labels(page, examples)
    told = next(found for found in examples.get("view")["labels"] if not found["unknown"])
    photo = next(each["name"] for each in examples.project()["photos"] if each["id"] == told["id"])
    result(page, photo).get_by_role("button", name=f"This is … {photo}").click()
    options = page.get_by_role("listbox").get_by_role("option")
    assert options.all_inner_texts()[0].startswith(told["label"])
    assert options.all_inner_texts()[1].startswith(told["runner_up"])
    assert options.all_inner_texts()[-1] == "New class …"
    page.keyboard.type("king")
    expect(options).to_have_count(2)
    expect(options.last).to_have_text("New class “king”")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(card(page, "king").locator(".size")).to_have_text("1 photo")
    assert examples.sizes()["king"] == 1
    assert examples.project()["undo"] == "Move 1 photo"


def test_names_typed_while_a_class_is_being_made_are_kept(examples, visit):
    page = visit(examples)
    wait_for_labels(page, examples)
    page.route("**/v1/classes", lambda route: (page.wait_for_timeout(300), route.continue_()))
    field = at(page, "new-class-name")
    field.fill("owl")
    field.press("Enter")
    field.fill("hawk")
    expect(card(page, "owl")).to_be_visible()
    expect(field).to_have_value("hawk")
    expect(field).to_be_focused()


def test_a_key_that_opened_a_menu_does_not_press_its_first_item_while_it_is_held(examples, visit):
    page = visit(examples)
    wait_for_labels(page, examples)
    for key in ("Space", "Enter"):
        card(page, "robin").get_by_role("button", name="Menu of robin", exact=True).focus()
        for _ in range(3):
            page.keyboard.down(key)
        page.keyboard.up(key)
        expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
        page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    page.keyboard.press("d")
    expect(page.get_by_role("menuitem", name="Delete class")).to_be_focused()
    page.keyboard.press("Space")
    expect(card(page, "robin")).to_have_count(0)
