"""Measure photos per second: decoding, preprocessing, embedding and the whole extraction.

``python -m benchmarks.extraction [photos [threads]]`` makes JPEGs of 500×375 and about 50 KB in a temporary folder. The
backbone uses the given number of threads; photos are read by one thread for each core.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from p3dc.images.backbones.backbone import n_cores
from p3dc.images.backbones.loading import load_backbone
from p3dc.images.decoding import read_image
from p3dc.images.extraction import extract
from p3dc.images.sources import list_folder

WIDTH, HEIGHT = 500, 375
QUALITY = 75


def make_photo(rng: np.random.Generator) -> Image.Image:
    """Make noise whose amplitude falls with its frequency, as in photos."""
    frequency = np.hypot(np.fft.fftfreq(HEIGHT)[:, None], np.fft.rfftfreq(WIDTH))
    frequency[0, 0] = 1
    colours = []
    shared = rng.normal(size=(HEIGHT, WIDTH))
    for _ in range(3):
        noise = np.fft.rfft2(0.9 * shared + 0.4 * rng.normal(size=(HEIGHT, WIDTH)))
        texture = np.fft.irfft2(noise / frequency**1.2, (HEIGHT, WIDTH))
        colours.append(128 + 50 * (texture - texture.mean()) / texture.std())
    return Image.fromarray(np.clip(np.stack(colours, axis=-1), 0, 255).astype(np.uint8))


def make_photos(root: Path, n_photos: int) -> None:
    rng = np.random.default_rng(0)
    for number in range(n_photos):
        folder = root / f"class-{number % 10}"
        folder.mkdir(exist_ok=True)
        make_photo(rng).save(folder / f"{number:05}.jpg", quality=QUALITY)


def report(what: str, n_photos: int, work: Callable[[], Any]) -> None:
    start, start_cpu = time.perf_counter(), time.process_time()
    work()
    elapsed, busy = time.perf_counter() - start, time.process_time() - start_cpu
    print(f"{what:<20} {n_photos / elapsed:>10.1f} {n_photos / busy:>24.1f} {busy / elapsed:>11.2f}", flush=True)


def run(root: Path, out: Path, n_photos: int = 500, threads: int | None = None) -> None:
    make_photos(root, n_photos)
    paths = [file.path for file in list_folder(root)]
    mean = sum(path.stat().st_size for path in paths) / n_photos / 1000
    print(f"{n_photos} photos of {mean:.0f} KB, {n_cores()} cores", flush=True)
    print("what                   photos/s  photos/s of a busy core  busy cores", flush=True)
    backbone = load_backbone(threads=threads)
    prepare = backbone.preprocessing.prepare
    pixels = np.stack([prepare(read_image(path)) for path in paths[:64]])
    with ThreadPoolExecutor(n_cores()) as pool:
        report("decode, one thread", n_photos, lambda: [read_image(path) for path in paths])
        report("decode", n_photos, lambda: list(pool.map(read_image, paths)))
        report("decode and prepare", n_photos, lambda: list(pool.map(lambda path: prepare(read_image(path)), paths)))
    report("embed", len(pixels), lambda: backbone.embed(pixels))
    report("extract", n_photos, lambda: extract(list_folder(root), backbone, out))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder) / "photos"
        photos.mkdir()
        run(photos, Path(folder) / "features", *map(int, sys.argv[1:]))
