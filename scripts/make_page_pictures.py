"""Make the pictures of the page in docs/pictures, in Chromium, with the example set.

Run as ``python scripts/make_page_pictures.py``; ``P3DC_CHROMIUM`` is the path of a Chromium that is not on ``PATH``.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

OUT = Path(__file__).parent.parent / "docs" / "pictures"
DESKTOP = {"viewport": {"width": 1280, "height": 860}}
SETTLED = """() => /[0-9]/.test(document.querySelector("[data-test=accuracy]").textContent)
    && !document.querySelector(".result.waiting")"""
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


@contextmanager
def serving() -> Iterator[str]:
    """Serve a library of projects that lasts as long as this and yield its address."""
    command = [sys.executable, "-m", "p3dc", "serve", "--no-browser", "--port", "0"]
    with tempfile.TemporaryDirectory() as folder:
        there = os.environ | {"XDG_DATA_HOME": folder}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=there) as server:
            assert server.stdout is not None
            yield server.stdout.readline().split()[1]
            server.terminate()


def rest(page: Page) -> None:
    """Wait until labels, accuracy and the thumbnails in view are there."""
    page.locator("[data-test=probability]:not(:empty)").first.wait_for()
    page.wait_for_function(SETTLED)
    page.wait_for_timeout(1000)


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
                page.reload()
            else:
                page.locator("nav a[href='#ask']").tap()
            rest(page)
            page.screenshot(path=OUT / f"{name}.png")
        browser.close()
