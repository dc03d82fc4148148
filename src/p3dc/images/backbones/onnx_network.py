"""Networks in ONNX files, run by ONNX Runtime."""

import hashlib
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p3dc._arrays import Floats
from p3dc._validation import check_count
from p3dc.errors import InputError
from p3dc.images.backbones.backbone import (
    GPU_STEP,
    STEP,
    Backbone,
    Head,
    count_features,
    digest_of,
    first_line,
    n_cores,
)
from p3dc.images.backbones.efficientnet_lite import LITES
from p3dc.images.backbones.onnx_graph import check_ends, cut_head, external_files, read_external
from p3dc.images.backbones.onnx_maps import ending_before_pooling, position_axes
from p3dc.images.backbones.pooling import LOGITS, choose_output, pool
from p3dc.images.preprocessing import Preprocessing

if TYPE_CHECKING:
    import onnxruntime

SILENT = 4
"""The level at which ONNX Runtime writes nothing to the terminal; errors are raised anyway."""

PROCESSOR = "CPUExecutionProvider"
PROVIDERS = {
    "cpu": (PROCESSOR, "onnxruntime"),
    "cuda": ("CUDAExecutionProvider", "onnxruntime-gpu"),
    "openvino": ("OpenVINOExecutionProvider", "onnxruntime-openvino"),
    "coreml": ("CoreMLExecutionProvider", "onnxruntime on macOS"),
    "directml": ("DmlExecutionProvider", "onnxruntime-directml"),
}
"""The execution provider of each device, and the package that has it."""

INPUTS = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


class OnnxBackbone(Backbone):
    """A network in an ONNX file, run by ONNX Runtime.

    Parameters
    ----------
    model : path or bytes
        The file or its content. The network has one input, of floats with a free first axis. Its weights may lie in
        other files next to it.
    preprocessing : Preprocessing
        How images are preprocessed for it.
    name : str, optional
        By default the name of the file without its ending.
    threads : int, optional
        How many to use; by default one for each core that this process may use.
    device : {"cpu", "cuda", "openvino", "coreml", "directml"}, optional
        Where it runs; by default on the processor.
    pooling : str, optional
        How outputs become features: "auto" for the image embedding, class token or mean, or what
        :func:`~p3dc.images.backbones.pooling.choose_output` takes. By default there must be one output, a row for each
        image; axes of length 1 in a row are dropped.
    n_patches : int, optional
        How many tokens are patches, as in :func:`~p3dc.images.backbones.pooling.pool`.
    class_names : sequence of str, optional
        The classes that it was trained on.
    head : callable, optional
        Returns the last layer, where the file does not hold it.

    Notes
    -----
    If the output is called "logits" and comes from a linear layer, features are what that layer takes, and
    :meth:`head` returns its rows.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        preprocessing: Preprocessing,
        *,
        name: str | None = None,
        threads: int | None = None,
        device: str | None = None,
        pooling: str | None = None,
        n_patches: int | None = None,
        class_names: Sequence[str] | None = None,
        head: Callable[[], Head] | None = None,
    ) -> None:
        if threads is not None:
            check_count("threads", threads, 1)
        if isinstance(model, bytes):
            content, source, stem, folder = model, "the model", "onnx", Path()
        else:
            content, source, stem, folder = _read(model), str(model), Path(model).stem, Path(model).parent
            stem = Path(model).name if stem in LITES else stem  # those names belong to the built-in networks
        self.name = stem if name is None else name
        self.preprocessing = preprocessing
        self.step = STEP if device in (None, "cpu", "openvino") else GPU_STEP  # OpenVINO runs on the processor
        self._head = head
        try:
            if self.name not in LITES:  # those are built here, and parsing takes time
                check_ends(content)
            external = read_external(folder, external_files(content))
        except InputError as error:
            raise InputError(f"{source}: {error}") from None
        network = hashlib.sha256(content)
        self._model, self._content_digest, self._is_cut = model, network.digest(), False
        for each in external.values():
            network.update(hashlib.sha256(each).digest())
        self._start = start = _Starter(source, external, threads or n_cores(), device)
        self._session = start(content)
        self._output: str | None = _choose_output(self._session, source, pooling)
        if self._output == LOGITS:
            cut = cut_head(content, LOGITS, external)
            if cut is not None:
                content, rows = cut
                self._head = lambda: Head(rows, _names(class_names, len(rows)))
                self._session, self._output = start(content), None
                network.update(b"features before logits")
                self._is_cut = True
        self._pools, self._n_patches = pooling is not None, n_patches
        self._pooling = pooling if pooling in ("cls", "mean") else None
        if self._pools:
            network.update(f"{self._output} {self._pooling}".encode())
        self.digest = digest_of(network.digest(), preprocessing)
        self._input, self._dtype = _check_input(self._session, source, preprocessing)
        try:
            blank = self._embed(np.zeros((2, *preprocessing.shape), dtype=np.float32))
        except InputError as error:
            raise InputError(
                f"{source} fails on images of shape {preprocessing.shape} ({error}) "
                "Check the crop and the layout of its preprocessing."
            ) from None
        self.n_features = count_features(blank, source)

    def _embed(self, batch: Floats) -> Floats:
        found = self._run(self._session, batch, self._output)
        inner = range(1, found.ndim if found.ndim > 2 else 0)
        rows: Floats = found.squeeze(tuple(axis for axis in inner if found.shape[axis] == 1))
        return pool(rows, self._pooling, self._n_patches) if self._pools else rows

    def _embed_maps(self, batch: Floats) -> Floats:
        session, axes = self._map_session
        maps = np.moveaxis(self._run(session, batch), axes, range(1, 1 + len(axes)))
        return maps.reshape(len(batch), -1, self.n_features)

    @cached_property
    def _map_session(self) -> tuple["onnxruntime.InferenceSession", tuple[int, ...]]:
        """The network up to its pooling, and the axes that are pooled."""
        start, content = self._start, self._model if isinstance(self._model, bytes) else _read(self._model)
        if hashlib.sha256(content).digest() != self._content_digest:
            raise InputError(f"{start.source} has changed since it was loaded. Load it again.")
        cut = cut_head(content, LOGITS, start.external) if self._is_cut else None
        session = start(ending_before_pooling(content if cut is None else cut[0], start.source))
        noise = np.random.default_rng(0).normal(size=(2, *self.preprocessing.shape)).astype(np.float32)
        return session, position_axes(self._run(session, noise), self._embed(noise), start.source)

    def _run(self, session: "onnxruntime.InferenceSession", batch: Floats, output: str | None = None) -> Floats:
        try:
            wanted = None if output is None else [output]
            (found,) = session.run(wanted, {self._input: batch.astype(self._dtype, copy=False)})
        except Exception as error:
            raise InputError(
                f"{self.name} fails on {len(batch)} images ({first_line(error)}). Export it with a free first axis."
            ) from None
        rows: Floats = found.astype(np.float32, copy=False) if found.dtype.kind == "f" else found
        return rows

    def head(self) -> Head | None:
        """Return the last layer, if the network was trained to classify and still has it."""
        return None if self._head is None else self._head()


def execution_provider(device: str, available: Sequence[str]) -> str:
    """Return the execution provider of a device, if this build of ONNX Runtime has it.

    Examples
    --------
    >>> from p3dc.images.backbones.onnx_network import execution_provider
    >>> execution_provider("cuda", ["CUDAExecutionProvider", "CPUExecutionProvider"])
    'CUDAExecutionProvider'
    """
    if device not in PROVIDERS:
        raise InputError(f"there is no device {device!r:.40}. Choose from {', '.join(PROVIDERS)}.")
    provider, package = PROVIDERS[device]
    if provider not in available:
        has = ", ".join(name for name, (each, _) in PROVIDERS.items() if each in available)
        raise InputError(f"ONNX Runtime cannot use {device} here: it has {has}. Install {package}, or leave it out.")
    return provider


class _Starter:
    """Start sessions of a network: the one of its file, and the one without its last layer."""

    def __init__(self, source: str, external: dict[str, bytes], threads: int, device: str | None) -> None:
        self.source, self.external, self.threads, self.device = source, external, threads, device

    def __call__(self, content: bytes) -> "onnxruntime.InferenceSession":
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read when ONNX Runtime is imported
        import onnxruntime

        onnxruntime.set_default_logger_severity(SILENT)
        provider = execution_provider(self.device or "cpu", onnxruntime.get_available_providers())
        options = onnxruntime.SessionOptions()
        options.log_severity_level = SILENT
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.intra_op_num_threads = self.threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # photos are read on the same cores
        files = self.external
        try:
            if files:
                sizes = [*map(len, files.values())]
                options.add_external_initializers_from_files_in_memory([*files], [*files.values()], sizes)
            own = {"num_of_threads": str(self.threads)} if self.device == "openvino" else {}  # it ignores the session's
            providers = {provider: own, PROCESSOR: {}}
            session = onnxruntime.InferenceSession(
                content,
                options,
                [*providers],
                [*providers.values()],
                enable_fallback=0,  # which prints
            )
            [(each.name, each.shape) for each in (*session.get_inputs(), *session.get_outputs())]  # may be no text
        except Exception as error:
            raise InputError(
                f"{self.source} is not an ONNX model that can be loaded ({first_line(error)}). Export it again."
            ) from None
        if session.get_providers()[0] != provider:
            raise InputError(f"ONNX Runtime cannot start {self.device} here. Check its drivers, or leave it out.")
        return session


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error}). Give the path of an .onnx file.") from None


def _names(given: Sequence[str] | None, n_classes: int) -> tuple[str, ...]:
    return tuple(given) if given is not None and len(given) == n_classes else tuple(map(str, range(n_classes)))


def _choose_output(session: Any, source: str, pooling: str | None) -> str:
    """Return the name of the output that features come from."""
    names = [output.name for output in session.get_outputs()]
    if pooling is None:
        if len(names) != 1:
            n_inputs = len(session.get_inputs())
            raise InputError(f"{source} has {n_inputs} inputs and {len(names)} outputs. Export it with one of each.")
        return str(names[0])
    try:
        return choose_output(names, None if pooling == "auto" else pooling)
    except InputError as error:
        raise InputError(f"{source}: {error} Choose one as its pooling.") from None


def _check_input(session: Any, source: str, preprocessing: Preprocessing) -> tuple[str, Any]:
    """Return the name and type of the network's input, if it takes what the preprocessing gives."""
    inputs, outputs = session.get_inputs(), session.get_outputs()
    if len(inputs) != 1:
        raise InputError(
            f"{source} has {len(inputs)} inputs and {len(outputs)} outputs ({', '.join(each.name for each in inputs)} "
            "go in). Export it with one of each, or give the part that takes images alone."
        )
    (images,) = inputs
    if images.type not in INPUTS:
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
    return str(images.name), INPUTS[images.type]
