"""The service around a backbone that sees the colours of four squares and nothing else."""

import hashlib
import io
from contextlib import ExitStack

import httpx
import numpy as np
import pytest
from anyio.from_thread import start_blocking_portal
from PIL import Image

from p3dc import FeatureSet, Priors
from p3dc.app.http.server import make_app
from p3dc.app.project.project import Project
from p3dc.app.project.state import State
from p3dc.images.backbones.backbone import Backbone
from p3dc.images.preprocessing import Preprocessing

COLOURS = {"olive": (150, 130, 20), "rust": (190, 70, 20), "teal": (30, 140, 140)}
TOKEN = "a token that is long enough"
NOWHERE = "0" * 16
"""The id of nothing."""


class Mosaic(Backbone):
    """The mean colours of four squares, and how many images came at once."""

    name = "mosaic"
    n_features = 12

    def __init__(self):
        self.preprocessing = Preprocessing(8, 8, (0, 0, 0), (255, 255, 255), layout="NHWC")
        self.digest = hashlib.sha256(b"mosaic").hexdigest()

    def _embed(self, batch):
        return batch.reshape(-1, 2, 4, 2, 4, 3).mean(axis=(2, 4)).reshape(-1, 12) + np.float32(0.01)


class InProcess(httpx.BaseTransport):
    """Hands requests to an application on the loop of another thread."""

    def __init__(self, app, portal, raises):
        self.asgi, self.portal = httpx.ASGITransport(app, raise_app_exceptions=raises), portal

    def handle_request(self, request):
        request.read()
        return self.portal.call(self._answer, request)

    async def _answer(self, request):
        found = await self.asgi.handle_async_request(request)
        return httpx.Response(found.status_code, headers=found.headers, content=await found.aread())


def picture(colour=COLOURS["olive"], seed=0, kind="PNG", size=(32, 32), noise=12, **options):
    """Paint four squares of nearly one colour, and return the file."""
    squares = np.random.default_rng(seed).normal(colour, noise, (2, 2, 3))
    image = Image.fromarray(np.clip(squares, 1, 254).astype(np.uint8)).resize(size, Image.Resampling.NEAREST)
    written = io.BytesIO()
    image.save(written, kind, **options)
    return written.getvalue()


def files(*images):
    """Make the parts of a form from images, each with or without its name."""
    named = [each if isinstance(each, tuple) else (f"{n}.png", each) for n, each in enumerate(images)]
    return [("images", (name, content, "application/octet-stream")) for name, content in named]


def make(client, name):
    """Make a class and return its id."""
    answer = client.post("/v1/classes", json={"name": name})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def add(client, to, *images):
    """Add photos to a class, or to be labelled, and return their ids."""
    path = "/v1/photos" if to is None else f"/v1/classes/{to}/examples"
    answer = client.post(path, files=files(*images))
    assert answer.status_code == 201, answer.text
    return [each["id"] for each in answer.json()["added"]]


def teach(client, n_each=4, colours=COLOURS):
    """Teach some colours, and return the ids of their classes by name."""
    made = {name: make(client, name) for name in colours}
    for place, (name, colour) in enumerate(colours.items()):
        add(client, made[name], *(picture(colour, 100 * place + n) for n in range(n_each)))
    return made


def told(answer, status, code):
    """Check that an answer is an error of the one shape, and return its sentence."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"error"}
    assert body["error"]["code"] == code
    assert set(body["error"]) <= {"code", "message", "failures"}
    assert body["error"]["message"].endswith(".")
    assert "\n" not in body["error"]["message"]
    return body["error"]["message"]


@pytest.fixture(scope="session")
def backbone():
    return Mosaic()


@pytest.fixture(scope="session")
def base():
    """Priors with a geometry: twenty colours."""
    rng = np.random.default_rng(4)
    labels = np.repeat(np.arange(20), 12)
    rows = rng.uniform(0.05, 0.9, (20, 1, 3))[labels] + rng.normal(0, 0.06, (240, 4, 3))
    found = Priors.from_features(FeatureSet(np.abs(rows).reshape(-1, 12), labels, [f"colour {n}" for n in range(20)]))
    assert found.geometry is not None
    return found


@pytest.fixture
def open_project(backbone, base):
    """Open projects, and close those that are still open in the end."""
    with ExitStack() as opened:

        def call(folder=None, priors=base, reject=0.2, project_limits=None):
            project = Project(folder, backbone, State(reject=reject), priors, project_limits)
            opened.callback(project.close)
            return project

        yield call


@pytest.fixture
def serve(open_project):
    """Serve projects to clients in this process."""
    with ExitStack() as served:
        portal = served.enter_context(start_blocking_portal())

        def call(folder=None, *, limits=None, token=None, raises=True, project=None, library=None, **options):
            project = project or open_project(folder, **options)
            app = make_app(project, limits, token, library)
            served.callback(portal.call, app.app.state.service.close)
            client = httpx.Client(transport=InProcess(app, portal, raises), base_url="http://localhost")
            client.app, client.project, client.service = app, project, app.app.state.service
            return served.enter_context(client)

        yield call


@pytest.fixture
def client(serve):
    return serve()


@pytest.fixture
def taught(client):
    """A client of a project with four photos of each of three classes, and four photos to be labelled."""
    client.classes = teach(client)
    colours = [*COLOURS.values(), (170, 130, 250)]
    client.asked = add(client, None, *((f"asked {n}.png", picture(c, 900 + n)) for n, c in enumerate(colours)))
    return client
