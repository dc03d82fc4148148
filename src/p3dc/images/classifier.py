"""From photos to labels: a backbone and a fitted classifier."""

import os
import warnings
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from PIL import Image

from p3dc._arrays import Array, Floats, Labels, Progress
from p3dc._validation import as_rows, check_same_width, check_share
from p3dc.adaptive.settings import Settings
from p3dc.classifier import fitted
from p3dc.classifier.calibrated_support import CalibratedSupport, Scores
from p3dc.classifier.fitted import FittedClassifier
from p3dc.errors import InputError
from p3dc.images import model_file
from p3dc.images.backbone_priors import backbone_priors
from p3dc.images.backbones.backbone import Backbone
from p3dc.images.backbones.loading import DEFAULT, load_backbone
from p3dc.images.decoding import ImageError, Photo, read_image
from p3dc.images.embedding import embed_images
from p3dc.images.examples import Example, labelled, read_examples
from p3dc.images.predictions import Prediction
from p3dc.images.review import Review, review_examples
from p3dc.images.sources import readable
from p3dc.images.views import views_of
from p3dc.priors.prototypes import Priors, geometry_warning
from p3dc.unlabelled.refinement import Balance

Embedding = Generator[tuple[Photo, Floats | ImageError], None, None]

UNKNOWN: str = fitted.UNKNOWN["U"]
REJECT = 0.2
"""Share of photos of other classes to label as unknown, by default."""


@dataclass(frozen=True)
class LabelledTogether:
    """The labels of photos that refined each other.

    Attributes
    ----------
    predictions : list of Prediction
        In the order of the photos. One that cannot be read has a failure and no label.
    classifier : ImageClassifier
        Refined with the photos.
    """

    predictions: list[Prediction]
    classifier: "ImageClassifier"

    @property
    def groups(self) -> list[list[str]]:
        """Keys of photos that resemble each other and none of the classes, as :attr:`ImageClassifier.groups`."""
        return self.classifier.groups


class ImageClassifier:
    """Classify photos after learning from a few of each class.

    Parameters
    ----------
    backbone : Backbone
    examples : sequence of Example
        Of two classes or more.
    priors : Priors, optional
        Base classes under the same backbone.
    reject : float, optional
        Share of photos of other classes to label "unknown", from 0 to 1; None for none.
    point : (alpha, beta), optional
        The weights of both levels; chosen for the task unless given.
    views : int, default=1
        How many of :data:`p3dc.images.views.VIEWS` the features of a photo are averaged over.
    failures : sequence of (key, sentence)
        Labelled photos that could not be read.

    Attributes
    ----------
    fitted : FittedClassifier
        What labels the features of photos.
    unlabelled_keys : tuple of str
        Names of the photos without labels that refine the classes.

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
        views: int = 1,
        failures: Iterable[tuple[str, str]] = (),
    ) -> None:
        self.backbone, self.point, self.views = backbone, point, len(views_of(views))
        self.examples, self.failures = tuple(examples), tuple(failures)
        self.unlabelled_keys: tuple[str, ...] = ()
        alpha, beta = (None, None) if point is None else point
        settings = Settings(alpha, beta, extrapolate=True)
        self.classes = sorted({example.label for example in self.examples})
        if len(self.classes) < 2:
            there = f"only {self.classes[0]!r}" if self.classes else "none"
            raise InputError(f"there must be photos of two classes or more, but there is {there}. Add a class.")
        support = as_rows([example.features for example in self.examples], "features of the photos")
        for example, features in zip(self.examples, support, strict=True):
            if not features.any():
                raise InputError(f"the features of {example.key} are all zeros. Leave the photo out.")
        if priors is not None:
            check_same_width(support, "photos", priors.prototypes, "the priors")
            if priors.geometry is None:
                warnings.warn(geometry_warning(priors), stacklevel=2)
        names, labels = np.unique([example.label for example in self.examples], return_inverse=True)
        self.fitted = FittedClassifier(support, labels, names, priors, settings, check_share("reject", reject))

    @classmethod
    def from_folder(
        cls,
        folder: str | os.PathLike[str],
        *,
        backbone: Backbone | str | os.PathLike[str] | None = None,
        priors: Priors | Literal["backbone"] | None = "backbone",
        reject: float | None = REJECT,
        views: int = 1,
        progress: Progress | None = None,
    ) -> "ImageClassifier":
        """Learn from a folder with one folder of photos per class, or from a CSV of path and label.

        Parameters
        ----------
        folder : path
        backbone : Backbone, name or path of an ONNX file, optional
            EfficientNet-Lite0 unless given.
        priors : Priors, "backbone" or None
            Base classes of your own, the classes that the backbone itself was trained on, or none.
        reject : float, optional
            As above.
        views : int, default=1
            As above.
        progress : callable, optional

        Returns
        -------
        ImageClassifier
        """
        if isinstance(priors, str) and priors != "backbone":
            raise InputError(f"priors is {priors!r}. Give Priors, 'backbone' or None.")
        check_share("reject", reject)
        seen = views_of(views)
        files = labelled(folder)
        if len({file.label for file in files}) < 2:
            raise InputError(f"{folder} has photos of one class, {files[0].label!r}. Add a class.")
        used = backbone if isinstance(backbone, Backbone) else load_backbone(backbone or DEFAULT)
        known = backbone_priors(used) if isinstance(priors, str) else priors
        examples, failures = read_examples(files, used, progress, views=seen)
        if not examples:
            raise InputError(f"none of the {len(failures)} photos in {folder} can be read. {failures[0][1]}")
        return cls(used, examples, known, reject=reject, views=views, failures=failures)

    def add(self, folder: str | os.PathLike[str], progress: Progress | None = None) -> "ImageClassifier":
        """Return a classifier with more photos, of known or new classes; photos it already has are skipped."""
        files = labelled(folder)
        examples, failures = read_examples(files, self.backbone, progress, views=views_of(self.views))
        there = {(example.label, example.features.tobytes()) for example in self.examples}
        fresh = [example for example in examples if (example.label, example.features.tobytes()) not in there]
        return self.with_examples([*self.examples, *fresh], failures)

    def with_examples(self, examples: Iterable[Example], failures: Iterable[tuple[str, str]] = ()) -> "ImageClassifier":
        """Return the same classifier with other examples."""
        same = {"reject": self.reject, "point": self.point, "views": self.views}
        found = ImageClassifier(self.backbone, examples, self.priors, **same, failures=failures)  # type: ignore[arg-type]
        unlabelled, balance = self.fitted.unlabelled, self.fitted.pile_balance
        return found if unlabelled is None else found.with_unlabelled(unlabelled, self.unlabelled_keys, balance)

    def with_unlabelled(
        self, features: Array, keys: Iterable[str], balance: Balance | None = None
    ) -> "ImageClassifier":
        """Return a classifier that is refined with unlabelled photos.

        Parameters
        ----------
        features : array of shape (P, D)
            Made by the backbone.
        keys : iterable of str
            The names of the photos.
        balance : {"equal"}, optional
            A promise that the photos are of the classes alone, equally many of each.
        """
        rows, refined = as_rows(features, "features of the unlabelled photos"), copy(self)
        check_same_width(rows, "the unlabelled photos", self.support, "the examples")
        refined.unlabelled_keys = tuple(keys)
        if len(refined.unlabelled_keys) != len(rows):
            raise InputError(
                f"there are {len(rows)} unlabelled photos and {len(refined.unlabelled_keys)} keys of them."
            )
        vars(refined).pop("review", None)
        known = self.fitted.unknown_below  # photos without labels do not change it, and it takes time
        refined.fitted = replace(self.fitted, unlabelled=rows, pile_balance=balance).with_threshold(known)
        return refined

    def at(self, point: tuple[float, float] | None) -> "ImageClassifier":
        """Return the classifier at another point of the triangle, without whitening or calibrating again."""
        moved = copy(self)
        if point is not None:
            moved.point, moved.fitted = point, self.fitted.at(*point)
        return moved

    @property
    def priors(self) -> Priors | None:
        """The base classes."""
        return self.fitted.priors

    @property
    def reject(self) -> float | None:
        """Share of photos of other classes to label as unknown."""
        return self.fitted.reject

    @property
    def support(self) -> Array:
        """The features of the examples, (S, D)."""
        return self.fitted.support

    @property
    def labels(self) -> Labels:
        """The class of each example, as its place in ``classes``, (S,)."""
        return self.fitted.labels

    @property
    def weights(self) -> tuple[float, float]:
        """α and β: those that were given, or those that were chosen for the task."""
        return self.point or (self.calibrated.alpha, self.calibrated.beta)

    @property
    def calibrated(self) -> CalibratedSupport:
        """The calibrated examples."""
        return self.fitted.calibrated

    @cached_property
    def review(self) -> Review:
        """A review of the examples: shots, duplicates, photos that are likely mislabelled."""
        return review_examples(self.examples, self.classes, self.calibrated)

    def predict(
        self, photos: Iterable[Photo], batch: int | None = None, *, views: int | None = None
    ) -> Iterator[Prediction]:
        """Label photos one after the other, as they are read.

        Parameters
        ----------
        photos : iterable of paths
        batch : int, optional
            How many the backbone gets at once, at most.
        views : int, optional
            Views of each photo; by default as many as of the examples.

        Yields
        ------
        Prediction
            In the order of the photos. One that cannot be read has a failure and no label.
        """
        given = [photos] if isinstance(photos, str | os.PathLike) else photos
        with closing(self._embed(given, views, batch)) as results:
            for photo, result in results:
                key = readable(photo)
                if isinstance(result, ImageError):
                    yield Prediction(key, "", failure=str(result))
                else:
                    yield replace(self.label(result[None])[0], key=key)

    def label_together(
        self,
        photos: Iterable[Photo],
        *,
        balance: Balance | None = None,
        views: int | None = None,
        progress: Progress | None = None,
    ) -> LabelledTogether:
        """Label photos after all of them are read, so that they refine the classes and each other's labels.

        Parameters
        ----------
        photos : iterable of paths
        balance : {"equal"}, optional
            A promise that the photos are of the classes alone, equally many of each.
        views : int, optional
            As in :meth:`predict`.
        progress : callable, optional
        """
        files = [photos] if isinstance(photos, str | os.PathLike) else list(photos)
        read = []
        with closing(self._embed(files, views)) as results:
            for photo, result in results:
                read.append((readable(photo), result))
                if progress is not None:
                    progress(len(read), len(files))
        usable = {i: result for i, (_, result) in enumerate(read) if not isinstance(result, ImageError)}
        predictions = [Prediction(key, "", failure=str(result)) for key, result in read]
        if not usable:
            return LabelledTogether(predictions, self)
        refined = self.with_unlabelled(np.stack([*usable.values()]), [read[i][0] for i in usable], balance)
        for i, found in zip(usable, refined.label_unlabelled(), strict=True):
            predictions[i] = found
        return LabelledTogether(predictions, refined)

    def label_unlabelled(self) -> list[Prediction]:
        """Label the photos that the classifier was refined with."""
        found = zip(self.label_scores(self.fitted.transduction), self.unlabelled_keys, strict=True)
        return [replace(prediction, key=key) for prediction, key in found]

    @property
    def unlabelled_use(self) -> float | None:
        """How much of the classes comes from unlabelled photos, from 0 to 1; None if none can be used."""
        refinement = self.calibrated.refinement
        return None if refinement is None else refinement.used

    @property
    def groups(self) -> list[list[str]]:
        """Keys of unlabelled photos that resemble each other and none of the classes: the largest group first.

        The most central photos of each group come first.
        """
        return [[self.unlabelled_keys[row] for row in rows] for rows in self.fitted.groups]

    def label(self, features: Array) -> list[Prediction]:
        """Label features that the backbone made, (Q, D)."""
        rows = as_rows(features, "features")
        check_same_width(rows, "the features", self.support, "the examples")
        return self.label_scores(self.fitted.score(rows))

    def label_scores(self, scores: Scores) -> list[Prediction]:
        """Label photos whose scores are known."""
        probabilities, unknown = self.fitted.probabilities(scores.cosines), self.fitted.unknown(scores)
        found = []
        for probability, rejected in zip(probabilities, unknown.tolist(), strict=True):
            first, second = np.argsort(-probability, kind="stable")[:2].tolist()
            label, next_one = (UNKNOWN, first) if rejected else (self.classes[first], second)
            likely, next_likely = float(probability[first]), float(probability[next_one])
            found.append(Prediction("", label, likely, self.classes[next_one], next_likely, rejected))
        return found

    def _embed(self, photos: Iterable[Photo], views: int | None, batch: int | None = None) -> Embedding:
        """Read and embed photos, in their order."""
        seen = views_of(self.views if views is None else views)
        return embed_images(photos, self._read, self.backbone, views=seen, batch=batch)

    def _read(self, photo: Photo) -> Image.Image:
        return read_image(photo, short_side=self.backbone.preprocessing.short_side)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one safetensors file: the fitted classifier, thumbnails and the identity of the backbone."""
        model_file.write_model(path, self.fitted, self.examples, self.unlabelled_keys, self.backbone, self.views)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        backbone: Backbone | str | os.PathLike[str] | None = None,
        *,
        device: str | None = None,
    ) -> "ImageClassifier":
        """Read a classifier that :meth:`save` wrote; the backbone is loaded to ``device`` unless it is given."""
        arrays, facts = model_file.read_model(path)
        if not isinstance(backbone, Backbone):
            backbone = model_file.backbone_of(path, facts, backbone, device)
        with model_file.naming(path):
            model, examples, keys = model_file.unpack_model(arrays, facts, backbone)
            views = facts["backbone"].get("views", 1)
            found = cls(
                backbone, examples, model.priors, reject=model.reject, point=model.settings.weights, views=views
            )
            found.fitted, found.unlabelled_keys = model, keys
            return found
