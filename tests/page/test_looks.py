"""For every eye, hand and screen: width, names, contrast, light and dark."""

import pytest
from playwright.sync_api import expect

from tests.page.conftest import DESKTOP, PHONE, answered, at, card, wait_for_labels, wait_until

pytestmark = pytest.mark.browser
SCHEMES = ("light", "dark")
WIDTHS = (320, 390, 1280)
CONTROLS = {"button", "textbox", "link", "slider", "spinbutton", "combobox", "menuitem", "checkbox", "image"}
LEAST, LEAST_LARGE = 4.5, 3.0
"""The contrast that WCAG asks for at level AA, of text and of large text."""

# Every text in view, with the ratio of its contrast to what is painted behind it.
CONTRASTS = """() => {
    const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
    const brush = canvas.getContext("2d", { willReadFrequently: true });
    const over = (colours) => {
        brush.clearRect(0, 0, 1, 1);
        for (const colour of colours) {
            brush.fillStyle = colour;
            brush.fillRect(0, 0, 1, 1);
        }
        return [...brush.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const light = (channels) => {
        const [r, g, b] = channels.map((c) => (c <= 10 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let text = walker.nextNode(); text; text = walker.nextNode()) {
        const holder = text.parentElement;
        if (!text.textContent.trim() || holder.closest(".unseen, script, title, :disabled, .off")) continue;
        if (!holder.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
        const style = getComputedStyle(holder);
        const grounds = [];
        for (let one = holder; one; one = one.parentElement) grounds.unshift(getComputedStyle(one).backgroundColor);
        const ink = holder instanceof SVGElement ? style.fill : style.color;
        const [a, b] = [light(over(grounds)), light(over([...grounds, ink]))].sort((x, y) => x - y);
        const large = parseFloat(style.fontSize) >= (style.fontWeight >= 700 ? 18.66 : 24);
        found.push([text.textContent.trim().slice(0, 40), (b + 0.05) / (a + 0.05), large]);
    }
    return found;
}"""


def unreadable(page):
    """List the texts whose contrast is too small, of all texts in view."""
    found = page.evaluate(CONTRASTS)
    assert len(found) > 5
    return [(text, ratio) for text, ratio, large in found if ratio < (LEAST_LARGE if large else LEAST)]


def nameless(page):
    """List controls and pictures that a screen reader could not name, after Chromium's own tree."""
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    controls = [node for node in tree if not node["ignored"] and node["role"]["value"] in CONTROLS]
    assert len(controls) >= 3
    return [node for node in controls if not node.get("name", {}).get("value", "").strip()]


def sideways(page):
    """Return by how many pixels the page is wider than the window."""
    return page.evaluate("() => document.scrollingElement.scrollWidth - innerWidth")


def test_the_invitation_fits_has_names_and_can_be_read(empty, visit):
    page = visit(empty)
    expect(page.get_by_role("button", name="Try the example set")).to_be_visible()
    assert nameless(page) == []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        assert sideways(page) <= 0
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        assert unreadable(page) == []


def test_nothing_scrolls_sideways(examples, visit):
    page = visit(examples)
    name = at(page, "class-name").first
    name.fill("a-name-without-a-single-space-as-long-as-a-name-may-be-" + 45 * "x")
    name.press("Enter")
    wait_until(lambda: examples.project()["classes"][0]["name"].endswith("xxx"))
    wait_for_labels(page, examples)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        assert sideways(page) <= 0
        at(page, "result").last.focus()
        page.keyboard.press("w")
        expect(at(page, "cosines")).to_be_visible()
        assert sideways(page) <= 0
        assert page.locator("#why").evaluate("(dialog) => dialog.scrollWidth <= dialog.clientWidth")
        page.keyboard.press("Escape")
        at(page, "class-menu").first.click()
        box = page.get_by_role("menu").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        page.keyboard.press("Escape")


@pytest.mark.parametrize("look", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_every_control_has_a_name(examples, visit, look):
    page = visit(examples, **look)
    wait_for_labels(page, examples)
    assert nameless(page) == []
    at(page, "move-menu").first.click()
    expect(page.get_by_role("menu")).to_be_visible()
    assert nameless(page) == []
    page.keyboard.press("Escape")
    at(page, "why").first.click()
    expect(at(page, "cosines")).to_be_visible()
    assert nameless(page) == []
    page.keyboard.press("Escape")
    at(page, "ask-camera").click()
    expect(at(page, "take-photo")).to_be_enabled()
    assert nameless(page) == []


def test_parts_have_headings_and_the_page_a_language_and_one_title(examples, visit):
    page = visit(examples)
    wait_for_labels(page, examples)
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.title() == "P3DC-Shot"
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    for name in ("Teach", "Ask", "Watch"):
        expect(page.get_by_role("region", name=name)).to_be_visible()
    expect(page.get_by_role("grid", name="12 photos").get_by_role("row")).to_have_count(12)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the classes")).to_be_focused()


@pytest.mark.parametrize("look", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_controls_are_large_enough_to_hit(examples, visit, look):
    page = visit(examples, **look)
    wait_for_labels(page, examples)
    small = page.evaluate(
        """() => [...document.querySelectorAll("button, a[href], label.button, label.tool, input:not(.unseen)")]
            .filter((one) => one.checkVisibility() && !one.matches(".skip, .brand"))
            .map((one) => [one.outerHTML.slice(0, 80), one.getBoundingClientRect()])
            .filter(([, { width, height }]) => Math.min(width, height) < 24)
            .map(([html]) => html)"""
    )
    assert small == []


def test_text_can_be_read_in_both_schemes(examples, visit):
    page = visit(examples)
    page.foreseen.add(answered(409))
    wait_for_labels(page, examples)
    name = at(page, "class-name").first
    name.fill("magpie")
    name.press("Enter")
    expect(page.get_by_role("alert")).to_be_visible()
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        card(page, "kingfisher").get_by_role("button", name="Menu of kingfisher 1.webp").click()
        expect(page.get_by_role("menu")).to_be_visible()
        assert unreadable(page) == []
        page.keyboard.press("Escape")
        at(page, "why").first.click()
        expect(at(page, "cosines")).to_be_visible()
        assert unreadable(page) == []
        page.keyboard.press("Escape")


def test_the_scheme_is_the_system_s_until_the_user_chooses(examples, visit):
    page = visit(examples)
    ground = lambda: page.evaluate("() => getComputedStyle(document.body).backgroundColor")  # noqa: E731
    light = ground()
    page.emulate_media(color_scheme="dark")
    dark = ground()
    assert sum(map(int, light[4:-1].split(","))) > 600
    assert sum(map(int, dark[4:-1].split(","))) < 150
    page.get_by_role("button", name="Colours: auto. Change to light").click()
    assert ground() == light
    page.reload()
    assert ground() == light
    page.get_by_role("button", name="Colours: light. Change to dark").click()
    page.emulate_media(color_scheme="light")
    assert ground() == dark
    page.get_by_role("button", name="Colours: dark. Change to auto").click()
    assert ground() == light


def test_no_two_of_fifty_classes_look_alike_and_their_names_can_be_read(empty, visit):
    page = visit(empty)
    expect(page.get_by_role("button", name="Try the example set")).to_be_visible()
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        looks = page.evaluate(
            """async () => {
                const { look } = await import("/page/colours.js");
                const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
                const brush = canvas.getContext("2d", { willReadFrequently: true });
                const painted = (colour) => {
                    brush.fillStyle = colour;
                    brush.fillRect(0, 0, 1, 1);
                    return [...brush.getImageData(0, 0, 1, 1).data].slice(0, 3);
                };
                const made = Array.from({ length: 50 }, (_, place) => {
                    const swatch = document.createElement("span");
                    swatch.className = `swatch ${look(place)}`;
                    document.body.append(swatch);
                    const { backgroundColor, clipPath } = getComputedStyle(swatch);
                    swatch.remove();
                    return [painted(backgroundColor), clipPath];
                });
                const surface = document.createElement("div");
                surface.className = "card";
                document.body.append(surface);
                const ground = painted(getComputedStyle(surface).backgroundColor);
                surface.remove();
                return { made, ground };
            }"""
        )
        luminance = relative_luminance(looks["ground"])
        for n, (colour, marker) in enumerate(looks["made"]):
            low, high = sorted((luminance, relative_luminance(colour)))
            assert (high + 0.05) / (low + 0.05) >= LEAST, (n, colour)
            for other, other_marker in looks["made"][:n]:
                far = sum((a - b) ** 2 for a, b in zip(colour, other, strict=True)) ** 0.5
                assert far > 30 or marker != other_marker, (n, colour, other)


def relative_luminance(channels):
    linear = [c / 3294.6 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_swatches_and_bars_stay_in_forced_colours(examples, visit):
    page = visit(examples, forced_colors="active")
    wait_for_labels(page, examples)
    for found in (at(page, "class-card").locator(".swatch").first, page.locator("[data-unknown=false] .fill").first):
        colour = found.evaluate("(one) => getComputedStyle(one).backgroundColor")
        assert colour.startswith("oklch"), colour
    auto = at(page, "auto")
    pressed, free = (
        auto.evaluate("(one, on) => (one.ariaPressed = on, getComputedStyle(one).backgroundColor)", on)
        for on in ("true", "false")
    )
    assert pressed != free
