"""Photos on their way: none is lost, none arrives twice, and one undo takes a drop back."""

import csv

import pytest
from playwright.sync_api import expect

from tests.page.conftest import (
    NO_NETWORK,
    Served,
    answered,
    as_file,
    at,
    blues,
    card,
    drop,
    drop_paths,
    is_down,
    paint,
    photo,
    reds,
    save,
    wait_for_labels,
    wait_until,
)

pytestmark = pytest.mark.browser
COLOURS = [(20 + 80 * (k % 3), 20 + 80 * (k // 3 % 3), 30 + 60 * (k // 9) + 15 * k) for k in range(10)]
UNREADABLE = {"name": "a torn.jpg", "mimeType": "image/jpeg", "buffer": b"\xff\xd8\xff nothing more"}


@pytest.fixture(scope="module")
def quick(tmp_path_factory, network):
    """A server of a project with a network that takes no time."""
    served = Served(
        "--project", tmp_path_factory.mktemp("quick") / "project", "--backbone", network, "--priors", "none"
    )
    yield served
    served.stop()


@pytest.fixture
def empty(quick):
    """A server of an empty project."""
    if is_down(quick):
        quick.start()
    quick.undo_until(None)
    return quick


def small(n):
    """Paint small photos, many of which are quickly sent."""
    return [as_file(f"red {k}.png", paint((200, 40, 30), k, (40, 30))) for k in range(n)]


def class_folders(folder, each, first=0, names=tuple("abcdefghij")):
    """Fill a folder with folders of photos, one for each class."""
    for name, colour in zip(names, COLOURS, strict=False):
        inner = folder / f"class {name}"
        inner.mkdir(parents=True)
        for k in range(each):
            paint(colour, first + k, (64, 48)).save(inner / f"{name}{first + k}.png")
    return folder


def sent(page):
    """Read how many photos the page says were sent; None where nothing is on its way."""
    words = page.evaluate("() => { const p = document.querySelector('#sending'); return p.hidden ? '' : p.innerText; }")
    return int(words.split()[0]) if words else None


def names(served, place=None):
    """List the names of the photos of a class, by default of those to be labelled, in their order."""
    project = served.project()
    ids = {None: None, **{each["name"]: each["id"] for each in project["classes"]}}
    return [each["name"] for each in project["photos"] if each["class"] == ids[place]]


def answer(page, text):
    page.get_by_role("dialog").get_by_role("button", name=text).click()


def test_300_photos_dropped_as_a_folder_arrive_once_though_the_server_is_killed_twice(empty, visit, tmp_path):
    page = visit(empty)
    drop_paths(page, page.locator("h1").first, [class_folders(tmp_path / "taught", 2)])
    answer(page, "Teach 10 classes")
    expect(at(page, "class-card")).to_have_count(10)
    wait_until(lambda: sent(page) is None and list(empty.sizes().values()) == [0, *[2] * 10])

    page.foreseen.add(NO_NETWORK)
    drop_paths(page, page.locator("header.top"), [class_folders(tmp_path / "pile", 30, 10)])
    answer(page, "Label them all")
    for least in (30, 150):
        wait_until(lambda least=least: (sent(page) or 0) >= least)
        empty.kill()
        expect(at(page, "sent")).to_contain_text("Nothing is lost")
        empty.start()
    wait_until(lambda: sent(page) is None)
    told = wait_for_labels(page, empty)

    paths = [f"pile/class {name}/{name}{k}.png" for name in "abcdefghij" for k in range(10, 40)]
    assert names(empty) == paths
    assert len(told) == 300
    with save(page, "Labels as CSV", tmp_path).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == paths
    page.keyboard.press("Control+z")
    expect(at(page, "result")).to_have_count(0)
    assert list(empty.sizes().values()) == [0, *[2] * 10]
    page.keyboard.press("Control+z")
    wait_until(lambda: empty.project()["undo"] is None)
    assert empty.sizes() == {None: 0}


LAST_KEY = """() => new Promise((take) => {
  indexedDB.open("p3dc-uploads", 1).onsuccess = ({ target: { result: database } }) => {
    const keys = database.transaction("photos").objectStore("photos").getAllKeys();
    keys.onsuccess = () => { database.close(); take(keys.result.at(-1) ?? ""); };
  };
})"""
"""The key of the last photo that the browser keeps. Before it keeps all, it warns whoever closes the window."""


def test_a_reload_in_the_middle_loses_nothing(empty, visit):
    page = visit(empty)
    drop(page, page.locator("body"), small(300))
    wait_until(lambda: page.evaluate(LAST_KEY).endswith("-000299"))
    page.reload()
    expect(at(page, "sent")).to_contain_text("of 300 photos sent.")
    wait_until(lambda: sent(page) is None)
    assert names(empty) == [f"red {k}.png" for k in range(300)]
    expect(at(page, "result")).to_have_count(300)
    page.reload()
    expect(at(page, "result")).to_have_count(300)
    assert len(names(empty)) == 300


def test_what_waits_in_an_outage_is_shown_and_can_be_cancelled(empty, visit):
    page = visit(empty)
    page.foreseen.add(NO_NETWORK)
    at(page, "first-class").click()
    empty.kill()
    assert is_down(empty)
    drop(page, at(page, "ask-drop"), reds(20))
    expect(at(page, "sent")).to_contain_text("0 of 20 photos sent. The rest waits until the service answers.")
    expect(page.locator("#next img")).to_have_count(3)
    wait_until(lambda: page.locator("#next img").first.evaluate("(image) => image.naturalWidth") > 0)
    page.get_by_role("button", name="Cancel").click()
    expect(at(page, "sending")).to_be_hidden()
    expect(page.get_by_role("status").filter(has_text="Cancelled. 20 photos left out")).to_be_visible()
    empty.start()
    expect(at(page, "connection")).to_be_hidden()
    drop(page, at(page, "ask-drop"), blues(1))
    wait_until(lambda: names(empty) == ["blue 0.jpg"])


def test_undo_in_the_middle_takes_back_what_was_sent_and_leaves_out_the_rest(empty, visit):
    page = visit(empty)
    page.foreseen.add(answered(409))
    drop(page, page.locator("body"), small(300))
    wait_until(lambda: (sent(page) or 0) >= 8)
    at(page, "undo").click()
    expect(page.get_by_role("status").filter(has_text="Photos that were not yet sent are left out")).to_be_visible()
    wait_until(lambda: sent(page) is None)
    wait_until(lambda: names(empty) == [])
    page.reload()
    expect(page.get_by_role("button", name="Try the example set")).to_be_visible()
    assert names(empty) == []


def test_a_file_that_cannot_be_read_is_named_while_the_others_are_sent(examples, visit):
    page, held, passing = visit(examples), [], [True]

    def hold_all_but_the_first(route):
        if passing:
            passing.pop()
            route.continue_()
        else:
            held.append(route)

    wait_for_labels(page, examples)
    page.route(lambda url: "drop=" in url, hold_all_but_the_first)
    drop(page, card(page, "magpie"), [UNREADABLE, *reds(40)])
    expect(page.get_by_role("alert")).to_contain_text("1 file could not be added.")
    expect(page.get_by_role("alert").get_by_role("listitem")).to_contain_text("torn.jpg")
    assert sent(page) is not None
    passing.extend([True] * 9)
    for route in held:
        route.continue_()
    expect(card(page, "magpie").locator(".size")).to_have_text("42 photos")


WATCH_CARDS = """() => {
    const results = document.getElementById("results");
    const first = () => [...results.querySelectorAll("[data-photo]")].map((card) => card.dataset.photo);
    const before = first();
    window.kept = [];
    new MutationObserver(() => {
        if (document.getElementById("sending").hidden) return;
        window.kept.push(first().slice(0, before.length).join() === before.join());
    }).observe(results, { childList: true });
}"""


def test_cards_stay_where_they_are_while_photos_arrive(examples, visit):
    page = visit(examples)
    wait_for_labels(page, examples)
    there = at(page, "result").count()
    page.evaluate(WATCH_CARDS)
    drop(page, at(page, "ask-drop"), [*reds(20), *blues(20)])
    expect(at(page, "result")).to_have_count(there + 40)
    kept = page.evaluate("window.kept")
    assert len(kept) > 1
    assert all(kept)


def test_two_windows_show_the_same_queue_and_send_each_photo_once(empty, visit):
    page = visit(empty)
    posted = []
    page.context.on("request", lambda request: posted.append(request.url) if request.method == "POST" else None)
    other = page.context.new_page()
    other.goto(empty.address)
    expect(at(other, "first-class")).to_be_visible()
    drop(page, page.locator("body"), small(100))
    expect(at(other, "sent")).to_contain_text("of 100 photos sent.")
    wait_until(lambda: sent(page) is None and sent(other) is None)
    assert names(empty) == [f"red {k}.png" for k in range(100)]
    assert len(posted) == 7, "sixteen photos a request, none of them twice"
    expect(at(other, "result")).to_have_count(100)


def test_a_window_that_is_closed_leaves_the_rest_to_another(empty, visit):
    page = visit(empty)
    other = page.context.new_page()
    other.goto(empty.address)
    drop(other, other.locator("body"), small(300))
    wait_until(lambda: other.evaluate(LAST_KEY).endswith("-000299"))
    other.close()
    wait_until(lambda: sent(page) is None and len(names(empty)) == 300)
    assert names(empty) == [f"red {k}.png" for k in range(300)]


def test_photos_dropped_on_the_start_page_or_beside_a_card_are_to_be_labelled(empty, visit):
    page = visit(empty)
    drop(page, page.locator("header.top"), reds(2))
    expect(at(page, "result")).to_have_count(2)
    drop(page, page.locator("footer"), blues(1))
    expect(at(page, "result")).to_have_count(3)
    assert empty.sizes() == {None: 3}


def test_a_folder_keeps_its_paths_and_their_natural_order(empty, visit, tmp_path):
    for path in ("trip/b/2.png", "trip/b/10.png", "trip/a.png", "trip/b/notes.txt", "trip/.hidden/c.png"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(photo(path, (90, 20, 160))["buffer"])
    page = visit(empty)
    drop_paths(page, page.locator("h1").first, [tmp_path / "trip"])
    wait_until(lambda: len(names(empty)) == 3 and sent(page) is None)
    assert names(empty) == ["trip/a.png", "trip/b/2.png", "trip/b/10.png"]


def test_a_chosen_folder_of_class_folders_becomes_classes_in_one_step(empty, visit, tmp_path):
    page = visit(empty)
    class_folders(tmp_path / "garden", 3, names=("rose", "lily", "tulip"))
    at(page, "start-folder").set_input_files(tmp_path / "garden")
    dialog = page.get_by_role("dialog", name="Teach these as 3 classes?")
    expect(dialog).to_contain_text("9 photos in 3 folders: class lily, class rose, class tulip.")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert empty.sizes() == {None: 0}

    at(page, "start-folder").set_input_files(tmp_path / "garden")
    answer(page, "Teach 3 classes")
    expect(at(page, "class-card")).to_have_count(3)
    wait_until(lambda: empty.sizes() == {None: 0, "class lily": 3, "class rose": 3, "class tulip": 3})
    wait_until(lambda: sent(page) is None)
    assert names(empty, "class rose") == [f"garden/class rose/rose{k}.png" for k in range(3)]
    at(page, "undo").click()
    wait_until(lambda: empty.sizes() == {None: 0})


def test_a_name_with_a_quote_stays_as_it_is(empty, visit):
    page = visit(empty)
    drop(page, page.locator("body"), [photo('a"b.png', (90, 20, 160))])
    wait_until(lambda: names(empty) == ['a"b.png'])


def test_photos_dropped_before_the_project_is_there_arrive(empty, visit):
    held = []
    page = visit(empty, before=lambda page: page.route("**/v1/project", lambda route: held.append(route), times=1))
    drop(page, page.locator("body"), [photo("early.png", (90, 20, 160))])
    page.wait_for_timeout(300)
    for route in held:
        route.continue_()
    wait_until(lambda: names(empty) == ["early.png"])
