"""Networks that turn prepared photos into features."""

import hashlib
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from p3dc._validation import check_count
from p3dc.errors import InputError
from p3dc.images.backbones import lite0
from p3dc.images.preprocessing import EXAMPLE, Preprocessing

if TYPE_CHECKING:
    import onnxruntime

STEP = 8
"""How many images go through a network at once: enough for every core, few enough for the processor's caches."""

SILENT = 4
"""The level at which ONNX Runtime writes nothing to the terminal; what goes wrong is raised anyway."""

Floats = npt.NDArray[np.float32]


class Backbone(ABC):
    """What turns prepared photos into features.

    Attributes
    ----------
    name : str
        What people call it.
    digest : str
        SHA-256 over the network and the preprocessing: features of equal digests may be compared, others not.
    n_features : int
        How many features a photo gets.
    preprocessing : Preprocessing
        How photos are prepared for it.
    """

    name: str
    digest: str
    n_features: int
    preprocessing: Preprocessing

    def embed(self, pixels: npt.ArrayLike) -> Floats:
        """Give the features of prepared photos.

        Parameters
        ----------
        pixels : array of shape (n, ...)
            What ``preprocessing.prepare`` gave, n times.

        Returns
        -------
        array of shape (n, n_features)
        """
        batch = np.asarray(pixels, dtype=np.float32)
        if batch.shape[1:] != self.preprocessing.shape:
            raise InputError(
                f"pixels have shape {batch.shape}, but {self.name} takes (n, {_listed(self.preprocessing.shape)}). "
                "Prepare the images with its preprocessing."
            )
        features = np.empty((len(batch), self.n_features), dtype=np.float32)
        for start in range(0, len(batch), STEP):
            some = batch[start : start + STEP]
            found = self._embed(some)
            if found.shape != (len(some), self.n_features):
                raise InputError(
                    f"{self.name} gives shape {found.shape} for {len(some)} images. It must give {self.n_features} "
                    "features for each: export it with a free first axis."
                )
            features[start : start + STEP] = found
        return features

    @abstractmethod
    def _embed(self, batch: Floats) -> npt.NDArray[Any]:
        """Give the features of a few photos, of shape (n, n_features)."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.n_features:,} features, digest {self.digest[:12]})"


class OnnxBackbone(Backbone):
    """A network in an ONNX file, run by ONNX Runtime on the processor.

    Parameters
    ----------
    model : path or bytes
        The file or its content. The network has one input, float32 with a free first axis, and one output: a row for
        each image, whose axes of length 1 are dropped.
    preprocessing : Preprocessing
        How photos are prepared for it.
    name : str, optional
        The stem of the file's name by default.
    threads : int, optional
        How many to use; by default one for each processor that this process may use.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        preprocessing: Preprocessing,
        *,
        name: str | None = None,
        threads: int | None = None,
    ) -> None:
        if threads is not None:
            check_count("threads", threads, 1)
        if isinstance(model, bytes):
            content, what, stem = model, "the model", "onnx"
        else:
            content, what, stem = _read(model), str(model), Path(model).stem
            stem = Path(model).name if stem == lite0.NAME else stem  # that name belongs to the network in the package
        self.name = stem if name is None else name
        self.preprocessing = preprocessing
        self.digest = digest_of(hashlib.sha256(content).digest(), preprocessing)
        self._session = _session(content, what, threads or n_cores())
        self._input = _checked_input(self._session, what, preprocessing)
        self.n_features = self._tried(what)

    def _embed(self, batch: Floats) -> npt.NDArray[Any]:
        try:
            (found,) = self._session.run(None, {self._input: batch})
        except Exception as error:
            raise InputError(
                f"{self.name} fails on {len(batch)} images ({_first_line(error)}). Export it with a free first axis."
            ) from None
        return _without_ones(found)

    def _tried(self, what: str) -> int:
        """Run two images of zeros to see what comes out."""
        try:
            found = self._embed(np.zeros((2, *self.preprocessing.shape), dtype=np.float32))
        except InputError as error:
            raise InputError(
                f"{what} fails on images of shape {self.preprocessing.shape} ({error}) "
                "Check the crop and the layout of its preprocessing."
            ) from None
        if found.ndim != 2 or len(found) != 2 or found.dtype.kind != "f":
            raise InputError(
                f"{what} gives {found.dtype} of shape {found.shape} for two images. It must give a row of features for "
                "each: cut it after its pooling."
            )
        return int(found.shape[1])


def load_backbone(
    name_or_path: str | os.PathLike[str] = lite0.NAME,
    preprocessing: Preprocessing | None = None,
    threads: int | None = None,
) -> Backbone:
    """Load the default network, or one of your own.

    Parameters
    ----------
    name_or_path : str or path, default="efficientnet-lite0"
        That name, or an ``.onnx`` file.
    preprocessing : Preprocessing, optional
        By default that of the network: for a file, what the TOML file of the same stem beside it says.
    threads : int, optional
        How many to use; by default one for each processor that this process may use.

    Returns
    -------
    Backbone

    Examples
    --------
    >>> from p3dc.images.backbones.onnx import load_backbone
    >>> backbone = load_backbone()
    >>> backbone.n_features
    1280
    >>> backbone.preprocessing.crop
    224
    """
    if os.fspath(name_or_path) == lite0.NAME:
        return OnnxBackbone(lite0.load_graph(), preprocessing or lite0.PREPROCESSING, name=lite0.NAME, threads=threads)
    path = Path(name_or_path)
    if path.suffix != ".onnx":
        raise InputError(f"there is no backbone {str(path)!r}. Use {lite0.NAME!r} or the path of an .onnx file.")
    if not path.is_file():
        raise InputError(f"{path} is not a file. Use {lite0.NAME!r} or the path of an .onnx file.")
    if preprocessing is None:
        beside = path.with_suffix(".toml")
        if not beside.is_file():
            raise InputError(
                f"{path} has no {beside.name} beside it, so how to prepare images is unknown. Write it, for example:\n"
                f"{EXAMPLE}"
            )
        preprocessing = Preprocessing.from_toml(beside)
    backbone = OnnxBackbone(path, preprocessing, threads=threads)
    _check_alone(backbone, path)
    return backbone


def _check_alone(backbone: Backbone, path: Path) -> None:
    """Refuse a network whose features of an image depend on the others that come with it."""
    images = np.random.default_rng(0).normal(size=(3, *backbone.preprocessing.shape)).astype(np.float32)
    together, alone = backbone.embed(images), np.concatenate([backbone.embed(image[None]) for image in images])
    if not np.allclose(together, alone, rtol=1e-2, atol=1e-3 * float(np.abs(alone).max(initial=1e-9))):
        raise InputError(
            f"{path} gives an image other features alone than among others. Export it for inference, not for training."
        )


def digest_of(network: bytes, preprocessing: Preprocessing) -> str:
    """Join the digest of a network with its preprocessing."""
    return hashlib.sha256(network + preprocessing.to_json().encode()).hexdigest()


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error}). Give the path of an .onnx file.") from None


def _session(content: bytes, what: str, threads: int) -> "onnxruntime.InferenceSession":
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # it is read at import
    import onnxruntime

    onnxruntime.set_default_logger_severity(SILENT)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = SILENT
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise InputError(
            f"{what} is not an ONNX model that can be loaded ({_first_line(error)}). Export it again as one file."
        ) from None


def _checked_input(session: "onnxruntime.InferenceSession", what: str, preprocessing: Preprocessing) -> str:
    inputs, outputs = session.get_inputs(), session.get_outputs()
    if len(inputs) != 1 or len(outputs) != 1:
        raise InputError(f"{what} has {len(inputs)} inputs and {len(outputs)} outputs. Export it with one of each.")
    (images,) = inputs
    if images.type != "tensor(float)":
        raise InputError(f"{what} takes {images.type}. Export it with float32 input.")
    batch, *rest = images.shape or [None]
    if len(rest) != 3:
        raise InputError(
            f"{what} takes input of {len(images.shape)} axes. Export it with four: images, colours, rows, columns."
        )
    if isinstance(batch, int):
        raise InputError(f"{what} takes exactly {batch} images at once. Export it with a free first axis.")
    expected = preprocessing.shape
    if any(isinstance(size, int) and size != length for size, length in zip(rest, expected, strict=True)):
        raise InputError(
            f"{what} takes images of shape ({_listed(rest)}), but its preprocessing gives {expected}. "
            "Correct its crop or its layout."
        )
    return str(images.name)


def _without_ones(found: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if found.ndim <= 2:
        return found
    return found.squeeze(tuple(axis for axis in range(1, found.ndim) if found.shape[axis] == 1))


def _listed(shape: Any) -> str:
    return ", ".join(map(str, shape))


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def n_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
