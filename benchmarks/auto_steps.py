"""How the rule of auto was chosen: on validation and base classes, never on novel ones.

``python -m benchmarks.auto_steps DATA [--tasks 500] [--figure FILE]``, with DATA as in ``benchmarks.auto``. It prints
what each step of the rule gains over L2N, how much its two constants matter, and the calibration error. Where no
validation classes go with the priors, base classes stand in: of miniImageNet under EfficientNet-Lite0, and a part of
them that was kept out of the priors.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from p3dc import FeatureSet, P3DCClassifier, Priors, compare, evaluate
from p3dc.baselines import L2N
from p3dc.evaluation.results import TaskScores
from p3dc.figures import save_figure
from p3dc.scoring.whitened import PreparedScorer
from p3dc.tasks import TaskSampler

WHITENINGS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8)
SHARPNESSES = (2.5, 5.0, 10.0, 15.0, 20.0, 40.0)
STEPS = ("base mean", "centre", "whitening", "β = 1", "chosen β")


def pairs(data: Path) -> Iterator[tuple[str, FeatureSet, FeatureSet]]:
    """Base classes, and other classes to choose on."""
    sets = {f"{folder}/{part}": FeatureSet.load(data / folder / f"{part}.npz") for folder, part in FILES}
    for folder in ("miniimagenet-resnet12", "cub-resnet12", "cub-lite0"):
        yield folder, sets[f"{folder}/base"], sets[f"{folder}/validation"]
    photos = sets["miniimagenet-lite0/base"]
    yield "photos for birds", photos, sets["cub-lite0/validation"]
    yield "birds for photos", sets["cub-lite0/base"], photos
    known, kept_out = (
        FeatureSet(photos.features[rows], [photos.class_names[i] for i in photos.labels[rows]])
        for rows in (photos.labels < 64, photos.labels >= 64)
    )
    yield "photos for photos", known, kept_out


FILES = [
    ("miniimagenet-resnet12", "base"),
    ("miniimagenet-resnet12", "validation"),
    ("cub-resnet12", "base"),
    ("cub-resnet12", "validation"),
    ("cub-lite0", "base"),
    ("cub-lite0", "validation"),
    ("miniimagenet-lite0", "base"),
]


def steps(priors: Priors, classes: FeatureSet, n_shot: int, n_tasks: int) -> dict[str, TaskScores]:
    """Measure L2N and the rule, step by step."""
    geometry = priors.geometry
    assert geometry is not None
    directions = priors.prototypes / geometry.lengths[:, None]
    flat = replace(geometry, gains=np.ones_like(geometry.gains), rest=1.0, prototypes=directions)
    found = {"L2N": evaluate(L2N(), classes, n_shot=n_shot, n_tasks=n_tasks, seed=1)}
    home = patch(
        "p3dc.adaptive.rule.task_centre", lambda means, home: np.broadcast_to(home, (len(means), 1, len(home)))
    )
    for name, space, point in (
        ("base mean", flat, ([0.0], [0.0])),
        ("centre", flat, ([0.0], [0.0])),
        ("whitening", geometry, ([0.0], [0.0])),
        ("β = 1", geometry, ([0.0], [1.0])),
        ("chosen β", geometry, ()),
    ):
        scorer = PreparedScorer(classes.features, space, *point)
        sampler = TaskSampler(classes.labels, n_way=5, n_shot=n_shot, n_query=15, seed=1)
        with home if name == "base mean" else patch("p3dc.adaptive.rule.SHARPNESS", 10.0):
            right = [scorer.correct(tasks)[:, 0] for tasks in sampler.batches(n_tasks)]
        found[name] = TaskScores(np.concatenate(right) / 75)
    return found


def gain(priors: Priors, classes: FeatureSet, n_shot: int, n_tasks: int) -> float:
    """Gain of the whole rule, in points."""
    rivals = {"auto": P3DCClassifier(priors, alpha="auto", beta="auto", scale="auto"), "L2N": L2N()}
    return 100 * compare(rivals, classes, n_shot=n_shot, n_tasks=n_tasks, seed=1).difference("auto", "L2N").mean


def constants(name: str, base: FeatureSet, classes: FeatureSet, n_tasks: int) -> dict[str, Any]:
    """Gains at other values of the constants, for 1 and 5 shots."""
    found: dict[str, Any] = {"name": name, "whitening": [], "sharpness": []}
    for value in WHITENINGS:
        with patch("p3dc.priors.geometry.WHITENING", value):
            priors = Priors.from_features(base)
        found["whitening"].append([gain(priors, classes, n_shot, n_tasks) for n_shot in (1, 5)])
    priors = Priors.from_features(base)
    for value in SHARPNESSES:
        with patch("p3dc.adaptive.rule.SHARPNESS", value):
            found["sharpness"].append([gain(priors, classes, n_shot, n_tasks) for n_shot in (1, 5)])
    return found


def draw(found: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots(2, 2, sharey="row")
    for row, shot in enumerate(("1 shot", "5 shots")):
        for ax, key, values, used in (
            (axes[row, 0], "whitening", WHITENINGS, 0.2),
            (axes[row, 1], "sharpness", SHARPNESSES, 10.0),
        ):
            for one in found:
                ax.plot(values, np.array(one[key])[:, row], marker="o", markersize=3, label=one["name"])
            ax.axvline(used, color="0.7", linewidth=1, zorder=0)
            ax.axhline(0, color="0.4", linewidth=1, zorder=0)
            ax.set(xlabel=f"{key} ({used:g} is used)", title=shot)
            ax.spines[["top", "right"]].set_visible(False)
        axes[row, 1].set_xscale("log")
        axes[row, 1].set_xticks(SHARPNESSES, [f"{value:g}" for value in SHARPNESSES])
        axes[row, 1].minorticks_off()
        axes[row, 0].set_ylabel("gain over L2N (points)")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    found = []
    print(f"| priors and classes | shots | L2N | {' | '.join(STEPS)} | ECE |")
    print("|---|---|---|" + "---|" * (len(STEPS) + 1))
    for name, base, classes in pairs(given.data):
        priors = Priors.from_features(base)
        for n_shot in (1, 5):
            scores = steps(priors, classes, n_shot, given.tasks)
            level = scores.pop("L2N")
            gains = [f"{100 * (scores[step].accuracy - level.accuracy).mean():+.2f}" for step in STEPS]
            rule = P3DCClassifier(priors, alpha="auto", beta="auto", scale="auto")
            error = evaluate(rule, classes, n_shot=n_shot, n_tasks=given.tasks, seed=1).calibration_error
            print(f"| {name} | {n_shot} | {100 * level.mean:.2f} | {' | '.join(gains)} | {error:.3f} |", flush=True)
        if given.figure:
            found.append(constants(name, base, classes, given.tasks))
    if given.figure:
        draw(found, given.figure)
        for one in found:
            print(one["name"], *(np.round(one[key], 2).tolist() for key in ("whitening", "sharpness")))


if __name__ == "__main__":
    main()
