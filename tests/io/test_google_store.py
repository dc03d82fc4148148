"""Objects in Google Cloud Storage, with the real client against an emulator on this machine."""

import gc
import signal
import time
import urllib.request
from datetime import timedelta

import numpy as np
import pytest
from pyarrow.fs import FileSelector, GcsFileSystem

from p3dc import FeatureSet, InputError, Priors
from p3dc.images.extraction import extract
from p3dc.images.sources import list_images
from p3dc.io import store
from p3dc.io.store import StoreError, StorePath, location
from tests.conftest import make_features
from tests.images.test_extraction import Colours, contents, make_photos
from tests.stores import answering, google_server, photo, upload

PARTS = {"part_rows": 4, "batch": 2}
USES = {
    "list": lambda path: list(path.entries()),
    "read": StorePath.read_bytes,
    "write": lambda path: path.write_bytes(b"1"),
    "look up": StorePath.exists,
}


@pytest.fixture(scope="module")
def google(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch, google_server(patch, tmp_path_factory.mktemp("google")) as address:
        yield address
    store._file_system.cache_clear()


@pytest.fixture
def bucket(google, request):
    name = f"bucket-{abs(hash(request.node.nodeid))}"
    GcsFileSystem(project_id="tests").create_dir(name)
    return f"gs://{name}"


@pytest.fixture
def elsewhere(monkeypatch):
    """Point the client to another server, which it asks for half a second."""

    def use(address):
        monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", address)
        store._file_system.cache_clear()

    monkeypatch.setattr(store, "GOOGLE_PATIENCE", timedelta(seconds=0.5))
    yield use
    store._file_system.cache_clear()


def test_what_is_written_is_read_and_listed(bucket):
    folder = location(f"{bucket}/features/")
    assert not folder.exists()
    assert list(folder.entries()) == []
    (folder / "a.bin").write_bytes(b"one")
    (folder / "in" / "deep" / "b.parquet").write_bytes(b"two" * 1_000_000)
    (folder / "in" / "deep" / "c.parquet").write_bytes(b"")
    (location(bucket) / "features-2" / "d.parquet").write_bytes(b"")
    assert (folder / "in" / "deep" / "b.parquet").read_bytes() == b"two" * 1_000_000
    assert sorted((path.name, is_folder) for path, is_folder in folder.entries()) == [("a.bin", False), ("in", True)]
    assert sorted(path.name for path, _ in location(bucket).entries()) == ["features", "features-2"]
    assert sorted(str(path).removeprefix(bucket) for path in folder.rglob("*.parquet")) == [
        "/features/in/deep/b.parquet",
        "/features/in/deep/c.parquet",
    ]
    [listed] = folder.glob("*")
    assert (listed.name, listed.stat().st_size) == ("a.bin", 3)
    assert listed.stat().st_mtime_ns > 0
    assert folder.is_dir()
    assert not folder.is_file()
    assert not (folder / "c").exists()


def test_a_folder_with_an_object_of_its_own_is_listed_once(google, bucket):
    system, name = GcsFileSystem(), bucket.removeprefix("gs://")
    system.create_dir(f"{name}/photos/wren")
    location(f"{bucket}/photos/wren/1.png").write_bytes(photo())
    lost = f"{google}/upload/storage/v1/b/{name}/o?uploadType=media&name=photos%2F%2Flost.png"
    urllib.request.urlopen(urllib.request.Request(lost, photo(), {"Content-Type": "image/png"})).close()
    assert f"{name}/photos//lost.png" in [
        info.path for info in system.get_file_info(FileSelector(name, recursive=True))
    ]
    assert [(path.name, is_folder) for path, is_folder in location(f"{bucket}/photos").entries()] == [("wren", True)]
    assert [image.key for image in list_images(f"{bucket}/photos")] == ["wren/1.png"]


def test_the_rows_are_those_of_the_folder(tmp_path, bucket):
    photos = make_photos(tmp_path / "photos")
    upload(photos, f"{bucket}/photos")
    here = extract(list_images(photos), Colours(), tmp_path / "out", **PARTS)
    there = extract(list_images(f"{bucket}/photos"), Colours(), f"{bucket}/out", **PARTS)
    assert (there.n_files, there.n_rows, there.failures) == (here.n_files, here.n_rows, here.failures)
    a, b = FeatureSet.load(f"{bucket}/out"), FeatureSet.load(tmp_path / "out")
    np.testing.assert_array_equal(a.features, b.features)
    assert (a.ids.tolist(), a.labels.tolist(), a.class_names) == (b.ids.tolist(), b.labels.tolist(), b.class_names)
    assert sorted(path.name for path, _ in location(f"{bucket}/out").entries()) == sorted(contents(tmp_path / "out"))
    backbone = Colours()
    assert extract(list_images(f"{bucket}/photos"), backbone, f"{bucket}/out", **PARTS).n_kept == 21
    assert backbone.batches == []
    time.sleep(0.01)
    location(f"{bucket}/photos/class-0/000.jpg").write_bytes(photo(9))
    assert extract(list_images(f"{bucket}/photos"), Colours(), f"{bucket}/out", **PARTS).n_kept == 17


def test_the_commands_read_and_write_a_store(tmp_path, bucket, network, p3dc):
    upload(make_photos(tmp_path / "photos"), f"{bucket}/photos")
    code, said, errors = p3dc("extract", f"{bucket}/photos", "--out", f"{bucket}/out", "--backbone", network)
    assert (code, f"18 of 21 images extracted to {bucket}/out" in said) == (0, True), errors
    code, _, errors = p3dc("priors", f"{bucket}/out", "--out", tmp_path / "priors.safetensors")
    assert code == 0, errors
    expected = Priors.from_features(FeatureSet.load(f"{bucket}/out"))
    np.testing.assert_allclose(Priors.load(tmp_path / "priors.safetensors").prototypes, expected.prototypes, rtol=1e-6)
    for missing in (
        ("extract", "gs://no-such-bucket/x", "--out", tmp_path / "x"),
        ("extract", tmp_path / "photos", "--out", "gs://no-such-bucket/x"),
    ):
        code, _, errors = p3dc(*missing, "--backbone", network)
        assert (code, errors.count("\n")) == (2, 1)
        assert "gs://no-such-bucket/x" in errors
        assert errors.endswith("cannot be used (there is no such bucket). Check the name of the bucket.\n")


def test_an_interrupt_does_not_leave_half_an_object(bucket, monkeypatch):
    opened = store._opened

    class Interrupted:
        def __init__(self, system):
            self.system = system

        def open_output_stream(self, path):
            stream = self.system.open_output_stream(path)
            signal.raise_signal(signal.SIGINT)
            return stream

    def interrupted(address):
        system, path = opened(address)
        return Interrupted(system), path

    place = location(f"{bucket}/part")
    with monkeypatch.context() as patch:
        patch.setattr(store, "_opened", interrupted)
        with pytest.raises(KeyboardInterrupt):
            place.write_bytes(b"whole")
    gc.collect()
    assert not place.exists() or place.read_bytes() == b"whole"


def test_features_are_saved_and_loaded(bucket):
    features = make_features(1, 3, 4)
    for name in ("set.npz", "folder/part-0.parquet"):
        features.save(f"{bucket}/{name}")
        np.testing.assert_array_equal(FeatureSet.load(f"{bucket}/{name}").features, features.features)
    assert len(FeatureSet.load(f"{bucket}/folder")) == 12
    with pytest.raises(InputError, match=r"missing.npz does not exist"):
        FeatureSet.load(f"{bucket}/missing.npz")


@pytest.mark.parametrize("use", ["list", "write"])
def test_a_wrong_bucket_is_named(google, use):
    with pytest.raises(StoreError, match=r"^gs://no-such-bucket/x cannot be used .* Check the name of the bucket.$"):
        USES[use](location("gs://no-such-bucket/x"))


@pytest.mark.parametrize("use", USES)
def test_what_the_store_forbids_is_said(google, elsewhere, use):
    body = b'{\n "error": {\n  "code": 403,\n  "message": "tests@here does not have access. Permission denied."\n }\n}'

    def refuse(request):
        request.send_response(403)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    with answering(refuse) as address:
        elsewhere(address)
        with pytest.raises(StoreError) as error:
            USES[use](StorePath("gs://bucket/x"))
    assert str(error.value) == (
        "gs://bucket/x cannot be used (PERMISSION_DENIED: tests@here does not have access). "
        "Check the credentials and what they allow."
    )


def test_without_a_network_the_sentence_says_so(google, elsewhere):
    elsewhere("http://127.0.0.1:9")
    with pytest.raises(StoreError, match=r"\(UNAVAILABLE: .*\). Check the network, then run the same again.$") as error:
        StorePath("gs://bucket/x").read_bytes()
    assert len(str(error.value)) < 200


def test_without_credentials_only_public_buckets_are_read(bucket, elsewhere, google, monkeypatch, tmp_path):
    location(f"{bucket}/photos/a.png").write_bytes(photo())
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    elsewhere(google)
    with pytest.raises(
        StoreError, match=r"\(UNAUTHENTICATED: .*\). Check the credentials, or .* gs://anonymous@BUCKET.$"
    ):
        location(f"{bucket}/photos/a.png").read_bytes()
    public = bucket.replace("gs://", "gs://anonymous@")
    [image] = list_images(f"{public}/photos")
    assert (str(image.path), image.key) == (f"{public}/photos/a.png", "a.png")
    assert image.path.read_bytes() == photo()
