"""Images of all kinds, and files that are none."""

import contextlib
import io
import os
import struct
import sys
import threading
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFilter, features

from p3dc.images import decoding
from p3dc.images.decoding import ImageError, read_image, read_image_file


def read_image_bytes(data, **options):
    return read_image_file(io.BytesIO(data), **options)


def photo(width=64, height=48, seed=0):
    rng = np.random.default_rng(seed)
    noise = rng.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC).filter(ImageFilter.GaussianBlur(1))


def encoded(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def pixels(image):
    assert image.mode == "RGB"
    return np.asarray(image).astype(int)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_claiming(width, height):
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + rows + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF"])
def test_every_format_is_read(tmp_path, kind):
    path = tmp_path / "photo.dat"
    path.write_bytes(encoded(photo(), kind))
    read = read_image(path)
    assert read.size == (64, 48)
    assert abs(pixels(read) - pixels(photo())).mean() < 12
    assert read.tobytes() == read_image_bytes(path.read_bytes()).tobytes()


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "CMYK", "YCbCr"])
def test_every_opaque_mode_becomes_rgb(mode):
    read = read_image_bytes(encoded(photo().convert(mode), "TIFF" if mode in ("CMYK", "YCbCr") else "PNG"))
    assert abs(pixels(read) - pixels(photo().convert(mode).convert("RGB"))).max() <= 2


@pytest.mark.parametrize("adobe", [True, False])
def test_inverted_cmyk_jpegs_have_their_colours(adobe):
    red = Image.new("RGB", (32, 32), (200, 30, 30))
    data = encoded(red.convert("CMYK"), "JPEG", quality=95) if adobe else encoded(red.convert("CMYK"), "TIFF")
    assert abs(pixels(read_image_bytes(data)) - [200, 30, 30]).max() < 12


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_what_is_transparent_becomes_white(mode):
    image = Image.new("L", (3, 1), 40).convert(mode)
    image.putalpha(Image.fromarray(np.array([[0, 128, 255]], dtype=np.uint8)))
    for kind in ("PNG", "WEBP") if mode == "RGBA" else ("PNG", "TIFF"):
        options = {"lossless": True} if kind == "WEBP" else {}
        row = pixels(read_image_bytes(encoded(image, kind, **options)))[0, :, 0]
        assert abs(row - [255, 147, 40]).max() <= 1


@pytest.mark.parametrize("transparency", [1, b"\xff\x00\x80"])
def test_transparent_palettes_become_white(transparency):
    image = Image.fromarray(np.array([[0, 1, 2]], dtype=np.uint8)).convert("L")
    image = Image.frombytes("P", (3, 1), image.tobytes())
    image.putpalette([10, 10, 10, 200, 0, 0, 60, 60, 60])
    read = pixels(read_image_bytes(encoded(image, "PNG", transparency=transparency)))[0]
    assert read[0].tolist() == [10, 10, 10]
    assert read[1].tolist() == [255, 255, 255]
    assert abs(read[2] - (60 if transparency == 1 else 157)).max() <= 1


@pytest.mark.parametrize(("mode", "clear"), [("L", 7), ("RGB", (7, 7, 7)), ("1", 0)])
def test_a_transparent_colour_becomes_white(mode, clear):
    image = Image.new(mode, (4, 4), clear)
    assert (pixels(read_image_bytes(encoded(image, "PNG", transparency=clear))) == 255).all()


def grey(values, dtype):
    return Image.fromarray(np.array([values], dtype=dtype))


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (grey([0, 257, 32768, 65535], np.uint16), [0, 1, 128, 255]),
        (grey([0, 1, 128, 255], np.int32), [0, 1, 128, 255]),
        (grey([0, 257, 32768, 65535], np.int32), [0, 1, 128, 255]),
        (grey([-10, 0, 10, 10], np.int32), [0, 128, 255, 255]),
        (grey([0, 500_000, 2_000_000, 500_000], np.int32), [0, 64, 255, 64]),
        (grey([0, 0.25, 0.5, 1], np.float32), [0, 64, 128, 255]),
        (grey([0, 0.25, 100, 255], np.float32), [0, 0, 100, 255]),
        (grey([np.nan, np.inf, 0.5, 1], np.float32), [0, 0, 128, 255]),
        (grey([3e38, -3e38, 1e38, 1e38], np.float32), [255, 0, 255, 255]),
        (grey([0, 0, 0, 0], np.float32), [0, 0, 0, 0]),
        (grey([-1, -1, -1, -1], np.int32), [0, 0, 0, 0]),
    ],
)
def test_deep_greys_are_scaled(image, expected):
    assert pixels(read_image_bytes(encoded(image, "TIFF")))[0, :, 0].tolist() == expected


def test_deep_grey_pngs_are_scaled():
    data = encoded(grey([0, 257, 32768, 65535], np.uint16), "PNG")
    assert pixels(read_image_bytes(data))[0, :, 1].tolist() == [0, 1, 128, 255]


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_the_first_frame_counts(kind):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue", "lime")]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    assert (pixels(read_image_bytes(data)) == [255, 0, 0]).all()


CORNERS = np.zeros((16, 32, 3), np.uint8)
CORNERS[:8, :16] = [255, 0, 0]
CORNERS[:8, 16:] = [0, 255, 0]
CORNERS[8:, :16] = [0, 0, 255]
STORED = {  # what a camera stores when the scene looks like CORNERS
    1: CORNERS,
    2: CORNERS[:, ::-1],
    3: CORNERS[::-1, ::-1],
    4: CORNERS[::-1],
    5: CORNERS.transpose(1, 0, 2),
    6: np.rot90(CORNERS, 1),
    7: np.rot90(CORNERS, 2).transpose(1, 0, 2),
    8: np.rot90(CORNERS, -1),
}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_photos_stand_upright(kind, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"JPEG": {"quality": 95, "subsampling": 0}, "WEBP": {"lossless": True}}.get(kind, {})
    stored = Image.fromarray(np.ascontiguousarray(STORED[orientation]))
    for extra in ({}, {"compression": "tiff_lzw"}) if kind == "TIFF" else ({},):
        read = pixels(read_image_bytes(encoded(stored, kind, exif=exif, **options, **extra)))
        assert read.shape == CORNERS.shape
        assert abs(read - CORNERS).mean() < 8


@pytest.mark.parametrize("orientation", [0, 9, 77, 65535])
def test_orientations_that_mean_nothing_are_passed_over(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert read_image_bytes(encoded(photo(), "JPEG", exif=exif)).size == (64, 48)


def test_damaged_exif_does_not_matter():
    exif = Image.Exif()
    exif[0x0112], exif[0x010F], exif[0x011A] = 6, "maker" * 9, 72.0
    whole = exif.tobytes()
    expected = read_image_bytes(encoded(photo(), "JPEG")).tobytes()
    for cut in range(6, len(whole)):
        read = read_image_bytes(encoded(photo(), "JPEG", exif=whole[:cut] + b"\xff" * 4))
        assert read.size in ((64, 48), (48, 64))
        if read.size == (64, 48):
            assert read.tobytes() == expected


@pytest.mark.parametrize(
    ("width", "height", "size"),
    [(511, 600, 1), (510, 512, 1), (512, 520, 2), (1024, 1500, 4), (2056, 2048, 8), (2050, 2048, 2)],
)
def test_large_jpegs_are_decoded_smaller(width, height, size):
    data = encoded(photo(width, height), "JPEG")
    read = read_image_bytes(data, short_side=64)
    assert read.size == (width // size, height // size)
    assert min(read.size) >= 256
    whole = read_image_bytes(data)
    assert whole.size == (width, height)
    small, expected = (pixels(image.resize((64, 64), Image.Resampling.BICUBIC)) for image in (read, whole))
    assert abs(small - expected).mean() < 1


def test_other_formats_keep_their_size():
    assert read_image_bytes(encoded(photo(300, 200), "PNG"), short_side=1).size == (300, 200)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("JPEG", {"quality": 90}),
        ("JPEG", {"quality": 90, "progressive": True}),
        ("PNG", {}),
        ("WEBP", {}),
        ("BMP", {}),
        ("GIF", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("TIFF", {"compression": "jpeg"}),
    ],
)
def test_files_that_end_early_are_refused(kind, options, capfd):
    data = encoded(photo(), kind, **options)
    whole = read_image_bytes(data).tobytes()
    refused = 0
    for end in range(0, len(data), max(1, len(data) // 120)):
        try:
            read = read_image_bytes(data[:end])
        except ImageError:
            refused += 1
        else:
            assert read.tobytes() == whole, end  # what is missing belongs to no pixel
    assert refused > 100
    if options != {"compression": "jpeg"}:  # libtiff writes to stderr by itself
        assert capfd.readouterr() == ("", "")


@settings(max_examples=150)
@given(st.data())
def test_damage_is_read_or_refused(data):
    kind = data.draw(st.sampled_from(["JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF"]))
    damaged = bytearray(encoded(photo(24, 24), kind))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, min(len(damaged) - 1, 300)))
        damaged[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ImageError):
        assert read_image_bytes(bytes(damaged)).mode == "RGB"


@pytest.mark.parametrize("size", [(30_000, 30_000), (10_001, 10_000), (2**31 - 1, 2**31 - 1)])
def test_bombs_are_refused_before_they_are_decoded(size, monkeypatch):
    monkeypatch.setattr(Image.Image, "load", lambda image: pytest.fail("it was decoded"))
    with pytest.raises(ImageError, match="pixels"):
        read_image_bytes(png_claiming(*size))


def test_the_limit_is_a_product():
    assert decoding.MAX_PIXELS == 10_000 * 10_000
    with pytest.raises(ImageError, match="cut off or damaged"):  # allowed, but there are no such rows
        read_image_bytes(png_claiming(2_000, 2_000))


def test_webp_bombs_are_refused():
    exif = Image.Exif()
    exif[0x0112] = 6
    data = bytearray(encoded(photo(), "WEBP", exif=exif))
    assert data[12:16] == b"VP8X"
    data[24:30] = (16382).to_bytes(3, "little") * 2
    with pytest.raises(ImageError):
        read_image_bytes(bytes(data))


def test_images_without_pixels_are_refused():
    with pytest.raises(ImageError):
        read_image_bytes(png_claiming(0, 5))


@pytest.mark.parametrize(
    "data",
    [b"hello, world" * 9, b"\0" * 100, b"%PDF-1.4", b"\xff\xd8\xff", b"GIF89a", b"II*\0", b"BM", b"P6 1 1 255 abc"],
)
def test_what_is_no_image_is_refused(data):
    with pytest.raises(ImageError):
        read_image_bytes(data)


def test_files_that_cannot_be_read_are_reported(tmp_path):
    with pytest.raises(ImageError, match="does not exist"):
        read_image(tmp_path / "gone.jpg")
    with pytest.raises(ImageError, match="is a folder"):
        read_image(tmp_path)
    (tmp_path / "empty.jpg").touch()
    with pytest.raises(ImageError, match="is empty"):
        read_image(tmp_path / "empty.jpg")
    with pytest.raises(ImageError, match="is empty"):
        read_image_bytes(b"")
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(ImageError, match="not an ordinary file"):
        read_image(tmp_path / "pipe.jpg")
    (tmp_path / "text.jpg").write_text("no image")
    with pytest.raises(ImageError, match="not a JPEG, PNG") as caught:
        read_image(tmp_path / "text.jpg")
    assert str(tmp_path) not in str(caught.value)
    (tmp_path / "loop.jpg").symlink_to("loop.jpg")
    with pytest.raises(ImageError, match="cannot be opened"):
        read_image(tmp_path / "loop.jpg")
    with pytest.raises(ImageError, match="cannot be opened"):
        read_image(tmp_path / "text.jpg" / "below.jpg")
    with pytest.raises(ImageError, match="cannot be opened"):
        read_image(tmp_path / "null\0.jpg")


def test_no_warning_leaks_from_threads():
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "maker" * 9
    noisy = encoded(photo(), "JPEG", exif=exif.tobytes()[:-20])
    before = list(warnings.filters)
    with warnings.catch_warnings(record=True) as caught, ThreadPoolExecutor(8) as pool:
        warnings.simplefilter("always")
        inside = list(warnings.filters)
        assert {image.mode for image in pool.map(read_image_bytes, [noisy] * 200)} == {"RGB"}
        assert warnings.filters == inside
        warnings.warn("still heard", stacklevel=1)
    assert [str(warning.message) for warning in caught] == ["still heard"]
    assert warnings.filters == before


def test_the_warnings_of_others_pass_while_images_are_read():
    reading_now, done = threading.Event(), threading.Event()

    def read():
        with decoding._quiet():
            reading_now.set()
            done.wait(5)

    thread = threading.Thread(target=read)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        thread.start()
        reading_now.wait(5)
        warnings.warn("mine", stacklevel=1)
        done.set()
        thread.join()
    assert [str(warning.message) for warning in heard] == ["mine"]
    assert decoding._IGNORED not in warnings.filters


HEIC = Path(__file__).parent / "corners.heic"  # 64 × 32: red and green above, blue and black below


def test_photos_of_iphones_are_read():
    read = pixels(read_image(HEIC))
    assert read.shape == (32, 64, 3)
    for (row, column), colour in {(4, 4): (255, 0, 0), (4, 60): (0, 255, 0), (28, 4): (0, 0, 255)}.items():
        assert abs(read[row, column] - colour).max() <= 3


def rotated_heic(quarter_turns):
    """The same file with the property by which cameras say how they were held: quarter turns anticlockwise."""
    data = HEIC.read_bytes()
    for box, more in {b"ipco": 9, b"ipma": 1, b"iprp": 10, b"meta": 10}.items():
        at = data.index(box) - 4
        data = data[:at] + (int.from_bytes(data[at : at + 4], "big") + more).to_bytes(4, "big") + data[at + 4 :]
    data = data.replace(bytes([5, 0x81, 2, 3, 5, 0x84]), bytes([6, 0x81, 2, 3, 5, 0x84, 0x86]))
    place = data.index(b"ipma") - 4
    data = data[:place] + (9).to_bytes(4, "big") + b"irot" + bytes([quarter_turns]) + data[place:]
    start = HEIC.read_bytes().index(b"mdat") + 4
    return data.replace(start.to_bytes(4, "big"), (start + 10).to_bytes(4, "big"), 1)


@pytest.mark.parametrize("quarter_turns", range(4))
def test_photos_of_iphones_are_turned_upright(quarter_turns):
    read = pixels(read_image_bytes(rotated_heic(quarter_turns)))
    np.testing.assert_array_equal(read, np.rot90(pixels(read_image(HEIC)), quarter_turns))


def test_without_the_extra_the_sentence_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pi_heif", None)
    with pytest.raises(ImageError, match=r"Its format is HEIC.*pip install 'p3dc-shot\[heif\]'"):
        read_image(HEIC)


def test_damaged_heic_files_are_refused():
    data = HEIC.read_bytes()
    for end in range(12, len(data) - 1, 40):
        with pytest.raises(ImageError, match="HEIC"):
            read_image_bytes(data[:end])


@pytest.mark.skipif(not features.check("avif"), reason="Pillow was built without AVIF")
def test_avif_is_read_and_its_first_frame_counts():
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "blue")]
    data = encoded(frames[0], "AVIF", save_all=True, append_images=frames[1:], quality=100)
    assert abs(pixels(read_image_bytes(data)) - [255, 0, 0]).max() <= 6


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"%PDF-1.7", "PDF"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
        (b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom", "MP4"),
        (b"\0\0\0\x14ftypqt  ", "QuickTime"),
        (b"8BPS\0\1", "Photoshop"),
        (b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
        (b"PK\x03\x04", "zip"),
        (b"<!DOCTYPE html>", "HTML"),
    ],
)
def test_other_files_are_called_by_their_format(data, name):
    with pytest.raises(ImageError, match=f"Its format is {name}, which cannot be read"):
        read_image_bytes(data + bytes(100))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "TIFF"])
def test_a_damaged_image_is_called_by_its_format(kind):
    data = encoded(photo(), kind)
    with pytest.raises(ImageError, match=f"Its format is {kind}, but it is (damaged|cut off or damaged)"):
        read_image_bytes(data[: 12 if kind == "GIF" else 60])
