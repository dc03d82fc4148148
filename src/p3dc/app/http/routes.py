"""The HTTP interface, version 1: one function per route."""

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from p3dc.adaptive.settings import check_weights
from p3dc.app.errors import NotFoundError
from p3dc.app.http import bodies, responses, schemas
from p3dc.app.http.errors import RequestError
from p3dc.app.http.events import event_stream
from p3dc.app.http.metrics import Metrics
from p3dc.app.http.token import COOKIE, cookie_for, is_token
from p3dc.app.http.uploads import FILE, IMAGES, Dropped, Images
from p3dc.app.project import model_files
from p3dc.app.project.state import State, new_id
from p3dc.app.service import Service
from p3dc.classifier.leave_one_out import Point
from p3dc.errors import InputError
from p3dc.images.examples import open_thumbnail
from p3dc.images.examples import thumbnail as thumbnail_of
from p3dc.images.explanation import base_classes, explain_features
from p3dc.images.predictions import Prediction


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """List the errors of a route, in addition to those that any route may return."""
    return {status: {"model": schemas.Error} for status in (*statuses, 400, 401, 403, 408, 413, 421, 422, 500, 503)}


def content(kind: str) -> dict[int | str, dict[str, Any]]:
    """Describe a response that is not JSON."""
    return {200: {"content": {kind: {}}}}


def service_of(request: Request) -> Service:
    """Return the service that the routes work on."""
    service: Service = request.app.state.service
    return service


Serving = Annotated[Service, Depends(service_of)]
Coordinate = Annotated[float | None, Query(ge=0, le=1, allow_inf_nan=False)]


def point_of(alpha: Coordinate = None, beta: Coordinate = None) -> Point | None:
    """Read α and β from an address, both or neither."""
    if alpha is None and beta is None:
        return None
    if alpha is None or beta is None:
        raise InputError("Only one of alpha and beta is given. Give both, or neither.")
    check_weights(alpha, beta, extrapolate=False)
    return alpha, beta


At = Annotated[Point | None, Depends(point_of)]

api = APIRouter(prefix="/v1")


@api.get("/health", responses=errors())
def health(service: Serving) -> schemas.Health:
    """Return whether the service runs, and what it holds."""
    return responses.health(service)


@api.get("/metrics", response_class=Response, responses={**content("text/plain"), **errors()})
def metrics(request: Request, service: Serving) -> Response:
    """Return the counters, for Prometheus."""
    counted: Metrics = request.app.state.metrics
    state, embedder = service.project.state, service.embedder
    text = counted.text(
        images=embedder.n_images, batches=embedder.n_batches, classes=len(state.classes), photos=len(state.photos)
    )
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@api.post("/session", status_code=204, responses=errors())
def session(body: bodies.Token, request: Request) -> Response:
    """Exchange the token for a cookie, for browsers."""
    token: str | None = request.app.state.token
    response = Response(status_code=204)
    if token is not None:
        if not is_token(body.token, token):
            message = "That is not the token of this server."
            raise RequestError(401, "wrong_token", message, {"WWW-Authenticate": "Bearer"})
        response.set_cookie(COOKIE, cookie_for(token), httponly=True, samesite="strict", path="/v1")
    return response


@api.get("/project", responses=errors())
def project(request: Request, service: Serving) -> schemas.ProjectShape:
    """Return the whole project but its pictures."""
    return responses.project(service.project, request.app.state.limits)


@api.get("/classes", responses=errors())
def classes(service: Serving) -> schemas.Classes:
    """List the classes and their examples."""
    return responses.classes(service.project)


@api.post("/classes", status_code=201, responses=errors(404, 409))
def make_class(body: bodies.NewClassBody, drop: Dropped, service: Serving) -> schemas.NewClass:
    """Make a class without examples, or of photos of the project; in a drop, a class of that name may be there."""
    identity, limits = new_id(), service.project.limits

    def make(state: State) -> State:
        known = state.class_named(body.name) if drop else None
        if known is None:
            state, known = state.add_class(body.name, limits, identity)
        return state.move_photos(dict.fromkeys(body.photos, known.id))

    revision = service.project.change(f"New class {_short(body.name)}", make, drop=drop)
    made = service.project.state.class_named(body.name) if drop else None
    return schemas.NewClass(revision=revision, id=identity if made is None else made.id)


@api.patch("/classes/{identity}", responses=errors(404, 409))
def rename_class(identity: str, body: bodies.NewName, service: Serving) -> schemas.Changed:
    """Rename a class."""
    old, limits = service.project.state.class_of(identity).name, service.project.limits
    return _change(service, f"Rename {_short(old)}", lambda state: state.rename_class(identity, body.name, limits))


@api.delete("/classes/{identity}", responses=errors(404))
def delete_class(identity: str, service: Serving) -> schemas.Changed:
    """Delete a class with its examples."""
    name = service.project.state.class_of(identity).name
    return _change(service, f"Delete {_short(name)}", lambda state: state.delete_class(identity))


@api.post("/classes/{identity}/examples", status_code=201, responses=errors(404, 409, 415), openapi_extra=IMAGES)
async def add_examples(identity: str, images: Images, drop: Dropped, service: Serving) -> schemas.Added:
    """Add examples to a class."""
    return responses.added(*await service.add(images, identity, drop))


@api.post("/photos", status_code=201, responses=errors(409, 415), openapi_extra=IMAGES)
async def add_photos(images: Images, drop: Dropped, service: Serving) -> schemas.Added:
    """Add photos to be labelled to the project."""
    return responses.added(*await service.add(images, None, drop))


@api.delete("/photos", responses=errors())
def clear(service: Serving) -> schemas.Changed:
    """Delete all photos to be labelled."""
    return _change(service, "Clear photos", lambda state: state.clear())


@api.patch("/photos", responses=errors(404, 409))
def move_photos(body: bodies.Moves, service: Serving) -> schemas.MovedPhotos:
    """Move many photos in one change, those without a class to a new one if it has a name."""
    identity = None if body.new_class is None else new_id()

    def make(state: State) -> State:
        if body.new_class is not None:
            state, _ = state.add_class(body.new_class, service.project.limits, identity)
        return state.move_photos({move.id: move.label or identity for move in body.moves})

    n_photos = len(body.moves)
    title = f"Move {n_photos} photo{'s' * (n_photos != 1)}"
    return schemas.MovedPhotos(revision=service.project.change(title, make), id=identity)


@api.post("/deletions", responses=errors(404))
def delete_photos(body: bodies.Deletions, service: Serving) -> schemas.Changed:
    """Delete many photos in one change."""
    title = f"Delete {len(body.ids)} photo{'s' * (len(body.ids) != 1)}"
    return _change(service, title, lambda state: state.delete_photos(body.ids))


@api.patch("/photos/{identity}", responses=errors(404))
def change_photo(identity: str, body: bodies.PhotoChange, service: Serving) -> schemas.Changed:
    """Move a photo to a class or back to those to be labelled, rename it, or both."""
    if not body.model_fields_set:
        raise InputError("Nothing is to be changed. Give a class, a name, or both.")
    name = service.project.state.photo(identity).name

    def change(state: State) -> State:
        if "label" in body.model_fields_set:
            state = state.move_photos({identity: body.label})
        return state if body.name is None else state.rename_photo(identity, body.name, service.project.limits)

    verb = "Move" if "label" in body.model_fields_set else "Rename"
    return _change(service, f"{verb} {_short(name)}", change)


@api.delete("/photos/{identity}", responses=errors(404))
def delete_photo(identity: str, service: Serving) -> schemas.Changed:
    """Delete a photo, whether it is an example or to be labelled."""
    name = service.project.state.photo(identity).name
    return _change(service, f"Delete {_short(name)}", lambda state: state.delete_photos([identity]))


@api.get("/photos/{identity}/thumbnail", response_class=Response, responses={**content("image/jpeg"), **errors(404)})
def thumbnail(identity: str, service: Serving) -> Response:
    """Return the thumbnail of a photo."""
    _, _, pictures = service.project.now()
    if identity not in pictures:  # that of a deleted photo is there as long as undo can bring the photo back
        raise NotFoundError("photo", identity)
    return responses.picture(pictures[identity].thumbnail)


@api.get("/photos/{identity}/original", response_class=Response, responses={**content("image/*"), **errors(404)})
def original(identity: str, service: Serving) -> Response:
    """Return a photo as it was sent, where it was kept."""
    path = service.project.originals.path(identity)
    if path is None:
        raise NotFoundError("original of photo", identity)
    return responses.original(path)


@api.put("/originals", responses=errors(409))
def keep_originals(body: bodies.Keep, service: Serving) -> schemas.Changed:
    """Keep photos as they are sent from now on, or delete those that were kept."""
    return schemas.Changed(revision=service.project.keep_originals(body.keep))


@api.get("/archive", response_class=Response, responses={**content("application/zip"), **errors(409)})
def archive(service: Serving) -> Response:
    """Return a zip of all photos that were kept, in folders by their labels."""
    return responses.archive(service.session(), service.project.originals)


@api.get("/projects", responses=errors())
def projects(service: Serving) -> schemas.Projects:
    """List the projects."""
    return responses.projects(service)


@api.post("/projects", responses=errors(409))
def open_project(body: bodies.ProjectName, service: Serving) -> schemas.OpenedProject:
    """Open another project, or make it; everything else then belongs to it."""
    opened = service.open(body.name)
    return schemas.OpenedProject(revision=opened.revision, open=opened.name)


@api.get(
    "/priors/{name}/{cluster}/{place}", response_class=Response, responses={**content("image/jpeg"), **errors(404)}
)
def central_photo(name: str, cluster: str, place: int, service: Serving) -> Response:
    """Return the thumbnail of a central photo of a cluster, in the priors of the project."""
    priors = service.project.priors(name) if name == service.project.state.priors else None
    rows = dict(zip(priors.class_names, priors.central, strict=True)).get(cluster, ()) if priors else ()
    if not 0 <= place < len(rows) or not rows[place].thumbnail:
        raise NotFoundError("photo", f"{cluster}/{place}")
    jpeg = thumbnail_of(open_thumbnail(rows[place].thumbnail))  # encoded again: priors may come from anywhere
    return responses.picture(jpeg)


@api.get("/photos/{identity}/explanation", responses=errors(404, 409))
def explanation(identity: str, at: At, service: Serving) -> schemas.ExplanationShape:
    """Explain why a photo has its label and, if it is an example, which base classes pulled it."""
    current = service.session()
    photo = current.state.photo(identity)
    classifier = current.at(at)
    picture = current.pictures[identity]
    found = explain_features(classifier, picture.features, photo.name, picture.thumbnail)
    asked = [each.id for each in current.to_label]
    if identity in asked:  # labelled together with the others
        label = current.labels(classifier)[asked.index(identity)]
        found = replace(found, prediction=replace(label, key=photo.name))
    row = next((i for i, example in enumerate(classifier.examples) if example.key == identity), None)
    own_pulls = None if row is None else base_classes(classifier, [row])[0]
    unpulled = current.label_unpulled(classifier, picture.features)
    return responses.explanation(current, classifier, found, unpulled, identity, own_pulls)


@api.post("/classify", responses=errors(409, 415), openapi_extra=IMAGES)
async def classify(images: Images, service: Serving) -> schemas.Labels:
    """Label images without storing them."""
    usable, failures = await service.embed(images, thumbnails=False)

    def label() -> list[Prediction]:
        return service.session().at(None).label(np.stack([picture.features for _, picture in usable]))

    return responses.labels((upload.name for upload, _ in usable), await asyncio.to_thread(label), failures)


@api.post("/explain", responses=errors(409, 415), openapi_extra=IMAGES)
async def explain(images: Images, at: At, service: Serving) -> schemas.ExplanationShape:
    """Explain why an image has its label, without storing it."""
    if len(images) != 1:
        raise InputError(f"There are {len(images)} images in the request. Send one.")
    ((upload, picture),), _ = await service.embed(images, thumbnails=False)

    def explained() -> schemas.ExplanationShape:
        current = service.session()
        classifier = current.at(at)
        found = explain_features(classifier, picture.features, upload.name, picture.thumbnail)
        return responses.explanation(current, classifier, found, current.label_unpulled(classifier, picture.features))

    return await asyncio.to_thread(explained)


@api.get("/view", responses=errors())
def view(at: At, service: Serving, pile: bool = True) -> schemas.View:
    """Return labels and map at a point, by default at the project's own.

    Without the pile, labels are those by the examples alone, which takes less time.
    """
    return responses.view(service.session(), at, pile=pile)


@api.get("/leave-one-out", responses=errors())
def leave_one_out(at: At, service: Serving) -> schemas.LeaveOneOutShape:
    """Label each example by all others."""
    return responses.leave_one_out(service.session(), at)


@api.put("/point", responses=errors())
def set_point(body: bodies.PointShape, service: Serving) -> schemas.Changed:
    """Set α and β."""
    return _change(service, f"α {body.alpha:.2f}, β {body.beta:.2f}", lambda state: state.at((body.alpha, body.beta)))


@api.delete("/point", responses=errors())
def choose_point(service: Serving) -> schemas.Changed:
    """Let the software choose α and β for the task."""
    return _change(service, "Back to auto", lambda state: state.at(None))


@api.put("/unknown", responses=errors(409))
def set_threshold(body: bodies.Threshold, service: Serving) -> schemas.Changed:
    """Set from what typicality on a photo belongs to one of the classes, or let the software choose."""
    title = "Threshold back to auto" if body.below is None else f"Unknown below {body.below:.2f}"
    return _change(service, title, lambda state: state.with_threshold(body.below))


@api.get("/events", response_class=Response, responses={**content("text/event-stream"), **errors()})
async def events(request: Request, service: Serving) -> Response:
    """Send the revision of the project now and after each change, as server-sent events."""
    return event_stream(service, request.app.state.limits.listeners)


@api.post("/undo", responses=errors(409))
def undo(service: Serving) -> schemas.Changed:
    """Undo the last change."""
    return schemas.Changed(revision=service.project.undo())


@api.post("/redo", responses=errors(409))
def redo(service: Serving) -> schemas.Changed:
    """Redo the last change that was undone."""
    return schemas.Changed(revision=service.project.redo())


@api.get("/model", response_class=Response, responses={**content("application/octet-stream"), **errors(409)})
def model(service: Serving) -> Response:
    """Return the model file, which p3dc predict reads."""
    current = service.session()
    return responses.download(model_files.write_model(current.state, current.at(None)), "p3dc-model.safetensors")


@api.put("/model", responses=errors(409, 415), openapi_extra=FILE)
async def load_model(request: Request, service: Serving) -> schemas.Changed:
    """Replace the project by a model file."""
    if not request.headers.get("content-type", "").lower().startswith("application/octet-stream"):
        raise RequestError(415, "not_a_file", "A model is sent as application/octet-stream, the file as it is.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        with path.open("wb") as file:
            async for chunk in request.stream():
                file.write(chunk)
        return schemas.Changed(revision=await asyncio.to_thread(model_files.load_model, service.project, path))


@api.get("/labels", response_class=Response, responses={**content("text/csv"), **errors(409)})
def labels(service: Serving) -> Response:
    """Return the labels of the photos as CSV, in the columns of p3dc predict."""
    return responses.labels_as_csv(service.session())


@api.post("/drawings", status_code=201, responses=errors(409))
async def load_example_set(service: Serving) -> schemas.Changed:
    """Fill an empty project with the example set."""
    return schemas.Changed(revision=await service.load_example_set())


def _change(service: Service, title: str, make: Callable[[State], State]) -> schemas.Changed:
    return schemas.Changed(revision=service.project.change(title, make))


def _short(name: str) -> str:
    tidy = " ".join(name.split())
    return tidy if len(tidy) <= 40 else tidy[:39] + "…"
