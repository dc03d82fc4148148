"""Extraction to Parquet parts, interrupted and continued."""

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from p3dc import FeatureSet
from p3dc.errors import InputError
from p3dc.features import stream_features
from p3dc.images import extraction, extraction_parts
from p3dc.images.backbones.backbone import GPU_STEP, Backbone
from p3dc.images.extraction import extract
from p3dc.images.preprocessing import Preprocessing
from p3dc.images.sources import ImageFile, list_folder
from p3dc.io import atomic


class Colours(Backbone):
    """A backbone without a network: the colours of a photo's pixels."""

    def __init__(self, name="colours", digest="c0", pause=0.0):
        self.name, self.digest, self.n_features, self.pause = name, digest, 12, pause
        self.preprocessing = Preprocessing(short_side=4, crop=2, mean=(0, 0, 0), scale=(255, 255, 255))
        self.batches = []

    def embed_crops(self, crops):
        self.batches.append(len(crops))
        return super().embed_crops(crops)

    def _embed(self, batch):
        time.sleep(self.pause)
        return batch.reshape(len(batch), -1)


def make_photos(root, n_classes=3, n_each=7, seed=0):
    """Write small photos of different formats, some of them damaged."""
    rng = np.random.default_rng(seed)
    for label in range(n_classes):
        folder = root / f"class-{label}"
        folder.mkdir(parents=True)
        for number in range(n_each):
            image = Image.fromarray(rng.integers(0, 256, (12, 9, 3), dtype=np.uint8))
            path = folder / f"{number:03}.{('jpg', 'png', 'webp')[number % 3]}"
            image.save(path)
            if number == 4:
                path.write_bytes(path.read_bytes()[:40])
    return root


@pytest.fixture
def photos(tmp_path):
    return make_photos(tmp_path / "photos")


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != ".lock"}


def test_the_folder_is_a_feature_set(photos, tmp_path):
    done = extract(list_folder(photos), Colours(), tmp_path / "out", part_rows=5)
    assert (done.n_files, done.n_rows, done.n_kept) == (21, 18, 0)
    assert [key for key, _ in done.failures] == [f"class-{label}/004.png" for label in range(3)]
    assert all("Its format is PNG, but it is damaged" in why for _, why in done.failures)
    read = FeatureSet.load(done.folder)
    keys = [file.key for file in list_folder(photos) if "004" not in file.key]
    assert read.ids.tolist() == keys
    assert read.class_names == ("class-0", "class-1", "class-2")
    assert read.labels.tolist() == [0] * 6 + [1] * 6 + [2] * 6
    assert read.features.dtype == np.float32
    assert len(list(done.folder.glob("part-*.parquet"))) == 5
    streamed = np.concatenate([block for block, _, _ in stream_features(done.folder)])
    assert streamed.tobytes() == read.features.tobytes()


def test_the_summary_records_what_made_it(photos, tmp_path):
    backbone = Colours()
    done = extract(list_folder(photos), backbone, tmp_path / "out")
    report = json.loads((tmp_path / "out" / "extraction.json").read_text())
    assert report["backbone"] == {"name": "colours", "digest": "c0", "n_features": 12}
    assert report["preprocessing"] == json.loads(backbone.preprocessing.to_json())
    assert report["complete"] is True
    assert report["n_files"] == 21
    assert [(failure["id"], failure["why"]) for failure in report["failures"]] == list(done.failures)


def test_a_flat_folder_is_loadable(photos, tmp_path):
    done = extract(list_folder(photos / "class-0"), Colours(), tmp_path / "out")
    read = FeatureSet.load(done.folder)
    assert read.class_names == ("",)
    assert read.ids[0] == "000.jpg"


def test_features_do_not_depend_on_workers_or_parts(photos, tmp_path):
    reference = FeatureSet.load(extract(list_folder(photos), Colours(), tmp_path / "a").folder)
    for number, options in enumerate([{"workers": 1}, {"part_rows": 1}, {"part_rows": 7, "batch": 3, "workers": 5}]):
        other = FeatureSet.load(extract(list_folder(photos), Colours(), tmp_path / f"b{number}", **options).folder)
        assert other.features.tobytes() == reference.features.tobytes()
        assert other.ids.tolist() == reference.ids.tolist()


def test_a_finished_run_is_not_done_again(photos, tmp_path):
    first = extract(list_folder(photos), Colours(), tmp_path / "out", part_rows=4)
    before = contents(tmp_path / "out")
    backbone = Colours()
    again = extract(list_folder(photos), backbone, tmp_path / "out", part_rows=4)
    assert backbone.batches == []
    assert contents(tmp_path / "out") == before
    assert (again.failures, again.n_files, again.n_kept) == (first.failures, 21, 21)


def test_a_missing_part_is_made_again(photos, tmp_path):
    extract(list_folder(photos), Colours(), tmp_path / "out", part_rows=4)
    before = contents(tmp_path / "out")
    (tmp_path / "out" / "part-000002.parquet").unlink()
    again = extract(list_folder(photos), Colours(), tmp_path / "out", part_rows=4)
    assert contents(tmp_path / "out") == before
    assert again.n_kept == 17


def test_progress_counts_every_image(photos, tmp_path):
    calls = []
    extract(list_folder(photos), Colours(), tmp_path / "out", part_rows=4, progress=lambda *seen: calls.append(seen))
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert set(range(1, 22)) == {done for done, _ in calls}
    assert all(done <= listed <= done + 3 for done, listed in calls)
    assert calls[-1] == (21, 21)
    calls.clear()
    files = list(list_folder(photos))
    extract(files, Colours(), tmp_path / "out", part_rows=4, progress=lambda *seen: calls.append(seen))
    assert calls == [(done, 21) for done in (4, 8, 12, 16, 20, 21)]


def test_files_are_taken_part_by_part(photos, tmp_path):
    taken = []
    backbone = Colours()

    def files():
        for file in list_folder(photos):
            taken.append(file.key)
            yield file

    seen = []
    extract(files(), backbone, tmp_path / "out", part_rows=5, progress=lambda done, _: seen.append((done, len(taken))))
    assert all(ahead <= 5 * ((done + 4) // 5) for done, ahead in seen)


@pytest.mark.parametrize(
    ("backbone", "sentence"),
    [
        (Colours(digest="c1"), r"of another backbone: colours \(c0\), not colours \(c1\)"),
        (Colours(name="other"), r"of another backbone: colours \(c0\), not other \(c0\)"),
    ],
)
def test_another_backbone_is_refused(photos, tmp_path, backbone, sentence):
    extract(list_folder(photos), Colours(), tmp_path / "out")
    before = contents(tmp_path / "out")
    with pytest.raises(InputError, match=sentence):
        extract(list_folder(photos), backbone, tmp_path / "out")
    assert contents(tmp_path / "out") == before


def test_other_parts_are_refused(photos, tmp_path):
    extract(list_folder(photos), Colours(), tmp_path / "out")
    with pytest.raises(InputError, match="of another part rows: 4096, not 8"):
        extract(list_folder(photos), Colours(), tmp_path / "out", part_rows=8)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda files: [*files, ImageFile(Path("z.jpg"), "z.jpg", "z")], "in part-000005.parquet, z.jpg is new. Give"),
        (lambda files: files[1:], r"class-0/004.png is new and class-0/000.jpg is gone\. "),
        (lambda files: files[:-1], "part-000005.parquet covers files that are gone"),
        (lambda files: files[:10], "in part-000002.parquet, class-1/003.jpg is gone, like 1 more"),
        (lambda files: [files[1], files[0], *files[2:]], "have other labels or another order"),
        (lambda files: [ImageFile(file.path, file.key, "x") for file in files], "have other labels or another order"),
    ],
)
def test_another_list_is_refused(photos, tmp_path, change, sentence):
    files = list(list_folder(photos))
    extract(files, Colours(), tmp_path / "out", part_rows=4)
    before = contents(tmp_path / "out")
    with pytest.raises(InputError, match=sentence):
        extract(change(files), Colours(), tmp_path / "out", part_rows=4)
    assert contents(tmp_path / "out") == before


def test_files_that_vanish_are_failures(photos, tmp_path):
    files = list(list_folder(photos))
    files[2].path.unlink()
    done = extract(files, Colours(), tmp_path / "out")
    assert (files[2].key, "The file does not exist, or not any more. Put it back, or leave it out.") in done.failures
    assert done.n_rows == 17


def test_names_that_are_no_text_are_failures(photos, tmp_path):
    (photos / "class-0" / "000.jpg").rename(photos / "class-0" / os.fsdecode(b"caf\xe9.jpg"))
    done = extract(list_folder(photos), Colours(), tmp_path / "out")
    assert (r"class-0/caf\xe9.jpg", "Its name is not UTF-8 text. Rename it.") in done.failures
    assert done.n_rows == 17


def test_parts_without_rows_keep_their_failures(photos, tmp_path):
    for path in (photos / "class-1").iterdir():
        path.write_bytes(b"")
    first = extract(list_folder(photos), Colours(), tmp_path / "out", part_rows=7)
    assert len(first.failures) == 9
    assert extract(list_folder(photos), Colours(), tmp_path / "out", part_rows=7).failures == first.failures
    assert len(FeatureSet.load(tmp_path / "out")) == 12


def test_one_process_at_a_time(photos, tmp_path):
    extract(list_folder(photos), Colours(), tmp_path / "out")
    with (tmp_path / "out" / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="is being written by another process"):
            extract(list_folder(photos), Colours(), tmp_path / "out")
    assert extract(list_folder(photos), Colours(), tmp_path / "out").n_kept == 21


def test_folders_that_cannot_be_written_to_are_refused(photos, tmp_path):
    with pytest.raises(InputError, match="is not a folder. Make it first"):
        extract(list_folder(photos), Colours(), tmp_path / "none" / "out")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file"):
        extract(list_folder(photos), Colours(), tmp_path / "file")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "other.parquet").touch()
    with pytest.raises(InputError, match="holds other.parquet, which no extraction wrote"):
        extract(list_folder(photos), Colours(), tmp_path / "mine")


@pytest.mark.parametrize("damage", [b"", b"PAR1 no PAR1", None])
def test_a_damaged_part_is_refused(photos, tmp_path, damage):
    extract(list_folder(photos), Colours(), tmp_path / "out")
    part = tmp_path / "out" / "part-000000.parquet"
    if damage is None:
        pq.write_table(pq.read_table(part).replace_schema_metadata(None), part)
    else:
        part.write_bytes(damage)
    with pytest.raises(InputError, match="is damaged or no part of an extraction"):
        extract(list_folder(photos), Colours(), tmp_path / "out")


def test_half_written_parts_of_a_killed_run_are_removed(photos, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / f"{atomic._prefix()}1-0123456789abcdef.partial").write_bytes(b"half")
    extract(list_folder(photos), Colours(), tmp_path / "out")
    assert not list((tmp_path / "out").glob(".*.partial"))


RUN = """
import sys
from pathlib import Path
from p3dc.images.extraction import extract
from p3dc.images.sources import list_folder
from tests.images.test_extraction import Colours

files = list_folder(Path(sys.argv[1]))
extract(files, Colours(pause=float(sys.argv[3])), Path(sys.argv[2]), part_rows=4, batch=2, workers=2)
"""


def start(photos, out, pause=0.0, before=""):
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", before + RUN, str(photos), str(out), str(pause)]
    return subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE)


def test_killed_at_any_moment_it_continues(tmp_path):
    photos = make_photos(tmp_path / "photos", n_classes=3, n_each=14)
    extract(list_folder(photos), Colours(), tmp_path / "whole", part_rows=4, batch=2)
    expected = contents(tmp_path / "whole")
    rng = random.Random(5)
    out = tmp_path / "out"
    killed = 0
    while True:
        process = start(photos, out, pause=0.03)
        goal = len(list(out.glob("part-*.parquet"))) + rng.randint(0, 5)
        while process.poll() is None and len(list(out.glob("part-*.parquet"))) < goal:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.1))
        process.kill()
        process.communicate()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL
        killed += 1
        for name, content in contents(out).items():
            assert name.startswith((".", "extraction")) or content == expected[name]
    assert killed >= 2
    assert contents(out) == expected


def test_a_full_disk_leaves_no_half_part(tmp_path):
    photos = make_photos(tmp_path / "photos")
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))\n"
    process = start(photos, tmp_path / "out", before=limit)
    _, report = process.communicate()
    assert process.returncode == 1
    assert b"OSError" in report
    assert sorted(contents(tmp_path / "out")) == ["extraction.json"]
    done = extract(list_folder(photos), Colours(), tmp_path / "out", part_rows=4, batch=2)
    assert done.n_rows == 18


def test_an_error_of_the_backbone_keeps_the_parts_before_it(photos, tmp_path):
    class Broken(Colours):
        def _embed(self, batch):
            if sum(self.batches) > 12:
                raise RuntimeError("no memory")
            return super()._embed(batch)

    with pytest.raises(RuntimeError, match="no memory"):
        extract(list_folder(photos), Broken(), tmp_path / "out", part_rows=4)
    assert json.loads((tmp_path / "out" / extraction.SUMMARY).read_text())["complete"] is False
    assert extract(list_folder(photos), Colours(), tmp_path / "out", part_rows=4).n_kept == 12


def test_beside_an_accelerator_processes_read(tmp_path, monkeypatch):
    monkeypatch.setattr(extraction_parts, "MANY", 5)
    make_photos(tmp_path / "photos")
    files = list(list_folder(tmp_path / "photos"))
    backbone = Colours()
    backbone.step = GPU_STEP
    done = extract(files, backbone, tmp_path / "there", workers=2)
    here = extract(files, Colours(), tmp_path / "here", workers=2)
    assert backbone.batches == [done.n_rows], "whole batches"
    assert done.failures == here.failures
    np.testing.assert_array_equal(FeatureSet.load(done.folder).features, FeatureSet.load(here.folder).features)
