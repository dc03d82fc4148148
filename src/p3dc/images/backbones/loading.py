"""Backbones by name, from the Hugging Face Hub, from a folder or from a file."""

import os
from functools import partial
from pathlib import Path

import numpy as np

from p3dc.errors import InputError
from p3dc.images.backbones import efficientnet_lite
from p3dc.images.backbones.backbone import Backbone
from p3dc.images.backbones.hub import PREFIX, fetch_network
from p3dc.images.backbones.network_folder import load_folder, split_options
from p3dc.images.backbones.onnx_network import OnnxBackbone
from p3dc.images.preprocessing import EXAMPLE, Preprocessing

LITES = efficientnet_lite.LITES
DEFAULT = efficientnet_lite.LITE0.name
CHOICES = f"Use {', '.join(LITES)}, hf:OWNER/NAME, a folder or the path of an .onnx file."


def load_backbone(
    name_or_path: str | os.PathLike[str] = DEFAULT,
    preprocessing: Preprocessing | None = None,
    threads: int | None = None,
    device: str | None = None,
) -> Backbone:
    """Load the default network, another that is known by name, or one of your own.

    Parameters
    ----------
    name_or_path : str or path, default="efficientnet-lite0"
        That name, "efficientnet-lite0-int8", "efficientnet-lite1" or "efficientnet-lite2"; ``hf:OWNER/NAME`` or
        ``hf:OWNER/NAME@REVISION`` on the Hugging Face Hub; a folder in the layout of its ONNX exports; or an ``.onnx``
        file. After the Hub's address or the folder, ``#fp16`` names a variant and ``#mean`` a pooling, and
        ``#fp16,mean`` both.
    preprocessing : Preprocessing, optional
        By default the network's own. For a file it is read from the ``.toml`` file of the same name next to it.
    threads : int, optional
        How many to use; by default one for each core that this process may use.
    device : {"cpu", "cuda", "openvino", "coreml", "directml"}, optional
        Where it runs; by default on the processor.

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
    address = os.fspath(name_or_path)
    if address in LITES:
        lite = LITES[address]
        if lite.int8 and device not in (None, "cpu"):
            raise InputError(
                f"{lite.name} runs on the processor alone, since 8-bit integers are rounded differently elsewhere. "
                f"Leave out the device {device}, or use {DEFAULT}."
            )
        return OnnxBackbone(
            efficientnet_lite.load_graph(lite),
            preprocessing or lite.preprocessing,
            name=lite.name,
            threads=threads,
            device=device,
            head=partial(efficientnet_lite.load_head, lite),
        )
    place, variant, pooling = split_options(address)
    if address.startswith(PREFIX) or (Path(place).is_dir() and not Path(address).is_file()):
        on_hub = address.startswith(PREFIX)
        folder = fetch_network(place, variant) if on_hub else Path(place)
        name = address if on_hub else _own_name(folder.resolve().name) + address[len(place) :]
        backbone: Backbone = load_folder(
            folder,
            name=name,
            variant=variant,
            pooling=pooling,
            preprocessing=preprocessing,
            threads=threads,
            device=device,
        )
    else:
        path = Path(address)
        if path.suffix != ".onnx":
            raise InputError(f"there is no backbone {address!r}. {CHOICES}")
        if not path.is_file():
            raise InputError(f"{path} is not a file. {CHOICES}")
        backbone = OnnxBackbone(path, preprocessing or _settings_beside(path), threads=threads, device=device)
    _check_batches(backbone, address)
    return backbone


def absolute_address(address: str) -> str:
    """Return an address that means the same network in any working directory."""
    known = address in LITES or address.startswith(PREFIX)
    return address if known else str(Path(address).absolute())


def is_loadable_by_name(name: str) -> bool:
    """Return whether the name of a backbone is an address to load it from."""
    return name in LITES or name.startswith(PREFIX)


def _own_name(name: str) -> str:
    return f"{name}/" if is_loadable_by_name(name) else name


def _settings_beside(path: Path) -> Preprocessing:
    """Read the preprocessing of an ``.onnx`` file from the ``.toml`` file next to it."""
    settings = path.with_suffix(".toml")
    if not settings.is_file():
        raise InputError(
            f"{path} has no {settings.name} next to it, so its preprocessing is unknown. Write it, for example:\n"
            f"{EXAMPLE}"
        )
    return Preprocessing.from_toml(settings)


def _check_batches(backbone: Backbone, source: str) -> None:
    """Refuse a network whose features of an image depend on the rest of its batch."""
    images = np.random.default_rng(0).normal(size=(3, *backbone.preprocessing.shape)).astype(np.float32)
    together, single = backbone.embed(images), np.concatenate([backbone.embed(image[None]) for image in images])
    if not np.allclose(together, single, rtol=1e-2, atol=1e-3 * float(np.abs(single).max(initial=1e-9))):
        raise InputError(
            f"{source} gives an image different features in a batch than by itself. Export it for inference, not for "
            "training."
        )
