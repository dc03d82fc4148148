"""What reaches the terminal and the shell: no tracebacks, no escape sequences, no endless sentences, right statuses."""

import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from PIL import Image

from p3dc.cli.shared import LONGEST, printable, tell

PROGRAM = [sys.executable, "-m", "p3dc"]


@pytest.mark.parametrize("delay", [0.15, 0.4, 0.8])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_imports_ends_the_program_in_silence(number, delay):
    """The interpreter's own start, before the package is reached, is left out."""
    begin = "import os; from p3dc.cli import main; os.write(1, b'.'); main()"
    command = [sys.executable, "-c", begin, "reproduce", "missing", "--out", "out"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(1)
        time.sleep(delay / 4)
        process.send_signal(number)
        _, errors = process.communicate()
    assert process.returncode in (128 + number, 2)
    assert b"Traceback" not in errors


@pytest.mark.parametrize(("last", "status"), [("    time.sleep(60)", 130), ("time.sleep(1)", 0)])
def test_a_command_that_loses_an_interrupt_is_ended(last, status):
    """A library may swallow the exception, or be left with a lock that nobody releases."""
    program = f"""
import os, signal, time
from p3dc.cli import signals
signals.GRACE = 0.5
with signals.handling_signals() as begin:
    begin()
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    except KeyboardInterrupt:
        pass
{last}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (status, "")


def test_a_signal_that_is_ignored_stays_ignored():
    begin = (
        "import os, signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); from p3dc.cli import main;"
        "os.kill(os.getpid(), signal.SIGHUP); main()"
    )
    done = subprocess.run([sys.executable, "-c", begin, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_command_in_a_thread_leaves_signals_alone(monkeypatch):
    from p3dc.cli import main

    monkeypatch.setattr(sys, "argv", ["p3dc", "--version"])
    statuses = []

    def call():
        try:
            main()
        except SystemExit as stop:
            statuses.append(stop.code)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert statuses == [0]


def test_escape_sequences_in_names_do_not_reach_the_terminal(photos, network, tmp_path):
    model = tmp_path / "model.safetensors"
    (photos / "teal").rename(photos / "te\x1b[2Jal")
    (photos / "rust" / "a\x1b]0;title\x07.png").write_bytes(b"no image")
    commands = (
        ["fit", photos, "--out", model, "--backbone", network],
        ["predict", model, photos, "--backbone", network],
        ["label", photos, photos, "--backbone", network],
    )
    for command in commands:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*PROGRAM, *map(str, command)], stdout=theirs, stderr=theirs, env=os.environ | {"TERM": "dumb"}
        )
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 65536):
                shown += piece
        except OSError:  # the other side is closed
            pass
        assert process.wait() == 0, shown
        assert b"te\\x1b[2Jal" in shown
        assert b"\x1b[2J" not in shown
        assert b"\x1b]0;" not in shown


def test_names_in_a_pipe_are_the_names_themselves(p3dc, photos, network, fitted):
    (photos / "teal" / "0.png").rename(photos / "teal" / "\x1b[2J.png")
    _, output, _ = p3dc("predict", fitted, photos, "--backbone", network)
    assert "\x1b[2J.png" in output


def test_letters_of_all_languages_are_printable():
    for text in ("näht", "深い 海", "नमस्ते", "👩‍👩‍👧", "a\u00a0b\u3000c", "two\nlines"):
        assert printable(text) == text
    for text in ("\x1b", "\x07", "\r", "\x9b", "\u202e", "\u2028", "\x7f"):
        assert printable(text).isascii()
        assert printable(text).isprintable()


def test_a_long_message_keeps_its_beginning_and_its_end(capsys):
    tell("The name " + "x" * 69_000 + " is wrong. Rename it.")
    tell("short\nforged")
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("p3dc: The name xxx")
    assert first.endswith("x is wrong. Rename it.")
    assert len(first) < LONGEST + 20
    assert second == r"p3dc: short\nforged"


def test_libtiff_writes_nothing(tmp_path, rng):
    path = tmp_path / "bad.tif"
    Image.fromarray(rng.integers(0, 255, (200, 200, 3), dtype=np.uint8)).save(path, compression="tiff_lzw")
    damaged = bytearray(path.read_bytes())
    damaged[2000:2400] = rng.integers(0, 255, 400, dtype=np.uint8).tobytes()
    path.write_bytes(damaged)
    script = f"from p3dc.images.decoding import read_image; read_image({str(path)!r})"
    plain = f"from PIL import Image; Image.open({str(path)!r}).load()"
    noisy, quiet = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True) for code in (plain, script)
    )
    assert "code not yet in table" in noisy.stderr
    assert "ImageError" in quiet.stderr
    assert "code not yet in table" not in quiet.stderr


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_a_full_disk_is_reported_with_the_file(photos, network, fitted, tmp_path, command):
    out = tmp_path / "full.safetensors"
    arguments = {"fit": ["fit", photos, "--out", out], "predict": ["predict", fitted, photos, "--csv", out]}[command]
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); from p3dc.cli import main; main()"
    line = [sys.executable, "-c", limit, *map(str, arguments), "--backbone", str(network)]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert str(out) in done.stderr
    assert not out.exists()
    assert not list(tmp_path.glob(".p3dc-*"))


def test_predict_without_a_readable_photo_leaves_the_old_csv(p3dc, fitted, network, tmp_path):
    old, bad = tmp_path / "old.csv", tmp_path / "bad.png"
    old.write_text("old")
    bad.write_bytes(b"no image")
    status, _, errors = p3dc("predict", fitted, bad, "--csv", old, "--backbone", network)
    assert status == 2
    assert "none of the 1 photos could be read" in errors
    assert old.read_text() == "old"
    status, _, errors = p3dc("label", tmp_path / "photos", bad, "--csv", old, "--backbone", network)
    assert status == 2
    assert old.read_text() == "old"


def test_add_refuses_a_read_only_model(p3dc, fitted, photos, network, tmp_path):
    more = tmp_path / "more" / "new"
    shutil.copytree(photos / "teal", more)
    before = fitted.read_bytes()
    fitted.chmod(0o444)
    status, _, errors = p3dc("add", fitted, more.parent, "--backbone", network)
    assert status == 2
    assert "it is read-only. Make it writable" in errors
    assert fitted.read_bytes() == before


def test_the_same_photos_give_the_same_bytes(p3dc, photos, network, tmp_path):
    made = []
    for number in range(6):
        out = tmp_path / f"{number}.safetensors"
        assert p3dc("fit", photos, "--out", out, "--backbone", network)[0] == 0
        made.append(out.read_bytes())
    assert len(set(made)) == 1


def test_a_grid_that_no_memory_holds_is_refused(p3dc):
    for options in (["--step", 0.0001], ["--step", 1e-300], ["--margin", 1e300]):
        status, _, errors = p3dc("search", "--base", "missing.npz", *options)
        assert (status, errors.count("\n")) == (2, 1)


def test_a_scale_is_refused_where_it_would_be_ignored(p3dc):
    for auto in (["--auto"], ["--method", "auto"]):
        status, _, errors = p3dc("evaluate", "--base", "b.npz", "--novel", "n.npz", "--scale", 2, *auto)
        assert status == 2
        assert "--scale is 2, but --auto chooses a scale for each task" in errors
