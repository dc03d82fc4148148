import json

import numpy as np
import pytest
from PIL import Image

from p3dc.errors import InputError
from p3dc.images.preprocessing import EXAMPLE, Preprocessing

HOW = Preprocessing(short_side=64, crop=56, mean=(127, 127, 127), scale=(128, 128, 128))
TABLE = {
    "short_side": 64,
    "crop": 56,
    "mean": [1, 2.5, 3],
    "scale": [4, 5, 6],
    "colours": "BGR",
    "layout": "NHWC",
}


def noise(width, height):
    """A photo with detail at every scale."""
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 256, (6, 9, 3), dtype=np.uint8)).resize((width, height))
    fine = np.asarray(coarse) + rng.normal(0, 10, (height, width, 3))
    return Image.fromarray(fine.clip(0, 255).astype(np.uint8))


def from_toml(folder, table):
    """Settings from a file with one line for each entry of a table."""
    lines = (f"{name} = {json.dumps(value).replace('NaN', 'nan')}" for name, value in table.items())
    (folder / "model.toml").write_text("\n".join(lines))
    return Preprocessing.from_toml(folder / "model.toml")


def written_out(image, how):
    """The whole photo is resized, then cut."""
    width, height = image.size
    short = min(width, height)
    size = round(width * how.short_side / short), round(height * how.short_side / short)
    resized = image.resize(size, Image.Resampling.BICUBIC)
    left, top = (size[0] - how.crop) // 2, (size[1] - how.crop) // 2
    pixels = np.asarray(resized.crop((left, top, left + how.crop, top + how.crop)), dtype=np.float32)
    return ((pixels - np.float32(how.mean)) / np.float32(how.scale)).transpose(2, 0, 1)


@pytest.mark.parametrize("size", [(640, 480), (333, 500), (64, 64), (97, 64), (64, 101), (40, 30), (7, 300), (300, 1)])
def test_one_step_gives_what_resizing_and_cutting_give(size):
    image = noise(*size)
    difference = np.abs(HOW.prepare(image) - written_out(image, HOW)) * 128
    assert difference.max() <= 1
    assert (difference > 0).mean() < (1e-3 if min(size) >= HOW.short_side else 0.5)


def test_a_photo_of_the_right_size_is_only_cut():
    image = noise(97, 64)
    pixels = HOW.prepare(image)
    assert pixels.dtype == np.float32
    assert pixels.flags.c_contiguous
    np.testing.assert_array_equal(pixels, written_out(image, HOW))


def test_colours_and_layout():
    image = Image.new("RGB", (8, 8), (10, 20, 30))
    facts = {"short_side": 8, "crop": 4, "mean": (1, 2, 3), "scale": (1, 2, 4)}
    assert Preprocessing(**facts).prepare(image)[:, 0, 0].tolist() == [9, 9, 6.75]
    last = Preprocessing(**facts, colours="BGR", layout="NHWC")
    pixels = last.prepare(image)
    assert pixels.shape == last.shape == (4, 4, 3)
    assert pixels.flags.c_contiguous
    assert pixels[0, 0].tolist() == [29, 9, 1.75]


def test_another_mode_is_refused():
    with pytest.raises(InputError, match="the image is of mode 'L'"):
        HOW.prepare(Image.new("L", (80, 80)))


def test_it_is_written_down_and_read_again(tmp_path):
    how = Preprocessing(**TABLE)
    assert Preprocessing(**json.loads(how.to_json())) == how
    assert json.loads(how.to_json()) == TABLE
    assert hash(how) == hash(Preprocessing(**TABLE))
    read = from_toml(tmp_path, TABLE)
    assert read == how
    assert read.to_json() == how.to_json()


def test_the_example_is_that_of_the_default_backbone(tmp_path):
    from p3dc.images.backbones.efficientnet_lite import LITE0

    (tmp_path / "model.toml").write_text(EXAMPLE)
    assert Preprocessing.from_toml(tmp_path / "model.toml") == LITE0.preprocessing


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"short_side": 0}, "short_side is 0"),
        ({"short_side": 64.0}, "short_side is 64.0"),
        ({"crop": "56"}, "crop is '56'"),
        ({"crop": True}, "crop is 'True'"),
        ({"crop": 65}, "crop is 65 but short_side is 64"),
        ({"mean": 127}, "mean is 127"),
        ({"mean": [1, 2]}, r"mean is \[1, 2\]"),
        ({"mean": "abc"}, "mean is 'abc'"),
        ({"mean": [1, 2, True]}, "three numbers"),
        ({"scale": [1, 2, "3"]}, "scale is"),
        ({"scale": [1, 2, 0]}, "scale is .* more than 0"),
        ({"scale": [1, 2, float("nan")]}, "scale is"),
        ({"colours": "RGBA"}, "colours is 'RGBA'"),
        ({"colours": ["RGB"]}, "colours is"),
        ({"layout": 1}, "layout is 1"),
        ({"padding": 3}, "unknown entry: padding"),
    ],
)
def test_bad_entries_are_refused_by_name(tmp_path, change, sentence):
    with pytest.raises(InputError, match=f"model.toml.*{sentence}"):
        from_toml(tmp_path, TABLE | change)


def test_a_scale_without_a_number_is_refused():
    with pytest.raises(InputError, match="scale is"):
        Preprocessing(**TABLE | {"scale": [1, 2, None]})


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(InputError, match="model.toml is missing short_side, layout. Write it like this:\nshort_side"):
        from_toml(tmp_path, {k: v for k, v in TABLE.items() if k not in ("layout", "short_side")})


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "model.toml"
    for content in (b"crop = ", b"\xff\xfe", b"{}"):
        path.write_bytes(content)
        with pytest.raises(InputError, match="model.toml cannot be read as TOML"):
            Preprocessing.from_toml(path)
    path.write_text(EXAMPLE.replace("224", "2240"))
    with pytest.raises(InputError, match="model.toml: crop is 2240"):
        Preprocessing.from_toml(path)
    with pytest.raises(InputError, match="cannot be read as TOML"):
        Preprocessing.from_toml(tmp_path / "none.toml")


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "mean = [1" + "0" * 400 + ", 0, 0]"])
def test_hostile_toml_is_refused_in_a_sentence(tmp_path, text):
    path = tmp_path / "model.toml"
    path.write_text(text)
    with pytest.raises(InputError):
        Preprocessing.from_toml(path)
