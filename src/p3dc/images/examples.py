"""Labelled photos: listing them, their features, and a thumbnail of each."""

import io
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from PIL import Image

from p3dc._arrays import Floats, Progress
from p3dc.errors import InputError
from p3dc.images.backbones.backbone import Backbone
from p3dc.images.decoding import ImageError, read_image
from p3dc.images.embedding import embed_images
from p3dc.images.shards import Place
from p3dc.images.sources import ImageFile, list_images, readable
from p3dc.images.views import CENTRE, View

THUMBNAIL = 160
"""Longest side of a thumbnail, in pixels."""


@dataclass(frozen=True, eq=False)
class Example:
    """A labelled photo.

    Attributes
    ----------
    key : str
        Its name.
    label : str
    features : array of shape (n_features,)
    thumbnail : bytes
        A small JPEG of it.
    """

    key: str
    label: str
    features: Floats
    thumbnail: bytes


def labelled(folder: str | os.PathLike[str], skipped: Counter[str] | None = None) -> list[ImageFile]:
    """List the photos of a folder of classes, or of a CSV; refuse any without a label."""
    files = list(list_images(folder, skipped))
    bare = next((file for file in files if file.label is None), None)
    if bare is not None:
        raise InputError(f"{bare.key} in {readable(folder)} has no class. Put the photos of each class into a folder.")
    return files


def read_examples(
    files: Sequence[ImageFile],
    backbone: Backbone,
    progress: Progress | None = None,
    *,
    views: Sequence[View] = (CENTRE,),
) -> tuple[list[Example], list[tuple[str, str]]]:
    """Read and embed photos; return examples, and the key of each photo that cannot be used with the reason."""
    thumbnails: dict[Place, bytes] = {}

    def read(file: ImageFile) -> Image.Image:
        image = read_image(file.path, short_side=backbone.preprocessing.short_side)
        thumbnails[file.path] = thumbnail(image)
        return image

    examples: list[Example] = []
    failures: list[tuple[str, str]] = []
    with closing(embed_images(files, read, backbone, views=views)) as results:
        for file, result in results:
            if isinstance(result, ImageError):
                failures.append((file.key, str(result)))
            elif not result.any():
                failures.append((file.key, "Its features are all zeros, so it has no cosine to a class. Leave it out."))
            else:
                examples.append(Example(file.key, str(file.label), result, thumbnails.pop(file.path)))
            if progress is not None:
                progress(len(examples) + len(failures), len(files))
    return examples, failures


def thumbnail(image: Image.Image, longest: int = THUMBNAIL) -> bytes:
    """Make a small JPEG of an image, whose longest side has at most so many pixels."""
    small = image.copy()
    small.thumbnail((longest, longest), reducing_gap=1.0)  # a third of the time, and no difference that one would see
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=80, comment=b"")  # otherwise Pillow copies the image's own comment
    return buffer.getvalue()


def open_thumbnail(jpeg: bytes) -> Image.Image:
    """Open a thumbnail; accept only a small JPEG, since a model file may come from anywhere."""
    try:
        with Image.open(io.BytesIO(jpeg), formats=["JPEG"]) as image:
            if max(image.size) > 4 * THUMBNAIL:
                raise ValueError("it is too large")
            return image.convert("RGB")
    except Exception as error:  # a damaged image can raise anything
        raise InputError(f"a thumbnail in the model is damaged ({type(error).__name__}). Fit it again.") from None
