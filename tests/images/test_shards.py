"""Images in zips, tars and Parquet, on this machine and in a store: the same keys, the same bytes, no tricks."""

import io
import struct
import tarfile
import tracemalloc
import zipfile
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p3dc.errors import InputError
from p3dc.images.decoding import ImageError, read_image
from p3dc.images.sources import list_csv, list_folder, list_images
from p3dc.io import archives
from p3dc.io.archives import tar_members
from p3dc.io.store import Stat, StoreError, StorePath, location
from tests.stores import answering, photo, upload, write_parquet, write_tar, write_zip

PHOTOS = [photo(seed) for seed in range(6)]


def keys(path):
    return [(image.key, image.label) for image in list_images(path)]


def contents(path):
    return [image.path.read_bytes() for image in list_images(path)]


def test_a_zip_is_read_like_a_folder(tmp_path):
    members = {"wren/2.png": PHOTOS[1], "auk/deep/1.png": PHOTOS[0], "auk/notes.txt": b"", "__MACOSX/auk/1.png": b""}
    skipped = Counter()
    path = write_zip(tmp_path / "birds.zip", members)
    assert [image.key for image in list_images(path, skipped)] == ["birds.zip/auk/deep/1.png", "birds.zip/wren/2.png"]
    assert skipped == {".txt": 1}
    assert keys(path) == [("birds.zip/auk/deep/1.png", "auk"), ("birds.zip/wren/2.png", "wren")]
    assert contents(path) == PHOTOS[:2]
    assert contents(write_zip(tmp_path / "stored.zip", members, zipfile.ZIP_STORED)) == PHOTOS[:2]


def test_a_zip_of_one_folder_is_that_folder(tmp_path):
    path = write_zip(tmp_path / "b.zip", {"birds/wren/1.png": b"1", "birds/auk/1.png": b"2"})
    assert [label for _, label in keys(path)] == ["auk", "wren"]
    path = write_zip(tmp_path / "c.zip", {"wren/1.png": b"1", "wren/2.png": b"2"})
    assert [label for _, label in keys(path)] == ["wren", "wren"]
    assert keys(write_zip(tmp_path / "d.zip", {"1.png": b"1"})) == [("d.zip/1.png", None)]
    with pytest.raises(InputError, match=r"images in folders and images beside them, 1.png for example"):
        keys(write_zip(tmp_path / "e.zip", {"1.png": b"1", "wren/2.png": b"2"}))


def test_a_tar_is_read_as_samples(tmp_path):
    members = {
        "000.png": PHOTOS[0],
        "000.cls": b"7\n",
        "001.cls": b"wren",
        "001.json": b"{}",
        "001.png": PHOTOS[1],
        "002.png": PHOTOS[2],
        "auk/003.left.png": PHOTOS[3],
        "auk/003.right.png": PHOTOS[4],
    }
    path = write_tar(tmp_path / "train-0.tar", members)
    assert keys(path) == [
        ("train-0.tar/000.png", "7"),
        ("train-0.tar/001.png", "wren"),
        ("train-0.tar/002.png", None),
        ("train-0.tar/auk/003.left.png", "auk"),
        ("train-0.tar/auk/003.right.png", "auk"),
    ]
    assert contents(path) == PHOTOS[:5]


def test_parquet_has_the_classes_that_its_metadata_name(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", PHOTOS[:5], [1, 0, 1, None, -1], ["auk", "wren"])
    labels = ["wren", "auk", "wren", None, None]
    assert keys(path) == [(f"a.parquet/{row}", label) for row, label in enumerate(labels)]
    assert contents(path) == PHOTOS[:5]
    path = write_parquet(tmp_path / "b.parquet", PHOTOS[:2], ["x", "y"])
    assert [label for _, label in keys(path)] == ["x", "y"]


def test_an_image_that_parquet_only_names_fails_alone(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", [PHOTOS[0], None], [0, 0])
    good, named = list_images(path)
    assert read_image(good.path).size == (9, 12)
    with pytest.raises(ImageError, match="no bytes, only a path"):
        read_image(named.path)


def test_a_folder_of_shards_is_read_in_order(tmp_path, bucket):
    write_tar(tmp_path / "b.tar", {"1.png": PHOTOS[0]})
    write_zip(tmp_path / "a.zip", {"1.png": PHOTOS[1]})
    write_parquet(tmp_path / "c.parquet", PHOTOS[2:5], [0, 1, 1])
    (tmp_path / "README.md").touch()
    expected = ["a.zip/1.png", "b.tar/1.png", "c.parquet/0", "c.parquet/1", "c.parquet/2"]
    upload(tmp_path, f"{bucket}/shards")
    for place in (tmp_path, f"{bucket}/shards/"):
        skipped = Counter()
        assert [image.key for image in list_images(place, skipped)] == expected
        assert skipped == {".md": 1}
        assert contents(place) == [PHOTOS[i] for i in (1, 0, 2, 3, 4)]
    for name in ("a.zip", "b.tar", "c.parquet"):
        assert contents(f"{bucket}/shards/{name}") == contents(tmp_path / name)
        assert keys(f"{bucket}/shards/{name}") == keys(tmp_path / name)


def test_folders_in_a_store_list_like_those_on_disk(tmp_path, bucket):
    for name in ("b/2.png", "b/1.png", "a/deep/x.png", "a-b/x.png", "a/.hidden.png", "a/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(PHOTOS[0])
    upload(tmp_path, f"{bucket}/photos")
    assert keys(f"{bucket}/photos") == keys(tmp_path)
    assert [str(image.path) for image in list_folder(f"{bucket}/photos/b")] == [
        f"{bucket}/photos/b/1.png",
        f"{bucket}/photos/b/2.png",
    ]
    with pytest.raises(InputError, match=r"s3://.*/nothing is not a folder"):
        list_folder(f"{bucket}/nothing")


def test_a_table_may_name_objects(tmp_path, bucket):
    text = f"path,label\nphotos/a.png,auk\n../b.png,wren\n{bucket}/lists/c.png,\ns3://other/d.png,tit\n"
    location(f"{bucket}/lists/t.csv").write_bytes(text.encode())
    assert [(image.key, str(image.path)) for image in list_images(f"{bucket}/lists/t.csv")] == [
        ("photos/a.png", f"{bucket}/lists/photos/a.png"),
        ("../b.png", f"{bucket}/b.png"),
        ("c.png", f"{bucket}/lists/c.png"),
        ("s3://other/d.png", "s3://other/d.png"),
    ]
    (tmp_path / "t.csv").write_text(f"path\n{bucket}/b.png\na.png\n")
    assert [str(image.path) for image in list_csv(tmp_path / "t.csv")] == [f"{bucket}/b.png", f"{tmp_path}/a.png"]


def test_shards_without_images_say_what_they_hold(tmp_path):
    with pytest.raises(InputError, match=r"a.tar holds no images, but 1 other files \(.txt\)"):
        keys(write_tar(tmp_path / "a.tar", {"a.txt": b"1"}))
    pq.write_table(pa.table({"label": [1]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="0 columns of images, struct<bytes, path>; its columns are label"):
        keys(tmp_path / "a.parquet")


@pytest.mark.parametrize("name", ["../x.png", "/etc/x.png", "a/../../x.png", "..\\x.png"])
@pytest.mark.parametrize("write", [write_zip, write_tar])
def test_names_that_lead_out_are_refused(tmp_path, name, write):
    path = write(tmp_path / f"t.{write.__name__[-3:]}", {"a.png": b"1", name: b"2"})
    with pytest.raises(InputError, match="a name that leads out of the archive"):
        keys(path)


def overlapping(path):
    """Write a zip of two files whose bytes are the same."""
    write_zip(path, {"a.png": b"1" * 100, "b.png": b"1" * 100}, zipfile.ZIP_STORED)
    content = bytearray(path.read_bytes())
    second = content.rindex(b"PK\1\2")
    content[second + 42 : second + 46] = struct.pack("<I", 0)
    path.write_bytes(content)
    return path


def test_a_bomb_is_refused(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="files that overlap, as a zip bomb has"):
        keys(overlapping(tmp_path / "o.zip"))
    monkeypatch.setattr(archives, "MAX_BYTES", 10_000)
    path = write_zip(tmp_path / "large.zip", {"a.png": b"\0" * 10_001})
    with pytest.raises(InputError, match="more than 10,000 are refused"):
        contents(path)


def test_no_more_is_unpacked_than_is_declared(tmp_path):
    path = write_zip(tmp_path / "a.zip", {"a.png": b"\0" * 30_000_000})
    content = bytearray(path.read_bytes())
    central = content.rindex(b"PK\1\2")
    content[central + 24 : central + 28] = struct.pack("<I", 50)
    path.write_bytes(content)
    [image] = list_images(path)
    tracemalloc.start()
    try:
        with pytest.raises(ImageError, match="another size than the archive says"):
            read_image(image.path)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_passwords_and_doubles_are_refused(tmp_path):
    path = write_zip(tmp_path / "a.zip", {"a.png": b"1"})
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\1\2") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="has a password on a.png"):
        keys(path)
    with zipfile.ZipFile(tmp_path / "lzma.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.png", b"1")
    with pytest.raises(InputError, match="compressed by a method that is not read"):
        keys(tmp_path / "lzma.zip")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for _ in range(2):
            archive.addfile(tarfile.TarInfo("a.png"), io.BytesIO())
    with pytest.raises(InputError, match="has a.png twice"):
        keys(tmp_path / "a.tar")


@pytest.mark.parametrize("ending", ["zip", "tar", "parquet"])
def test_a_shard_cut_short_is_one_sentence(tmp_path, bucket, ending):
    path = tmp_path / f"a.{ending}"
    members = {f"{number}.png": PHOTOS[number] for number in range(5)}
    if ending == "parquet":
        write_parquet(path, PHOTOS[:5], [0] * 5)
    else:
        (write_zip if ending == "zip" else write_tar)(path, members)
    path.write_bytes(path.read_bytes()[:1600])
    upload(tmp_path, bucket)
    for place in (path, f"{bucket}/a.{ending}"):
        with pytest.raises(InputError, match=rf"a.{ending} is damaged or") as error:
            keys(place)
        assert "\n" not in str(error.value)
    for place in (tmp_path / f"none.{ending}", f"{bucket}/none.{ending}"):
        with pytest.raises(InputError, match="does not exist"):
            keys(place)


def test_a_packed_tar_is_refused(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("a.png"), io.BytesIO())
    with pytest.raises(InputError, match="is damaged or cannot be read"):
        keys(tmp_path / "a.tar")


def test_a_zip_of_a_later_version_is_refused(tmp_path):
    path = write_zip(tmp_path / "a.zip", {"a.png": PHOTOS[0]})
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\1\2") + 6] = 99
    path.write_bytes(content)
    with pytest.raises(InputError, match="is damaged or cannot be read"):
        keys(path)


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=2000), st.integers(0, 1500))
def test_damaged_archives_raise_nothing_else(tmp_path_factory, noise, at):
    folder = tmp_path_factory.mktemp("damaged")
    members = {"a.png": PHOTOS[0], "b.cls": b"x", "b.png": PHOTOS[1]}
    shards = (
        write_zip(folder / "a.zip", members),
        write_tar(folder / "a.tar", members),
        write_parquet(folder / "a.parquet", PHOTOS[:2], [0, 1], ["x", "y"]),
    )
    for path in shards:
        content = bytearray(path.read_bytes())
        content[at : at + len(noise)] = noise
        path.write_bytes(content)
        try:
            for image in list_images(path):
                image.path.read_bytes()
        except InputError:
            pass


def test_a_tar_is_listed_in_few_requests_and_large_members_are_passed_over(tmp_path, bucket, monkeypatch):
    write_tar(tmp_path / "small.tar", {f"{number:03}.png": bytes(1000) for number in range(100)})
    write_tar(tmp_path / "large.tar", {f"{number:03}.png": bytes(300_000) for number in range(20)})
    upload(tmp_path, bucket)
    monkeypatch.setattr(archives, "READ_AHEAD", 2**16)
    read = []
    real = archives.read_exactly
    monkeypatch.setattr(archives, "read_exactly", lambda *asked: read.append(asked[-1]) or real(*asked))
    for name, n_members, most in (("small.tar", 100, 5), ("large.tar", 20, 22)):
        read.clear()
        assert len(list(tar_members(location(f"{bucket}/{name}").looked_up()))) == n_members
        assert len(read) <= most
        assert sum(read) <= most * 2**16


def test_many_shards_of_a_store_are_listed_in_order(tmp_path, bucket):
    for number in range(20):
        write_tar(tmp_path / f"{number:02}.tar", {"a.png": b"1", "b.txt": b"2", "c.png": b"3"})
    upload(tmp_path, bucket)
    skipped = Counter()
    found = [image.key for image in list_images(bucket, skipped)]
    assert found == [f"{number:02}.tar/{name}.png" for number in range(20) for name in "ac"]
    assert skipped == {".txt": 20}
    location(f"{bucket}/12.tar").write_bytes(b"no tar at all" * 100)
    with pytest.raises(InputError, match=r"12.tar is damaged"):
        list(list_images(bucket))


def listing(n_folders, n_each):
    """What a store lists of a folder of many folders, made one folder at a time."""

    def entries(self):
        if self.name == "root":
            yield from ((self / f"class-{number:04}", True) for number in range(n_folders))
        else:
            for number in range(n_each):
                yield StorePath(f"{self.address}/photo-{number:06}.jpg", Stat(50_000, 10**18)), False

    return entries


def test_listing_many_keys_takes_the_memory_of_one_folder(monkeypatch):
    monkeypatch.setattr(StorePath, "is_dir", lambda self: True)
    peaks = []
    for n_folders in (2, 2, 20):  # the first time, modules are imported
        monkeypatch.setattr(StorePath, "entries", listing(n_folders, 500))
        tracemalloc.start()
        assert sum(1 for _ in list_images("s3://bucket/root")) == 500 * n_folders
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.2 * peaks[1] < 1_000_000


def test_a_key_of_a_large_folder_takes_few_bytes(monkeypatch):
    monkeypatch.setattr(StorePath, "is_dir", lambda self: True)
    monkeypatch.setattr(StorePath, "entries", listing(0, 20_000))
    tracemalloc.start()
    assert sum(1 for _ in list_images("s3://bucket/flat")) == 20_000
    assert tracemalloc.get_traced_memory()[1] < 20_000 * 330
    tracemalloc.stop()


def test_a_store_that_fails_is_no_bad_photo(elsewhere):
    def down(request):
        request.send_response(403)
        request.send_header("Content-Length", "0")
        request.end_headers()

    with answering(down) as address:
        elsewhere(address)
        with pytest.raises(StoreError, match="Check the credentials"):
            read_image("s3://bucket/a.png")
