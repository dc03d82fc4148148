"""Large priors under a hard limit of memory: ``python -m benchmarks.large FOLDER [--tasks 2000] [--limit 4]``.

Generates 1,000,000 rows of 2,048 features in 21,000 base classes (8.2 GB of Parquet parts) and 60,000 rows of 100 novel
classes in FOLDER, unless they are there, and then runs each command in a process whose address space is limited to so
many gigabytes. It prints the peak of resident memory, the time and the processor time of both cores.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

N_ROWS, N_BASE, N_FEATURES, N_NOVEL, N_KINDS = 1_000_000, 21_000, 2048, 100, 1000
PART = 20_000
P3DC = ("-m", "p3dc")
Float32 = npt.NDArray[np.float32]

FIT = """
import sys
import numpy as np
from p3dc import FeatureSet, P3DCClassifier, Priors
priors, novel = Priors.load(sys.argv[1]), FeatureSet.load(sys.argv[2])
support = np.flatnonzero(np.arange(len(novel)) % 600 < 5)
queries = np.flatnonzero(np.arange(len(novel)) % 600 >= 580)
found = P3DCClassifier(priors).fit(novel.features[support], novel.labels[support]).predict(novel.features[queries])
print(f"{100 * np.mean(found == novel.labels[queries]):.1f} % of {len(queries):,} queries right, 100 ways, 5 shots")
"""


def make_classes(rng: np.random.Generator, kinds: Float32, n_classes: int) -> Float32:
    """Make classes of a thousand kinds; those of one kind have most of their mean in common."""
    own = rng.standard_gamma(0.5, size=(n_classes, kinds.shape[1]), dtype=np.float32)
    own *= 0.08
    own += 0.15 * kinds[rng.integers(len(kinds), size=n_classes)]
    own += 0.4
    return own


def make_rows(rng: np.random.Generator, classes: Float32, labels: npt.NDArray[np.int64]) -> Float32:
    rows = rng.standard_exponential(size=(len(labels), classes.shape[1]), dtype=np.float32)
    rows *= classes[labels]
    return rows


def make(folder: Path) -> None:
    rng = np.random.default_rng(0)
    kinds = rng.standard_gamma(0.5, size=(N_KINDS, N_FEATURES), dtype=np.float32)
    classes = make_classes(rng, kinds, N_BASE)
    each = rng.permutation(np.arange(N_ROWS) % N_BASE)
    (folder / "base").mkdir()
    for start in range(0, N_ROWS, PART):
        labels = each[start : start + PART]
        rows = pa.FixedSizeListArray.from_arrays(pa.array(make_rows(rng, classes, labels).ravel()), N_FEATURES)
        names = pa.array([f"base-{label}" for label in labels])
        part = folder / "base" / f"{start // PART:03}.parquet"
        table = pa.table({"embedding": rows, "label": names})
        pq.write_table(table, part, use_dictionary=["label"], compression="none")
    labels = np.repeat(np.arange(N_NOVEL), 600)
    rows = make_rows(rng, make_classes(rng, kinds, N_NOVEL), labels)
    np.savez(folder / "novel.npz", features=rows, labels=labels, class_names=[f"novel-{c}" for c in range(N_NOVEL)])


def measure(title: str, command: list[str], limit: float) -> None:
    start = time.perf_counter()
    bound = int(limit * 10**9)
    with subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (bound, bound)),
    ) as child:
        assert child.stdout is not None
        output = child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    elapsed = time.perf_counter() - start
    processor = used.ru_utime + used.ru_stime
    print(f"{title:<28}{used.ru_maxrss * 1024 / 1e9:>9.2f}{elapsed:>9.0f}{processor:>14.0f}{child.returncode:>8}")
    print(*(f"    {line.rstrip()}" for line in output.splitlines() if line.strip()), sep="\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--limit", type=float, default=4, help="gigabytes of address space")
    given = parser.parse_args()
    base, novel, priors = (given.folder / name for name in ("base", "novel.npz", "priors.safetensors"))
    if not novel.exists():
        make(given.folder)
    evaluate = [*P3DC, "evaluate", "--base", priors, "--novel", novel, "--method", "p3dc", "--tasks", given.tasks]
    steps: dict[str, list[object]] = {
        "priors": [*P3DC, "priors", base, "--out", priors],
        "evaluate, 1 shot": evaluate,
        "evaluate, 5 shots": [*evaluate, "--shot", 5],
        "evaluate, 1 shot, both": [*evaluate, "--auto"],
        "evaluate, 5 shots, both": [*evaluate, "--auto", "--shot", 5],
        "fit and predict, auto": ["-c", FIT, priors, novel],
    }
    print(f"{'what':<28}peak (GB) time (s) processor (s)  status", flush=True)
    for title, command in steps.items():
        measure(title, list(map(str, command)), given.limit)


if __name__ == "__main__":
    main()
