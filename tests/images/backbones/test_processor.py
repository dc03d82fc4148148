"""Preprocessing from the files of image processors and of timm, in the layouts of well-known networks."""

import numpy as np
import pytest
from PIL import Image

from p3dc.errors import InputError
from p3dc.images.backbones.processor import processor_preprocessing, timm_preprocessing

HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
CLIP = {
    "image_processor_type": "CLIPImageProcessor",
    "do_center_crop": True,
    "do_normalize": True,
    "do_resize": True,
    "crop_size": {"height": 224, "width": 224},
    "size": {"shortest_edge": 224},
    "resample": 3,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
DINO = {"crop_size": {"height": 224, "width": 224}, "size": {"shortest_edge": 256}, "do_center_crop": True, **HALF}
SQUARE = {"size": {"height": 224, "width": 224}, "resample": 2, **HALF}


@pytest.mark.parametrize(
    ("processor", "short_side", "crop", "square", "resample"),
    [
        (CLIP, 224, 224, False, "bicubic"),
        (DINO | {"resample": 3}, 256, 224, False, "bicubic"),
        (SQUARE, 224, 224, True, "bilinear"),
        (SQUARE | {"size": 384}, 384, 384, True, "bilinear"),
        (CLIP | {"size": 224, "crop_size": 224}, 224, 224, False, "bicubic"),
        (DINO | {"do_center_crop": False}, 256, 256, False, "bilinear"),
        (DINO | {"image_processor_type": "BitImageProcessor"}, 256, 224, False, "bicubic"),
        (HALF | {"size": {"shortest_edge": 224}, "crop_pct": 0.875}, 256, 224, False, "bilinear"),
        (HALF | {"size": {"shortest_edge": 384}, "crop_pct": 1.0}, 384, 384, True, "bilinear"),
        (SQUARE | {"resample": 1}, 224, 224, True, "lanczos"),
    ],
)
def test_known_layouts_are_read(processor, short_side, crop, square, resample):
    found = processor_preprocessing(processor)
    assert (found.short_side, found.crop, found.square, found.resample) == (short_side, crop, square, resample)


@pytest.mark.parametrize(
    "processor",
    [
        CLIP,
        SQUARE,
        SQUARE | {"do_rescale": False},
        SQUARE | {"do_normalize": False},
        SQUARE | {"rescale_factor": 1 / 127.5, "rescale_offset": True},
    ],
)
def test_pixels_are_those_of_the_equations(processor):
    colour = np.array([200.0, 100.0, 30.0])
    pixels = processor_preprocessing(processor).prepare(Image.new("RGB", (300, 240), (200, 100, 30)))
    expected = colour * (processor.get("rescale_factor", 1 / 255) if processor.get("do_rescale", True) else 1)
    expected = expected - 1 if processor.get("rescale_offset") else expected
    if processor.get("do_normalize", True):
        expected = (expected - processor["image_mean"]) / processor["image_std"]
    np.testing.assert_allclose(pixels[:, 100, 100], expected, rtol=1e-5, atol=1e-6)


def test_a_square_squeezes_the_photo_and_a_crop_cuts_it():
    photo = Image.new("RGB", (400, 200), "red")
    photo.paste("blue", (100, 0, 300, 200))
    cropped = processor_preprocessing(CLIP | {"image_mean": 0, "image_std": 1}).prepare(photo)
    squeezed = processor_preprocessing(SQUARE | {"image_mean": 0, "image_std": 1}).prepare(photo)
    assert cropped[0, :, 5].max() < 0.1
    assert squeezed[0, :, 5].min() > 0.9
    assert abs((squeezed[0] > 0.5).mean() - 0.5) < 0.02


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"do_resize": False}, "does not resize photos"),
        ({"size": {"longest_edge": 512}}, "its size has longest_edge. Give shortest_edge"),
        ({"size": {"height": 224, "width": 336}}, "It must be that of a square"),
        ({"size": None}, "its size is None"),
        ({"resample": 9}, "its resample is 9"),
        ({"image_mean": None}, "its image_mean is None"),
        ({"image_std": [1, 1]}, r"its image_std is \[1, 1\]"),
        ({"rescale_factor": 0}, "its rescale_factor is 0"),
    ],
)
def test_what_cannot_be_followed_is_refused(change, sentence):
    with pytest.raises(InputError, match=sentence):
        processor_preprocessing(SQUARE | change)


TIMM = {"input_size": [3, 224, 224], "interpolation": "bicubic", "crop_pct": 0.9, "mean": [0.5] * 3, "std": [0.5] * 3}


def test_the_settings_of_timm_are_read():
    found = timm_preprocessing(TIMM)
    assert (found.short_side, found.crop, found.square, found.resample) == (248, 224, False, "bicubic")
    assert found.mean == found.scale == (127.5, 127.5, 127.5)
    assert timm_preprocessing(TIMM | {"crop_mode": "squash", "crop_pct": 1.0}).square


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"input_size": [1, 28, 28]}, "its input_size is"),
        ({"crop_mode": "border"}, "its crop_mode is 'border'"),
        ({"crop_pct": 1.5}, "its crop_pct is 1.5"),
        ({"interpolation": "magic"}, "resample is 'magic'"),
    ],
)
def test_other_settings_of_timm_are_refused(change, sentence):
    with pytest.raises(InputError, match=sentence):
        timm_preprocessing(TIMM | change)
