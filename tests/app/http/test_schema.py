"""The service against its own OpenAPI document, by schemathesis."""

import copy
import threading
import time

import jsonschema_rs
import numpy as np
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, settings
from PIL import Image
from schemathesis.config import SchemathesisConfig

from p3dc.app.http.limits import RequestLimits
from p3dc.app.http.server import make_app
from p3dc.app.project.project import Project
from p3dc.app.project.state import Class, Photo, State
from p3dc.app.project.store import Picture
from p3dc.images.examples import thumbnail
from tests.app.conftest import Mosaic

ONE, TWO = "c" * 16, "d" * 16
PHOTOS = [f"{n:016x}" for n in range(6)]
LABELS = [ONE, ONE, TWO, TWO, None, None]
CONFIG = {
    "generation": {"max-examples": 40, "deterministic": True},
    # the document cannot say that α + β ≤ 1, that both are given or none, or that a file is an image or a model
    "checks": {"positive_data_acceptance": {"enabled": False}},
}

project = Project(None, Mosaic(), State(reject=0.2), "none")
app = make_app(project, RequestLimits(seconds=5))
document = app.app.openapi()
finite = {**document, "paths": {path: each for path, each in document["paths"].items() if path != "/v1/events"}}
schema = schemathesis.openapi.from_dict(finite, config=SchemathesisConfig.from_dict(CONFIG))
answered = set()


def fill():
    """Let the project hold two classes, two photos of each, and two to be labelled, of ids that are known."""
    photos = [Photo(identity, f"{identity}.png", label) for identity, label in zip(PHOTOS, LABELS, strict=True)]
    state = State((Class(ONE, "one"), Class(TWO, "two")), tuple(photos), reject=0.2, priors="none")
    rng, small = np.random.default_rng(0), thumbnail(Image.new("RGB", (9, 9)))
    new = {identity: Picture(rng.random(12, dtype=np.float32), small) for identity in PHOTOS}
    known = project.pictures
    project.change("Fill", lambda _: state, {key: each for key, each in new.items() if key not in known})


# The parameter gives every operation an id of its own: without one, pytest 9.2 gives all the same, and xdist runs one.
@pytest.fixture(scope="module", params=["served"])
def address():
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(30)


@schema.hook
def map_path_parameters(context, path_parameters):
    """Ask for what is there, more often than not."""
    if path_parameters and "identity" in path_parameters and len(str(path_parameters["identity"])) % 3:
        there = PHOTOS if "photos" in context.operation.path else [ONE, TWO]
        path_parameters["identity"] = there[len(str(path_parameters["identity"])) % len(there)]
    return path_parameters


@schema.parametrize()
@settings(deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_one_that_the_document_promises(case, address):
    fill()
    response = case.call_and_validate(base_url=address)
    answered.add((case.operation.label, response.status_code // 100))


def test_the_document_is_valid():
    assert document["openapi"].startswith("3.1")
    schema.validate()
    for each in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **each})
    ids = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(set(ids)) == len(ids)


def test_every_error_in_the_document_has_the_one_shape():
    for path in document["paths"].values():
        for each in path.values():
            for status, response in each["responses"].items():
                if int(status) >= 400:
                    (content,) = response["content"].values()
                    assert content["schema"] == {"$ref": "#/components/schemas/Error"}, (each["operationId"], status)


def test_the_document_is_where_errors_say_it_is(client):
    answer = client.get("/v1/openapi.json")
    assert answer.json()["paths"].keys() == document["paths"].keys()


def linked():
    """The document, which tells as well that what is made can be asked for."""
    made = {"/v1/classes": "$response.body#/id", "/v1/photos": "$response.body#/added/0/id"}
    told = copy.deepcopy(finite)
    for source, identity in made.items():
        told["paths"][source]["post"]["responses"]["201"]["links"] = {
            each["operationId"]: {"operationId": each["operationId"], "parameters": {"identity": identity}}
            for path, item in told["paths"].items()
            if path.startswith(f"{source}/{{identity}}")
            for each in item.values()
            if not path.endswith(("/thumbnail", "/original"))  # there until undo is forgotten; only where it is kept
        }
    return told


def test_chains_of_requests_are_answered_as_the_document_promises(address):
    class Chain(
        schemathesis.openapi.from_dict(linked(), config=SchemathesisConfig.from_dict(CONFIG)).as_state_machine()
    ):
        def setup(self):
            super().setup()
            fill()

        def get_call_kwargs(self, case):
            return {"base_url": address}

    Chain.run(
        settings=settings(
            max_examples=15,
            stateful_step_count=6,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
    )


def test_every_operation_was_seen_to_work(request):
    operations = {operation.ok().label for operation in schema.get_all_operations()}
    collected = [getattr(item, "operation_label", None) for item in request.session.items]
    if not operations <= set(collected):
        pytest.skip("it looks back at the tests above")
    elsewhere = {
        "PUT /v1/model",
        "POST /v1/redo",
        "POST /v1/drawings",
        "GET /v1/archive",
        "GET /v1/photos/{identity}/original",
        "POST /v1/projects",
        "PATCH /v1/photos",
        "POST /v1/deletions",
        "GET /v1/priors/{name}/{cluster}/{place}",
    }
    assert operations - {label for label, kind in answered if kind == 2} <= elsewhere
    assert not {label for label, kind in answered if kind == 5}
