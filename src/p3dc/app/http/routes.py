"""The HTTP interface, version 1."""

import asyncio
import csv
import io
import tempfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response

from p3dc.app.http import schemas
from p3dc.app.http.guard import COOKIE, cookie_for, is_token
from p3dc.app.http.limits import Refusal, invalid, missing
from p3dc.app.http.metrics import CONTENT_TYPE, Metrics
from p3dc.app.http.responses import added, explanation_shape, failures_shape, label_facts, photo_shape, view_shape
from p3dc.app.http.uploads import FILE, IMAGES, Images, service_of
from p3dc.app.project import model_files as models
from p3dc.app.project.state import checked_point
from p3dc.app.service import Service
from p3dc.classifier.leave_one_out import Point
from p3dc.images.classifier import Prediction
from p3dc.images.explanation import base_classes, explain_features
from p3dc.images.prediction_rows import COLUMNS, row


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Say which errors a route may give beside those that any may."""
    return {status: {"model": schemas.Error} for status in (*statuses, 400, 401, 403, 408, 413, 421, 422, 500, 503)}


api = APIRouter(prefix="/v1")


Serving = Annotated[Service, Depends(service_of)]
Coordinate = Annotated[float | None, Query(ge=0, le=1, allow_inf_nan=False)]


def asked_point(alpha: Coordinate = None, beta: Coordinate = None) -> Point | None:
    """Take α and β from an address, both or neither."""
    if alpha is None and beta is None:
        return None
    if alpha is None or beta is None:
        raise invalid("Only one of alpha and beta is given. Give both, or neither.")
    return checked_point((alpha, beta))


At = Annotated[Point | None, Depends(asked_point)]


@api.get("/health", responses=refusals())
def health(service: Serving) -> schemas.Health:
    """Tell that the service runs."""
    state = service.project.state
    return schemas.Health(
        status="ok",
        version=version("p3dc-shot"),
        backbone=service.project.backbone.name,
        classes=len(state.classes),
        examples=len(state.photos) - len(state.to_label),
    )


@api.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}, **refusals()})
def metrics(request: Request, service: Serving) -> Response:
    """Give the counters, for Prometheus."""
    counted: Metrics = request.app.state.metrics
    state, embedder = service.project.state, service.embedder
    text = counted.text(
        images=embedder.n_images,
        batches=embedder.n_batches,
        classes=len(state.classes),
        photos=len(state.photos),
    )
    return Response(text, media_type=CONTENT_TYPE)


@api.post("/session", status_code=204, responses=refusals())
def session(body: schemas.Token, request: Request) -> Response:
    """Take the token once and give a browser a cookie for it."""
    token: str | None = request.app.state.token
    answer = Response(status_code=204)
    if token is not None:
        if not is_token(body.token, token):
            raise Refusal(401, "wrong_token", "That is not the token of this server.", {"WWW-Authenticate": "Bearer"})
        answer.set_cookie(COOKIE, cookie_for(token), httponly=True, samesite="strict", path="/v1")
    return answer


@api.get("/project", responses=refusals())
def project(service: Serving) -> schemas.ProjectShape:
    """Give all of the project but the pictures."""
    held = service.project
    revision, state, _ = held.now()
    priors = held.priors(state.priors)
    return schemas.ProjectShape(
        revision=revision,
        kept_in=None if held.store.folder is None else str(held.store.folder),
        backbone=held.backbone.name,
        n_base_classes=0 if priors is None or priors.geometry is None else len(priors),
        reject=state.reject,
        point=None if state.point is None else schemas.PointShape(alpha=state.point[0], beta=state.point[1]),
        classes=[schemas.ClassShape(id=each.id, name=each.name) for each in state.classes],
        photos=[photo_shape(each) for each in state.photos],
        undo=held.undoable,
        redo=held.redoable,
        limits=schemas.LimitsShape(
            **{name: getattr(service.limits, name) for name in schemas.LimitsShape.model_fields}
        ),
    )


@api.get("/classes", responses=refusals())
def classes(service: Serving) -> schemas.Classes:
    """List the classes and their examples."""
    revision, state, _ = service.project.now()
    listed = [
        schemas.ClassWithExamples(
            id=each.id,
            name=each.name,
            examples=[photo_shape(photo) for photo in state.photos if photo.label == each.id],
        )
        for each in state.classes
    ]
    return schemas.Classes(revision=revision, classes=listed)


@api.post("/classes", status_code=201, responses=refusals(409))
def make_class(body: schemas.NewName, service: Serving) -> schemas.NewClass:
    """Make a class without examples."""
    made = []

    def make(state: Any) -> Any:
        after, added = state.add_class(body.name, service.limits)
        made.append(added)
        return after

    revision = service.project.change(f"New class {_short(body.name)}", make)
    return schemas.NewClass(revision=revision, id=made[0].id)


@api.patch("/classes/{identity}", responses=refusals(404, 409))
def rename_class(identity: str, body: schemas.NewName, service: Serving) -> schemas.Changed:
    """Rename a class."""
    old = service.project.state.class_of(identity).name
    return _changed(
        service, f"Rename {_short(old)}", lambda state: state.rename_class(identity, body.name, service.limits)
    )


@api.delete("/classes/{identity}", responses=refusals(404))
def delete_class(identity: str, service: Serving) -> schemas.Changed:
    """Delete a class with its examples."""
    name = service.project.state.class_of(identity).name
    return _changed(service, f"Delete {_short(name)}", lambda state: state.delete_class(identity))


@api.post("/classes/{identity}/examples", status_code=201, responses=refusals(404, 409, 415), openapi_extra=IMAGES)
async def add_examples(identity: str, images: Images, service: Serving) -> schemas.Added:
    """Add examples to a class."""
    return added(*await service.add(images, identity))


@api.post("/photos", status_code=201, responses=refusals(409, 415), openapi_extra=IMAGES)
async def add_photos(images: Images, service: Serving) -> schemas.Added:
    """Add photos to the project that are to be labelled."""
    return added(*await service.add(images, None))


@api.delete("/photos", responses=refusals())
def clear(service: Serving) -> schemas.Changed:
    """Delete all photos that are to be labelled."""
    return _changed(service, "Clear photos", lambda state: state.clear())


@api.patch("/photos/{identity}", responses=refusals(404))
def change_photo(identity: str, body: schemas.PhotoChange, service: Serving) -> schemas.Changed:
    """Move a photo to a class, or among those that are to be labelled, or rename it."""
    if not body.model_fields_set:
        raise invalid("Nothing is to be changed. Give a class, a name, or both.")
    name = service.project.state.photo(identity).name

    def change(state: Any) -> Any:
        if "label" in body.model_fields_set:
            state = state.move_photo(identity, body.label)
        return state if body.name is None else state.rename_photo(identity, body.name, service.limits)

    verb = "Move" if "label" in body.model_fields_set else "Rename"
    return _changed(service, f"{verb} {_short(name)}", change)


@api.delete("/photos/{identity}", responses=refusals(404))
def delete_photo(identity: str, service: Serving) -> schemas.Changed:
    """Delete a photo, an example or one that is to be labelled."""
    name = service.project.state.photo(identity).name
    return _changed(service, f"Delete {_short(name)}", lambda state: state.delete_photo(identity))


@api.get(
    "/photos/{identity}/thumbnail",
    response_class=Response,
    responses={200: {"content": {"image/jpeg": {}}}, **refusals(404)},
)
def thumbnail(identity: str, service: Serving) -> Response:
    """Give a small picture of a photo."""
    _, _, pictures = service.project.now()
    if identity not in pictures:  # one that was deleted is there as long as that can be undone
        raise missing("photo", identity)
    lasting = {"Cache-Control": "private, max-age=31536000, immutable"}
    return Response(pictures[identity].thumbnail, media_type="image/jpeg", headers=lasting)


@api.get("/photos/{identity}/explanation", responses=refusals(404, 409))
def explanation(identity: str, at: At, service: Serving) -> schemas.ExplanationShape:
    """Tell why a photo has its label, and what pulled it where it is an example."""
    task = service.task()
    photo = task.state.photo(identity)
    classifier = task.at(at)
    picture = task.pictures[identity]
    found = explain_features(classifier, picture.features, photo.name, picture.thumbnail)
    place = next((i for i, example in enumerate(classifier.examples) if example.key == identity), None)
    return explanation_shape(
        task, classifier, found, identity, None if place is None else base_classes(classifier, place)
    )


@api.post("/classify", responses=refusals(409, 415), openapi_extra=IMAGES)
async def classify(images: Images, service: Serving) -> schemas.Labels:
    """Label images, which are not kept."""
    usable, failures = await service.embed(images, small=False)

    def label() -> list[Prediction]:
        return service.task().at(None).label(np.stack([picture.features for _, picture in usable]))

    labels = await asyncio.to_thread(label)
    predictions = [
        schemas.NamedLabel(name=name, **label_facts(found)) for (name, _), found in zip(usable, labels, strict=True)
    ]
    return schemas.Labels(predictions=predictions, failures=failures_shape(failures))


@api.post("/explain", responses=refusals(409, 415), openapi_extra=IMAGES)
async def explain(images: Images, at: At, service: Serving) -> schemas.ExplanationShape:
    """Tell why an image has its label; it is not kept."""
    if len(images) != 1:
        raise invalid(f"There are {len(images)} images in the request. Send one.")
    ((name, picture),), _ = await service.embed(images, small=False)

    def tell() -> schemas.ExplanationShape:
        task = service.task()
        classifier = task.at(at)
        found = explain_features(classifier, picture.features, name, picture.thumbnail)
        return explanation_shape(task, classifier, found)

    return await asyncio.to_thread(tell)


@api.get("/view", responses=refusals())
def view(at: At, service: Serving) -> schemas.View:
    """Give labels and map at a point, or at the project's own."""
    return view_shape(service.task(), at)


@api.get("/leave-one-out", responses=refusals())
def leave_one_out(at: At, service: Serving) -> schemas.LeaveOneOutShape:
    """Label each example by all others."""
    task = service.task()
    asked, right, of = ([], [], 0) if task.hint else task.leave_one_out(at)
    hint = task.hint or (None if asked else "Add a second photo to a class to see how the others label it.")
    return schemas.LeaveOneOutShape(
        revision=task.revision,
        accuracy=sum(right) / len(right) if right else None,
        right=sum(right),
        asked=len(asked),
        of=of,
        wrong=[identity for identity, is_right in zip(asked, right, strict=True) if not is_right],
        hint=hint,
    )


@api.put("/point", responses=refusals())
def set_point(body: schemas.PointShape, service: Serving) -> schemas.Changed:
    """Set α and β."""
    point = checked_point((body.alpha, body.beta))
    return _changed(service, f"α {body.alpha:.2f}, β {body.beta:.2f}", lambda state: state.at(point))


@api.delete("/point", responses=refusals())
def choose_point(service: Serving) -> schemas.Changed:
    """Let α and β be chosen for the task."""
    return _changed(service, "Back to auto", lambda state: state.at(None))


@api.post("/undo", responses=refusals(409))
def undo(service: Serving) -> schemas.Changed:
    """Take the last change back."""
    return schemas.Changed(revision=service.project.undo())


@api.post("/redo", responses=refusals(409))
def redo(service: Serving) -> schemas.Changed:
    """Do again what was undone."""
    return schemas.Changed(revision=service.project.redo())


@api.get(
    "/model",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}}, **refusals(409)},
)
def model(service: Serving) -> Response:
    """Give the model file, which p3dc predict reads."""
    named = {"Content-Disposition": 'attachment; filename="p3dc-model.safetensors"'}
    return Response(models.write_model(service.task()), media_type="application/octet-stream", headers=named)


@api.put("/model", responses=refusals(409, 415), openapi_extra=FILE)
async def take_model(request: Request, service: Serving) -> schemas.Changed:
    """Replace the project by a model file."""
    if not request.headers.get("content-type", "").lower().startswith("application/octet-stream"):
        raise Refusal(415, "not_a_file", "A model is sent as application/octet-stream, the file as it is.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        with path.open("wb") as file:
            async for chunk in request.stream():
                file.write(chunk)
        return schemas.Changed(
            revision=await asyncio.to_thread(models.take_model, service.project, path, service.limits)
        )


@api.get("/labels", response_class=Response, responses={200: {"content": {"text/csv": {}}}, **refusals(409)})
def labels(service: Serving) -> Response:
    """Give the labels of the photos as CSV, in the columns of p3dc predict."""
    task = service.task()
    classifier = task.at(None)
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    table.writerow(COLUMNS)
    for photo, found in zip(task.asked, task.labels(classifier), strict=True):
        table.writerow([_cell(each) for each in row(replace(found, key=photo.name))])
    named = {"Content-Disposition": 'attachment; filename="p3dc-labels.csv"'}
    return Response(written.getvalue(), media_type="text/csv", headers=named)


@api.post("/drawings", status_code=201, responses=refusals(409))
async def drawings(service: Serving) -> schemas.Changed:
    """Fill an empty project with the example set."""
    return schemas.Changed(revision=await service.draw())


def _changed(service: Service, title: str, make: Any) -> schemas.Changed:
    return schemas.Changed(revision=service.project.change(title, make))


def _short(name: str) -> str:
    tidy = " ".join(name.split())
    return tidy if len(tidy) <= 40 else tidy[:39] + "…"


def _cell(text: str) -> str:
    """Keep a spreadsheet from taking a name for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
