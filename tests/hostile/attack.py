"""Damage files many times and count what comes of it, in a process of its own.

Run ``python -m tests.hostile.attack SEED N KIND...`` for N damaged files of each kind, or with 0 for N to flip every
bit once. The process has 3 GB, and 20 s of processor time for each file, so that
a busy machine makes no hang. It prints a JSON list of [kind, damage, outcome, number].
"""

import json
import resource
import signal
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

from p3dc.errors import InputError
from tests.hostile.damage import KINDS as DAMAGES
from tests.hostile.damage import damage, flip
from tests.hostile.files import KINDS

MOST_BYTES, MOST_SECONDS = 3 * 10**9, 20


class HangError(BaseException):
    """A file that takes too long."""


def _stop(*_):
    raise HangError


def outcome(kind, path, sound):
    """What comes of reading a file: refused, the same as the sound file, other content, a hang or a traceback."""
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        return "the same" if repr(kind.read(path)) == sound else "other content"
    except InputError as error:
        return "refused" if len(str(error)) < 2000 else "a sentence without end"
    except HangError:
        return "hang"
    except Exception as error:
        return f"traceback: {type(error).__name__}: {error!s:.200}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def damaged_files(content, seed, n):
    """Yield damaged content with what was done to it."""
    if not n:
        yield from (("every single bit", flip(content, bit)) for bit in range(8 * len(content)))
    rng = np.random.default_rng(seed)
    for number in range(n):
        how = list(DAMAGES)[number % len(DAMAGES)]
        damaged = damage(content, how, rng)
        if damaged != content:
            yield how, damaged


def attack(name, seed, n):
    """Count the outcomes of damaged files of a kind, by what was done to them."""
    kind, counts = KINDS[name], Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{kind.ending}"
        kind.write(path)
        content, sound = path.read_bytes(), repr(kind.read(path))
        for how, damaged in damaged_files(content, seed, n):
            path.write_bytes(damaged)
            counts[how, outcome(kind, path, sound)] += 1
    return counts


def main():
    seed, n, *names = sys.argv[1:]
    warnings.simplefilter("error")
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    signal.signal(signal.SIGPROF, _stop)
    counts = {name: attack(name, int(seed), int(n)) for name in names}
    rows = [[name, *key, number] for name, found in counts.items() for key, number in sorted(found.items())]
    print(json.dumps(rows))  # noqa: T201


if __name__ == "__main__":
    main()
