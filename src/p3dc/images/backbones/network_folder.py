"""Networks in the layout of ONNX exports on the Hugging Face Hub, in a folder on this machine.

The folder holds ``onnx/model.onnx`` or ``onnx/vision_model.onnx`` (or either without ``onnx/``), ``config.json``, and
``preprocessor_config.json`` unless ``config.json`` describes timm's preprocessing.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from p3dc.errors import InputError
from p3dc.images.backbones.backbone import Backbone
from p3dc.images.backbones.onnx_network import OnnxBackbone
from p3dc.images.backbones.pooling import POOLINGS
from p3dc.images.backbones.processor import processor_preprocessing, timm_preprocessing
from p3dc.images.preprocessing import Preprocessing

CONFIG, PROCESSOR = "config.json", "preprocessor_config.json"
STEMS = ("vision_model", "model")
"""Names of the network; the part for images comes first, since the other then takes text as well."""

VARIANTS = {"fp32": ("",), "int8": ("_int8", "_quantized")}
"""Endings of variants; that of any other is its name after an underscore."""


def split_options(address: str) -> tuple[str, str, str]:
    """Split an address into its place, the variant of the network and the pooling.

    Examples
    --------
    >>> from p3dc.images.backbones.network_folder import split_options
    >>> split_options("hf:owner/name@main#fp16,mean")
    ('hf:owner/name@main', 'fp16', 'mean')
    >>> split_options("folder")
    ('folder', 'fp32', 'auto')
    """
    place, _, words = address.partition("#")
    given = [word for word in words.split(",") if word]
    poolings = [word for word in given if word in POOLINGS]
    variants = [word for word in given if word not in POOLINGS]
    if len(poolings) > 1 or len(variants) > 1:
        raise InputError(
            f"{address} names more than one variant or pooling. Give at most one of each, such as #fp16,mean; poolings "
            f"are {', '.join(POOLINGS)}."
        )
    return place, variants[0] if variants else "fp32", poolings[0] if poolings else "auto"


def choose_network(files: Iterable[str], variant: str, source: str) -> str:
    """Choose the file of the network among the files of a repository, by their paths.

    Examples
    --------
    >>> from p3dc.images.backbones.network_folder import choose_network
    >>> choose_network(["config.json", "onnx/model.onnx", "onnx/model_fp16.onnx"], "fp16", "owner/name")
    'onnx/model_fp16.onnx'
    """
    there = set(files)
    endings = VARIANTS.get(variant, (f"_{variant}",))
    for stem in STEMS:
        for folder in ("onnx/", ""):
            for ending in endings:
                if f"{folder}{stem}{ending}.onnx" in there:
                    return f"{folder}{stem}{ending}.onnx"
    has = sorted(name for name in there if name.endswith(".onnx"))
    found = f"it has {', '.join(has[:6])}{' and more' if len(has) > 6 else ''}" if has else "it has no .onnx file"
    raise InputError(
        f"{source} has no network onnx/model{endings[0]}.onnx or onnx/vision_model{endings[0]}.onnx: {found}. "
        "Name another variant after a #, or another network."
    )


def load_folder(
    folder: Path,
    *,
    name: str,
    variant: str = "fp32",
    pooling: str = "auto",
    preprocessing: Preprocessing | None = None,
    threads: int | None = None,
    device: str | None = None,
) -> Backbone:
    """Load the network of a folder.

    Parameters
    ----------
    folder : Path
    name : str
        What the backbone is called.
    variant : str
        "fp32", "fp16", "int8" or the ending of another file.
    pooling : str
        As in :class:`~p3dc.images.backbones.onnx_network.OnnxBackbone`.
    preprocessing : Preprocessing, optional
        By default that of the files.
    threads, device : optional
        As in :class:`~p3dc.images.backbones.onnx_network.OnnxBackbone`.

    Returns
    -------
    Backbone
    """
    files = [path.relative_to(folder).as_posix() for path in (*folder.glob("*"), *folder.glob("onnx/*"))]
    network = choose_network(files, variant, name)
    config = _read_json(folder / CONFIG, name)
    how = preprocessing or _preprocessing(folder, config, name)
    return OnnxBackbone(
        folder / network,
        how,
        name=name,
        threads=threads,
        device=device,
        pooling=pooling,
        n_patches=_n_patches(config, how.crop),
        class_names=_class_names(config),
    )


def _preprocessing(folder: Path, config: Mapping[str, Any], name: str) -> Preprocessing:
    described = config.get("pretrained_cfg")
    try:
        if (folder / PROCESSOR).is_file() or not isinstance(described, Mapping):
            file = PROCESSOR
            return processor_preprocessing(_read_json(folder / PROCESSOR, name))
        file = CONFIG
        return timm_preprocessing(described)
    except InputError as error:
        raise InputError(f"{name}, {file}: {error}" if not str(error).startswith(name) else str(error)) from None


def _n_patches(config: Mapping[str, Any], crop: int) -> int | None:
    """Return how many patches an image has, where the network cuts images into square patches."""
    vision = config.get("vision_config")
    size = (vision if isinstance(vision, Mapping) else config).get("patch_size")
    return (crop // size) ** 2 if isinstance(size, int) and 0 < size <= crop else None


def _class_names(config: Mapping[str, Any]) -> list[str] | None:
    names = config.get("id2label")
    if isinstance(names, Mapping) and all(str(number) in names for number in range(len(names))):
        return [str(names[str(number)]) for number in range(len(names))]
    return [*map(str, names)] if isinstance(names := config.get("label_names"), list) else None


def _read_json(path: Path, name: str) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{name} has no {path.name}. Give a network in the layout of an ONNX export.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{name} has a {path.name} that cannot be read ({error}). Fetch it again.") from None
    if not isinstance(found, dict):
        raise InputError(f"{name} has a {path.name} that is no table of settings. Fetch it again.")
    return found
