"""What every backbone offers: a name, a digest, its preprocessing, and features for a batch of images."""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from p3dc._arrays import Floats
from p3dc.errors import InputError
from p3dc.images.preprocessing import Preprocessing

STEP = 8
"""How many images go through a network at once: enough for every core, few enough for the processor's caches."""

GPU_STEP = 256
"""The same for an accelerator, which needs more to do at once."""


class Head(NamedTuple):
    """The last layer of a network that was trained to classify."""

    rows: Floats
    """Its weights, a row for each class, of shape (n_classes, n_features)."""

    names: tuple[str, ...]
    """The names of the classes."""


class Backbone(ABC):
    """A network that turns preprocessed images into features.

    Attributes
    ----------
    name : str
        What people call it.
    digest : str
        SHA-256 of the network and its preprocessing. Only features of equal digests may be compared.
    n_features : int
        How many features an image gets.
    preprocessing : Preprocessing
        How images are preprocessed for it.
    step : int
        How many images go through it at once.
    """

    name: str
    digest: str
    n_features: int
    preprocessing: Preprocessing
    step: int = STEP

    @property
    def is_accelerated(self) -> bool:
        """Whether it runs on an accelerator."""
        return self.step > STEP

    def embed(self, pixels: npt.ArrayLike) -> Floats:
        """Compute the features of preprocessed images.

        Parameters
        ----------
        pixels : array of shape (n, ...)
            n results of ``preprocessing.prepare``.

        Returns
        -------
        array of shape (n, n_features), float32
        """
        return self._in_steps(self._embed, self._checked(pixels))

    def embed_crops(self, crops: npt.NDArray[np.uint8]) -> Floats:
        """Compute features as :meth:`embed` does, from n results of ``preprocessing.crop_view``."""
        return self._in_steps(self._embed_crops, crops)

    def _in_steps(self, embed: Callable[[Any], Floats], batch: npt.NDArray[Any]) -> Floats:
        features = np.empty((len(batch), self.n_features), dtype=np.float32)
        for start in range(0, len(batch), self.step):
            some = batch[start : start + self.step]
            found = embed(some)
            if found.shape != (len(some), self.n_features):
                raise InputError(
                    f"{self.name} gives shape {found.shape} for {len(some)} images. It must give {self.n_features} "
                    "features for each: export it with a free first axis."
                )
            features[start : start + self.step] = found
        return features

    def embed_maps(self, pixels: npt.ArrayLike) -> Floats:
        """Compute feature maps, from before the pooling: features of each position, whose mean are those of the image.

        Parameters
        ----------
        pixels : array of shape (n, ...)
            At least one result of ``preprocessing.prepare``.

        Returns
        -------
        array of shape (n, n_positions, n_features), float32
        """
        batch = self._checked(pixels)
        return np.concatenate([self._embed_maps(batch[i : i + STEP]) for i in range(0, len(batch), STEP)])

    def _checked(self, pixels: npt.ArrayLike) -> Floats:
        batch = np.asarray(pixels, dtype=np.float32)
        if batch.shape[1:] != self.preprocessing.shape:
            raise InputError(
                f"pixels have shape {batch.shape}, but {self.name} takes (n, {str(self.preprocessing.shape)[1:]}. "
                "Prepare the images with its preprocessing."
            )
        return batch

    @abstractmethod
    def _embed(self, batch: Floats) -> Floats:
        """Compute the features of at most ``step`` images, of shape (n, n_features)."""

    def _embed_crops(self, crops: npt.NDArray[np.uint8]) -> Floats:
        """Compute the features of at most ``step`` crops, of shape (n, n_features)."""
        return self._embed(self.preprocessing.standardize(crops))

    def head(self) -> Head | None:
        """Return the last layer, if the network was trained to classify and still has it."""
        return None

    def _embed_maps(self, batch: Floats) -> Floats:
        """Compute the feature maps of at most ``STEP`` images, of shape (n, n_positions, n_features)."""
        raise InputError(f"{self.name} gives no feature maps. Use efficientnet-lite0, or an .onnx file that pools.")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.n_features:,} features, digest {self.digest[:12]})"


def digest_of(network: bytes, preprocessing: Preprocessing) -> str:
    """Combine the digest of a network with its preprocessing."""
    return hashlib.sha256(network + preprocessing.to_json().encode()).hexdigest()


def count_features(found: Floats, source: str) -> int:
    """Return how many features a network gives, from its output for two images."""
    if found.ndim != 2 or len(found) != 2 or found.dtype.kind != "f":
        raise InputError(
            f"{source} gives {found.dtype} of shape {found.shape} for two images. It must give a row of features for "
            "each: cut it after its pooling."
        )
    return int(found.shape[1])


def n_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or its type where it has none."""
    return (str(error) or type(error).__name__).splitlines()[0][:200]
