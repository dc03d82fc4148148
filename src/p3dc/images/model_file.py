"""The file of an image classifier: its fitted classifier, thumbnails, keys and the identity of its backbone."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from p3dc.classifier import file
from p3dc.classifier.fitted import FittedClassifier
from p3dc.errors import InputError
from p3dc.images.backbones.backbone import Backbone
from p3dc.images.backbones.loading import is_loadable_by_name, load_backbone
from p3dc.images.examples import Example
from p3dc.io.atomic import check_text
from p3dc.io.pieces import join_pieces, split_pieces
from p3dc.io.safetensors import read_arrays, write_arrays

VERSION = 2
THUMBNAILS = ("thumbnails", "thumbnail_sizes")


def write_model(
    path: str | os.PathLike[str],
    fitted: FittedClassifier,
    examples: Sequence[Example],
    unlabelled_keys: Sequence[str],
    backbone: Backbone,
    views: int = 1,
) -> None:
    """Write the file."""
    arrays, facts = file.pack_classifier(fitted)
    arrays |= zip(THUMBNAILS, join_pieces([example.thumbnail for example in examples]), strict=True)
    keys = {"keys": [example.key for example in examples], "unlabelled_keys": list(unlabelled_keys)}
    write_arrays(path, "images", VERSION, arrays, facts | keys | {"backbone": identity(backbone) | {"views": views}})


def read_model(path: str | os.PathLike[str]) -> tuple[file.Arrays, dict[str, Any]]:
    """Read the arrays and facts of a file."""
    return read_arrays(
        path,
        "images",
        VERSION,
        required=[*file.ARRAYS, *THUMBNAILS],
        optional=file.OPTIONAL_ARRAYS,
        facts=[*file.FACTS, "backbone", "keys", "unlabelled_keys"],
    )


def unpack_model(
    arrays: file.Arrays, facts: dict[str, Any], backbone: Backbone
) -> tuple[FittedClassifier, list[Example], tuple[str, ...]]:
    """Return the fitted classifier, its examples and the keys of its unlabelled photos; refuse another backbone."""
    saved = facts["backbone"]["digest"]
    if backbone.digest != saved:
        raise InputError(
            f"it was made with the backbone {facts['backbone']['name']} ({str(saved)[:12]}), not with "
            f"{backbone.name} ({backbone.digest[:12]}). Use that backbone, or fit again."
        )
    model = file.unpack_classifier(arrays, facts)
    examples = _restore_examples(model, arrays, facts, backbone.n_features)
    return model, examples, _unlabelled_keys(model, facts["unlabelled_keys"])


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file in errors, and report what does not fit together as damage."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (TypeError, ValueError, IndexError, KeyError, AttributeError, OverflowError) as error:
        raise InputError(f"{path} is damaged ({error}). Fit it again.") from None


def backbone_of(
    path: str | os.PathLike[str],
    facts: dict[str, Any],
    given: str | os.PathLike[str] | None,
    device: str | None = None,
) -> Backbone:
    """Load the backbone that a file needs."""
    if given is not None:
        return load_backbone(given, device=device)
    try:
        name = str(facts["backbone"]["name"])
    except (TypeError, KeyError):
        raise InputError(f"{path} is damaged: it names no backbone. Fit it again.") from None
    if not is_loadable_by_name(name):
        raise InputError(f"{path} was made with the backbone {name}. Give its .onnx file or folder as the backbone.")
    return load_backbone(name, device=device)


def identity(backbone: Backbone) -> dict[str, Any]:
    """Identify the backbone that made the features."""
    return {"name": backbone.name, "digest": backbone.digest, "preprocessing": backbone.preprocessing.to_json()}


def _unlabelled_keys(model: FittedClassifier, keys: Any) -> tuple[str, ...]:
    if not isinstance(keys, list) or len(keys) != (0 if model.unlabelled is None else len(model.unlabelled)):
        raise ValueError("its unlabelled photos and their keys do not fit together")
    check_text([*map(str, keys)], "names in it")
    return tuple(map(str, keys))


def _restore_examples(
    model: FittedClassifier, arrays: file.Arrays, facts: dict[str, Any], n_features: int
) -> list[Example]:
    keys = facts["keys"]
    if not isinstance(keys, list) or model.classes.dtype.kind != "U":
        raise ValueError("it has no list of keys or classes")
    check_text([*map(str, keys), *model.classes.tolist()], "names in it")
    if model.support.shape != (len(keys), n_features) or model.support.dtype.kind != "f":
        raise ValueError(f"its features are {model.support.dtype} of shape {model.support.shape}")
    thumbnails = split_pieces(arrays["thumbnails"], arrays["thumbnail_sizes"], len(keys))
    rows = zip(keys, model.classes[model.labels].tolist(), model.support, thumbnails, strict=True)
    return [Example(str(key), *own) for key, *own in rows]
