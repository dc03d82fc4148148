"""Preprocess photos for a backbone, with settings that are saved with the features.

Pixels are returned as float32, which ONNX backbones take.
"""

import json
import os
import tomllib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, device
from PIL import Image

from p3dc._arrays import Array, to_device_of
from p3dc._validation import check_count, is_number
from p3dc.errors import InputError
from p3dc.images.views import CENTRE, TIGHT, View

Colours = Literal["RGB", "BGR"]
Layout = Literal["NCHW", "NHWC"]
Resample = Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"]
Triple = tuple[float, float, float]

EXAMPLE = """\
short_side = 256
crop = 224
mean = [127, 127, 127]
scale = [128, 128, 128]
colours = "RGB"
layout = "NCHW"
"""
OPTIONAL = ("resample", "square")
"""Settings that a TOML file may leave out. At their defaults they are left out of the digest too."""


@dataclass(frozen=True)
class Preprocessing:
    """How a photo is preprocessed for a backbone.

    Parameters
    ----------
    short_side : int
        The photo is resized, with its aspect ratio, to a short side of this many pixels.
    crop : int
        Then a square with sides of this many pixels is cut from its centre.
    mean, scale : three numbers
        A pixel, from 0 to 255, becomes (pixel - mean) / scale; one number for each colour, in the order of ``colours``.
    colours : {"RGB", "BGR"}
        The order of the colours.
    layout : {"NCHW", "NHWC"}
        Whether the colours come before height and width or after them.
    resample : {"bicubic", "bilinear", "lanczos", "box", "hamming", "nearest"}
        The filter that resizes.
    square : bool
        Resize to a square instead, whatever the aspect ratio.

    Examples
    --------
    >>> from PIL import Image
    >>> from p3dc.images.preprocessing import Preprocessing
    >>> how = Preprocessing(short_side=8, crop=6, mean=(127, 127, 127), scale=(128, 128, 128))
    >>> pixels = how.prepare(Image.new("RGB", (40, 30), (255, 127, 63)))
    >>> pixels.shape
    (3, 6, 6)
    >>> pixels[:, 0, 0].tolist()
    [1.0, 0.0, -0.5]
    """

    short_side: int
    crop: int
    mean: Triple
    scale: Triple
    colours: Colours = "RGB"
    layout: Layout = "NCHW"
    resample: Resample = "bicubic"
    square: bool = False

    def __post_init__(self) -> None:
        for name in ("short_side", "crop"):
            value = getattr(self, name)
            check_count(name, repr(value) if isinstance(value, bool) else value, 1)
            object.__setattr__(self, name, int(value))
        if self.crop > self.short_side:
            raise InputError(f"crop is {self.crop} but short_side is {self.short_side}. Make crop no larger.")
        for name in ("mean", "scale"):
            object.__setattr__(self, name, _triple(name, getattr(self, name)))
        if min(self.scale) <= 0:
            raise InputError(f"scale is {list(self.scale)}. Its numbers must be more than 0.")
        choices = {"colours": get_args(Colours), "layout": get_args(Layout), "resample": get_args(Resample)}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"{name} is {getattr(self, name)!r:.40}. It must be {' or '.join(map(repr, allowed))}."
                )
        if not isinstance(self.square, bool):
            raise InputError(f"square is {self.square!r:.40}. It must be true or false.")

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of a preprocessed photo."""
        return (3, self.crop, self.crop) if self.layout == "NCHW" else (self.crop, self.crop, 3)

    def prepare(self, image: Image.Image, view: View = CENTRE) -> npt.NDArray[np.float32]:
        """Preprocess a photo.

        Parameters
        ----------
        image : PIL.Image.Image
            In RGB and upright.
        view : View
            What of it the network sees, its centre by default.

        Returns
        -------
        array of shape (3, crop, crop), or (crop, crop, 3)
        """
        prepared: npt.NDArray[np.float32] = self.standardize(self.crop_view(image, view))
        return prepared

    def crop_view(self, image: Image.Image, view: View = CENTRE) -> npt.NDArray[np.uint8]:
        """Resize and crop a photo to what the network sees of it: bytes of shape (crop, crop, 3), in RGB."""
        if image.mode != "RGB":
            raise InputError(f"the image is of mode {image.mode!r}. Convert it to 'RGB' first.")
        pixels = np.asarray(self._crop(image, view))
        return pixels[:, ::-1] if view.flip else pixels

    def standardize(self, crops: Array) -> Array:
        """Turn what :meth:`crop_view` returns, one or more, into what the network takes, in NumPy or torch."""
        xp = array_namespace(crops)
        mean, scale = (to_device_of(np.array(each, dtype=np.float32), crops) for each in (self.mean, self.scale))
        if self.colours == "BGR":
            crops = xp.flip(crops, axis=-1)
        if self.layout == "NCHW":
            crops, mean, scale = xp.moveaxis(crops, -1, -3), mean[:, None, None], scale[:, None, None]
        prepared = xp.empty(crops.shape, dtype=xp.float32, device=device(crops))
        prepared[...] = crops
        prepared -= mean
        prepared /= scale
        return prepared

    def _crop(self, image: Image.Image, view: View) -> Image.Image:
        """Resize and crop in one step, which skips the pixels outside the crop.

        The result equals that of resizing first, except that about one value in twenty thousand is rounded the other
        way. A faster resize (``reducing_gap``) changes the features of large photos noticeably.
        """
        width, height = image.size
        resample = Image.Resampling[self.resample.upper()]
        if view.area == "whole":
            return image.resize((self.crop, self.crop), resample)
        sides = {"centre": self.short_side, "wide": self.crop, "tight": round(self.short_side / TIGHT)}
        short = min(width, height)
        wanted = sides[view.area]
        wide, high = (wanted if self.square else round(side * wanted / short) for side in image.size)
        left, top = (wide - self.crop) // 2, (high - self.crop) // 2
        right, bottom = left + self.crop, top + self.crop
        if (wide, high) == (width, height):
            return image.crop((left, top, right, bottom))
        box = (left * width / wide, top * height / high, right * width / wide, bottom * height / high)
        return image.resize((self.crop, self.crop), resample, box=box)

    def to_json(self) -> str:
        """Return the settings as JSON; equal settings give equal text."""
        settings = asdict(self)
        for field in fields(self):
            if field.name in OPTIONAL and settings[field.name] == field.default:
                del settings[field.name]
        return json.dumps(settings, sort_keys=True)

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> "Preprocessing":
        """Read a TOML file with one line for each parameter, all of them but ``resample`` and ``square``.

        Examples
        --------
        >>> from p3dc.images.preprocessing import EXAMPLE, Preprocessing
        >>> path = getfixture("tmp_path") / "model.toml"
        >>> _ = path.write_text(EXAMPLE)
        >>> Preprocessing.from_toml(path).crop
        224
        """
        try:
            found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{path} cannot be read as TOML ({error}). Write it like this:\n{EXAMPLE}") from None
        names = [field.name for field in fields(cls)]
        unknown = sorted(set(found) - set(names))
        missing = [name for name in names if name not in found and name not in OPTIONAL]
        if unknown:
            raise InputError(f"{path} has an unknown entry: {', '.join(unknown)}. It may have {', '.join(names)}.")
        if missing:
            raise InputError(f"{path} is missing {', '.join(missing)}. Write it like this:\n{EXAMPLE}")
        try:
            return cls(**found)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None


def _triple(name: str, values: Any) -> Triple:
    if not isinstance(values, list | tuple) or len(values) != 3 or not all(map(_is_plain_number, values)):
        raise InputError(f"{name} is {values!r:.60}. It must be three numbers, one for each colour.")
    first, second, third = map(float, values)
    return first, second, third


def _is_plain_number(value: object) -> bool:
    return is_number(value) and not isinstance(value, bool)
