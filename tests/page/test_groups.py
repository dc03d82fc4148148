"""The photos to be labelled help, and those like none of the classes become one."""

import pytest
from playwright.sync_api import expect

from tests.page.conftest import DESKTOP, PHONE, at, card, reds, wait_for_labels, wait_until

pytestmark = pytest.mark.browser


def test_the_page_says_that_photos_helped_and_a_group_becomes_a_class(examples, visit):
    page = visit(examples)
    wait_for_labels(page, examples)
    at(page, "ask-input").set_input_files(reds(6))
    expect(at(page, "group")).to_contain_text("6 photos look like one another and like none of your classes.")
    labels = wait_for_labels(page, examples)
    assert [label for label, _, _ in labels.values()].count("unknown") >= 6
    used = round(100 * examples.get("view")["pile"]["used"])
    expect(at(page, "pile")).to_have_text(
        f"The photos to be labelled helped: {used}\u00a0% of what is known of the classes comes from them."
    )
    assert at(page, "group-photo").count() == 3
    page.set_viewport_size(PHONE["viewport"])
    assert at(page, "group-name").bounding_box()["width"] > 150, "the name must be seen while it is typed"
    page.set_viewport_size(DESKTOP["viewport"])
    page.get_by_role("button", name="Make a class").click()
    assert "red" not in examples.sizes(), "a class needs a name"
    page.get_by_role("textbox", name="Name of the class to make of them").fill("red")
    page.keyboard.press("Enter")
    expect(card(page, "red").locator(".size")).to_have_text("6 photos")
    expect(at(page, "group")).to_have_count(0)
    assert examples.sizes()["red"] == 6
    wait_for_labels(page, examples)
    page.keyboard.press("Control+z")
    expect(card(page, "red")).to_have_count(0)
    expect(at(page, "group")).to_have_count(1)
    assert "red" not in examples.sizes(), "the class and its photos go in one step"


def test_a_point_set_by_hand_takes_no_help(examples, visit):
    page = visit(examples)
    wait_for_labels(page, examples)
    expect(at(page, "pile")).to_be_visible()
    page.locator("#alpha").fill("0.3")
    page.keyboard.press("Enter")
    expect(at(page, "pile")).to_be_hidden()
    wait_until(lambda: examples.get("view")["pile"] is None)
