import signal
import subprocess
import sys
import textwrap
import time

import pytest

from p3dc import Priors
from p3dc.files import write_json


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
