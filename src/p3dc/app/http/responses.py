"""What the service found, in the shapes of its answers."""

from typing import Any

from p3dc.app.http import schemas
from p3dc.app.project.state import Photo
from p3dc.app.service import Failed
from p3dc.app.session import Task
from p3dc.classifier.leave_one_out import Point
from p3dc.images.classifier import ImageClassifier, Prediction
from p3dc.images.explanation import Explanation


def added(revision: int, photos: list[Photo], failures: list[Failed]) -> schemas.Added:
    """Tell what was added."""
    return schemas.Added(
        revision=revision, added=[photo_shape(each) for each in photos], failures=failures_shape(failures)
    )


def photo_shape(photo: Photo) -> schemas.PhotoShape:
    """Tell of a photo."""
    return schemas.PhotoShape(id=photo.id, name=photo.name, label=photo.label)


def failures_shape(failures: list[Failed]) -> list[schemas.Failure]:
    """Tell which images could not be used."""
    return [schemas.Failure(name=failed.name, message=str(failed.error)) for failed in failures]


def label_facts(found: Prediction) -> dict[str, Any]:
    """Tell a label."""
    return {
        "label": found.label,
        "unknown": found.rejected,
        "probability": found.probability,
        "runner_up": found.runner_up,
        "runner_up_probability": found.runner_up_probability,
    }


def explanation_shape(
    task: Task,
    classifier: ImageClassifier,
    found: Explanation,
    identity: str | None = None,
    own_pulls: tuple[tuple[str, float], ...] | None = None,
) -> schemas.ExplanationShape:
    """Tell why an image has its label."""
    names = {photo.id: photo.name for photo in task.state.photos}
    finite = found.unknown_below if task.state.reject is not None else None
    ordered = sorted(found.cosines.items(), key=lambda pair: -pair[1])
    return schemas.ExplanationShape(
        name=found.prediction.key,
        **label_facts(found.prediction),
        alpha=classifier.calibration.alpha,
        beta=classifier.calibration.beta,
        unknown_below=finite,
        cosines=[schemas.ClassCosine(label=label, cosine=cosine) for label, cosine in ordered],
        neighbours=[
            schemas.NeighbourShape(
                id=near.example.key,
                name=names[near.example.key],
                label=near.example.label,
                cosine=near.cosine,
                base_classes=_pulls(near.pulls),
            )
            for near in found.neighbours
            if near.example.key != identity
        ],
        base_classes=None if own_pulls is None else _pulls(own_pulls),
    )


def _pulls(pulls: tuple[tuple[str, float], ...]) -> list[schemas.Pull]:
    return [schemas.Pull(name=name, weight=weight) for name, weight in pulls]


def view_shape(task: Task, at: Point | None) -> schemas.View:
    """Tell labels and map at a point, or at the project's own."""
    auto = at is None and task.state.point is None
    if task.hint is not None:
        return schemas.View(revision=task.revision, ready=False, hint=task.hint, auto=auto)
    classifier = task.at(at)
    own, found = task.classifier.calibration, task.classifier.review
    asked = zip(task.asked, task.labels(classifier), strict=True)
    return schemas.View(
        revision=task.revision,
        ready=True,
        auto=auto,
        alpha=classifier.calibration.alpha,
        beta=classifier.calibration.beta,
        auto_point=schemas.PointShape(alpha=own.alpha, beta=own.beta),
        relevance=own.relevance,
        labels=[schemas.PhotoLabel(id=photo.id, **label_facts(label)) for photo, label in asked],
        map=_map_shape(task, classifier),
        duplicates=list(found.duplicates),
        misfiled=[schemas.Misfiled(id=key, nearer_to=other) for key, _, other in found.misfiled],
    )


def _map_shape(task: Task, classifier: ImageClassifier) -> schemas.MapShape:
    places = task.map(classifier)
    ids = {each.name: each.id for each in task.state.classes}
    support = zip(classifier.examples, places.before.tolist(), places.after.tolist(), strict=True)
    return schemas.MapShape(
        support=[
            schemas.Moved(id=example.key, label=ids[example.label], before=before, after=after)
            for example, before, after in support
        ],
        prototypes=[
            schemas.PrototypePlace(label=ids[name], at=at)
            for name, at in zip(classifier.classes, places.prototypes.tolist(), strict=True)
        ],
        queries=[
            schemas.QueryPlace(id=photo.id, at=at)
            for photo, at in zip(task.asked, places.queries.tolist(), strict=True)
        ],
    )
