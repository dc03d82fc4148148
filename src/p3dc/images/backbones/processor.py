"""Read the preprocessing of a network from the files that stand beside it on the Hugging Face Hub.

``preprocessor_config.json`` is that of an image processor of *transformers*, ``pretrained_cfg`` in ``config.json`` that
of *timm*. Both come down to a :class:`~p3dc.images.preprocessing.Preprocessing`.
"""

from collections.abc import Mapping
from typing import Any

from p3dc._validation import is_number
from p3dc.errors import InputError
from p3dc.images.preprocessing import Preprocessing

FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""The filters in the order of Pillow's numbers, which the files hold."""

BICUBIC = ("CLIP", "Bit", "DeiT", "Siglip", "Chinese", "Blip")
"""Beginnings of the names of image processors that are bicubic unless the file says otherwise; others are bilinear."""

SQUASHED = 384
"""ConvNeXt's processor squeezes photos into a square from this size on, and crops smaller ones."""


def processor_preprocessing(processor: Mapping[str, Any]) -> Preprocessing:
    """Read the preprocessing from the content of ``preprocessor_config.json``.

    Batches need photos of one shape: where the file resizes the short side and crops nothing, the centre is cropped.

    Examples
    --------
    >>> from p3dc.images.backbones.processor import processor_preprocessing
    >>> found = processor_preprocessing({
    ...     "size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}, "resample": 3,
    ...     "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    ... })
    >>> found.short_side, found.crop, found.mean
    (256, 224, (127.5, 127.5, 127.5))
    """
    if not processor.get("do_resize", True):
        raise InputError("it does not resize photos, so they have no common shape. Set do_resize and size in it.")
    crops = bool(processor.get("do_center_crop", "crop_size" in processor))
    size = processor.get("size")
    edge, square = _size(size, crops)
    share = processor.get("crop_pct")
    if isinstance(size, Mapping) and is_number(share) and share and not crops:  # ConvNeXt
        short_side, crop, square = (edge, edge, True) if edge >= SQUASHED else (int(edge / share), edge, False)
    else:
        short_side, crop = edge, _side(processor.get("crop_size"), "crop_size") if crops else edge
    mean, scale = _normalisation(processor)
    return Preprocessing(short_side, crop, mean, scale, resample=_filter(processor), square=square)  # type: ignore[arg-type]


def timm_preprocessing(config: Mapping[str, Any]) -> Preprocessing:
    """Read the preprocessing from ``pretrained_cfg``, as timm evaluates its networks.

    Examples
    --------
    >>> from p3dc.images.backbones.processor import timm_preprocessing
    >>> found = timm_preprocessing({
    ...     "input_size": [3, 224, 224], "crop_pct": 0.9, "interpolation": "bicubic",
    ...     "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5],
    ... })
    >>> found.short_side, found.crop
    (248, 224)
    """
    size = config.get("input_size")
    if not isinstance(size, list | tuple) or len(size) != 3 or size[0] != 3 or size[1] != size[2]:
        raise InputError(f"its input_size is {size!r:.60}. It must be three colours of a square.")
    mode = config.get("crop_mode") or "center"
    if mode not in ("center", "squash"):
        raise InputError(f"its crop_mode is {mode!r:.40}. It must be 'center' or 'squash'.")
    share = config.get("crop_pct") or 0.875
    if not is_number(share) or not 0 < share <= 1:
        raise InputError(f"its crop_pct is {share!r:.40}. It must lie between 0 and 1.")
    resample = config.get("interpolation") or "bilinear"
    mean, deviation = _triple(config.get("mean"), "mean"), _triple(config.get("std"), "std")
    return Preprocessing(
        int(size[1] / share),
        size[1],
        tuple(255 * value for value in mean),  # type: ignore[arg-type]
        tuple(255 * value for value in deviation),  # type: ignore[arg-type]
        resample="bicubic" if resample == "random" else resample,  # type: ignore[arg-type]
        square=mode == "squash",
    )


def _size(size: Any, crops: bool) -> tuple[int, bool]:
    """Return a side, and whether it is that of a square; a plain number is the short side of photos to be cropped."""
    if isinstance(size, Mapping) and "shortest_edge" in size:
        return _side(size["shortest_edge"], "size"), False
    if isinstance(size, Mapping) and set(size) != {"height", "width"}:
        raise InputError(
            f"its size has {', '.join(map(str, size)) or 'nothing'}. Give shortest_edge, or height and width."
        )
    return _side(size, "size"), isinstance(size, Mapping) or not crops


def _side(size: Any, name: str) -> int:
    """Return the side of a square: a number, or height and width."""
    sides = {size.get("height"), size.get("width")} if isinstance(size, Mapping) else {size}
    side = sides.pop()
    if sides or not isinstance(side, int) or isinstance(side, bool) or side < 1:
        raise InputError(f"its {name} is {size!r:.60}. It must be that of a square.")
    return side


def _filter(processor: Mapping[str, Any]) -> str:
    kind = str(processor.get("image_processor_type") or processor.get("feature_extractor_type") or "")
    number = processor.get("resample", 3 if kind.startswith(BICUBIC) else 2)
    if not isinstance(number, int) or not 0 <= number < len(FILTERS):
        raise InputError(f"its resample is {number!r:.40}. It must be one of Pillow's filters, 0 to 5.")
    return FILTERS[number]


def _normalisation(processor: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return what is subtracted from pixels of 0 to 255, and what they are then divided by."""
    factor = processor.get("rescale_factor", 1 / 255) if processor.get("do_rescale", True) else 1
    if not is_number(factor) or factor <= 0:
        raise InputError(f"its rescale_factor is {factor!r:.40}. It must be more than 0.")
    mean, deviation = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if processor.get("do_normalize", True):
        mean, deviation = (_triple(processor.get(name), name) for name in ("image_mean", "image_std"))
    offset = 1 if processor.get("rescale_offset") else 0  # EfficientNet's processor subtracts 1 from rescaled pixels
    return tuple((value + offset) / factor for value in mean), tuple(value / factor for value in deviation)


def _triple(values: Any, name: str) -> tuple[float, float, float]:
    triple = [values] * 3 if is_number(values) else values
    if not isinstance(triple, list | tuple) or len(triple) != 3 or not all(map(is_number, triple)):
        raise InputError(f"its {name} is {values!r:.60}. It must be three numbers, one for each colour.")
    first, second, third = map(float, triple)
    return first, second, third
