"""Networks in ONNX files."""

import hashlib
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p3dc._arrays import Floats
from p3dc._validation import check_count
from p3dc.errors import InputError
from p3dc.images.backbones import lite0
from p3dc.images.backbones.backbone import Backbone, count_features, digest_of, first_line, n_cores
from p3dc.images.backbones.onnx_maps import ending_before_pooling, position_axes
from p3dc.images.preprocessing import Preprocessing

if TYPE_CHECKING:
    import onnxruntime

SILENT = 4
"""The level at which ONNX Runtime writes nothing to the terminal; errors are raised anyway."""


class OnnxBackbone(Backbone):
    """A network in an ONNX file, run by ONNX Runtime on the processor.

    Parameters
    ----------
    model : path or bytes
        The file or its content. The network has one input, float32 with a free first axis, and one output: a row for
        each image. Axes of length 1 in a row are dropped.
    preprocessing : Preprocessing
        How images are preprocessed for it.
    name : str, optional
        By default the name of the file without its ending.
    threads : int, optional
        How many to use; by default one for each core that this process may use.
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
            content, source, stem = model, "the model", "onnx"
        else:
            content, source, stem = _read(model), str(model), Path(model).stem
            stem = Path(model).name if stem == lite0.NAME else stem  # that name belongs to the built-in network
        self.name = stem if name is None else name
        self.preprocessing = preprocessing
        self.digest = digest_of(hashlib.sha256(content).digest(), preprocessing)
        self._model, self._source, self._threads = model, source, threads or n_cores()
        self._session = _start(content, source, self._threads)
        self._input = _check_input(self._session, source, preprocessing)
        try:
            blank = self._embed(np.zeros((2, *preprocessing.shape), dtype=np.float32))
        except InputError as error:
            raise InputError(
                f"{source} fails on images of shape {preprocessing.shape} ({error}) "
                "Check the crop and the layout of its preprocessing."
            ) from None
        self.n_features = count_features(blank, source)

    def _embed(self, batch: Floats) -> Floats:
        found = self._run(self._session, batch)
        inner = range(1, found.ndim if found.ndim > 2 else 0)
        return found.squeeze(tuple(axis for axis in inner if found.shape[axis] == 1))

    def _embed_maps(self, batch: Floats) -> Floats:
        session, axes = self._map_session
        maps = np.moveaxis(self._run(session, batch), axes, range(1, 1 + len(axes)))
        return maps.reshape(len(batch), -1, self.n_features)

    @cached_property
    def _map_session(self) -> tuple["onnxruntime.InferenceSession", tuple[int, ...]]:
        """The network up to its pooling, and the axes that are pooled."""
        content = self._model if isinstance(self._model, bytes) else _read(self._model)
        if digest_of(hashlib.sha256(content).digest(), self.preprocessing) != self.digest:
            raise InputError(f"{self._source} has changed since it was loaded. Load it again.")
        session = _start(ending_before_pooling(content, self._source), self._source, self._threads)
        noise = np.random.default_rng(0).normal(size=(2, *self.preprocessing.shape)).astype(np.float32)
        return session, position_axes(self._run(session, noise), self._embed(noise), self._source)

    def _run(self, session: "onnxruntime.InferenceSession", batch: Floats) -> Floats:
        found: Floats
        try:
            (found,) = session.run(None, {self._input: batch})
        except Exception as error:
            raise InputError(
                f"{self.name} fails on {len(batch)} images ({first_line(error)}). Export it with a free first axis."
            ) from None
        return found


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error}). Give the path of an .onnx file.") from None


def _start(content: bytes, source: str, threads: int) -> "onnxruntime.InferenceSession":
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read when ONNX Runtime is imported
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
            f"{source} is not an ONNX model that can be loaded ({first_line(error)}). Export it again as one file."
        ) from None


def _check_input(session: Any, source: str, preprocessing: Preprocessing) -> str:
    """Return the name of the network's input, if it takes what the preprocessing gives."""
    inputs, outputs = session.get_inputs(), session.get_outputs()
    if len(inputs) != 1 or len(outputs) != 1:
        raise InputError(f"{source} has {len(inputs)} inputs and {len(outputs)} outputs. Export it with one of each.")
    (images,) = inputs
    if images.type != "tensor(float)":
        raise InputError(f"{source} takes {images.type}. Export it with float32 input.")
    batch, *rest = images.shape or [None]
    if len(rest) != 3:
        raise InputError(
            f"{source} takes input of {len(images.shape)} axes. Export it with four: images, colours, rows, columns."
        )
    if isinstance(batch, int):
        raise InputError(f"{source} takes exactly {batch} images at once. Export it with a free first axis.")
    expected = preprocessing.shape
    if any(isinstance(size, int) and size != length for size, length in zip(rest, expected, strict=True)):
        raise InputError(
            f"{source} takes images of shape ({', '.join(map(str, rest))}), but its preprocessing gives {expected}. "
            "Correct its crop or its layout."
        )
    return str(images.name)
