"""How fast tasks are scored on a device, and how far that is from what its memory bandwidth allows.

``python -m benchmarks.gpu [--device cuda]`` generates its own features: 640 of them, 20 classes of 600 rows, tasks of 5
ways and 15 queries. Features, tables and the rows of the tasks are on the device before the clock starts; each time is
the median of several runs after two warm-ups, with the device synchronised before and after. On the CPU sizes are
small, only to check that it runs.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.made import make_features
from benchmarks.speed import PLAIN, plain_scores
from p3dc import FeatureSet, P3DCClassifier, Priors, evaluate, search
from p3dc.adaptive.settings import Settings
from p3dc.evaluation.search import grid
from p3dc.scoring.device_memory import Device, open_device
from p3dc.scoring.task_scorer import TaskScorer, task_scorer
from p3dc.tasks import Tasks, TaskSampler

REPEAT = 7
FLOAT = 8  # bytes
SECTOR = 32  # bytes that a GPU reads where it needs one number
POINT = np.array([[0.0, 0.9]])
PAPER: dict[str, Any] = {"alpha": 0.0, "beta": 0.9, "space": "plain"}


class Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call, unused-ignore]
    """Count the bytes that the steps of a computation read and write."""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        views = any(each.alias_info and not each.alias_info.is_write for each in func._schema.returns)
        if views or "view" in str(func) or "empty" in str(func):
            return found
        written = tensors(found)
        read = tensors(args) + tensors(kwargs or {})
        if "index.Tensor" in str(func):  # reads as much of the source as it writes
            read = read[1:] + written
        self.total += sum(map(distinct_bytes, read + written))
        return found


def tensors(values: Any) -> list[torch.Tensor]:
    """List the tensors in arguments."""
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, dict):
        values = values.values()
    return [found for each in values for found in tensors(each)] if isinstance(values, list | tuple) else []


def distinct_bytes(values: torch.Tensor) -> int:
    """Count bytes once where a tensor repeats them."""
    sizes = [size for size, stride in zip(values.shape, values.stride(), strict=True) if stride]
    return int(np.prod(sizes) * values.element_size())


class Bench:
    """One device, with features, priors and tasks on it."""

    def __init__(self, device: Device) -> None:
        self.device, self.gpu = device, device.torch.type == "cuda"
        self.n_tasks, n_rows = (100_000, 600) if self.gpu else (300, 40)
        self.n_grid = 10_000 if self.gpu else 50
        self.novel = make_features(0, n_classes=20, n_rows=n_rows)
        self.priors = {n: Priors.from_features(make_features(n, n_classes=n, n_rows=20)) for n in (64, 1000)}
        self.tasks = {n_shot: self.sampler(n_shot).draw(self.n_tasks) for n_shot in (1, 5)}

    def sampler(self, n_shot: int) -> TaskSampler:
        return TaskSampler(self.novel.labels, n_way=5, n_shot=n_shot, n_query=15, seed=0)

    def on_device(self, n_shot: int, n_tasks: int) -> Tasks:
        """Move the first tasks to the device."""
        tasks = self.tasks[n_shot][:n_tasks]
        rows: Any = (torch.as_tensor(each, device=self.device.torch) for each in vars(tasks).values())
        return Tasks(*rows)

    def synchronise(self) -> None:
        if self.gpu:
            torch.cuda.synchronize()

    def seconds(self, function: Callable[[], object]) -> float:
        times = []
        for turn in range(2 + REPEAT):
            self.synchronise()
            start = time.perf_counter()
            function()
            self.synchronise()
            if turn >= 2:
                times.append(time.perf_counter() - start)
        return statistics.median(times)

    def scorer(self, n_base: int, points: npt.NDArray[np.float64], memory: int | None = None) -> TaskScorer:
        device = self.device if memory is None else self.device._replace(memory=memory)
        return task_scorer(self.novel.features, self.priors[n_base], PLAIN, points, device)

    def bandwidth(self) -> float:
        """Measure the bytes that a copy reads and writes in a second."""
        n_numbers = 2**28 if self.gpu else 2**22
        source = torch.randn(n_numbers, dtype=torch.float64, device=self.device.torch)
        to = torch.empty_like(source)
        return 2 * FLOAT * n_numbers / self.seconds(lambda: to.copy_(source))

    def arithmetic(self) -> float:
        """Measure the operations of a float64 matrix product in a second."""
        side = 8192 if self.gpu else 512
        matrix = torch.randn(side, side, dtype=torch.float64, device=self.device.torch)
        return 2 * side**3 / self.seconds(lambda: matrix @ matrix)


def counted(scorer: TaskScorer, tasks: Tasks) -> tuple[float, float]:
    """Count bytes and operations of one task."""
    with Traffic() as traffic:  # type: ignore[no-untyped-call, unused-ignore]
        scorer.correct(tasks)
    with FlopCounterMode(display=False) as flops:
        scorer.correct(tasks)
    return traffic.total / len(tasks), flops.get_total_flops() / len(tasks)


def taken(n_shot: int, n_base: int) -> int:
    """Count the bytes of the tables that one task must read: single numbers by sectors, rows of a table as they are."""
    n_support, n_queries = 5 * n_shot, 75
    n_used = min(n_base, 5 * n_support)
    singles = 2 * n_queries * n_support + 3 * n_support * n_shot
    with_priors = (n_queries + 2 * n_support) * n_used
    return SECTOR * singles + FLOAT * with_priors + FLOAT * (n_queries + n_support)


def point_rows(bench: Bench, bandwidth: float) -> None:
    def made_in(n_base: int) -> float:
        return bench.seconds(lambda: bench.scorer(n_base, POINT))

    made = ", ".join(f"{1e3 * made_in(n_base):.0f} ms with {n_base} priors" for n_base in (64, 1000))
    print(f"\nFeatures to the device and all tables: {made}")
    print("\nOne (α, β):")
    print("shots  priors  M tasks/s  KB/task moved  TB/s  of copy  KB/task needed  M tasks/s then  of that  MFLOP/task")
    for n_shot in (1, 5):
        for n_base in (64, 1000):
            scorer, tasks = bench.scorer(n_base, POINT), bench.on_device(n_shot, bench.n_tasks)
            rate = bench.n_tasks / bench.seconds(lambda scorer=scorer, tasks=tasks: scorer.correct(tasks))  # type: ignore[misc]
            moved, flops = counted(scorer, bench.on_device(n_shot, min(2000, bench.n_tasks)))
            needed = taken(n_shot, n_base)
            print(
                f"{n_shot:>5}  {n_base:>6}  {rate / 1e6:>9.3f}  {moved / 1e3:>13.0f}  {rate * moved / 1e12:>4.2f}  "
                f"{rate * moved / bandwidth:>7.0%}  {needed / 1e3:>14.0f}  {bandwidth / needed / 1e6:>14.1f}  "
                f"{rate * needed / bandwidth:>7.1%}  {flops / 1e6:>10.2f}",
                flush=True,
            )


def grid_rows(bench: Bench, bandwidth: float) -> None:
    print(f"\n66 points, {bench.n_grid:,} tasks:")
    print("shots  priors      ms  MB/task moved  TB/s  of copy")
    for n_shot in (1, 5):
        for n_base in (64, 1000):
            scorer, tasks = bench.scorer(n_base, grid()), bench.on_device(n_shot, bench.n_grid)
            elapsed = bench.seconds(lambda scorer=scorer, tasks=tasks: scorer.correct(tasks))  # type: ignore[misc]
            moved = counted(scorer, bench.on_device(n_shot, 50))[0]
            speed = moved * bench.n_grid / elapsed
            print(
                f"{n_shot:>5}  {n_base:>6}  {1e3 * elapsed:>6.1f}  {moved / 1e6:>13.2f}  {speed / 1e12:>4.2f}  "
                f"{speed / bandwidth:>7.0%}",
                flush=True,
            )


def auto_rows(bench: Bench) -> None:
    print("\nauto:")
    print("shots  priors  M tasks/s  66 points (ms)")
    for n_shot in (1, 5):
        for n_base in (64, 1000):
            adaptive, points = (
                task_scorer(bench.novel.features, bench.priors[n_base], Settings(), where, bench.device)
                for where in (None, grid())
            )
            tasks = bench.on_device(n_shot, bench.n_grid)
            rate = bench.n_grid / bench.seconds(lambda scorer=adaptive, tasks=tasks: scorer.correct(tasks))  # type: ignore[misc]
            elapsed = bench.seconds(lambda scorer=points, tasks=tasks: scorer.correct(tasks))  # type: ignore[misc]
            print(f"{n_shot:>5}  {n_base:>6}  {rate / 1e6:>9.3f}  {1e3 * elapsed:>14.1f}", flush=True)


def exactness_rows(bench: Bench) -> None:
    print("\nAgainst the plain float64 loop, 66 points, and against the engine on the CPU:")
    print("shots  largest score difference  other predictions in  tasks with other counts in")
    for n_shot in (1, 5):
        n_few, n_more = (20, 2000) if bench.gpu else (2, 50)
        priors = bench.priors[64].prototypes
        few, more = (bench.sampler(n_shot).draw(n) for n in (n_few, n_more))
        scorer = bench.scorer(64, grid())
        found, expected = scorer.scores(few), plain_scores(bench.novel.features, few, priors, grid())
        other = (found.argmax(axis=-1) != expected.argmax(axis=-1)).sum()
        by_numpy = task_scorer(bench.novel.features, priors, PLAIN, grid()).correct(more)
        differ = (scorer.correct(more) != by_numpy).any(axis=1)
        print(
            f"{n_shot:>5}  {np.abs(found - expected).max():>24.1e}  {other:>6} of {found[..., 0].size:>10,}  "
            f"{differ.sum():>13} of {n_more:>9,}",
            flush=True,
        )


def whole_rows(bench: Bench, name: str) -> None:
    print("\nFrom features in memory to accuracies, tasks drawn in a thread meanwhile, in one call:")
    print("what                 shots    tasks  thousand tasks/s")
    novel, priors, many, some = bench.novel, bench.priors[64], bench.n_tasks, bench.n_grid

    def row(what: str, n_shot: int, n_tasks: int, function: Callable[[], object]) -> None:
        function()
        start = time.perf_counter()
        function()
        rate = n_tasks / (time.perf_counter() - start)
        print(f"{what:<19}  {n_shot:>5}  {n_tasks:>7,}  {rate / 1e3:>16.1f}", flush=True)

    for n_shot in (1, 5):
        options: dict[str, Any] = {"n_shot": n_shot, "device": name}
        row("drawing alone", n_shot, many, lambda n=n_shot: bench.sampler(n).draw(many))  # type: ignore[misc]
        for what, settings in (("evaluate", PAPER), ("evaluate auto", {})):
            classifier = P3DCClassifier(priors, **settings)
            row(what, n_shot, many, lambda c=classifier, o=options: measured(c, novel, many, o))  # type: ignore[misc]
        row("search, 66 points", n_shot, some, lambda o=options: search(priors, novel, n_tasks=some, **o))  # type: ignore[misc]


def measured(classifier: P3DCClassifier, novel: FeatureSet, n_tasks: int, options: dict[str, Any]) -> object:
    return evaluate(classifier, novel, n_tasks=n_tasks, **options)


def memory_rows(bench: Bench) -> None:
    print("\nMemory, 5 shots, 64 priors:")
    print("points  may use (GB)  tables  peak in tensors (GB)  peak held by torch (GB)  M tasks/s")
    n_tasks = bench.n_grid
    for points in (POINT, grid()):
        for memory in (0.3e9, 1e9, 2e9, 8e9, 32e9):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            scorer = bench.scorer(64, points, int(memory))
            rate = n_tasks / bench.seconds(lambda scorer=scorer: scorer.correct(bench.tasks[5][:n_tasks]))  # type: ignore[misc]
            peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
            tables = "all" if all(scorer.source.tabled.values()) else "some"  # type: ignore[attr-defined]
            print(
                f"{len(points):>6}  {memory / 1e9:>12.1f}  {tables:>6}  {peaks[0] / 1e9:>20.2f}  "
                f"{peaks[1] / 1e9:>23.2f}  {rate / 1e6:>9.3f}",
                flush=True,
            )
            del scorer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    device = open_device(given.device)
    assert device is not None
    bench = Bench(device)
    name = torch.cuda.get_device_name(device.torch) if bench.gpu else "CPU"
    print(f"{name}, torch {torch.__version__}, {device.memory / 1e9:.1f} GB may be used")
    with torch.cuda.device(device.torch) if bench.gpu else nullcontext():
        if bench.gpu:
            memory_rows(bench)
        bandwidth = bench.bandwidth()
        print(f"\nCopy {bandwidth / 1e12:.2f} TB/s, float64 matrix product {bench.arithmetic() / 1e12:.1f} TFLOP/s")
        exactness_rows(bench)
        point_rows(bench, bandwidth)
        grid_rows(bench, bandwidth)
        auto_rows(bench)
        whole_rows(bench, given.device)


if __name__ == "__main__":
    main()
