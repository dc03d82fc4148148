"""No violation of the rules that axe checks, of the page in all its states."""

from importlib.resources import files

import pytest
from playwright.sync_api import expect

from tests.page.conftest import DESKTOP, NO_NETWORK, PHONE, at, drop, reds, wait_for_labels

pytestmark = pytest.mark.browser
looks = pytest.mark.parametrize("look", [DESKTOP, PHONE], ids=["desktop", "phone"])
schemes = pytest.mark.parametrize("scheme", ["light", "dark"])
RULES = {"label-content-name-mismatch": {"enabled": True}}  # off by default


@pytest.fixture(scope="module")
def axe():
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def violations(page, axe):
    """List the violated rules, with some of the elements that violate them."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(axe)
    found = page.evaluate("(rules) => axe.run(document, { rules, resultTypes: ['violations'] })", RULES)
    assert len(found["passes"]) > 10
    return [(each["id"], len(each["nodes"]), each["nodes"][0]["html"][:200]) for each in found["violations"]]


@looks
@schemes
def test_the_start_page_and_every_dialog_violate_nothing(examples, visit, axe, look, scheme):
    page = visit(examples, **look, color_scheme=scheme)
    wait_for_labels(page, examples)
    assert violations(page, axe) == []

    at(page, "result").first.focus()
    page.keyboard.press("Space")
    page.keyboard.press("t")
    expect(page.get_by_role("listbox")).to_be_visible()
    assert violations(page, axe) == []
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")

    at(page, "class-menu").first.click()
    expect(page.get_by_role("menu")).to_be_visible()
    assert violations(page, axe) == []
    page.keyboard.press("Escape")

    at(page, "result").first.focus()
    page.keyboard.press("w")
    expect(at(page, "cosines")).to_be_visible()
    assert violations(page, axe) == []
    page.keyboard.press("Escape")

    for opener, ready in (("keys-open", "keys-close"), ("confusion", "confusion-table"), ("ask-camera", "take-photo")):
        at(page, opener).click()
        expect(at(page, ready)).to_be_enabled()
        assert violations(page, axe) == []
        page.keyboard.press("Escape")


@looks
def test_an_empty_page_violates_nothing(empty, visit, axe, look):
    page = visit(empty, **look)
    expect(page.get_by_role("button", name="Try the example set")).to_be_visible()
    assert violations(page, axe) == []
    page.get_by_role("button", name="Make your first class").click()
    assert violations(page, axe) == []


@schemes
def test_photos_on_their_way_and_questions_violate_nothing(empty, visit, axe, scheme, tmp_path):
    page = visit(empty, color_scheme=scheme)
    page.foreseen.add(NO_NETWORK)
    for name in ("rose", "lily"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.png").write_bytes(reds(1)[0]["buffer"])
    at(page, "start-folder").set_input_files(tmp_path)
    expect(page.get_by_role("dialog", name="Teach these as 2 classes?")).to_be_visible()
    assert violations(page, axe) == []
    page.keyboard.press("Escape")

    empty.stop()
    drop(page, page.locator("body"), reds(3))
    expect(at(page, "sent")).to_contain_text("Nothing is lost")
    assert violations(page, axe) == []
    empty.start()
    expect(at(page, "result")).to_have_count(3)
    at(page, "save-menu").click()
    expect(page.get_by_role("menu")).to_be_visible()
    assert violations(page, axe) == []
    at(page, "save-photos").click()
    expect(page.get_by_role("dialog", name="The photos themselves are not kept")).to_be_visible()
    assert violations(page, axe) == []
