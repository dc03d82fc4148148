"""Measure the page in Chromium: from a drop to all labels, and from the pointer to the labels.

``python -m benchmarks.page [--photos 300] [--classes 10] [--shots 10] [--turns 3]`` drags the point of the triangle in
projects of made features, and prints the median time from a move of the pointer to labels that changed, as the page
sees it. Then it makes JPEGs of 500 × 375 and, in turns, times ``p3dc predict`` on them and drops them on the page of
``p3dc serve`` with the same examples. It prints the medians, with the processor time of the command and that of server
and browser, which other work on the machine changes less. Chromium is found on the path, or given as P3DC_CHROMIUM. It
runs on Linux.
"""

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from benchmarks.extraction import QUALITY, make_photo
from benchmarks.serving import Server
from benchmarks.triangle import make_state
from p3dc.app.project.project import Project
from p3dc.app.project.state import State
from p3dc.app.project.store import Picture
from p3dc.images.backbones.backbone import n_cores
from p3dc.images.backbones.loading import load_backbone
from p3dc.images.examples import thumbnail

MOVES = 30
QUIET = 1000
"""Milliseconds after which the page has nothing left to do, once leave-one-out accuracy is there."""
SETTLED = """() => /[0-9]/.test(document.querySelector("[data-test=accuracy]").textContent)"""
WATCH = """() => {
    window.times = [];
    let began = null;
    const results = document.getElementById("results");
    document.addEventListener("pointermove", () => { began ??= performance.now(); }, true);
    new MutationObserver(() => {
        if (began !== null) window.times.push(performance.now() - began);
        began = null;
    }).observe(results, { subtree: true, childList: true, characterData: true, attributes: true });
}"""
LABELLED = """(n) => document.querySelectorAll("[data-test=result]:not(.waiting)").length >= n"""


@contextmanager
def chromium() -> Iterator[Any]:
    """Yield a browser."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("P3DC_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--headless", "--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def make_folders(root: Path, n_classes: int, n_shots: int, n_photos: int) -> list[Path]:
    """Make examples in class folders, and photos to be labelled."""
    rng = np.random.default_rng(0)
    for number in range(n_classes * n_shots):
        folder = root / "examples" / f"class {number % n_classes}"
        folder.mkdir(parents=True, exist_ok=True)
        make_photo(rng).save(folder / f"{number:05}.jpg", quality=QUALITY)
    (root / "photos").mkdir()
    paths = [root / "photos" / f"{number:05}.jpg" for number in range(n_photos)]
    for path in paths:
        make_photo(rng).save(path, quality=QUALITY)
    return paths


class Taken(NamedTuple):
    """Seconds that something took, and seconds of processor time."""

    wall: float
    processor: float

    @classmethod
    def by(cls, work: Callable[[], object]) -> "Taken":
        """Measure some work, with the processor time of all processes that this one has started."""
        wall, processor = time.perf_counter(), processor_seconds()
        work()
        return cls(time.perf_counter() - wall, processor_seconds() - processor)


def processor_seconds() -> float:
    """Return the processor time of all processes below this one, and of its children that have ended."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = path.read_text().rpartition(")")[2].split()
            stats[int(path.parent.name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    below, ticks = {os.getpid()}, 0
    while found := {pid for pid, (parent, _) in stats.items() if parent in below} - below:
        below |= found
        ticks += sum(stats[pid][1] for pid in found)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ticks / os.sysconf("SC_CLK_TCK") + ended.ru_utime + ended.ru_stime


def run(*command: str) -> None:
    """Run a command of p3dc."""
    subprocess.run([sys.executable, "-m", "p3dc", *command], check=True, stdout=subprocess.DEVNULL)


def drop(browser: Any, project: Path, model: str, paths: list[Path]) -> Taken:
    """Drop photos on the page of a new project."""
    server = Server(project, model)
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(600_000)
    page.goto(f"http://localhost:{server.port}/")
    page.wait_for_function(SETTLED)
    page.wait_for_timeout(QUIET)

    def until_labelled() -> None:
        page.locator("[data-test=ask-input]").set_input_files(paths)
        page.wait_for_function(LABELLED, arg=len(paths), polling=50)  # at each frame it would cost the page time

    taken = Taken.by(until_labelled)
    page.close()
    server.stop()
    return taken


def measure_drop(browser: Any, root: Path, n_classes: int, n_shots: int, n_photos: int, n_turns: int) -> None:
    """Compare drops with the command."""
    paths, model = make_folders(root, n_classes, n_shots, n_photos), str(root / "model.safetensors")
    run("fit", str(root / "examples"), "--out", model)
    turns = []
    for turn in range(n_turns):
        by_command = Taken.by(lambda: run("predict", model, str(root / "photos")))
        by_page = drop(browser, root / f"project {turn}", model, paths)
        turns.append((*by_command, *by_page, by_page.wall / by_command.wall))
    wall, processor, wall_of_page, processor_of_page, ratio = np.median(turns, axis=0)
    print(
        f"{n_cores()} cores, {n_photos} photos, {n_classes} classes of {n_shots}, {n_turns} turns: p3dc predict "
        f"{wall:.1f} s ({processor:.1f} s of processor time), from drop to all labels {wall_of_page:.1f} s "
        f"({processor_of_page:.1f} s), {ratio:.2f} times as long",
        flush=True,
    )


def measure_point(browser: Any, root: Path, n_classes: int, n_shots: int, n_each: int) -> None:
    """Drag the point of the triangle."""
    state, pictures = make_state(n_classes, n_shots, n_each)
    small = thumbnail(Image.new("RGB", (160, 120), "teal"))
    project = Project(root / f"{n_classes}", load_backbone(), State(reject=state.reject))
    project.change("Fill", lambda _: state, {key: Picture(each.features, small) for key, each in pictures.items()})
    project.close()
    server = Server(root / f"{n_classes}")
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(300_000)
    page.goto(f"http://localhost:{server.port}/")
    page.wait_for_function(LABELLED, arg=1)
    page.wait_for_function(SETTLED)
    page.wait_for_timeout(QUIET)
    triangle = page.locator(".triangle")
    triangle.scroll_into_view_if_needed()
    box = triangle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + 0.6 * box["height"]
    page.mouse.move(x, y)
    page.mouse.down()
    with page.expect_response(lambda answer: "view?alpha" in answer.url):  # it computes what all others share
        page.mouse.move(x + 5, y - 5)
    page.wait_for_timeout(QUIET)
    page.evaluate(WATCH)
    for number in range(MOVES):
        page.mouse.move(x + 2 * (number % 10), y + number)
        page.wait_for_timeout(300)
    times = page.evaluate("window.times")
    page.mouse.up()
    page.close()
    server.stop()
    print(
        f"{n_classes} classes of {n_shots}, {n_classes * n_each} photos: from pointer to labels, median "
        f"{statistics.median(times):.0f} ms, largest {max(times):.0f} ms of {len(times)} moves",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--photos", type=int, default=300)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--shots", type=int, default=10)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        measure_point(browser, Path(name), 10, 10, 6)
        measure_point(browser, Path(name), 50, 5, 4)
        measure_drop(browser, Path(name), given.classes, given.shots, given.photos, given.turns)


if __name__ == "__main__":
    main()
