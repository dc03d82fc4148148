"""Time the commands as a user runs them: seconds to the first label, photos per second, size of the installation.

``python -m benchmarks.photos [photos]`` makes JPEGs of 500 × 375, fits on five of each of ten classes and labels the
rest, in fresh processes. With ``--install`` it also measures the size of an environment made with ``pip install .``,
which takes a minute and needs a package index.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.extraction import make_photos
from p3dc.images.backbones.backbone import n_cores

P3DC = [sys.executable, "-m", "p3dc"]


def predict(model: Path, folder: Path) -> tuple[float, float]:
    """Return the seconds until the first label, and until the last."""
    start = time.perf_counter()
    command = [*P3DC, "predict", str(model), str(folder), "--csv", str(model.with_suffix(".csv"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        lines = (time.perf_counter() - start for _ in process.stdout)
        _, first, *_ = lines
    return first, time.perf_counter() - start


def install_size(folder: Path) -> float:
    """Return the megabytes that an installation adds to an empty environment."""
    subprocess.run([sys.executable, "-m", "venv", folder / "empty"], check=True)
    subprocess.run([sys.executable, "-m", "venv", folder / "full"], check=True)
    subprocess.run([folder / "full" / "bin" / "pip", "install", "--quiet", "."], check=True)
    sizes = [
        sum(file.stat().st_size for file in (folder / name).rglob("*") if file.is_file() and not file.is_symlink())
        for name in ("full", "empty")
    ]
    return (sizes[0] - sizes[1]) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("photos", type=int, nargs="?", default=1000)
    parser.add_argument("--install", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for part, n_photos in (("support", 50), ("rest", given.photos)):
            (root / part).mkdir()
            make_photos(root / part, n_photos)
        model = root / "model.safetensors"
        start = time.perf_counter()
        subprocess.run([*P3DC, "fit", root / "support", "--out", model], check=True, stdout=subprocess.DEVNULL)
        print(f"{n_cores()} cores; fit on 50 photos: {time.perf_counter() - start:.2f} s", flush=True)
        for _ in range(3):
            first, total = predict(model, root / "rest")
            rate = given.photos / total
            print(f"first label after {first:.2f} s, {given.photos:,} photos in {total:.1f} s, {rate:.0f} a second")
        if given.install:
            print(f"install: {install_size(root):.0f} MB")


if __name__ == "__main__":
    main()
