"""Backbones by name, or from a file."""

import os
from pathlib import Path

import numpy as np

from p3dc.errors import InputError
from p3dc.images.backbones import lite0
from p3dc.images.backbones.backbone import Backbone
from p3dc.images.backbones.onnx_network import OnnxBackbone
from p3dc.images.preprocessing import EXAMPLE, Preprocessing


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
        By default the network's own. For a file it is read from the ``.toml`` file of the same name next to it.
    threads : int, optional
        How many to use; by default one for each core that this process may use.

    Returns
    -------
    Backbone

    Examples
    --------
    >>> from p3dc.images.backbones.loading import load_backbone
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
        settings = path.with_suffix(".toml")
        if not settings.is_file():
            raise InputError(
                f"{path} has no {settings.name} next to it, so its preprocessing is unknown. Write it, for example:\n"
                f"{EXAMPLE}"
            )
        preprocessing = Preprocessing.from_toml(settings)
    backbone = OnnxBackbone(path, preprocessing, threads=threads)
    _check_batches(backbone, path)
    return backbone


def _check_batches(backbone: Backbone, path: Path) -> None:
    """Refuse a network whose features of an image depend on the rest of its batch."""
    images = np.random.default_rng(0).normal(size=(3, *backbone.preprocessing.shape)).astype(np.float32)
    together, single = backbone.embed(images), np.concatenate([backbone.embed(image[None]) for image in images])
    if not np.allclose(together, single, rtol=1e-2, atol=1e-3 * float(np.abs(single).max(initial=1e-9))):
        raise InputError(
            f"{path} gives an image different features in a batch than by itself. Export it for inference, not for "
            "training."
        )
