"""The page in Chromium, served by the command to a project that each test begins anew."""

import io
import json
import math
import os
import shutil
import subprocess
import sys
import time
from urllib.error import URLError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from PIL import Image

PATIENCE = 60.0
DESKTOP = {"viewport": {"width": 1280, "height": 860}}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
CHROMIUM = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
]
EXAMPLES = "Example set"
NO_NETWORK = "Failed to load resource: net::ERR_"
EVENTS = "/v1/events"


def answered(status):
    """Return the words of Chromium's console for a request that was answered with a status of 400 or more."""
    return f"Failed to load resource: the server responded with a status of {status}"


class Served:
    """The command ``p3dc serve`` in a process of its own."""

    def __init__(self, *options, **environment):
        self.options, self.environment, self.port = options, environment, 0
        self.start()

    def start(self):
        command = [sys.executable, "-m", "p3dc", "serve", "--no-browser", "--port", str(self.port), *self.options]
        environment = {**os.environ, **self.environment}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        line = self.process.stdout.readline()
        assert line.startswith("Serving http://localhost:"), line
        self.address = line.split()[1]
        self.port = int(self.address.rstrip("/").rsplit(":", 1)[1])

    def stop(self):
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE)

    def kill(self):
        self.process.kill()
        self.process.communicate(timeout=PATIENCE)

    def get(self, path, **asked):
        query = "&".join(f"{name}={value}" for name, value in asked.items())
        return self._call("GET", f"{path}?{query}" if query else path)

    def post(self, path):
        return self._call("POST", path)

    def delete(self, path):
        return self._call("DELETE", path)

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.address}v1/{path}", data, {"Content-Type": "application/json"}, method=method)
        with urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)

    def project(self):
        return self.get("project")

    def sizes(self):
        """Count the photos of each class by its name; None stands for those that are to be labelled."""
        project = self.project()
        names = {None: None, **{each["id"]: each["name"] for each in project["classes"]}}
        counts = dict.fromkeys(names.values(), 0)
        for photo in project["photos"]:
            counts[names[photo["class"]]] += 1
        return counts

    def move(self, photo, to):
        """Move a photo to a class, both by their names."""
        project = self.project()
        photos, classes = ({each["name"]: each["id"] for each in project[kind]} for kind in ("photos", "classes"))
        self._call("PATCH", f"photos/{photos[photo]}", {"class": classes[to]})

    def undo_until(self, *titles):
        while self.project()["undo"] not in titles:
            self.post("undo")


@pytest.fixture(scope="package")
def server(tmp_path_factory):
    served = Served("--project", tmp_path_factory.mktemp("kept") / "project")
    yield served
    served.stop()


@pytest.fixture
def empty(server):
    """A server of an empty project."""
    server.undo_until(None)
    return server


@pytest.fixture
def examples(server):
    """A server of the example set."""
    server.undo_until(None, EXAMPLES)
    project = server.project()
    if project["undo"] is None:
        server.post("redo" if project["redo"] == EXAMPLES else "drawings")
    return server


@pytest.fixture(scope="package")
def chromium():
    from playwright.sync_api import expect, sync_playwright

    path = os.environ.get("P3DC_CHROMIUM") or shutil.which("chromium")
    assert path, "there is no chromium. Install Debian's, or give the path of one as P3DC_CHROMIUM."
    expect.set_options(timeout=1000 * PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    """Open pages, each in a browser of its own; in the end the console must have said what was foreseen and no more.

    What is foreseen stands in ``page.foreseen``.
    """
    pages = []

    def open_page(served, path="", before=lambda page: None, **look):
        context = chromium.new_context(**{**DESKTOP, **look}, accept_downloads=True, reduced_motion="reduce")
        context.set_default_timeout(1000 * PATIENCE)
        page = context.new_page()
        page.foreseen, page.said, page.asked, page.waiting = set(), [], [], set()
        page.on("request", lambda request: request.url.endswith(EVENTS) or page.waiting.add(request))
        for end in ("requestfinished", "requestfailed"):
            page.on(end, lambda request: page.waiting.discard(request))
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(f"uncaught: {error}"))
        page.on("dialog", lambda dialog: (page.asked.append(dialog.message), dialog.dismiss()))
        pages.append(page)
        before(page)
        page.goto(served.address + path)
        return page

    yield open_page
    for page in pages:
        said, asked = page.said, page.asked
        page.context.close()
        unforeseen = [line for line in said if not any(line.startswith(words) for words in page.foreseen)]
        unheard = [words for words in page.foreseen if not any(line.startswith(words) for line in said)]
        assert (unforeseen, unheard, asked) == ([], [], [])


def at(page, name):
    """Find what the page calls a name for tests."""
    return page.locator(f"[data-test={name}]")


def card(page, name):
    """Find the card of a class."""
    return at(page, "class-card").filter(has=page.get_by_role("heading", name=name, exact=True))


def result(page, name):
    """Find the label of a photo by the photo's name."""
    return at(page, "result").filter(has=page.get_by_role("button", name=f"Delete {name}", exact=True))


def choice(page, name):
    """Find a class in the list of "This is …"."""
    return page.get_by_role("listbox", name="Classes").get_by_role("option", name=name)


def save(page, name, folder):
    """Save something by the menu in the header; return the path of the file."""
    page.get_by_role("button", name="Save", exact=True).click()
    with page.expect_download() as saved:
        page.get_by_role("menuitem", name=name).click()
    path = folder / saved.value.suggested_filename
    saved.value.save_as(path)
    return path


def wait_until(holds):
    """Wait until a condition holds, and report its last value if it never does."""
    end = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < end, f"waited {PATIENCE:.0f} seconds and got {found!r}"
        time.sleep(0.05)
    return found


def is_down(served):
    try:
        served.get("health")
    except URLError:
        return True
    return False


def percent(share):
    """Write a share as the page does."""
    if 0 < share < 0.005:
        return "< 1 %"
    return "> 99 %" if 0.995 < share < 1 else f"{math.floor(100 * share + 0.5)} %"


def labels_shown(page):
    """Read every label on the page: by photo, its class, its probability and what comes next."""
    return page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("[data-test=result]")].map((item) => {
            const read = (name) => item.querySelector(`[data-test=${name}]`).textContent;
            return [item.dataset.photo, [read("label"), read("probability"), read("runner-up")]];
        }))"""
    )


def labels_told(view):
    """Write the labels of the service as the page should show them."""
    return {
        found["id"]: [
            found["label"],
            "" if found["unknown"] else percent(found["probability"]),
            f"{'likeliest' if found['unknown'] else 'then'} {found['runner_up']}, "
            f"{percent(found['runner_up_probability'])}",
        ]
        for found in view["labels"]
    }


def wait_for_labels(page, served, **point):
    """Wait until there are labels, the page shows those that the service gives and asks for nothing; return them."""

    def agreed():
        told = labels_told(served.get("view", **point))
        return told if labels_shown(page) == told and not page.waiting else None

    return wait_until(agreed)


def drop(page, target, files):
    """Drop files on an element."""
    transfer = page.evaluate_handle(
        """(files) => {
            const transfer = new DataTransfer();
            for (const { name, mimeType, bytes } of files) {
                transfer.items.add(new File([new Uint8Array(bytes)], name, { type: mimeType }));
            }
            return transfer;
        }""",
        [{**file, "bytes": list(file["buffer"]), "buffer": None} for file in files],
    )
    for kind in ("dragenter", "dragover", "drop"):
        target.dispatch_event(kind, {"dataTransfer": transfer})


def drop_paths(page, target, paths):
    """Drop files and folders of the disk on an element, as a file manager does."""
    target.wait_for()
    box = target.bounding_box()
    at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    session = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, "data": data, **at})


def paint(colour, seed=0, size=(320, 240)):
    """Paint spots on a colour."""
    rng = np.random.default_rng(seed)
    pixels = np.clip(rng.normal(colour, 25, (6, 8, 3)), 0, 255).astype(np.uint8)
    return Image.fromarray(pixels).resize(size, Image.Resampling.NEAREST)


def photo(name, colour, seed=0, kind="PNG"):
    """Paint spots on a colour, as a file to be chosen."""
    return as_file(name, paint(colour, seed), kind)


def as_file(name, image, kind="PNG"):
    """Write an image as a file to be chosen."""
    written = io.BytesIO()
    image.save(written, kind)
    return {"name": name, "mimeType": f"image/{kind.lower()}", "buffer": written.getvalue()}


def reds(n, first=0):
    return [photo(f"red {first + k}.png", (200, 40, 30), first + k) for k in range(n)]


def blues(n, first=0):
    return [photo(f"blue {first + k}.jpg", (30, 60, 200), 100 + first + k, "JPEG") for k in range(n)]
