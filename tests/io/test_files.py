import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from p3dc import Priors
from p3dc.errors import InputError
from p3dc.io.atomic import check_folder, remove_temporaries, replacing, write_json
from p3dc.io.safetensors import content_digest, read_arrays, write_arrays


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(TypeError, match="set"):
        write_json(path, {"good": 1, "bad": {1, 2}})
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_written_file_has_the_permissions_of_any_other(tmp_path):
    (tmp_path / "plain.txt").touch()
    write_json(tmp_path / "file.json", {"a": 1})
    assert (tmp_path / "file.json").stat().st_mode == (tmp_path / "plain.txt").stat().st_mode


def test_the_permissions_of_an_old_file_stay(tmp_path):
    path = tmp_path / "file.json"
    for mode in (0o600, 0o640, 0o644, 0o755):
        path.touch()
        path.chmod(mode)
        write_json(path, mode)
        assert path.stat().st_mode & 0o777 == mode
        path.unlink()


def test_a_read_only_file_is_not_replaced(tmp_path):
    path = tmp_path / "file.json"
    path.write_text("old")
    path.chmod(0o444)
    with pytest.raises(InputError, match="it is read-only. Make it writable, or give another name"):
        write_json(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_mask_of_the_process_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("other threads make files too"))
    write_json(tmp_path / "file.json", 1)


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_what_it_points_to_is_written(tmp_path, exists):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "real.json", tmp_path / "link.json"
    if exists:
        target.write_text("old")
    link.symlink_to(target)
    write_json(link, "new")
    assert link.is_symlink()
    assert json.loads(target.read_text()) == "new"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["link.json", "real.json", "there"]


def test_a_long_name_can_be_written(tmp_path):
    path = tmp_path / f"{'x' * 240}.json"
    write_json(path, 1)
    assert json.loads(path.read_text()) == 1


def test_folders_are_flushed_only_where_they_can_be(tmp_path, monkeypatch):
    opened = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, *rest: (opened.append(path), real(path, *rest))[1])
    write_json(tmp_path / "file.json", 1)
    assert tmp_path in opened
    opened.clear()
    with replacing(tmp_path / "file.json"):
        monkeypatch.setattr(os, "name", "nt")
    monkeypatch.setattr(os, "name", "posix")
    assert tmp_path not in opened


def test_paths_that_cannot_be_written_are_refused_before_any_work(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="gone is not a folder. Make it first"):
        check_folder(tmp_path / "gone" / "file.json")
    with pytest.raises(InputError, match="it is a folder. Give the name of a file in it"):
        check_folder(tmp_path)
    with pytest.raises(InputError, match="not an ordinary file"):
        check_folder(os.devnull)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match="may not be written to. Choose another folder"):
        check_folder(tmp_path / "file.json")


def test_numbers_that_json_does_not_have_become_null(tmp_path):
    content = {"a": [1.5, float("nan"), (float("inf"), -float("inf"))], "b": np.float64("nan"), "c": {"d": 2}}
    write_json(tmp_path / "file.json", content)

    def refuse(constant):
        pytest.fail(f"{constant} is not JSON")

    found = json.loads((tmp_path / "file.json").read_text(), parse_constant=refuse)
    assert found == {"a": [1.5, None, [None, None]], "b": None, "c": {"d": 2}}


def test_half_characters_are_refused_and_leave_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    for write in (lambda: write_json(path, ["a\ud800"]), lambda: write_arrays(path, "x", 1, {}, {"a": "\ud800"})):
        with pytest.raises(InputError, match=r"half a character in .*\\ud800.* cannot be saved"):
            write()
    assert path.read_text() == "old"


def test_whatever_makes_arrays_unreadable_is_explained_in_one_sentence(tmp_path):
    path = tmp_path / "file.safetensors"

    def write(dtype="F32", facts="{}", shape=(1,), ends=4):
        entry = {"dtype": dtype, "shape": shape, "data_offsets": [0, ends]}
        header = {"format": "p3dc-x", "version": "1", "facts": facts}
        header["digest"] = content_digest(header, {"a": np.zeros(1, dtype=np.float32)})
        text = json.dumps({"__metadata__": header, "a": entry}).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(ends))

    def read():
        return read_arrays(path, "x", 1, required=["a"], facts=[])

    write()
    assert read()[0]["a"].tolist() == [0]
    for change in (
        {"dtype": "BF16", "ends": 2},
        {"dtype": "F8_E4M3", "ends": 1},
        {"dtype": "nonsense"},
        {"shape": (2**40,)},
        {"facts": "["},
        {"facts": "[" * 100_000},
    ):
        write(**change)
        with pytest.raises(InputError, match="is damaged or is not a safetensors file"):
            read()
    write()
    path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:])
    with pytest.raises(InputError, match="is damaged"):
        read()


@pytest.mark.parametrize("attempt", range(5))
def test_a_killed_process_leaves_the_old_file_or_the_new_one(tmp_path, attempt):
    path = tmp_path / "priors.safetensors"
    script = textwrap.dedent(
        f"""
        import numpy as np
        from p3dc import Priors
        versions = [Priors(np.full((2000, 500), value)) for value in (1.0, 2.0)]
        for i in range(10_000):
            versions[i % 2].save({str(path)!r})
            print(i, flush=True)
        """
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        time.sleep(0.02 + 0.013 * attempt)
        process.send_signal(signal.SIGKILL)
    found = Priors.load(path).prototypes
    assert found.min() == found.max()
    assert found[0, 0] in (1.0, 2.0)


WRITE = """
import sys, time
from p3dc.io.atomic import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.write_text("half")
    print(temporary.name, flush=True)
    time.sleep(60)
"""


def start_writing(path):
    process = subprocess.Popen([sys.executable, "-c", WRITE, str(path)], stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def test_what_a_killed_process_left_is_removed_and_what_a_live_one_writes_is_not(tmp_path):
    dead, left = start_writing(tmp_path / "a.json")
    live, kept = start_writing(tmp_path / "b.json")
    foreign = [".p3dc-another.host-1-0123.partial", ".0123.partial", "notes.partial"]
    for name in foreign:
        (tmp_path / name).touch()
    with dead, live:
        dead.kill()
        dead.wait()
        assert {left, kept} <= {path.name for path in tmp_path.iterdir()}
        write_json(tmp_path / "c.json", 1)
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([kept, *foreign, "c.json"])
        live.kill()
    write_json(tmp_path / "c.json", 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*foreign, "c.json"])


def test_threads_that_write_to_one_folder_do_not_sweep_each_other(tmp_path):
    def write(number):
        for turn in range(20):
            write_json(tmp_path / f"{number}.json", [number, turn])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{number}.json" for number in range(8)]
    assert all(json.loads((tmp_path / f"{number}.json").read_text()) == [number, 19] for number in range(8))


def test_a_file_swept_before_it_was_locked_is_made_again(tmp_path, monkeypatch):
    real, lost = fcntl.flock, []

    def lock(handle, how):
        if not lost:
            lost.extend(tmp_path.glob(".p3dc-*"))
            lost[0].unlink()
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", lock)
    write_json(tmp_path / "file.json", 1)
    assert len(lost) == 1
    assert json.loads((tmp_path / "file.json").read_text()) == 1


def test_a_child_process_leaves_the_temporary_files_of_its_parent(tmp_path):
    with replacing(tmp_path / "file") as temporary:
        temporary.write_text("new")
        pid = os.fork()
        if not pid:
            remove_temporaries()
            os._exit(0)
        os.waitpid(pid, 0)
    assert (tmp_path / "file").read_text() == "new"


def test_the_same_arrays_and_facts_give_the_same_bytes(tmp_path):
    """The header is sorted in place, so its length must not change, whatever is in it."""
    facts = {"text": 'é\n\x1f\x7f\u2028\\"/😀', "number": 1e-300}
    made = set()
    for number in range(12):
        path = tmp_path / f"{number}"
        write_arrays(path, "x", 1, {"a": np.arange(3.0), "ä": np.ones(2, np.float32)}, facts)
        made.add(path.read_bytes())
        arrays, found = read_arrays(path, "x", 1, required=["a", "ä"], facts=["text", "number"])
        assert found == facts
        assert arrays["a"].tolist() == [0, 1, 2]
    assert len(made) == 1
