"""Build every response of the service from what the app returns."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from fastapi import Response
from fastapi.responses import FileResponse, StreamingResponse

from p3dc.app.archive import archive_names, zip_pieces
from p3dc.app.errors import ConflictError, FailedImage
from p3dc.app.http import schemas
from p3dc.app.http.bodies import PointShape
from p3dc.app.http.limits import RequestLimits
from p3dc.app.project.originals import Originals
from p3dc.app.project.project import WITHOUT_FILE, Project
from p3dc.app.project.state import Photo
from p3dc.app.service import Service
from p3dc.app.session import Session
from p3dc.classifier.leave_one_out import Point
from p3dc.confidence.asking import doubt
from p3dc.images.classifier import ImageClassifier
from p3dc.images.explanation import Explanation, Pull
from p3dc.images.file_formats import format_name
from p3dc.images.prediction_rows import COLUMNS, row
from p3dc.images.predictions import Prediction

MEDIA_TYPES = {name: f"image/{name.lower()}" for name in ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WebP", "AVIF", "HEIC")}
"""Media types of photos, by the names of their formats."""


def health(service: Service) -> schemas.Health:
    """Describe what runs and what it holds."""
    state = service.project.state
    return schemas.Health(
        status="ok",
        version=version("p3dc-shot"),
        backbone=service.project.backbone.name,
        classes=len(state.classes),
        examples=len(state.photos) - len(state.to_label),
    )


def project(opened: Project, limits: RequestLimits) -> schemas.ProjectShape:
    """Describe a project."""
    revision, state, _ = opened.now()
    priors = opened.priors(state.priors)
    known = asdict(limits) | asdict(opened.limits)
    return schemas.ProjectShape(
        revision=revision,
        name=opened.name,
        kept_in=None if opened.store.folder is None else str(opened.store.folder),
        backbone=opened.backbone.name,
        n_base_classes=0 if priors is None or priors.geometry is None else len(priors),
        priors=state.priors if state.priors in WITHOUT_FILE else "own",
        reject=state.reject,
        unknown_below=state.unknown_below,
        point=None if state.point is None else PointShape(alpha=state.point[0], beta=state.point[1]),
        classes=[schemas.ClassShape(id=each.id, name=each.name) for each in state.classes],
        photos=_photos(state.photos),
        originals=schemas.OriginalsShape(
            keep=opened.keeps_originals, photos=sum(photo.id in opened.originals.ids for photo in state.photos)
        ),
        undo=opened.undoable,
        redo=opened.redoable,
        limits=schemas.LimitsShape(**{name: known[name] for name in schemas.LimitsShape.model_fields}),
    )


def projects(service: Service) -> schemas.Projects:
    """List the projects that can be opened, with the one that is."""
    opened, library = service.project, service.library
    _, state, _ = opened.now()
    own = schemas.ProjectEntry(
        name=opened.name, photos=len(state.photos), classes=len(state.classes), changed=datetime.now(UTC)
    )
    others = [] if library is None else [each for each in library.entries() if each.name != own.name]
    return schemas.Projects(
        folder=None if library is None else str(library.folder),
        open=own.name,
        projects=[own, *(schemas.ProjectEntry(**each._asdict()) for each in others)],
    )


def original(path: Path) -> Response:
    """Return a photo as it was sent."""
    with path.open("rb") as file:
        kind = MEDIA_TYPES.get(format_name(file.read(32)) or "", "application/octet-stream")
    return FileResponse(path, media_type=kind, headers={"Cache-Control": "private, max-age=31536000, immutable"})


def archive(session: Session, originals: Originals) -> Response:
    """Return a zip of all photos that were kept, in folders by their labels."""
    names = session.state.names
    found = dict.fromkeys((photo.id for photo in session.to_label), "unlabelled")
    if session.hint is None:
        found = dict(zip(found, (each.label for each in session.labels(session.at(None))), strict=True))
    kept = [(photo, path) for photo in session.state.photos if (path := originals.path(photo.id)) is not None]
    if not kept:
        raise ConflictError("No photos are kept as they were sent. Agree to keep them, and send them again.")
    labelled = [(found[photo.id] if photo.label is None else names[photo.label], photo.name) for photo, _ in kept]
    pieces = zip_pieces(zip(archive_names(labelled), (path for _, path in kept), strict=True))
    return StreamingResponse(
        pieces, media_type="application/zip", headers={"Content-Disposition": 'attachment; filename="p3dc-photos.zip"'}
    )


def classes(opened: Project) -> schemas.Classes:
    """List the classes of a project and their examples."""
    revision, state, _ = opened.now()
    listed = [
        schemas.ClassWithExamples(
            id=each.id, name=each.name, examples=_photos(photo for photo in state.photos if photo.label == each.id)
        )
        for each in state.classes
    ]
    return schemas.Classes(revision=revision, classes=listed)


def added(revision: int, photos: Sequence[Photo], failures: Sequence[FailedImage]) -> schemas.Added:
    """List the photos that were added, and the images that could not be used."""
    return schemas.Added(revision=revision, added=_photos(photos), failures=_failures(failures))


def labels(names: Iterable[str], found: Iterable[Prediction], failures: Sequence[FailedImage]) -> schemas.Labels:
    """List the labels of images, and the images that could not be used."""
    predictions = [schemas.NamedLabel(name=name, **_label(label)) for name, label in zip(names, found, strict=True)]
    return schemas.Labels(predictions=predictions, failures=_failures(failures))


def explanation(
    session: Session,
    classifier: ImageClassifier,
    found: Explanation,
    label_unpulled: str | None,
    identity: str | None = None,
    own_pulls: tuple[Pull, ...] | None = None,
) -> schemas.ExplanationShape:
    """Explain why an image has its label; an example of the project has an id and pulls of its own."""
    names = {photo.id: photo.name for photo in session.state.photos}
    ordered = sorted(found.cosines.items(), key=lambda pair: -pair[1])
    return schemas.ExplanationShape(
        name=found.prediction.key,
        **_label(found.prediction),
        alpha=classifier.weights[0],
        beta=classifier.weights[1],
        unknown_below=None if session.state.reject is None else found.unknown_below,
        cosines=[schemas.ClassCosine(label=label, cosine=cosine) for label, cosine in ordered],
        neighbours=[
            schemas.NeighbourShape(
                id=near.example.key,
                name=names[near.example.key],
                label=near.example.label,
                cosine=near.cosine,
                base_classes=_pulls(session, near.pulls),
            )
            for near in found.neighbours
            if near.example.key != identity
        ],
        base_classes=None if own_pulls is None else _pulls(session, own_pulls),
        label_unpulled=label_unpulled,
    )


def view(session: Session, at: Point | None, *, pile: bool = True) -> schemas.View:
    """Show labels and map at a point, by default at the project's own, with or without the help of the pile."""
    auto = at is None and session.state.point is None
    if session.hint is not None:
        return schemas.View(revision=session.revision, ready=False, hint=session.hint, auto=auto)
    classifier = session.at(at, pile=pile)
    own, found = session.classifier.calibrated, session.classifier.review
    used = classifier.unlabelled_use
    scores = session.scores(classifier)
    doubts, known = doubt(classifier.fitted.probabilities(scores.cosines)), scores.known.tolist()
    labelled = zip(session.to_label, classifier.label_scores(scores), doubts.tolist(), known, strict=True)
    below, chosen = (each.fitted.unknown_below for each in (classifier, session.taught.classifier))
    off = session.state.reject is None
    return schemas.View(
        revision=session.revision,
        ready=True,
        auto=auto,
        alpha=own.alpha if auto else classifier.weights[0],
        beta=own.beta if auto else classifier.weights[1],
        auto_point=PointShape(alpha=own.alpha, beta=own.beta),
        relevance=own.relevance,
        labels=[
            schemas.PhotoLabel(id=photo.id, **_label(label), doubt=doubtful, typicality=typical)
            for photo, label, doubtful, typical in labelled
        ],
        order=session.asking_order(doubts) if at is None and pile else [],
        unknown_below=None if off else below,
        unknown_chosen=None if off else chosen if session.state.unknown_below is not None else below,
        pile=None if used is None else schemas.Pile(used=used, groups=classifier.groups),
        map=_map(session, classifier),
        duplicates=list(found.duplicates),
        misfiled=[schemas.Misfiled(id=key, nearer_to=other) for key, _, other in found.misfiled],
    )


def leave_one_out(session: Session, at: Point | None) -> schemas.LeaveOneOutShape:
    """Report how many examples are labelled correctly by all others."""
    if session.hint is not None:
        return schemas.LeaveOneOutShape(revision=session.revision, hint=session.hint)
    left_out, found = session.leave_one_out(at)
    classifier, n_asked = session.classifier, len(found)
    right = found == left_out.labels
    ids = {each.name: each.id for each in session.state.classes}
    counts = np.zeros((len(classifier.classes),) * 2, dtype=np.int64)
    np.add.at(counts, (left_out.labels, found), 1)
    return schemas.LeaveOneOutShape(
        revision=session.revision,
        accuracy=float(right.mean()) if n_asked else None,
        right=int(right.sum()),
        asked=n_asked,
        of=left_out.n_possible,
        sampled=n_asked < left_out.n_possible,
        wrong=[classifier.examples[row].key for row in left_out.rows[~right]],
        confusion=schemas.Confusion(classes=[ids[name] for name in classifier.classes], counts=counts.tolist()),
        hint=None if n_asked else "Add a second photo to a class to see how the others label it.",
    )


def labels_as_csv(session: Session) -> Response:
    """Write the labels of all photos that were asked, in the columns of p3dc predict and who gave them."""
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    table.writerow([*COLUMNS, "by"])
    asked = [photo for photo in session.state.photos if photo.asked]
    labels = session.labels(session.at(None)) if session.to_label or not asked else []
    found = dict(zip((photo.id for photo in session.to_label), labels, strict=True))
    names = session.state.names
    for photo in asked:
        given = Prediction("", "" if photo.label is None else names[photo.label])
        label, by = (found[photo.id], "classifier") if photo.id in found else (given, "user")
        table.writerow([*map(_cell, row(replace(label, key=photo.name))), by])
    return download(written.getvalue(), "p3dc-labels.csv", "text/csv")


def download(content: str | bytes, name: str, media_type: str = "application/octet-stream") -> Response:
    """Offer a file under a name."""
    return Response(content, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def picture(jpeg: bytes) -> Response:
    """Return a JPEG whose address never shows another."""
    return Response(jpeg, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=31536000, immutable"})


def _photos(photos: Iterable[Photo]) -> list[schemas.PhotoShape]:
    return [
        schemas.PhotoShape(
            id=photo.id,
            name=photo.name,
            label=photo.label,
            asked=photo.asked,
            by=None if photo.label is None else "user",
            key=photo.key,
        )
        for photo in photos
    ]


def _failures(failures: Iterable[FailedImage]) -> list[schemas.Failure]:
    return [schemas.Failure(name=failed.name, message=str(failed.error)) for failed in failures]


def _label(found: Prediction) -> Mapping[str, Any]:
    return {
        "label": found.label,
        "unknown": found.rejected,
        "probability": found.probability,
        "runner_up": found.runner_up,
        "runner_up_probability": found.runner_up_probability,
    }


def _pulls(session: Session, pulls: Iterable[Pull]) -> list[schemas.Pull]:
    return [schemas.Pull(name=pull.name, weight=pull.weight, central=_central(session, pull)) for pull in pulls]


def _central(session: Session, pull: Pull) -> list[schemas.CentralPhoto]:
    folder = f"/v1/priors/{session.state.priors}/{quote(pull.name, safe='')}"
    return [
        schemas.CentralPhoto(name=row.key, thumbnail=f"{folder}/{place}" if row.thumbnail else None)
        for place, row in enumerate(pull.central)
    ]


def _map(session: Session, classifier: ImageClassifier) -> schemas.MapShape:
    found = session.map(classifier)
    ids = {each.name: each.id for each in session.state.classes}
    support = zip(classifier.examples, found.before.tolist(), found.after.tolist(), strict=True)
    return schemas.MapShape(
        support=[
            schemas.Moved(id=example.key, label=ids[example.label], before=before, after=after)
            for example, before, after in support
        ],
        prototypes=[
            schemas.PrototypePlace(label=ids[name], at=at)
            for name, at in zip(classifier.classes, found.prototypes.tolist(), strict=True)
        ],
        queries=[
            schemas.QueryPlace(id=photo.id, at=at)
            for photo, at in zip(session.to_label, found.queries.tolist(), strict=True)
        ],
    )


def _cell(text: str) -> str:
    """Keep a spreadsheet from reading a name as a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
