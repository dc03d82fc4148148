"""Extraction on a Ray cluster: the files are those of one process, even if a worker dies."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from p3dc.cluster.extraction import _packed, _PartWriter, extract
from p3dc.errors import InputError
from p3dc.images.extraction import LOCK
from p3dc.images.extraction import extract as extract_here
from p3dc.images.extraction_parts import maker_of
from p3dc.images.sources import ImageFile, list_folder, list_images
from tests.cluster.conftest import Gate, until
from tests.images.test_extraction import Colours, contents, make_photos
from tests.stores import photo, write_zip

PARTS = {"part_rows": 4, "batch": 2}


def load(threads, **options):
    assert threads == 1
    return Colours(**options)


class Gated(Colours):
    """Stops before it embeds until the gate is open."""

    def __init__(self, gate: Gate):
        super().__init__()
        self.gate = gate

    def _embed(self, batch):
        self.gate.pass_through()
        return super()._embed(batch)


def load_gated(gate, threads):
    return Gated(gate)


@pytest.fixture
def photos(tmp_path):
    return make_photos(tmp_path / "photos")


@pytest.fixture
def expected(photos, tmp_path):
    """What one process writes."""
    done = extract_here(list_folder(photos), Colours(), tmp_path / "expected", **PARTS)
    return done, contents(done.folder)


@pytest.mark.ray
def test_the_files_are_those_of_one_process(two_workers, photos, tmp_path, expected):
    calls = []
    done = extract(list_folder(photos), load, tmp_path / "out", **PARTS, progress=lambda *seen: calls.append(seen))
    here, files = expected
    assert contents(tmp_path / "out") == files
    assert (done.n_files, done.n_rows, done.n_kept) == (21, 18, 0)
    assert done.failures == here.failures
    assert [n_done for n_done, _ in calls] == sorted(n_done for n_done, _ in calls)
    assert len(calls) == 6
    assert calls[-1] == (21, 21)


@pytest.mark.ray
def test_either_engine_finishes_what_the_other_began(two_workers, photos, tmp_path, expected):
    here, files = expected
    for number in (1, 4):
        (here.folder / f"part-{number:06}.parquet").unlink()
    kept = here.folder / "part-000002.parquet"
    before = kept.stat()
    done = extract(list_folder(photos), load, here.folder, **PARTS)
    assert contents(here.folder) == files
    assert done.n_kept == 13
    assert os.path.samestat(before, kept.stat())
    assert extract_here(list_folder(photos), Colours(), here.folder, **PARTS).n_kept == 21


@pytest.mark.ray
def test_what_one_process_refuses_is_refused(two_workers, photos, tmp_path, expected):
    here, _ = expected
    listed = list(list_folder(photos))
    (here.folder / "part-000001.parquet").unlink()
    for some, digest, sentence in (
        (listed, "c1", r"of another backbone: colours \(c0\), not colours \(c1\)"),
        (listed[::-1], "c0", "was extracted from another list of images"),
        (listed[:9], "c0", "was extracted from a longer list of images"),
    ):
        with pytest.raises(InputError, match=sentence):
            extract(some, partial(load, digest=digest), here.folder, **PARTS)
        assert not (here.folder / "part-000001.parquet").exists()


@pytest.mark.ray
def test_a_killed_worker_loses_no_row_and_doubles_none(two_workers, photos, tmp_path, expected, gate, meanwhile):
    running = meanwhile(extract, list_folder(photos), partial(load_gated, gate), tmp_path / "out", **PARTS)
    (_, pid), _ = gate.waiting(2)
    os.kill(pid, signal.SIGKILL)
    gate.open()
    assert running.result().n_kept == 0
    assert contents(tmp_path / "out") == expected[1]


RUN = """
import sys
from functools import partial
from pathlib import Path
from p3dc.cluster.connection import connected
from p3dc.cluster.extraction import extract
from p3dc.images.sources import list_folder
from tests.cluster.test_extraction import PARTS, load

with connected():
    extract(list_folder(Path(sys.argv[1])), partial(load, pause=0.5), Path(sys.argv[2]), **PARTS)
"""


@pytest.mark.ray
def test_a_killed_driver_leaves_what_another_run_finishes(photos, tmp_path, expected):
    out = tmp_path / "out"
    command = [sys.executable, "-c", RUN, str(photos), str(out)]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2])
    until(lambda: list(out.glob("part-*.parquet")))
    process.kill()
    assert process.wait() == -signal.SIGKILL
    done = extract_here(list_folder(photos), Colours(), out, **PARTS)
    assert 1 <= done.n_kept <= 20
    found = contents(out)
    for left in [name for name in found if name.startswith(".p3dc-")]:  # of a worker that outlived its driver
        del found[left]
    assert found == expected[1]


def test_a_machine_that_does_not_see_the_files_says_so(tmp_path):
    worker = _PartWriter(tmp_path, maker_of(Colours(), 4), load, batch=2, cpus=1)
    part, files = tmp_path / "part-000000.parquet", [ImageFile(tmp_path / "a.jpg", "a.jpg", None)]
    with pytest.raises(InputError, match=f"does not see {tmp_path}. Share images and features"):
        worker.work(part, files, seen=True)
    (tmp_path / LOCK).touch()
    with pytest.raises(InputError, match=f"does not see {tmp_path / 'a.jpg'}. Share images and features"):
        worker.work(part, files, seen=True)
    assert not part.exists()
    assert [key for key, _ in worker.work(part, files, seen=False)] == ["a.jpg"]


def test_an_archive_that_a_machine_does_not_see_is_no_list_of_failures(tmp_path):
    path = write_zip(tmp_path / "a.zip", {"1.png": photo()})
    row = _packed(0, list(list_images(path))).to_pydict()
    (tmp_path / LOCK).touch()
    path.unlink()
    worker = _PartWriter(tmp_path, maker_of(Colours(), 4), load, batch=2, cpus=1)
    outcome = worker({name: list(column) for name, column in row.items()})["outcome"][0]
    assert f"does not see {path}/1.png" in json.loads(outcome)["error"]


def test_a_machine_with_another_network_says_so(tmp_path):
    (tmp_path / "a.jpg").touch()
    (tmp_path / LOCK).touch()
    worker = _PartWriter(tmp_path, maker_of(Colours(digest="c1"), 4), load, batch=2, cpus=1)
    with pytest.raises(InputError, match="has another colours. Install the same on every machine"):
        worker.work(tmp_path / "part-000000.parquet", [ImageFile(tmp_path / "a.jpg", "a.jpg", None)], seen=True)
