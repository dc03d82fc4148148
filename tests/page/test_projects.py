"""Projects side by side, and photos saved in class folders."""

from zipfile import ZipFile

import pytest
from playwright.sync_api import expect

from tests.page.conftest import Served, answered, at, blues, card, drop, reds, save, wait_until

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def library(tmp_path_factory, network):
    """A server of the projects in the user's folder of data, with a network that takes no time."""
    folder = tmp_path_factory.mktemp("data")
    served = Served("--backbone", network, "--priors", "none", XDG_DATA_HOME=str(folder))
    served.folder = folder / "p3dc" / "projects"
    yield served
    served.stop()


def begin(page, name):
    at(page, "projects").click()
    page.get_by_role("menuitem", name="New project …").click()
    page.get_by_label("Name of the project").fill(name)
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name=f"Project {name}")).to_be_visible()


def test_projects_are_made_listed_and_opened_in_every_window(library, visit):
    page, other = visit(library), visit(library)
    begin(page, "birds")
    expect(at(page, "kept")).to_have_text(f"Kept in {library.folder / 'birds'}")
    drop(page, page.locator("body"), reds(3))
    expect(at(other, "result")).to_have_count(3)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("() => document.scrollingElement.scrollWidth <= innerWidth")
    begin(page, "flowers")
    expect(page.get_by_role("button", name="Try the example set")).to_be_visible()
    expect(other.get_by_role("button", name="Project flowers")).to_be_visible()
    expect(other.get_by_role("button", name="Try the example set")).to_be_visible()
    at(other, "projects").click()
    expect(other.get_by_text(f"Projects in {library.folder}")).to_be_visible()
    other.get_by_role("menuitem", name="birds (0 classes, 3 photos)").click()
    expect(at(page, "result")).to_have_count(3)
    assert library.project()["name"] == "birds"


def test_a_name_that_no_folder_can_have_is_refused_in_words(library, visit):
    page = visit(library)
    page.foreseen.add(answered(422))
    at(page, "projects").click()
    page.get_by_role("menuitem", name="New project …").click()
    page.get_by_label("Name of the project").fill("a/b")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Choose another one.")


def test_photos_are_saved_in_class_folders_where_originals_are_kept(library, visit, tmp_path):
    page = visit(library)
    begin(page, "originals")
    at(page, "start-originals").check()
    wait_until(lambda: library.project()["originals"]["keep"])
    at(page, "first-class").click()
    for name, files in (("red", reds(2)), ("blue", blues(2))):
        at(page, "new-class-name").fill(name)
        at(page, "new-class").click()
        page.get_by_label(f"Add photos to {name}").set_input_files(files)
        expect(card(page, name).locator(".size")).to_have_text("2 photos")
    page.get_by_label("Add photos to be labelled").set_input_files(reds(1, 20))
    expect(at(page, "label")).to_have_text("red")
    with ZipFile(save(page, "Photos in class folders", tmp_path)) as archive:
        assert sorted(archive.namelist()) == [
            "blue/blue 0.jpg", "blue/blue 1.jpg", "red/red 0.png", "red/red 1.png", "red/red 20.png",
        ]  # fmt: skip
        assert archive.read("red/red 20.png") == reds(1, 20)[0]["buffer"]


def test_where_originals_are_not_kept_the_page_says_so_and_offers_to_keep_them(library, visit):
    page = visit(library)
    begin(page, "small pictures")
    drop(page, page.locator("body"), reds(2))
    expect(at(page, "result")).to_have_count(2)
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("menuitem", name="Photos in class folders").click()
    dialog = page.get_by_role("dialog", name="The photos themselves are not kept")
    dialog.get_by_role("button", name="Keep originals from now on").click()
    wait_until(lambda: library.project()["originals"]["keep"])
    drop(page, page.locator("body"), blues(1))
    wait_until(lambda: library.project()["originals"]["photos"] == 1)
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("menuitem", name="Stop keeping them").click()
    page.get_by_role("dialog", name="Delete the originals of 1 photo?").get_by_role(
        "button", name="Delete them"
    ).click()
    wait_until(lambda: library.project()["originals"] == {"keep": False, "photos": 0})
