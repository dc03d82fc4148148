"""How time grows with tasks, base classes, shots and queries, one at a time: ``python -m benchmarks.scaling [FIGURE]``.

Processor time of ``evaluate`` on one thread, including the drawing of tasks, the best of several runs. The others stay
at 1,000 tasks of 5 ways, 5 shots and 15 queries, 640 features and 64 base classes; rows are 20 classes of 600. The
slope of time over size, both as logarithms, is fitted to the upper half of the sizes: 1 is linear.
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.made import make_features
from p3dc import FeatureSet, P3DCClassifier, Priors, evaluate
from p3dc.figures import save_figure

USUAL = {"tasks": 1000, "base classes": 64, "shots": 5, "queries of a class": 15}
SIZES = {
    "tasks": (125, 250, 500, 1000, 2000, 4000, 8000),
    "base classes": (64, 256, 1024, 2048, 4096, 8192, 21_000),
    "shots": (1, 2, 5, 10, 20, 40),
    "queries of a class": (5, 15, 30, 60, 120),
}
KINDS: dict[str, dict[str, Any]] = {
    "auto": {},
    "given α and β": {"alpha": 0.0, "beta": 0.9, "space": "plain"},
}
STYLES = {"auto": ("tab:blue", "o"), "given α and β": ("tab:orange", "s")}
REPEAT = 3

Times = dict[str, dict[str, list[float]]]


def make_priors(n_base: int) -> Priors:
    return Priors.from_features(make_features(1, n_classes=n_base, n_rows=4))


def seconds(novel: FeatureSet, priors: Priors, options: dict[str, Any], setting: dict[str, int]) -> float:
    times = []
    for _ in range(REPEAT):
        start = time.process_time()
        evaluate(
            P3DCClassifier(priors, **options),
            novel,
            n_tasks=setting["tasks"],
            n_shot=setting["shots"],
            n_query=setting["queries of a class"],
        )
        times.append(time.process_time() - start)
    return min(times)


def slope(sizes: tuple[int, ...], times: list[float]) -> float:
    upper = slice(len(sizes) // 2, None)
    return float(np.polyfit(np.log(sizes[upper]), np.log(times[upper]), 1)[0])


def measure() -> Times:
    novel = make_features(0, n_classes=20, n_rows=600)
    found: Times = {}
    for varied, sizes in SIZES.items():
        print(f"\n{varied:<20}", *(f"{size:>8,}" for size in sizes), "   slope")
        found[varied] = {kind: [] for kind in KINDS}
        for size in sizes:
            setting = USUAL | {varied: size}
            priors = make_priors(setting["base classes"])
            assert priors.geometry is not None  # learned before the clock starts
            for kind, options in KINDS.items():
                found[varied][kind].append(seconds(novel, priors, options, setting))
        for kind, times in found[varied].items():
            print(f"{kind:<20}", *(f"{t:>8.2f}" for t in times), f"{slope(sizes, times):>8.2f}", flush=True)
    return found


def draw(found: Times, path: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullFormatter

    plain = FuncFormatter(lambda value, _: f"{value:,.10g}")
    figure = Figure(figsize=(9, 6.4), layout="constrained")
    for ax, (varied, sizes) in zip(figure.subplots(2, 2, sharey=True).ravel(), SIZES.items(), strict=True):
        for kind, times in found[varied].items():
            colour, marker = STYLES[kind]
            label = f"{kind}: slope {slope(sizes, times):.2f}"
            ax.loglog(sizes, times, color=colour, marker=marker, label=label)
            far = np.array([sizes[len(sizes) // 2], sizes[-1]])
            ax.loglog(far, times[-1] * far / far[-1], color="0.5", linewidth=1, linestyle=":", zorder=1)
        ax.set(xlabel=varied, xticks=sizes[:: 1 + len(sizes) // 7])
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(plain)
            axis.set_minor_formatter(NullFormatter())
        ax.minorticks_off()
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, loc="upper left")
    figure.supylabel("processor time (s)")
    usual = "1,000 tasks of 5 ways, 5 shots and 15 queries of a class, 64 base classes"
    figure.suptitle(f"One of four varies; the others: {usual}. Dotted: linear.", fontsize="medium")
    save_figure(figure, path)


if __name__ == "__main__":
    with threadpool_limits(1, user_api="blas"):
        times = measure()
    if len(sys.argv) > 1:
        draw(times, Path(sys.argv[1]))
