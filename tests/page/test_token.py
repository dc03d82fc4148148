"""A server with a token and without base classes."""

import pytest
from playwright.sync_api import expect

from tests.page.conftest import PATIENCE, Served, answered, at

pytestmark = pytest.mark.browser
TOKEN = "a secret of some length"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    served = Served("--token", TOKEN, "--priors", "none", "--project", tmp_path_factory.mktemp("guarded") / "project")
    yield served
    served.stop()


def test_the_token_is_asked_for_until_it_is_right(guarded, visit):
    page = visit(guarded)
    page.foreseen.add(answered(401))
    dialog = page.get_by_role("dialog", name="A token, please")
    expect(dialog).to_be_visible()
    for _ in range(3):
        page.keyboard.press("Escape")
    expect(dialog).to_be_visible()
    dialog.get_by_label("Token").fill("something else")
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("That is not the token of this server.")
    dialog.get_by_label("Token").fill(TOKEN)
    dialog.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("button", name="Make your first class")).to_be_visible()
    page.reload()
    expect(page.get_by_role("button", name="Make your first class")).to_be_visible()
    expect(dialog).to_have_count(0)


def test_the_token_may_stand_in_the_address_and_does_not_stay_there(guarded, visit):
    page = visit(guarded, f"#token={TOKEN.replace(' ', '%20')}")
    page.foreseen.add(answered(401))
    expect(page.get_by_role("button", name="Make your first class")).to_be_visible()
    assert page.url == guarded.address


def test_without_base_classes_the_triangle_rests_and_says_why(guarded, visit):
    page = visit(guarded, f"#token={TOKEN.replace(' ', '%20')}")
    page.foreseen.add(answered(401))
    page.get_by_role("button", name="Try the example set").click()
    expect(page.locator("[data-test=probability]:not(:empty)").first).to_be_visible(timeout=1000 * PATIENCE)
    expect(at(page, "pull-sentence")).to_have_text(
        "Without base classes nothing pulls: the service was started with no priors."
    )
    for name in ("alpha", "beta", "auto"):
        expect(at(page, name)).to_be_disabled()
    expect(at(page, "triangle-handle")).to_have_attribute("tabindex", "-1")
