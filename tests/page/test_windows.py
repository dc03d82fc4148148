"""Windows on the same project stay current, and an outage leaves nothing broken behind."""

import pytest
from playwright.sync_api import expect

from tests.page.conftest import EVENTS, NO_NETWORK, answered, at, card, result, wait_for_labels, wait_until

pytestmark = pytest.mark.browser


def test_a_change_reaches_other_windows_at_once(examples, visit):
    one, other = visit(examples), visit(examples)
    wait_for_labels(one, examples)
    wait_for_labels(other, examples)
    at(other, "class-name").first.fill("redbreast")
    other.keyboard.press("Enter")
    expect(at(one, "class-name").first).to_have_value("redbreast")
    one.keyboard.press("Control+z")
    expect(at(other, "class-name").first).to_have_value("robin")


def test_of_the_windows_of_a_browser_one_listens_for_all(examples, visit):
    asked = []
    page = visit(examples, before=lambda page: page.context.on("request", lambda request: asked.append(request.url)))
    wait_for_labels(page, examples)
    others = [page.context.new_page() for _ in range(2)]
    for other in others:
        other.goto(examples.address)
        expect(at(other, "class-name").first).to_have_value("robin")
    examples.move("robin 1.webp", "magpie")
    for window in (page, *others):
        expect(card(window, "magpie").locator(".size")).to_have_text("3 photos")
    assert sum(EVENTS in url for url in asked) == 1
    page.close()
    examples.move("robin 2.webp", "magpie")
    for window in others:
        expect(card(window, "magpie").locator(".size")).to_have_text("4 photos")


def test_editing_what_was_deleted_elsewhere_is_explained_and_the_page_brought_up_to_date(examples, visit):
    page = visit(examples)
    page.foreseen.add(answered(404))
    wait_for_labels(page, examples)
    gone = next(each for each in examples.project()["classes"] if each["name"] == "magpie")

    def come_second(route):
        examples.delete(f"classes/{gone['id']}")
        route.continue_()

    page.route("**/v1/classes/*", come_second)
    name = card(page, "magpie").get_by_role("textbox", name="Name of the class")
    name.fill("Pica pica")
    name.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("This was deleted in the meantime, perhaps in another window.")
    expect(at(page, "class-card")).to_have_count(4)


def test_thumbnails_that_failed_are_loaded_again(examples, visit):
    page = visit(examples, before=lambda page: page.route("**/thumbnail", lambda route: route.abort()))
    page.foreseen.add(NO_NETWORK)
    image = card(page, "robin").locator("img").first
    wait_until(lambda: image.evaluate("(image) => image.complete && !image.naturalWidth"))
    page.unroute("**/thumbnail")
    wait_until(lambda: image.evaluate("(image) => image.naturalWidth") > 0)
    shown = result(page, "robin 6.webp").locator("img").first
    wait_until(lambda: shown.evaluate("(image) => image.complete && image.naturalWidth") > 0)
