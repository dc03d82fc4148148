"""Small files that ask for much memory or time, each read in another process with 3 GB."""

import io
import pickle
import subprocess
import sys
import time
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from p3dc import FeatureSet
from p3dc.errors import InputError
from p3dc.images import decoding
from p3dc.io.memory import check_memory, free_memory
from p3dc.io.torch_file import read_tensors
from tests.io.test_torch_file import old

READ = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 * 10**9, 3 * 10**9))
from p3dc.errors import InputError
from p3dc import FeatureSet
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    FeatureSet.load(sys.argv[1])
    print("read")
except InputError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def sentence_and_growth(path, seconds=20):
    """What reading a file says, and the bytes that it took."""
    command = [sys.executable, "-c", READ, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-2000:]}"
    *sentence, kilobytes = done.stdout.splitlines()
    return "\n".join(sentence), 1024 * int(kilobytes)


def memoised(value):
    return b"\x80\x04" + pickle.dumps(value, 4)[2:-1] + b"q\x00"


GROWING = {
    "a list of numbers, many times": b"}X\x01\x00\x00\x00a]("
    + memoised([1.5] * 10_000)[2:]
    + b"h\x00" * 400_000
    + b"es.",
    "empty lists": b"](" + b"]" * 1_000_000 + b"e.",
    "empty sets": b"](" + b"\x8f" * 1_000_000 + b"e.",
    "numbers that are memorised": b"](" + b"N\x94" * 500_000 + b"e.",
    "copies of a list": memoised([None] * 1000)[2:]
    + b"cbuiltins\nlist\nq\x010]("
    + b"h\x01h\x00\x85R" * 150_000
    + b"e.",
    "lists by a call": b"cbuiltins\nlist\nq\x010](" + b"h\x01)R" * 250_000 + b"e.",
    "arrays of one text": b"V" + b"a" * 500_000 + b"\nq\x000](" + b"h\x00\x85" * 100_000 + b"e.",
}


@pytest.mark.parametrize("name", GROWING)
def test_a_pickle_of_a_megabyte_does_not_grow_to_gigabytes(tmp_path, name):
    path = tmp_path / "set.plk"
    path.write_bytes(b"\x80\x04" + GROWING[name])
    sentence, growth = sentence_and_growth(path)
    assert "set.plk" in sentence
    assert growth < 250e6


COLLIDING = [number * (2**61 - 1) for number in range(20_000)]


@pytest.mark.parametrize("keys", [COLLIDING, [10**5000], [-(10**30)]], ids=["colliding", "huge", "large"])
def test_keys_that_are_huge_or_collide_are_refused_at_once(tmp_path, keys):
    path = tmp_path / "set.plk"
    row = np.ones(2, dtype=np.float32)
    path.write_bytes(pickle.dumps({key: [row] for key in keys}, 4))
    start = time.process_time()
    with pytest.raises(InputError, match="set.plk was refused and nothing in it was run: it has a number of .* bits"):
        FeatureSet.load(path)
    path.write_bytes(old(pickle.dumps(dict.fromkeys(keys), 2), {}))
    with pytest.raises(InputError, match="it has a number of .* bits"):
        read_tensors(path)
    assert time.process_time() - start < 5


def test_an_npz_is_refused_where_it_would_not_fit_into_memory(tmp_path):
    path = tmp_path / "set.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (2**40, 4)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("features.npy", header.getvalue())
        archive.writestr("labels.npy", header.getvalue())
    with pytest.raises(InputError, match="has an array of .* bytes in"):
        FeatureSet.load(path)
    with pytest.raises(InputError, match=r"set.npz takes 1,000,000.0 GB in memory, and .* GB are free"):
        check_memory("set.npz", 10**15)
    assert 10**6 < free_memory() < 10**14
    check_memory("set.npz", 10**6)


def test_an_npz_takes_no_more_than_it_says(tmp_path):
    """A member that says 1 kB but would unpack to 1 GB is cut at 1 kB."""
    path = tmp_path / "set.npz"
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((2**28 // 4, 4), dtype=np.float32))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("features.npy", buffer.getvalue())
        archive.writestr("labels.npy", b"")
    raw = path.read_bytes()
    size = len(buffer.getvalue()).to_bytes(4, "little")
    path.write_bytes(raw.replace(size, (1000).to_bytes(4, "little")))
    sentence, growth = sentence_and_growth(path)
    assert "set.npz is damaged" in sentence
    assert growth < 100e6


def test_a_parquet_label_without_end_is_refused(tmp_path):
    path = tmp_path / "set.parquet"
    rows = pa.array([[1.0, 2.0]] * 300)
    pq.write_table(pa.table({"embedding": rows, "label": ["a" * 5_000_000, *["b"] * 299]}), path)
    sentence, _ = sentence_and_growth(path)
    assert "has a label of 5,000,000 characters; 4,096 are the most" in sentence


def picture(mode, size, kind="PNG", **options):
    buffer = io.BytesIO()
    Image.new(mode, size).save(buffer, kind, **options)
    return buffer.getvalue()


def test_the_bytes_of_an_image_are_counted_by_its_mode(monkeypatch):
    monkeypatch.setattr(decoding, "MAX_DECODED", 1000)
    assert decoding.read_image_file(io.BytesIO(picture("RGBA", (12, 10)))).size == (12, 10)
    with pytest.raises(decoding.TooManyPixelsError, match="12×10 pixels of mode I;16, which take 1,680 bytes"):
        decoding.read_image_file(io.BytesIO(picture("I;16", (12, 10))))


def test_transparency_is_put_on_white_in_strips(monkeypatch):
    rng = np.random.default_rng(0)
    for mode, channels in (("RGBA", 4), ("LA", 2)):
        pixels = rng.integers(0, 256, (37, 11, channels), dtype=np.uint8)
        image = Image.fromarray(pixels, mode)
        whole = np.asarray(decoding._on_white(image))
        monkeypatch.setattr(decoding, "STRIP", 50)
        np.testing.assert_array_equal(np.asarray(decoding._on_white(image)), whole)
        monkeypatch.undo()
        alpha = pixels[..., -1:] / 255
        expected = alpha * pixels[..., :-1] + (1 - alpha) * 255
        assert np.abs(whole - expected).max() <= 1


CUT = """
import os, sys
from p3dc.images import decoding
path = sys.argv[1]
real = decoding.Image.open
def late(file, **options):
    image = real(file, **options)
    os.truncate(path, 3000)
    return image
decoding.Image.open = late
try:
    decoding.read_image(path)
    print("read")
except decoding.ImageError as error:
    print(error)
"""


@pytest.mark.parametrize("compression", ["tiff_deflate", "tiff_lzw", "packbits", None])
def test_a_tiff_that_is_cut_while_it_is_read_does_not_end_the_process(tmp_path, compression):
    path = tmp_path / "photo.tiff"
    noise = np.random.default_rng(0).integers(0, 256, (600, 600, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path, **({"compression": compression} if compression else {}))
    done = subprocess.run([sys.executable, "-c", CUT, str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "read")
    assert path.stat().st_size == 3000


def test_a_file_of_half_a_gigabyte_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "photo.webp"
    with path.open("wb") as file:
        file.write(picture("RGB", (4, 4), "WEBP"))
        file.truncate(2**29 + 1)
    with pytest.raises(decoding.ImageError, match="It has 536,870,913 bytes; more than 536,870,912 are refused"):
        decoding.read_image(path)
