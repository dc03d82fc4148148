"""Damaged files: those that the package wrote are refused or read as they were; others never end in a traceback."""

import json
import os
import subprocess
import sys

import pytest

from p3dc.errors import InputError
from tests.hostile.files import KINDS

OWN = [name for name, kind in KINDS.items() if kind.own]
SEEDS = range(int(os.environ.get("P3DC_CAMPAIGN_SEEDS", "12")))


def rows_of(seed, n, names):
    """Attack in another process, which a crash ends."""
    command = [sys.executable, "-m", "tests.hostile.attack", str(seed), str(n), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3000)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-2000:]}"
    return json.loads(done.stdout.splitlines()[-1])


def check(rows):
    """Fail on tracebacks and hangs, and on damage that was read from a file that has a digest."""
    allowed = {True: {"refused", "the same"}, False: {"refused", "the same", "other content"}}
    assert [row for row in rows if row[2] not in allowed[KINDS[row[0]].own]] == []


def test_damaged_files_are_refused_or_harmless():
    rows = rows_of(0, 210, KINDS)
    check(rows)
    assert sum(number for *_, number in rows) > 180 * len(KINDS)


def test_damaged_names_in_the_directory_of_an_npz_are_refused(tmp_path):
    """Renamed digests would not be checked, and renamed ids would be missing."""
    path = tmp_path / "features.npz"
    KINDS["features, npz"].write(path)
    content = path.read_bytes()
    for names in (["digests"], ["digests", "ids"], ["digests", "views"]):
        damaged = content
        for name in names:
            place = damaged.rindex(f"{name}.npy".encode())
            damaged = damaged[:place] + b"x" + damaged[place + 1 :]
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="is damaged"):
            KINDS["features, npz"].read(path)


@pytest.mark.campaign
@pytest.mark.parametrize("name", OWN)
def test_every_flipped_bit_is_refused_or_harmless(name, count):
    rows = rows_of(0, 0, [name])
    for _, _, outcome, number in rows:
        count("every single bit", name, outcome, number)
    check(rows)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", KINDS)
def test_much_damage_is_refused_or_harmless(name, seed, count):
    rows = rows_of(1 + seed, 7000, [name])
    for _, _, outcome, number in rows:
        count("random damage", name, outcome, number)
    check(rows)
