"""Build every response of the service from what the app returns."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

from fastapi import Response

from p3dc.app.errors import FailedImage
from p3dc.app.http import schemas
from p3dc.app.http.limits import RequestLimits
from p3dc.app.project.project import Project
from p3dc.app.project.state import Photo
from p3dc.app.service import Service
from p3dc.app.session import Session
from p3dc.classifier.leave_one_out import Point
from p3dc.images.classifier import ImageClassifier
from p3dc.images.explanation import Explanation, Pull
from p3dc.images.prediction_rows import COLUMNS, row
from p3dc.images.predictions import Prediction


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
        kept_in=None if opened.store.folder is None else str(opened.store.folder),
        backbone=opened.backbone.name,
        n_base_classes=0 if priors is None or priors.geometry is None else len(priors),
        reject=state.reject,
        point=None if state.point is None else schemas.PointShape(alpha=state.point[0], beta=state.point[1]),
        classes=[schemas.ClassShape(id=each.id, name=each.name) for each in state.classes],
        photos=_photos(state.photos),
        undo=opened.undoable,
        redo=opened.redoable,
        limits=schemas.LimitsShape(**{name: known[name] for name in schemas.LimitsShape.model_fields}),
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
    )


def view(session: Session, at: Point | None) -> schemas.View:
    """Show labels and map at a point, by default at the project's own."""
    auto = at is None and session.state.point is None
    if session.hint is not None:
        return schemas.View(revision=session.revision, ready=False, hint=session.hint, auto=auto)
    classifier = session.at(at)
    own, found = session.classifier.calibrated, session.classifier.review
    used = classifier.unlabelled_use
    labelled = zip(session.to_label, session.labels(classifier), strict=True)
    return schemas.View(
        revision=session.revision,
        ready=True,
        auto=auto,
        alpha=own.alpha if auto else classifier.weights[0],
        beta=own.beta if auto else classifier.weights[1],
        auto_point=schemas.PointShape(alpha=own.alpha, beta=own.beta),
        relevance=own.relevance,
        labels=[schemas.PhotoLabel(id=photo.id, **_label(label)) for photo, label in labelled],
        pile=None if used is None else schemas.Pile(used=used, groups=classifier.groups),
        map=_map(session, classifier),
        duplicates=list(found.duplicates),
        misfiled=[schemas.Misfiled(id=key, nearer_to=other) for key, _, other in found.misfiled],
    )


def leave_one_out(session: Session, at: Point | None) -> schemas.LeaveOneOutShape:
    """Report how many examples are labelled correctly by all others."""
    asked, right, possible = ([], [], 0) if session.hint else session.leave_one_out(at)
    return schemas.LeaveOneOutShape(
        revision=session.revision,
        accuracy=sum(right) / len(right) if right else None,
        right=sum(right),
        asked=len(asked),
        of=possible,
        wrong=[identity for identity, is_right in zip(asked, right, strict=True) if not is_right],
        hint=session.hint or (None if asked else "Add a second photo to a class to see how the others label it."),
    )


def labels_as_csv(session: Session) -> Response:
    """Write the labels of a project's photos in the columns of p3dc predict."""
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    table.writerow(COLUMNS)
    for photo, found in zip(session.to_label, session.labels(session.at(None)), strict=True):
        table.writerow([_cell(each) for each in row(replace(found, key=photo.name))])
    return download(written.getvalue(), "p3dc-labels.csv", "text/csv")


def download(content: str | bytes, name: str, media_type: str = "application/octet-stream") -> Response:
    """Offer a file under a name."""
    return Response(content, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def picture(jpeg: bytes) -> Response:
    """Return a JPEG whose address never shows another."""
    return Response(jpeg, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=31536000, immutable"})


def _photos(photos: Iterable[Photo]) -> list[schemas.PhotoShape]:
    return [schemas.PhotoShape(id=photo.id, name=photo.name, label=photo.label) for photo in photos]


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
