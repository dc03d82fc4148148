"""The triangle: labels, map and accuracy follow its point, and what is shown is what the service says at that point."""

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.page.conftest import DESKTOP, PHONE, at, labels_told, percent, wait_for_labels, wait_until

pytestmark = pytest.mark.browser


class Mouse:
    def __init__(self, page):
        self.mouse = page.mouse

    def press(self, x, y):
        self.mouse.move(x, y)
        self.mouse.down()

    def move(self, x, y):
        self.mouse.move(x, y)

    def release(self):
        self.mouse.up()


class Finger:
    def __init__(self, page):
        self.devtools = page.context.new_cdp_session(page)

    def press(self, x, y):
        self._send("touchStart", {"x": x, "y": y})

    def move(self, x, y):
        self._send("touchMove", {"x": x, "y": y})

    def release(self):
        self._send("touchEnd")

    def _send(self, kind, *points):
        self.devtools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": list(points)})


def place(page, alpha, beta):
    """Find where a point of the triangle is on the screen."""
    box = page.locator(".area").bounding_box()
    return box["x"] + box["width"] * (1 - alpha + beta) / 2, box["y"] + box["height"] * (alpha + beta)


def shown_point(page):
    return {name: float(at(page, name).input_value()) for name in ("alpha", "beta")}


def shown_map(page):
    """Read where each example begins and ends on the map, in pixels."""
    return page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("#map .point.support")].map((mark) => {
            const place = (name) => mark.querySelector(name).getAttribute("transform").match(/[-.0-9]+/g).map(Number);
            return [mark.dataset.photo, [...place(".from"), ...place(".after")]];
        }))"""
    )


def follows(page, view):
    """Return whether the map shows the positions of the service, moved and scaled as a whole."""
    told = {mark["id"]: [*mark["from"], *mark["to"]] for mark in view["map"]["support"]}
    drawn = shown_map(page)
    if drawn.keys() != told.keys():
        return False
    pixels = np.array([drawn[key] for key in told]).reshape(-1, 2)
    places = np.array([told[key] for key in told]).reshape(-1, 2) * [1, -1]
    spread = places - places.mean(axis=0)
    scale = (spread * pixels).sum() / (spread**2).sum()
    return bool(scale > 10 and np.abs(pixels - pixels.mean(axis=0) - scale * spread).max() < 0.5)


def accuracy_told(served, **point):
    found = served.get("leave-one-out", **point)
    return f"{percent(found['accuracy'])}{found['right']} of {found['asked']} right, each labelled by the others"


def ends(page):
    return tuple(at(page, "map-arrow").evaluate_all("(all) => all.map((one) => one.getAttribute('d'))"))


@pytest.mark.parametrize(("look", "Hand"), [(DESKTOP, Mouse), (PHONE, Finger)], ids=["desktop", "phone"])
def test_labels_arrows_and_accuracy_follow_the_point_while_it_is_dragged(examples, visit, look, Hand):
    examples.move("robin 7.webp", "magpie")  # or all are right at every point
    assert accuracy_told(examples, alpha=0.1, beta=0.05) != accuracy_told(examples)
    page = visit(examples, **look)
    wait_for_labels(page, examples)
    expect(at(page, "accuracy")).to_have_text(accuracy_told(examples))
    own = examples.get("view")
    before = ends(page)
    page.locator(".triangle").scroll_into_view_if_needed()
    hand = Hand(page)
    hand.press(*place(page, own["alpha"], own["beta"]))
    seen = {before}
    for alpha, beta in ((0.1, 0.3), (0.2, 0.6), (0.1, 0.05)):
        hand.move(*place(page, alpha, beta))
        wait_until(lambda here=(alpha, beta): abs(np.subtract(list(shown_point(page).values()), here)).max() < 0.02)
        point = shown_point(page)
        view = examples.get("view", **point)
        wait_for_labels(page, examples, **point)
        expect(at(page, "accuracy")).to_have_text(accuracy_told(examples, **point))
        wait_until(lambda view=view: follows(page, view))
        signed = f"α {point['alpha']:.2f}, β {point['beta']:.2f}"
        expect(at(page, "triangle-handle")).to_have_attribute("aria-valuetext", signed)
        expect(at(page, "auto")).to_have_attribute("aria-pressed", "false")
        other = sum(labels_told(own)[key][0] != label for key, (label, *_) in labels_told(view).items())
        expect(page.get_by_text("changed by moving the point")).to_contain_text(f"{other} label")
        assert examples.project()["point"] is None, "a point that moves is not kept"
        seen.add(ends(page))
    assert len(seen) == 4
    hand.release()
    wait_until(lambda: examples.project()["point"] == point)
    wait_for_labels(page, examples)

    page.get_by_role("button", name=f"Undo: {signed}").click()
    expect(at(page, "auto")).to_have_attribute("aria-pressed", "true")
    wait_for_labels(page, examples)
    wait_until(lambda: follows(page, own))
    page.get_by_role("button", name=f"Redo: {signed}").click()
    wait_until(lambda: shown_point(page) == point)


def test_auto_takes_the_point_back_to_where_the_software_puts_it(examples, visit):
    page = visit(examples)
    at(page, "beta").fill("0.7")
    wait_until(lambda: examples.project()["point"] == {"alpha": 0, "beta": 0.7})
    expect(at(page, "accuracy")).to_have_text(accuracy_told(examples))
    at(page, "auto").click()
    expect(at(page, "auto")).to_have_attribute("aria-pressed", "true")
    assert examples.project()["point"] is None
    own = examples.get("view")["auto_point"]
    wait_until(lambda: abs(np.subtract(list(shown_point(page).values()), list(own.values()))).max() <= 0.005)
    wait_for_labels(page, examples)


def test_the_fields_keep_the_point_inside_the_triangle(examples, visit):
    page = visit(examples)
    at(page, "alpha").fill("0.5")
    wait_until(lambda: examples.project()["point"] == {"alpha": 0.5, "beta": 0.5})
    at(page, "beta").fill("0.8")
    wait_until(lambda: examples.project()["point"] == {"alpha": 0.2, "beta": 0.8})
    assert shown_point(page) == {"alpha": 0.2, "beta": 0.8}
    at(page, "beta").fill("7")
    wait_until(lambda: examples.project()["point"] == {"alpha": 0, "beta": 1})
    at(page, "beta").blur()
    expect(at(page, "beta")).to_have_value("1.00")


def test_undo_right_after_a_key_takes_back_what_the_key_did(examples, visit):
    page = visit(examples)
    wait_for_labels(page, examples)
    at(page, "triangle-handle").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Control+z")
    expect(page.get_by_role("button", name="Redo: α")).to_be_enabled()
    expect(at(page, "auto")).to_have_attribute("aria-pressed", "true")
    assert examples.project()["point"] is None
    assert examples.project()["undo"] == "Example set"


def test_keys_move_the_point_and_stop_at_the_edge(examples, visit):
    page = visit(examples)
    wait_for_labels(page, examples)
    handle = at(page, "triangle-handle")
    handle.focus()
    for _ in range(24):
        page.keyboard.press("ArrowDown")
    for _ in range(24):
        page.keyboard.press("ArrowLeft")
    expect(handle).to_have_attribute("aria-valuetext", "α 1.00, β 0.00")
    page.keyboard.press("Shift+ArrowRight")
    wait_until(lambda: examples.project()["point"] not in (None, {"alpha": 1, "beta": 0}))
    point = examples.project()["point"]
    assert point["alpha"] == pytest.approx(0.99, abs=0.011)
    wait_until(lambda: shown_point(page) == point)
    for _ in range(30):
        page.keyboard.press("ArrowUp")
    expect(handle).to_have_attribute("aria-valuenow", "0")


def test_home_end_and_page_keys_move_the_point_and_a_line_says_what_that_changed(examples, visit):
    examples.move("robin 7.webp", "magpie")
    page = visit(examples)
    wait_for_labels(page, examples)
    line = page.get_by_text("changed by moving the point")
    handle = at(page, "triangle-handle")
    handle.focus()
    page.keyboard.press("Home")
    expect(handle).to_have_attribute("aria-valuetext", "α 0.00, β 0.00")
    page.keyboard.press("End")
    expect(handle).to_have_attribute("aria-valuetext", "α 0.50, β 0.50")
    page.keyboard.press("PageUp")
    expect(handle).to_have_attribute("aria-valuetext", "α 0.40, β 0.40")
    wait_until(lambda: examples.project()["point"] == {"alpha": 0.4, "beta": 0.4})
    wait_for_labels(page, examples)
    expect(line).to_contain_text("leave-one-out accuracy stays 91 %")
    page.keyboard.press("Home")
    wait_until(lambda: examples.project()["point"] == {"alpha": 0, "beta": 0})
    wait_for_labels(page, examples)
    expect(line).to_contain_text("leave-one-out accuracy from 91 % to 100 %")
    assert accuracy_told(examples).startswith("100 %")


def test_mix_ups_are_those_of_leave_one_out(examples, visit):
    examples.move("robin 2.webp", "magpie")
    page = visit(examples)
    wait_for_labels(page, examples)
    told = examples.get("leave-one-out")["confusion"]
    at(page, "confusion").click()
    rows = at(page, "confusion-table").locator("tbody tr")
    expect(rows).to_have_count(5)
    shown = [[int(cell or 0) for cell in row.locator("td").all_inner_texts()] for row in rows.all()]
    assert shown == told["counts"]
    expect(at(page, "mixed-up")).to_contain_text("magpie taken for robin 1 of 3 times")


def test_the_threshold_of_unknown_says_what_it_would_turn_away_and_is_kept_when_let_go(examples, visit):
    page = visit(examples)
    wait_for_labels(page, examples)
    slider = at(page, "unknown-below")
    view = examples.get("view")
    typical = sorted(found["typicality"] for found in view["labels"])
    slider.evaluate(
        """(slider, value) => {
            slider.value = value;
            slider.dispatchEvent(new Event("input", { bubbles: true }));
        }""",
        (typical[5] + typical[6]) / 2,
    )
    expect(at(page, "unknown-words")).to_contain_text("6 of 12 photos would be unknown")
    assert examples.project()["unknown_below"] is None, "nothing is kept before it is let go"
    slider.dispatch_event("change")
    wait_until(lambda: examples.project()["unknown_below"] is not None)
    wait_for_labels(page, examples)
    assert sum(found["unknown"] for found in examples.get("view")["labels"]) >= 6
    at(page, "unknown-auto").click()
    wait_until(lambda: examples.project()["unknown_below"] is None)
    expect(at(page, "unknown-auto")).to_have_attribute("aria-pressed", "true")
    assert examples.get("view")["unknown_below"] == view["unknown_below"]
