"""Extraction from a store and to a store: the same rows as on disk, killed or not."""

import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from p3dc import FeatureSet
from p3dc.errors import InputError
from p3dc.images.extraction import extract
from p3dc.images.sources import list_images
from p3dc.io.store import StoreError, StorePath, location
from tests.images.test_extraction import Colours, contents, make_photos
from tests.stores import photo, upload, write_parquet, write_tar, write_zip

PARTS = {"part_rows": 4, "batch": 2}


def objects(address):
    return {path.name: path.read_bytes() for path, _ in location(address).entries()}


def rows(folder):
    read = FeatureSet.load(folder)
    return read.features.tobytes(), read.ids.tolist(), read.labels.tolist(), read.class_names


@pytest.fixture
def photos(tmp_path, bucket):
    """The same photos in a folder and in a bucket."""
    folder = make_photos(tmp_path / "photos")
    upload(folder, f"{bucket}/photos")
    return folder


def test_the_rows_are_those_of_the_folder(photos, tmp_path, bucket):
    here = extract(list_images(photos), Colours(), tmp_path / "out", **PARTS)
    there = extract(list_images(f"{bucket}/photos"), Colours(), f"{bucket}/out", **PARTS)
    assert str(there.folder) == f"{bucket}/out"
    assert (there.n_files, there.n_rows, there.failures) == (here.n_files, here.n_rows, here.failures)
    assert rows(f"{bucket}/out") == rows(tmp_path / "out")
    assert sorted(objects(f"{bucket}/out")) == sorted(contents(tmp_path / "out"))


def test_a_finished_part_is_kept_and_a_changed_photo_is_read_again(photos, bucket):
    extract(list_images(f"{bucket}/photos"), Colours(), f"{bucket}/out", **PARTS)
    backbone = Colours()
    assert extract(list_images(f"{bucket}/photos"), backbone, f"{bucket}/out", **PARTS).n_kept == 21
    assert backbone.batches == []
    time.sleep(1)  # a store may keep times in seconds
    location(f"{bucket}/photos/class-0/000.jpg").write_bytes(photo(9))
    assert extract(list_images(f"{bucket}/photos"), Colours(), f"{bucket}/out", **PARTS).n_kept == 17


def test_what_a_folder_refuses_a_store_refuses(photos, bucket):
    extract(list_images(photos), Colours(), f"{bucket}/out", **PARTS)
    listed = list(list_images(photos))
    for files, digest, sentence in (
        (listed, "c1", r"s3://.*/out holds features of another backbone: colours \(c0\), not colours \(c1\)"),
        (listed[::-1], "c0", r"s3://.*/out was extracted from another list of images"),
        (listed[:8], "c0", "was extracted from a longer list of images: part-000002.parquet"),
    ):
        with pytest.raises(InputError, match=sentence):
            extract(files, Colours(digest=digest), f"{bucket}/out", **PARTS)
    location(f"{bucket}/out/part-000001.parquet").write_bytes(b"half")
    with pytest.raises(InputError, match=r"part-000001.parquet is damaged or no part of an extraction"):
        extract(listed, Colours(), f"{bucket}/out", **PARTS)
    location(f"{bucket}/out/others.parquet").write_bytes(b"")
    with pytest.raises(InputError, match="holds others.parquet, which no extraction wrote"):
        extract(listed, Colours(), f"{bucket}/out", **PARTS)


@pytest.mark.parametrize("ending", ["zip", "tar", "parquet"])
def test_shards_give_the_rows_of_their_photos(tmp_path, bucket, ending):
    images = [photo(seed) for seed in range(9)]
    members = {f"class-{number % 3}/{number}.png": content for number, content in enumerate(images)}
    folder = tmp_path / "photos"
    for name, content in members.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    shards = tmp_path / "shards"
    shards.mkdir()
    if ending == "parquet":
        write_parquet(shards / "a.parquet", images, [f"class-{number % 3}" for number in range(9)])
    else:
        (write_zip if ending == "zip" else write_tar)(shards / f"a.{ending}", members)
    upload(shards, f"{bucket}/shards")
    plain = FeatureSet.load(extract(list_images(folder), Colours(), tmp_path / "plain").folder)
    vectors = sorted((row.tobytes(), plain.labels[i]) for i, row in enumerate(plain.features))
    for place, out in ((shards, tmp_path / "out"), (f"{bucket}/shards", f"{bucket}/out")):
        found = FeatureSet.load(extract(list_images(place), Colours(), out, **PARTS).folder)
        assert sorted((row.tobytes(), found.labels[i]) for i, row in enumerate(found.features)) == vectors
        assert all(key.startswith(f"a.{ending}/") for key in found.ids)
        assert extract(list_images(place), Colours(), out, **PARTS).n_kept == 9


def test_a_store_that_fails_ends_the_run_and_lists_no_failures(photos, bucket, monkeypatch):
    read, calls = StorePath.read_bytes, []

    def failing(self):
        calls.append(self)
        if len(calls) > 10:
            raise StoreError(f"{self} cannot be used (NETWORK_CONNECTION). Check the network, then run the same again.")
        return read(self)

    with monkeypatch.context() as patch:
        patch.setattr(StorePath, "read_bytes", failing)
        with pytest.raises(StoreError, match="NETWORK_CONNECTION"):
            extract(list_images(f"{bucket}/photos"), Colours(), f"{bucket}/out", **PARTS)
    done = extract(list_images(f"{bucket}/photos"), Colours(), f"{bucket}/out", **PARTS)
    assert done.n_kept >= 4
    assert (done.n_files, done.n_rows) == (21, 18)


def test_photos_of_a_store_are_read_by_more_threads(photos, bucket, monkeypatch):
    at_once, most, lock = set(), [], threading.Lock()
    read = StorePath.read_bytes

    def slow(self):
        with lock:
            at_once.add(self)
            most.append(len(at_once))
        time.sleep(0.05)
        content = read(self)
        with lock:
            at_once.remove(self)
        return content

    monkeypatch.setattr(StorePath, "read_bytes", slow)
    extract(list_images(f"{bucket}/photos"), Colours(), f"{bucket}/out", batch=16, workers=1)
    assert 4 <= max(most) <= 8


RUN = """
import sys
from p3dc.images.extraction import extract
from p3dc.images.sources import list_images
from tests.images.test_extraction import Colours

extract(list_images(sys.argv[1]), Colours(pause=0.03), sys.argv[2], part_rows=4, batch=2, workers=2)
"""


def test_killed_at_any_moment_it_continues(photos, bucket):
    extract(list_images(f"{bucket}/photos"), Colours(), f"{bucket}/whole", **PARTS)
    expected = objects(f"{bucket}/whole")
    out, rng, killed = f"{bucket}/out", random.Random(3), 0
    while True:
        command = [sys.executable, "-c", RUN, f"{bucket}/photos", out]
        goal = len(list(location(out).glob("part-*.parquet"))) + rng.randint(2, 3)
        with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as process:
            while process.poll() is None and len(list(location(out).glob("part-*.parquet"))) < goal:
                time.sleep(0.005)
            time.sleep(rng.uniform(0, 0.05))
            process.kill()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL
        killed += 1
        for name, content in objects(out).items():
            assert name == "extraction.json" or content == expected[name]
    assert killed >= 2
    assert objects(out) == expected


def test_the_command_reads_and_writes_a_store(photos, bucket, network, p3dc, tmp_path):
    code, said, errors = p3dc("extract", f"{bucket}/photos", "--out", f"{bucket}/out", "--backbone", network)
    assert (code, f"18 of 21 images extracted to {bucket}/out" in said) == (0, True), errors
    code, _, errors = p3dc("priors", f"{bucket}/out", "--out", tmp_path / "priors.safetensors")
    assert code == 0, errors
    code, _, errors = p3dc("extract", "s3://no-such-bucket/x", "--out", tmp_path / "out", "--backbone", network)
    assert code == 2
    assert errors.startswith("p3dc: s3://no-such-bucket/x cannot be used (NO_SUCH_BUCKET")
    assert errors.count("\n") == 1


def test_photos_of_a_store_are_learned_and_labelled(photos, bucket, network, p3dc, tmp_path):
    model = tmp_path / "m.safetensors"
    given = ("--backbone", network, "--priors", "none")
    assert p3dc("fit", f"{bucket}/photos", "--out", model, *given)[0] == 0
    there = p3dc("predict", model, f"{bucket}/photos/class-1/000.jpg", "--backbone", network)
    here = p3dc("predict", model, photos / "class-1" / "000.jpg", "--backbone", network)
    assert there[0] == here[0] == 0
    assert there[1].splitlines()[1].split(",")[1:] == here[1].splitlines()[1].split(",")[1:]
    write_zip(tmp_path / "a.zip", {"x.png": photo(1), "y.png": photo(2)})
    _, said, _ = p3dc("predict", model, tmp_path / "a.zip", "--backbone", network)
    assert [line.split(",")[0] for line in said.splitlines()[1:]] == [f"{tmp_path}/a.zip/{n}.png" for n in "xy"]


def test_parts_in_a_store_are_plain_parquet(photos, bucket, tmp_path):
    extract(list_images(photos), Colours(), f"{bucket}/out", **PARTS)
    (tmp_path / "p.parquet").write_bytes(objects(f"{bucket}/out")["part-000000.parquet"])
    assert pq.read_table(tmp_path / "p.parquet").column_names == ["embedding", "label", "id"]
