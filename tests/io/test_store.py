"""Objects of a store, read and written with the real client against a server on this machine."""

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from p3dc import FeatureSet, InputError
from p3dc.io.store import StoreError, StorePath, location, writing
from tests.conftest import make_features
from tests.stores import answering


def test_what_is_written_is_read_and_listed(bucket):
    folder = location(f"{bucket}/features/")
    assert not folder.exists()
    assert list(folder.entries()) == []
    (folder / "a.bin").write_bytes(b"one")
    (folder / "in" / "b.parquet").write_bytes(b"two" * 4_000_000)  # more than one piece of an upload
    assert (folder / "in" / "b.parquet").read_bytes() == b"two" * 4_000_000
    assert sorted((path.name, is_folder) for path, is_folder in folder.entries()) == [("a.bin", False), ("in", True)]
    assert [str(path) for path in folder.rglob("*.parquet")] == [f"{bucket}/features/in/b.parquet"]
    [listed] = folder.glob("*.bin")
    assert listed.stat().st_size == 3
    assert listed.stat().st_mtime_ns > 0
    assert folder.is_dir()
    assert not folder.is_file()
    assert not (folder / "c").exists()


def test_paths_of_this_machine_stay_paths(tmp_path):
    assert location(tmp_path) == tmp_path
    assert location(Path("s3://bucket/a/b.jpg")) == StorePath("s3://bucket/a/b.jpg")
    for unknown in ("http://host/x", "ftp://host/x"):
        with pytest.raises(InputError, match="in no store that is known"):
            location(unknown)


def test_an_interrupted_write_leaves_nothing(bucket):
    place = location(f"{bucket}/part")

    def interrupted():
        with writing(place) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not place.exists()


UPLOAD = """
import sys
from p3dc.io.store import location
print("ready", flush=True)
location(sys.argv[1]).write_bytes(b"x" * 60_000_000)
"""


def test_a_killed_upload_leaves_the_old_object_or_none(bucket):
    new, old = location(f"{bucket}/new"), location(f"{bucket}/old")
    old.write_bytes(b"before")
    for place, delay in ((new, 0.1), (old, 0.2)):
        command = [sys.executable, "-c", UPLOAD, str(place)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            time.sleep(delay)
            process.kill()
    whole = b"x" * 60_000_000
    assert not new.exists() or new.read_bytes() == whole
    assert old.read_bytes() in (b"before", whole)


def test_features_are_saved_and_loaded(bucket):
    features = make_features(1, 3, 4)
    for name in ("set.npz", "set.parquet", "folder/part-0.parquet"):
        features.save(f"{bucket}/{name}")
        read = FeatureSet.load(f"{bucket}/{name}")
        np.testing.assert_array_equal(read.features, features.features)
        assert read.class_names == features.class_names
    assert len(FeatureSet.load(f"{bucket}/folder")) == 12
    with pytest.raises(InputError, match=r"missing.npz does not exist"):
        FeatureSet.load(f"{bucket}/missing.npz")
    location(f"{bucket}/old.plk").write_bytes(b"")
    with pytest.raises(InputError, match="in a store, where only .npz and .parquet are read"):
        FeatureSet.load(f"{bucket}/old.plk")


def test_an_object_cut_short_is_damaged(bucket):
    features = make_features(1, 3, 4)
    features.save(f"{bucket}/whole.parquet")
    content = location(f"{bucket}/whole.parquet").read_bytes()
    location(f"{bucket}/half.parquet").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"half.parquet is damaged or is not a Parquet file") as error:
        FeatureSet.load(f"{bucket}/half.parquet")
    assert "\n" not in str(error.value)


def test_a_wrong_bucket_is_named(s3):
    with pytest.raises(StoreError, match=r"s3://no-such-bucket/x cannot be used .* Check the name of the bucket.$"):
        list(location("s3://no-such-bucket/x").entries())
    with pytest.raises(StoreError, match="Check the name of the bucket"):
        location("s3://no-such-bucket/x").write_bytes(b"1")


def test_without_credentials_the_sentence_says_so(elsewhere):
    def refuse(request):
        assert "Authorization" not in request.headers
        body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        request.send_response(403)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)

    with answering(refuse) as address:
        elsewhere(address, AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None, AWS_CONFIG_FILE=os.devnull)
        for use in (lambda path: list(path.entries()), StorePath.read_bytes, lambda path: path.write_bytes(b"1")):
            with pytest.raises(StoreError, match=r"\(ACCESS_DENIED.*\). Check the credentials and what they allow.$"):
                use(StorePath("s3://bucket/x"))


def test_without_a_network_the_sentence_says_so(elsewhere):
    elsewhere("http://127.0.0.1:9")
    with pytest.raises(StoreError, match=r"\(NETWORK_CONNECTION: .*\). Check the network, then run the same again.$"):
        StorePath("s3://bucket/x").read_bytes()


def test_an_answer_cut_short_is_not_used(elsewhere):
    def cut(request):
        request.send_response(200 if request.command == "HEAD" else 206)
        request.send_header("Content-Length", "1000")
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(b"x" * 300)
        request.close_connection = True

    with answering(cut) as address:
        elsewhere(address)
        with pytest.raises(StoreError, match=r"s3://bucket/x (is cut short|cannot be used)"):
            StorePath("s3://bucket/x").read_bytes()


def test_an_upload_that_fails_is_not_completed(elsewhere):
    asked = []

    def refuse_the_second_piece(request):
        asked.append((request.command, request.path))
        request.rfile.read(int(request.headers.get("Content-Length") or 0))
        begun = b"<InitiateMultipartUploadResult><UploadId>7</UploadId></InitiateMultipartUploadResult>"
        body = begun if request.path.endswith("?uploads") else b""
        request.send_response(403 if "partNumber=2" in request.path else 200)
        request.send_header("Content-Length", str(len(body)))
        request.send_header("ETag", '"1"')
        request.end_headers()
        request.wfile.write(body)

    with answering(refuse_the_second_piece) as address:
        elsewhere(address)
        with pytest.raises(StoreError, match="Check the credentials"):
            StorePath("s3://bucket/x").write_bytes(bytes(25_000_000))
        gc.collect()
    assert [path for command, path in asked if "partNumber=2" in path]
    assert not [path for command, path in asked if command == "POST" and "uploadId=7" in path]


def test_hf_addresses_are_not_written():
    with pytest.raises(InputError, match="hf:// is only read"):
        location("hf://datasets/o/n/x").write_bytes(b"")
