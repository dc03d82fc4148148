"""Folders that appear whole or not at all."""

import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from p3dc.io.atomic import making_folder, replacing


def names(folder):
    return [path.name for path in folder.iterdir()]


def test_a_folder_appears_when_it_is_filled(tmp_path):
    with making_folder(tmp_path / "made") as temporary:
        (temporary / "inner").mkdir()
        (temporary / "inner" / "file").write_text("whole")
        assert not (tmp_path / "made").exists()
    assert (tmp_path / "made" / "inner" / "file").read_text() == "whole"
    assert names(tmp_path) == ["made"]


def test_a_folder_whose_filling_failed_is_removed(tmp_path):
    with suppress(ZeroDivisionError), making_folder(tmp_path / "made") as temporary:
        (temporary / "file").write_text("half")
        raise ZeroDivisionError
    assert names(tmp_path) == []


FILL = """
import sys, time
from p3dc.cli.signals import handling_signals
from p3dc.io.atomic import making_folder
with handling_signals(), making_folder(sys.argv[1]) as temporary:
    (temporary / "file").write_text("half")
    print("filling", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_folder_that_was_being_filled_is_removed_by_a_signal_or_by_the_next_writer(tmp_path, number):
    command = [sys.executable, "-c", FILL, str(tmp_path / "made")]
    # started under nohup, it would inherit that SIGHUP is ignored
    reset = lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)  # noqa: E731
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=reset) as process:
        assert process.stdout.readline() == "filling\n"
        with replacing(tmp_path / "other") as temporary:
            temporary.write_text("other")
        assert len(names(tmp_path)) == 2, "it is locked for as long as its process lives"
        process.send_signal(number)
    if number == signal.SIGKILL:
        with replacing(tmp_path / "other") as temporary:
            temporary.write_text("other")
    assert names(tmp_path) == ["other"]
