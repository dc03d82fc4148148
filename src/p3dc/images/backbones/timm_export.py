"""Export networks of timm to the layout of ONNX exports on the Hugging Face Hub. This module needs the timm extra."""

import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from p3dc._arrays import Floats
from p3dc.errors import InputError
from p3dc.images.backbones.backbone import first_line
from p3dc.images.backbones.network_folder import CONFIG, load_folder
from p3dc.images.backbones.processor import timm_preprocessing
from p3dc.io.atomic import making_folder

PREFIX = "timm:"
LEAST_COSINE = 0.9999
"""Exported features must agree with those of torch this well."""

CHECKED = 4
"""How many random images are compared."""

OPSET = 17
SETTINGS = ("input_size", "interpolation", "mean", "std", "crop_pct", "crop_mode")


def export_timm(
    address: str, out: str | os.PathLike[str], *, pretrained: bool = True, head: bool = True, seed: int = 0
) -> float:
    """Write a network of timm to a folder, and compare it with torch on random images.

    Parameters
    ----------
    address : str
        ``timm:NAME``, with a name that timm knows.
    out : path
        The folder, which appears when the network is in it and agrees with torch.
    pretrained : bool, default=True
        Fetch its trained weights; otherwise they are random, from the seed.
    head : bool, default=True
        Keep its last layer, whose rows can become base classes. Features are what that layer takes.
    seed : int, default=0
        For the random images, and for random weights.

    Returns
    -------
    float
        The least cosine between features of torch and of the exported network.
    """
    name, folder = address.removeprefix(PREFIX), Path(out)
    if not address.startswith(PREFIX) or not name:
        raise InputError(f"{address!r:.80} is not an address of timm. Write timm:NAME.")
    if folder.exists():
        raise InputError(f"{folder} is there already. Give the name of a new folder.")
    torch.manual_seed(seed)
    network = _create(name, pretrained)
    classifies = head and getattr(network, "num_classes", 0) > 0
    if not classifies:
        network.reset_classifier(0)
    settings = _settings(network)
    preprocessing = timm_preprocessing(settings)
    images = np.random.default_rng(seed).normal(size=(CHECKED, *preprocessing.shape)).astype(np.float32)
    with making_folder(folder) as made:
        (made / "onnx").mkdir()
        config = {"architecture": name, "pretrained_cfg": settings, "num_features": int(network.num_features)}
        if classifies:
            config["label_names"] = _class_names(network)
        (made / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        _export(network, images, made / "onnx" / "model.onnx", "logits" if classifies else "features")
        exported = load_folder(made, name=str(folder)).embed(images)
        cosine = _least_cosine(exported, _features(network, images))
        if not cosine >= LEAST_COSINE:
            raise InputError(f"{name} gives other features in ONNX than in torch: cosine {cosine:.5f}. Use another.")
    return cosine


def _create(name: str, pretrained: bool) -> Any:
    timm = _import_timm()
    if not timm.is_model(name.split(".")[0]):
        raise InputError(f"timm knows no network {name!r:.80}. Look for one with timm.list_models().")
    try:
        return timm.create_model(name, pretrained=pretrained).eval()
    except Exception as error:  # of the network connection, of a file, or of the name's tag
        raise InputError(f"timm cannot make {name} ({first_line(error)}). Check its name and the connection.") from None


def _import_timm() -> Any:
    """Import timm, also beside a torchvision that was built for another torch.

    timm imports torchvision, which fails without its compiled operators. No network needs them, so they are declared
    without code.
    """
    try:
        import timm
    except ImportError as error:
        raise InputError(f"timm cannot be imported ({error}). Install it: pip install 'p3dc-shot[timm]'.") from None
    except RuntimeError:
        missing: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call, unused-ignore]
        for operator in ("nms", "qnms"):
            missing.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import timm

        timm.missing_operators = missing  # they last as long as this object
    return timm


def _settings(network: Any) -> dict[str, Any]:
    """Return how timm preprocesses images for a network when it evaluates it."""
    from timm.data import resolve_data_config

    found = resolve_data_config({}, model=network)
    return {name: found[name] for name in SETTINGS if name in found}


def _class_names(network: Any) -> list[str]:
    """Return the names of the classes where timm knows them, and their numbers otherwise."""
    from timm.data import ImageNetInfo, infer_imagenet_subset

    subset = infer_imagenet_subset(network)
    if subset is None:
        return [str(number) for number in range(network.num_classes)]
    return [str(name) for name in ImageNetInfo(subset).label_descriptions()]


def _export(network: nn.Module, images: Floats, path: Path, output: str) -> None:
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # constants in traces, and which exporter is older
        try:
            torch.onnx.export(
                network,
                (torch.from_numpy(images[:2]),),
                path,
                input_names=["pixel_values"],
                output_names=[output],
                dynamic_axes={"pixel_values": {0: "n"}, output: {0: "n"}},
                opset_version=OPSET,
                dynamo=False,
            )
        except Exception as error:  # whatever the network does that ONNX cannot
            raise InputError(f"the network cannot be exported ({first_line(error)}). Use another.") from None


def _features(network: Any, images: Floats) -> Floats:
    """Compute in torch what the last layer takes."""
    with torch.inference_mode():
        found = network.forward_head(network.forward_features(torch.from_numpy(images)), pre_logits=True)
    features: Floats = found.float().numpy()
    return features


def _least_cosine(one: Floats, two: Floats) -> float:
    if one.shape != two.shape:
        raise InputError(f"the exported network gives shape {one.shape}, torch {two.shape}. Use another network.")
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1)
    return float((np.vecdot(one, two) / lengths).min())
