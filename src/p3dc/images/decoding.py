"""Decode images of common formats as upright RGB, and refuse decompression bombs.

Every failure is an :class:`ImageError`. Its message leaves out the path, which the caller knows.
"""

import ctypes
import io
import os
import re
import stat
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, UnidentifiedImageError, _imaging

from p3dc.errors import InputError
from p3dc.images.file_formats import FORMATS, IN_WORDS, format_name, is_heif
from p3dc.io.store import StoreError, location

MAX_PIXELS = 100_000_000
"""Larger images are refused before decoding."""

MAX_DECODED = 8 * MAX_PIXELS
"""Bytes that an image may take while it is decoded."""

PIXEL_BYTES = {"I;16": 14, "I;16B": 14, "I": 18, "F": 18}
"""Bytes that a pixel takes, by mode; 8 in all others, because Pillow keeps colours in 4 and the result in 4 more."""

MAX_FILE = 2**29
"""Larger files are refused: some formats are read whole before they are decoded."""

STRIP = 2**22
"""Pixels of an image with transparency that are converted at a time."""

HEAD = 64
"""How many bytes the format is told by."""

DRAFT_MARGIN = 4
"""A JPEG may be decoded at a smaller scale, but its short side stays at least this many times the requested one."""

UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Transposition that undoes each EXIF orientation."""


def _silence_libtiff() -> None:
    """Keep libtiff from writing to standard error; Pillow raises its errors as well."""
    library = ctypes.CDLL(_imaging.__file__)
    for name in ("TIFFSetErrorHandler", "TIFFSetWarningHandler"):
        set_handler = getattr(library, name, None)  # not found where Pillow was built without it
        if set_handler is not None:
            set_handler.argtypes, set_handler.restype = [ctypes.c_void_p], ctypes.c_void_p
            set_handler(None)


_silence_libtiff()


class ImageError(InputError):
    """An image that cannot be used; the message leaves out its path."""


class NotAnImageError(ImageError):
    """Not an image of a supported format."""


class TooManyPixelsError(ImageError):
    """An image that would take too much memory."""


class Stored(Protocol):
    """Bytes that are not a file on this machine: an object of a store, a member of an archive."""

    def read_bytes(self) -> bytes:
        """Read all of them."""


Photo: TypeAlias = str | os.PathLike[str] | Stored
"""An image to read: a path, an address in a store, or stored bytes."""


def read_image(path: Photo, *, short_side: int | None = None) -> Image.Image:
    """Read an image file as upright RGB.

    Transparent pixels become white. Only the first frame of an animation is read. Grey values of 16 or 32 bits and
    floats are scaled to 8 bits. A truncated file is refused. Safe to call from several threads at once.

    Parameters
    ----------
    path : path, address or Stored
        A JPEG, PNG, WebP, BMP, GIF, TIFF or AVIF file, or a HEIC file with the heif extra, whatever its extension.
    short_side : int, optional
        Length of the short side after later resizing. A large JPEG is then decoded at the scale of
        :func:`draft_scale`, which is faster.

    Returns
    -------
    PIL.Image.Image
        In mode RGB.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from p3dc.images.decoding import read_image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("LA", (4, 3)).save(Path(folder) / "clear.png")
    ...     read_image(Path(folder) / "clear.png").getpixel((0, 0))
    (255, 255, 255)
    """
    try:
        place = location(path) if isinstance(path, str | os.PathLike) else path
        if not isinstance(place, Path):
            return read_image_file(io.BytesIO(place.read_bytes()), short_side=short_side)
        mode = place.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ImageError("It is a folder. Give a file.")
        if not stat.S_ISREG(mode):  # a pipe would wait for ever
            raise ImageError("It is not an ordinary file. Give one.")
        with place.open("rb") as file:
            return read_image_file(file, short_side=short_side)
    except (ImageError, StoreError):
        raise
    except InputError as error:
        raise ImageError(str(error)) from None
    except FileNotFoundError:
        raise ImageError("The file does not exist, or not any more. Put it back, or leave it out.") from None
    except (OSError, ValueError) as error:  # a null character in a path is a ValueError
        why = getattr(error, "strerror", None) or error
        raise ImageError(f"The file cannot be opened ({why}). Make it readable, or leave it out.") from None


def read_image_file(file: IO[bytes], *, short_side: int | None = None, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Read an image as :func:`read_image` does, from an open file."""
    size = file.seek(0, io.SEEK_END)
    if not size:
        raise ImageError("The file is empty. Fetch it again.")
    if size > MAX_FILE:
        raise ImageError(f"It has {size:,} bytes; more than {MAX_FILE:,} are refused. Save it compressed.")
    file.seek(0)
    head = file.read(HEAD)
    file.seek(0)
    if format_name(head) == "TIFF":  # libtiff would map the file into memory, and a file that is cut ends the process
        file = io.BytesIO(file.read(MAX_FILE))
    formats = ("HEIF",) if is_heif(head) else FORMATS
    if "HEIF" in formats:
        _register_heif()
    try:
        with _quiet():
            return _decode(Image.open(file, formats=formats), short_side, max_pixels)
    except ImageError:
        raise
    except UnidentifiedImageError:
        kind = format_name(head)
        if kind is None:
            sentence = f"It is not a {IN_WORDS} image, or its beginning is damaged. Fetch or save it again."
        elif kind in IN_WORDS:
            sentence = f"Its format is {kind}, but it is damaged, or Pillow here cannot read it. Save it again."
        else:
            sentence = f"Its format is {kind}, which cannot be read. Save it as JPEG or PNG."
        raise NotAnImageError(sentence) from None
    except Image.DecompressionBombError:
        raise TooManyPixelsError("It has far too many pixels. Scale it down first.") from None
    except Exception as error:  # a damaged file can raise anything
        why = str(error) or type(error).__name__
        kind = format_name(head)
        what = "It" if kind is None else f"Its format is {kind}, but it"
        raise ImageError(f"{what} is cut off or damaged ({why}). Fetch it again.") from None


def _decode(image: Image.Image, short_side: int | None, max_pixels: int) -> Image.Image:
    width, height = image.size
    if width * height > max_pixels:
        raise TooManyPixelsError(
            f"It has {width:,}×{height:,} pixels; more than {max_pixels:,} are refused. Scale it down first."
        )
    n_bytes = PIXEL_BYTES.get(image.mode, 8) * width * height
    if n_bytes > MAX_DECODED:
        raise TooManyPixelsError(
            f"It has {width:,}×{height:,} pixels of mode {image.mode}, which take {n_bytes:,} bytes; more than "
            f"{MAX_DECODED:,} are refused. Scale it down first, or save it in 8 bits."
        )
    scale = draft_scale(width, height, short_side)
    if scale > 1:
        image.draft(None, (width // scale, height // scale))
    image.load()
    turn = _upright_by(image)
    image = _as_rgb(image)
    return image if turn is None else image.transpose(turn)


def draft_scale(width: int, height: int, short_side: int | None) -> int:
    """Return the factor by which a JPEG may be decoded smaller: 8, 4, 2 or 1.

    The short side stays at least ``DRAFT_MARGIN`` times the requested length, and the factor divides both sides:
    otherwise the last row or column would cover only part of a pixel, which would stretch the image slightly.

    Examples
    --------
    >>> draft_scale(4032, 3024, short_side=256), draft_scale(4033, 3024, short_side=256)
    (2, 1)
    """
    if short_side is None:
        return 1
    least = DRAFT_MARGIN * short_side
    return next(s for s in (8, 4, 2, 1) if s == 1 or (width % s == height % s == 0 and min(width, height) >= s * least))


def _register_heif() -> None:
    """Let Pillow open HEIC and HEIF files."""
    try:
        import pi_heif
    except ImportError:
        raise NotAnImageError(
            "Its format is HEIC. To read it, install the heif extra: pip install 'p3dc-shot[heif]'."
        ) from None
    pi_heif.register_heif_opener(thumbnails=False)


def _upright_by(image: Image.Image) -> Image.Transpose | None:
    """Return the transposition that turns an image upright, if it needs one."""
    try:
        return UPRIGHT.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # damaged EXIF can raise anything, but the pixels are intact
        return None


def _as_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith(("I", "F")):
        return Image.fromarray(_as_bytes(np.asarray(image))).convert("RGB")
    if image.has_transparency_data:
        return _on_white(image)
    return image if image.mode == "RGB" else image.convert("RGB")


def _on_white(image: Image.Image) -> Image.Image:
    """Put an image with transparency on white, some rows at a time: the steps between need much memory."""
    (width, height), white = image.size, Image.new("RGB", image.size, "white")
    rows = max(1, STRIP // width)
    for top in range(0, height, rows):
        colours = image.crop((0, top, width, min(top + rows, height))).convert("RGBA")
        white.paste(colours, (0, top), mask=colours)
    return white


def _as_bytes(grey: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Scale grey values to 0 to 255.

    White is 65535 for 16-bit integers. For other values it is the smallest usual maximum that covers them, 255 or 65535
    for integers and 1 or 255 for floats, or else the greatest value. Black is 0. Where values are negative, black is
    the least value and white the greatest.

    Examples
    --------
    >>> import numpy as np
    >>> _as_bytes(np.array([0, 257, 65535], dtype=np.uint16))
    array([  0,   1, 255], dtype=uint8)
    >>> _as_bytes(np.array([0.0, 0.5, 1.0]))
    array([  0, 128, 255], dtype=uint8)
    >>> _as_bytes(np.array([-1000, -500, 1000]))
    array([  0,  64, 255], dtype=uint8)
    """
    values = np.nan_to_num(grey.astype(np.float32), copy=False, posinf=0, neginf=0)
    np.clip(values, -1e30, 1e30, out=values)
    least, greatest = float(values.min()), float(values.max())
    whole = grey.dtype.kind in "iu"
    if whole and grey.dtype.itemsize == 2:
        least, greatest = 0.0, 65535.0
    elif least >= 0:
        ceilings = (255.0, 65535.0) if whole else (1.0, 255.0)
        least, greatest = 0.0, next((ceiling for ceiling in ceilings if greatest <= ceiling), greatest)
    span = greatest - least
    values -= least
    values *= 255 / span if span > 1e-30 else 0
    values += 0.5
    return values.astype(np.uint8)


_IGNORED = ("ignore", None, Warning, re.compile(r"PIL\."), 0)
_lock = threading.Lock()
_readers = 0


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Pillow's warnings while any thread reads.

    ``warnings.catch_warnings`` restores the filters that it found, so overlapping threads would undo each other. Here
    the first reader adds one filter, for Pillow only, and the last removes it; no other filters are touched.
    """
    global _readers
    with _lock:
        _readers += 1
        filters = cast(list[Any], warnings.filters)
        if _IGNORED not in filters:
            filters.insert(0, _IGNORED)
    try:
        yield
    finally:
        with _lock:
            _readers -= 1
            filters = cast(list[Any], warnings.filters)
            while not _readers and _IGNORED in filters:
                filters.remove(_IGNORED)
