"""Photos to labels: a backbone, a few photos of each class, and what is known from before."""

import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image

from p3dc._validation import as_rows, check_point, check_same_width, check_share
from p3dc.classifier.calibrated_support import Calibration, calibrate_alone, stranger_threshold
from p3dc.errors import InputError
from p3dc.images.backbone_priors import backbone_priors
from p3dc.images.backbones import lite0
from p3dc.images.backbones.onnx import Backbone, load_backbone
from p3dc.images.decoding import ImageError, read_image
from p3dc.images.embedding import embed_images
from p3dc.images.examples import Example, Progress, labelled, read_examples
from p3dc.images.review import Findings, find
from p3dc.images.sources import readable
from p3dc.io.atomic import check_text
from p3dc.io.safetensors import read_arrays, write_arrays
from p3dc.method import masked_softmax
from p3dc.priors.prototypes import PACKED, Priors, pack_priors, unpack_priors, without_geometry

VERSION = 1
UNKNOWN = "unknown"
REJECT = 0.2
"""Share of photos of other classes to turn away, where nothing else is said."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Prediction:
    """The label of a photo.

    Attributes
    ----------
    key : str
        The photo's name.
    label : str
        Its class, or "unknown"; empty where the photo could not be read.
    probability : float
        That of the likeliest class.
    runner_up : str
        The class that is next; where the label is "unknown", the likeliest class.
    runner_up_probability : float
    rejected : bool
        Whether the photo fits no class.
    failure : str
        Why there is no label, or nothing.
    """

    key: str
    label: str
    probability: float = float("nan")
    runner_up: str = ""
    runner_up_probability: float = float("nan")
    rejected: bool = False
    failure: str = ""


class ImageClassifier:
    """Classifies photos after a few of each class.

    Parameters
    ----------
    backbone : Backbone
    examples : sequence of Example
        Of two classes or more.
    priors : Priors, optional
        Base classes under the same backbone.
    reject : float, optional
        Share of photos of other classes to call "unknown", from 0 to 1; None for none.
    point : (alpha, beta), optional
        The weights of both levels; chosen for the task unless given.
    failures : sequence of (key, sentence)
        Labelled photos that could not be read.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from p3dc import ImageClassifier
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for colour in ("navy", "olive"):
    ...         (Path(folder) / colour).mkdir()
    ...         Image.new("RGB", (300, 260), colour).save(Path(folder) / colour / "plain.png")
    ...     classifier = ImageClassifier.from_folder(folder, reject=None)
    ...     [found.label for found in classifier.predict([Path(folder) / "navy" / "plain.png"])]
    ['navy']
    """

    def __init__(
        self,
        backbone: Backbone,
        examples: Iterable[Example],
        priors: Priors | None = None,
        *,
        reject: float | None = REJECT,
        point: tuple[float, float] | None = None,
        failures: Iterable[tuple[str, str]] = (),
    ) -> None:
        self.backbone, self.priors, self.reject, self.point = backbone, priors, check_share("reject", reject), point
        self.examples, self.failures = tuple(examples), tuple(failures)
        if point is not None:
            check_point(*point, extrapolate=True)
        self.classes = sorted({example.label for example in self.examples})
        if len(self.classes) < 2:
            there = f"only {self.classes[0]!r}" if self.classes else "none"
            raise InputError(f"there must be photos of two classes or more, but there is {there}. Add a class.")
        if UNKNOWN in self.classes and reject is not None:
            raise InputError(f"there is a class {UNKNOWN!r}, which is what strangers are called. Rename its folder.")
        self.support = as_rows([example.features for example in self.examples], "features of the photos")
        for example, features in zip(self.examples, self.support, strict=True):
            if not features.any():
                raise InputError(f"the features of {example.key} are all zeros. Leave the photo out.")
        if priors is not None:
            check_same_width(self.support, "photos", priors.prototypes, "the priors")
            if priors.geometry is None:
                warnings.warn(without_geometry(priors), stacklevel=2)
        place = {name: number for number, name in enumerate(self.classes)}
        self.labels = np.array([place[example.label] for example in self.examples])

    @classmethod
    def from_folder(
        cls,
        folder: str | os.PathLike[str],
        *,
        backbone: Backbone | str | os.PathLike[str] | None = None,
        priors: Priors | Literal["backbone"] | None = "backbone",
        reject: float | None = REJECT,
        progress: Progress | None = None,
    ) -> "ImageClassifier":
        """Learn from a folder with a folder of photos for each class, or from a CSV of path and label.

        Parameters
        ----------
        folder : path
        backbone : Backbone, name or path of an ONNX file, optional
            EfficientNet-Lite0 unless given.
        priors : Priors, "backbone" or None
            Base classes of your own, the classes that the backbone itself was trained on, or none.
        reject : float, optional
            As above.
        progress : callable, optional

        Returns
        -------
        ImageClassifier
        """
        if isinstance(priors, str) and priors != "backbone":
            raise InputError(f"priors is {priors!r}. Give Priors, 'backbone' or None.")
        check_share("reject", reject)
        files = labelled(folder)
        if len({file.label for file in files}) < 2:
            raise InputError(f"{folder} has photos of one class, {files[0].label!r}. Add a class.")
        used = backbone if isinstance(backbone, Backbone) else load_backbone(backbone or lite0.NAME)
        known = backbone_priors(used) if isinstance(priors, str) else priors
        examples, failures = read_examples(files, used, progress)
        if not examples:
            raise InputError(f"none of the {len(failures)} photos in {folder} can be read. {failures[0][1]}")
        return cls(used, examples, known, reject=reject, failures=failures)

    def add(self, folder: str | os.PathLike[str], progress: Progress | None = None) -> "ImageClassifier":
        """Return a classifier with more photos, of known or of new classes; photos it has already are left out."""
        files = labelled(folder)
        examples, failures = read_examples(files, self.backbone, progress)
        there = {(example.label, example.features.tobytes()) for example in self.examples}
        fresh = [example for example in examples if (example.label, example.features.tobytes()) not in there]
        return self.with_examples([*self.examples, *fresh], failures)

    def with_examples(self, examples: Iterable[Example], failures: Iterable[tuple[str, str]] = ()) -> "ImageClassifier":
        """Return a classifier that differs in its examples."""
        return ImageClassifier(
            self.backbone, examples, self.priors, reject=self.reject, point=self.point, failures=failures
        )

    def at(self, point: tuple[float, float] | None, unknown_below: float) -> "ImageClassifier":
        """Return a classifier that differs in its point, whose threshold for strangers is known."""
        moved = ImageClassifier(self.backbone, self.examples, self.priors, reject=self.reject, point=point)
        moved.calibration = self.calibration if point is None else self.calibration.at(*point)
        moved.unknown_below = unknown_below
        return moved

    @cached_property
    def calibration(self) -> Calibration:
        """The calibrated examples."""
        return self._calibrate(self.support, self.labels)

    def _calibrate(self, support: Array, labels: npt.NDArray[np.int64]) -> Calibration:
        return calibrate_alone(support, labels, self.priors, point=self.point)

    @cached_property
    def unknown_below(self) -> float:
        """The largest cosine below which a photo is unknown."""
        if self.reject is None:
            return -float("inf")
        return stranger_threshold(self.support, self.labels, self._calibrate, self.reject)

    @cached_property
    def findings(self) -> Findings:
        """What the examples look like: shots, duplicates, photos that seem to be in the wrong folder."""
        return find(self.examples, self.classes, self.calibration)

    def predict(self, photos: Iterable[str | os.PathLike[str]], batch: int = 32) -> Iterator[Prediction]:
        """Label photos one after the other, as they are read.

        Parameters
        ----------
        photos : iterable of paths
        batch : int
            How many the backbone gets at once, at most.

        Yields
        ------
        Prediction
            In the order of the photos. One that cannot be read has a failure and no label.
        """
        given = [photos] if isinstance(photos, str | os.PathLike) else photos
        results = embed_images(given, self._read, self.backbone, batch=batch)
        with closing(results):
            for photo, result in results:
                key = readable(photo)
                if isinstance(result, ImageError):
                    yield Prediction(key, "", failure=str(result))
                else:
                    yield replace(self.label(result[None])[0], key=key)

    def label(self, features: Array) -> list[Prediction]:
        """Label features that the backbone made, (Q, D)."""
        rows = as_rows(features, "features")
        check_same_width(rows, "the features", self.support, "the examples")
        return self.label_cosines(self.calibration.cosines(rows))

    def label_cosines(self, cosines: Array) -> list[Prediction]:
        """Label queries by their cosines to the classes, (Q, N)."""
        probabilities = masked_softmax(cosines / self.calibration.temperature, None)
        found = []
        for cosine, probability in zip(cosines, probabilities, strict=True):
            first, second = np.argsort(-probability, kind="stable")[:2].tolist()
            rejected = bool(cosine[first] < self.unknown_below)
            label, next_one = (UNKNOWN, first) if rejected else (self.classes[first], second)
            likely, next_likely = float(probability[first]), float(probability[next_one])
            found.append(Prediction("", label, likely, self.classes[next_one], next_likely, rejected))
        return found

    def _read(self, photo: str | os.PathLike[str]) -> Image.Image:
        return read_image(Path(photo), short_side=self.backbone.preprocessing.short_side)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one safetensors file: features, thumbnails, priors and the identity of the backbone."""
        thumbnails = [np.frombuffer(example.thumbnail, dtype=np.uint8) for example in self.examples]
        known, facts_of_priors = pack_priors(self.priors)
        arrays: dict[str, Array] = {
            **known,
            "support": self.support,
            "labels": self.labels,
            "thumbnails": np.concatenate(thumbnails),
            "thumbnail_sizes": np.array([len(thumbnail) for thumbnail in thumbnails]),
        }
        facts: dict[str, Any] = {
            "backbone": identity(self.backbone),
            "classes": self.classes,
            "keys": [example.key for example in self.examples],
            "reject": self.reject,
            "point": self.point,
            "unknown_below": None if self.reject is None else self.unknown_below,
            "priors": facts_of_priors,
        }
        write_arrays(path, "images", VERSION, arrays, facts)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], backbone: Backbone | str | os.PathLike[str] | None = None
    ) -> "ImageClassifier":
        """Read what :meth:`save` wrote, with the same backbone, which is loaded unless it is given."""
        arrays, facts = read_arrays(
            path,
            "images",
            VERSION,
            required=["support", "labels", "thumbnails", "thumbnail_sizes"],
            optional=PACKED,
            facts=["backbone", "classes", "keys", "reject", "point", "unknown_below", "priors"],
        )
        if not isinstance(backbone, Backbone):
            backbone = _backbone_of(path, facts, backbone)
        try:
            saved = facts["backbone"]["digest"]
            if backbone.digest != saved:
                raise InputError(
                    f"it was made with the backbone {facts['backbone']['name']} ({str(saved)[:12]}), not with "
                    f"{backbone.name} ({backbone.digest[:12]}). Use that backbone, or fit again."
                )
            examples = _restore_examples(arrays, facts, backbone.n_features)
            priors = unpack_priors(arrays, facts["priors"])
            point = None if facts["point"] is None else (float(facts["point"][0]), float(facts["point"][1]))
            found = cls(backbone, examples, priors, reject=facts["reject"], point=point)
            if found.reject is not None:
                found.unknown_below = float(facts["unknown_below"])
            return found
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        except (TypeError, ValueError, IndexError, KeyError, AttributeError, OverflowError) as error:
            raise InputError(f"{path} is damaged ({error}). Fit it again.") from None


def _backbone_of(path: str | os.PathLike[str], facts: dict[str, Any], given: str | os.PathLike[str] | None) -> Backbone:
    """Load the backbone that a model needs."""
    if given is not None:
        return load_backbone(given)
    try:
        name = str(facts["backbone"]["name"])
    except (TypeError, KeyError):
        raise InputError(f"{path} is damaged: it names no backbone. Fit it again.") from None
    if name != lite0.NAME:
        raise InputError(f"{path} was made with the backbone {name}. Give its .onnx file as the backbone.")
    return load_backbone()


def identity(backbone: Backbone) -> dict[str, Any]:
    """Say which backbone made the features."""
    return {"name": backbone.name, "digest": backbone.digest, "preprocessing": backbone.preprocessing.to_json()}


def _restore_examples(arrays: dict[str, Array], facts: dict[str, Any], n_features: int) -> list[Example]:
    support, labels, sizes, pixels = (arrays[name] for name in ("support", "labels", "thumbnail_sizes", "thumbnails"))
    keys, classes = facts["keys"], facts["classes"]
    if not (isinstance(keys, list) and isinstance(classes, list) and len(keys) > 0):
        raise ValueError("it has no list of keys or classes")
    check_text([*map(str, keys), *map(str, classes)], "names in it")
    if support.shape != (len(keys), n_features) or support.dtype.kind != "f":
        raise ValueError(f"its features are {support.dtype} of shape {support.shape}")
    if labels.shape != (len(keys),) or labels.dtype.kind != "i" or labels.min() < 0 or labels.max() >= len(classes):
        raise ValueError("its labels name no classes")
    whole = pixels.ndim == 1 and pixels.dtype == np.uint8 and sizes.shape == (len(keys),) and sizes.dtype.kind == "i"
    if not whole or sizes.min() < 0 or sizes.sum() != len(pixels):
        raise ValueError("its thumbnails do not fit together")
    pieces = np.split(pixels, np.cumsum(sizes)[:-1])
    rows = zip(keys, labels.tolist(), support, pieces, strict=True)
    return [Example(str(key), str(classes[label]), features, piece.tobytes()) for key, label, features, piece in rows]
