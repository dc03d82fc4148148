"""Make the pictures of the page in docs/pictures, in Chromium, with the example set.

Run as ``python scripts/make_page_pictures.py``; ``P3DC_CHROMIUM`` is the path of a Chromium that is not on ``PATH``.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

OUT = Path(__file__).parent.parent / "docs" / "pictures"
ALPHA, BETA = 0.2, 0.6
DESKTOP = {"viewport": {"width": 1280, "height": 860}}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


@contextmanager
def serving() -> Iterator[str]:
    """Serve a project in memory and yield its address."""
    command = [sys.executable, "-m", "p3dc", "serve", "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().split()[1]
        server.terminate()


def rest(page: Page) -> None:
    """Wait until all requests of the page are answered."""
    page.locator("[data-test=probability]:not(:empty)").first.wait_for()
    page.wait_for_load_state("networkidle")


def drag_point(page: Page) -> None:
    """Drag the point of the triangle."""
    area = page.locator(".area").bounding_box()
    assert area is not None
    x, y, width, height = (area[name] for name in ("x", "y", "width", "height"))
    page.mouse.move(x + width / 2, y + 1)
    page.mouse.down()
    page.mouse.move(x + width * (1 - ALPHA + BETA) / 2, y + height * (ALPHA + BETA), steps=5)
    page.mouse.up()
    page.locator("[data-test=undo][aria-label*='α']").wait_for()
    page.mouse.move(0, 0)


if __name__ == "__main__":
    path = os.environ.get("P3DC_CHROMIUM") or shutil.which("chromium")
    with serving() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        for name, look in (("page", DESKTOP), ("page-phone", PHONE)):
            page = browser.new_context(color_scheme="light", reduced_motion="reduce", **look).new_page()
            page.goto(address)
            if name == "page":
                page.locator("[data-test=example-set]").click()
                rest(page)
                drag_point(page)
                page.reload()
            else:
                page.locator("nav a[href='#ask']").tap()
            rest(page)
            page.screenshot(path=OUT / f"{name}.png")
        browser.close()
