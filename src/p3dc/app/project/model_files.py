"""Projects from model files, and model files from projects."""

import math
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from p3dc.app.project.project import Project
from p3dc.app.project.state import Class, Photo, ProjectLimits, State, new_id, photo_name
from p3dc.app.project.store import Picture
from p3dc.errors import InputError
from p3dc.images.classifier import ImageClassifier
from p3dc.images.examples import Example, open_thumbnail, thumbnail

ROUNDING = 1e-6
"""How far the same threshold of unknown may differ from one machine to another."""


def write_model(state: State, classifier: ImageClassifier) -> bytes:
    """Return the file, readable by :meth:`ImageClassifier.load`, of a classifier whose keys are ids of photos."""
    names = {photo.id: photo.name for photo in state.photos}
    examples = [replace(example, key=names[example.key]) for example in classifier.examples]
    whole = classifier.with_examples(examples)
    whole.fitted = whole.fitted.with_threshold(classifier.fitted.unknown_below)
    whole.unlabelled_keys = tuple(names[key] for key in classifier.unlabelled_keys)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        whole.save(path)
        return path.read_bytes()


def load_model(project: Project, path: Path) -> int:
    """Replace the content of a project by that of a model file and return the new revision."""
    try:
        classifier = ImageClassifier.load(path, project.backbone)
    except InputError as error:
        sentence = str(error).replace(f"{path}: ", "").replace(str(path), "the file")
        if sentence.startswith(("the file is damaged or is not", "the file is of format")):
            sentence = "The file is not a model, or it is damaged. Choose one that Save model or p3dc fit wrote."
        raise InputError(sentence) from None
    state, pictures = _state_of(classifier, project.keep_priors(classifier.priors), project.limits)
    return project.change("Load model", lambda _: state, pictures)


def _state_of(classifier: ImageClassifier, priors: str, limits: ProjectLimits) -> tuple[State, dict[str, Picture]]:
    state = State(priors=priors, reject=classifier.reject).at(classifier.point)
    below = classifier.fitted.unknown_below
    if not math.isclose(below, classifier.fitted.threshold_at(classifier.point), abs_tol=ROUNDING):
        state = state.with_threshold(below)  # it was set by hand
    classes: dict[str, Class] = {}
    for name in classifier.classes:
        state, classes[name] = state.add_class(name, limits)
    photos, pictures = [], {}
    for example in classifier.examples:
        photos.append(Photo(new_id(), photo_name(example.key, limits), classes[example.label].id))
        small = thumbnail(open_thumbnail(example.thumbnail))  # encoded again: the file may come from anywhere
        pictures[photos[-1].id] = Picture(_kept_features(example), small)
    return state.add_photos(photos, limits), pictures


def _kept_features(example: Example) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore"):
        features = example.features.astype(np.float32)
    if not np.isfinite(features).all() or not features.any():
        raise InputError(
            f"the features of {example.key} are too large or all zeros. Leave the photo out and fit again."
        )
    return features
