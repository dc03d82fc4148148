"""Accuracy of adaptive weights ("auto", the default) on novel classes, compared with other methods.

``python -m benchmarks.auto DATA [--tasks 2000] [--json FILE] [--figure FILE]``, where DATA holds the folders
miniimagenet-resnet12, cub-resnet12, cub-lite0 and miniimagenet-lite0. Auto sees the base classes and the support of
each task; "validated" is the paper's method with the (α, β) that does best on the validation classes. C and centring of
logistic regression are chosen on the validation classes of the features.
"""

import argparse
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from p3dc import FeatureSet, P3DCClassifier, Priors, compare, evaluate, sample_tasks, search
from p3dc.baselines import CL2N, L2N
from p3dc.baselines.registry import METHODS, Sources
from p3dc.evaluation.protocol import SELECTION_TASKS
from p3dc.evaluation.results import half_width
from p3dc.figures import save_figure
from p3dc.io.atomic import write_json

DATA = Path()
SETTINGS = (  # features, base classes, whether α and β can be validated
    ("miniimagenet-resnet12", "miniimagenet-resnet12", True),
    ("cub-resnet12", "cub-resnet12", True),
    ("cub-lite0", "cub-lite0", True),
    ("cub-lite0", "miniimagenet-lite0", False),
)
MIXED = (0, 1, 3, 10, 30, 100)
"""How many bird classes are added to the hundred of miniImageNet."""


@cache
def load(folder: str, part: str) -> FeatureSet:
    return FeatureSet.load(DATA / folder / f"{part}.npz")


@cache
def priors_of(folder: str) -> Priors:
    return Priors.from_features(load(folder, "base"))


def tuned_regression(features: str, priors: Priors, n_shot: int, n_tasks: int) -> Any:
    """Choose C and centring on at most 500 tasks of validation classes."""
    drawing: dict[str, Any] = {"n_shot": n_shot, "n_tasks": min(n_tasks, SELECTION_TASKS)}
    known = Sources(priors, validation=lambda one: evaluate(one, load(features, "validation"), **drawing).mean)
    return METHODS["logistic"].build(known)


def table(n_tasks: int) -> Iterator[dict[str, Any]]:
    """Compare auto with the others: one row for each combination of features, priors and shots."""
    for features, base, validated in SETTINGS:
        priors = priors_of(base)
        for n_shot in (1, 5):
            rivals: dict[str, Any] = {"auto": P3DCClassifier(priors), "L2N": L2N(), "CL2N": CL2N(priors)}
            rivals["logistic regression"] = tuned_regression(features, priors, n_shot, n_tasks)
            if validated:
                best = search(priors, load(features, "validation"), n_shot=n_shot, n_tasks=n_tasks).best
                rivals["validated"] = P3DCClassifier(priors, alpha=best.alpha, beta=best.beta, space="plain")
            found = compare(rivals, load(features, "novel"), n_shot=n_shot, n_tasks=n_tasks, n_unknown=75)
            scores = found.scores["auto"]
            gains = {name: found.difference("auto", name) for name in rivals if name != "auto"}
            yield {
                "features": features,
                "priors": base,
                "n_shot": n_shot,
                "auto": [scores.mean, scores.interval],
                "gain": {name: [gain.mean, gain.interval] for name, gain in gains.items()},
                "calibration_error": scores.calibration_error,
                "auroc": {name: float(np.mean(found.scores[name].auroc)) for name in ("auto", "L2N")},  # type: ignore[arg-type]
            }


def scaled(n_tasks: int) -> Iterator[dict[str, Any]]:
    """Count predictions that change when all features are multiplied."""
    for features, base, _ in SETTINGS:
        novel, known = load(features, "novel"), load(base, "base")
        for n_shot in (1, 5):
            tasks = sample_tasks(novel.labels, n_shot=n_shot, n_tasks=n_tasks)
            answers = {}
            for factor in (1.0, 0.05, 20.0):
                rows = novel.features.astype(np.float64) * factor
                known_rows = FeatureSet(known.features.astype(np.float64) * factor, known.labels, known.class_names)
                answers[factor] = predictions(P3DCClassifier(Priors.from_features(known_rows)), rows, tasks)
            changed = {str(f): int((answers[f] != answers[1.0]).sum()) for f in (0.05, 20.0)}
            yield {"features": features, "priors": base, "n_shot": n_shot, "of": answers[1.0].size, "changed": changed}


def predictions(classifier: P3DCClassifier, rows: Any, tasks: Any) -> Any:
    _, n_way, n_shot = tasks.support.shape
    labels = np.repeat(np.arange(n_way), n_shot)
    return np.array(
        [
            classifier.fit(rows[support.ravel()], labels).predict(rows[queries.ravel()])
            for support, queries in zip(tasks.support, tasks.queries, strict=True)
        ]
    )


def sweep(n_tasks: int) -> Iterator[dict[str, Any]]:
    """Compare with L2N over ways and shots."""
    for features, base, _ in SETTINGS:
        novel = load(features, "novel")
        for n_way in (2, 5, 10, 20):
            for n_shot in (1, 2, 5, 10, 20):
                rivals = {"auto": P3DCClassifier(priors_of(base)), "L2N": L2N()}
                found = compare(rivals, novel, n_way=n_way, n_shot=n_shot, n_tasks=n_tasks)
                gain = found.difference("auto", "L2N")
                yield {"features": features, "priors": base, "n_way": n_way, "n_shot": n_shot} | {
                    "gain": [gain.mean, gain.interval]
                }


def unequal(n_tasks: int) -> Iterator[dict[str, Any]]:
    """Compare with L2N on classes of unequal shots."""
    for features, base, _ in SETTINGS:
        novel = load(features, "novel")
        rows = novel.features.astype(np.float64)
        for shots in ((1, 2, 3, 4, 5), (1, 1, 1, 1, 20), (1, 20, 20, 20, 20)):
            tasks = sample_tasks(novel.labels, n_shot=max(shots), n_tasks=n_tasks)
            kept = np.arange(max(shots)) < np.array(shots)[:, None]
            labels = np.repeat(np.arange(5), shots)
            own = np.repeat(np.arange(5), 15)
            gains = []
            for support, queries in zip(tasks.support, tasks.queries, strict=True):
                right = [
                    (rival.fit(rows[support[kept]], labels).predict(rows[queries.ravel()]) == own).mean()
                    for rival in (P3DCClassifier(priors_of(base)), L2N())
                ]
                gains.append(right[0] - right[1])
            gain = np.array(gains)
            yield {"features": features, "priors": base, "shots": shots} | {
                "gain": [float(gain.mean()), half_width(gain)]
            }


def relevance(n_tasks: int) -> Iterator[dict[str, Any]]:
    """Make priors of another domain relevant by adding classes of the domain."""
    birds, others, novel = load("cub-lite0", "base"), load("miniimagenet-lite0", "base"), load("cub-lite0", "novel")
    for n_birds in MIXED:
        kept = np.isin(birds.labels, np.linspace(0, 99, n_birds).round())
        names = [*(others.class_names[i] for i in others.labels), *(birds.class_names[i] for i in birds.labels[kept])]
        priors = Priors.from_features(FeatureSet(np.concatenate([others.features, birds.features[kept]]), names))
        for n_shot in (1, 5):
            rivals = {
                "auto": P3DCClassifier(priors),
                "β = 0.9": P3DCClassifier(priors, alpha=0.0, beta=0.9, space="plain", attention="unit"),
                "L2N": L2N(),
            }
            found = compare(rivals, novel, n_shot=n_shot, n_tasks=n_tasks)
            gains = {name: found.difference(name, "L2N") for name in rivals if name != "L2N"}
            yield {
                "n_birds": n_birds,
                "n_shot": n_shot,
                "relevance": mean_relevance(priors, novel, n_shot),
                "gain": {name: [gain.mean, gain.interval] for name, gain in gains.items()},
            }


def mean_relevance(priors: Priors, novel: FeatureSet, n_shot: int) -> float:
    tasks = sample_tasks(novel.labels, n_shot=n_shot, n_tasks=200)
    labels = np.repeat(np.arange(5), n_shot)
    rows = novel.features.astype(np.float64)
    found = [P3DCClassifier(priors).fit(rows[support.ravel()], labels).relevance_ for support in tasks.support]
    return float(np.mean(found))  # type: ignore[arg-type]


def draw(points: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes = figure.subplots(1, 2, sharex=True)
    for ax, n_shot in zip(axes, (1, 5), strict=True):
        some = [point for point in points if point["n_shot"] == n_shot]
        for name, colour, marker in (("auto", "C0", "o"), ("β = 0.9", "C1", "s")):
            gains = np.array([point["gain"][name] for point in some]) * 100
            label = "auto" if name == "auto" else "α = 0, β = 0.9 everywhere"
            x = [point["relevance"] for point in some]
            ax.errorbar(x, gains[:, 0], gains[:, 1], color=colour, marker=marker, capsize=2, label=label)
        for point in some:
            where = (point["relevance"], 100 * point["gain"]["auto"][0])
            ax.annotate(str(point["n_birds"]), where, xytext=(0, 7), textcoords="offset points", ha="center")
        ax.axhline(0, color="0.4", linewidth=1)
        ax.set(xlabel="relevance of the priors to the task", title="1 shot" if n_shot == 1 else f"{n_shot} shots")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("gain over L2N (points)")
    axes[0].legend(frameon=False, loc="upper left")
    save_figure(figure, path)


def signed(pair: list[float]) -> str:
    return f"{100 * pair[0]:+.2f} ± {100 * pair[1]:.2f}"


def main() -> None:
    global DATA
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    DATA = given.data
    few = max(50, given.tasks // 4)
    results: dict[str, Any] = {"n_tasks": given.tasks}

    headings = ["features", "priors", "shots", "auto", "− L2N", "− CL2N", "− logistic regression", "− validated"]
    headings += ["ECE", "AUROC (L2N)"]
    print(f"| {' | '.join(headings)} |\n|{'---|' * len(headings)}")
    results["table"] = []
    for row in table(given.tasks):
        results["table"].append(row)
        gains = [signed(row["gain"][name]) if name in row["gain"] else "" for name in ("L2N", "CL2N")]
        gains += [signed(row["gain"][n]) if n in row["gain"] else "" for n in ("logistic regression", "validated")]
        level = f"{100 * row['auto'][0]:.2f} ± {100 * row['auto'][1]:.2f}"
        ends = f"{row['calibration_error']:.3f} | {row['auroc']['auto']:.3f} ({row['auroc']['L2N']:.3f})"
        print(
            f"| {row['features']} | {row['priors']} | {row['n_shot']} | {level} | {' | '.join(gains)} | {ends} |",
            flush=True,
        )

    print("\nfeatures multiplied by 0.05 and by 20, predictions changed:")
    results["scaled"] = []
    for row in scaled(few):
        results["scaled"].append(row)
        changed = ", ".join(str(n) for n in row["changed"].values())
        print(f"  {row['features']}, {row['priors']}, {row['n_shot']} shots: {changed} of {row['of']:,}", flush=True)

    print("\ngain over L2N by ways and shots:")
    results["sweep"] = []
    for row in sweep(few):
        results["sweep"].append(row)
        where = f"{row['features']}, {row['priors']}, {row['n_way']} ways, {row['n_shot']} shots"
        print(f"  {where}: {signed(row['gain'])}", flush=True)

    print("\ngain over L2N with unequal shots:")
    results["unequal"] = []
    for row in unequal(few):
        results["unequal"].append(row)
        print(f"  {row['features']}, {row['priors']}, {row['shots']}: {signed(row['gain'])}", flush=True)

    worst = min(results["sweep"] + results["unequal"], key=lambda row: row["gain"][0] + row["gain"][1])
    print(f"\nworst of these, upper end of its interval: {100 * sum(worst['gain']):+.2f}")

    print("\nminiImageNet's priors with some classes of birds, tasks of birds:")
    results["relevance"] = []
    for row in relevance(given.tasks):
        results["relevance"].append(row)
        gains = [f"{name} {signed(gain)}" for name, gain in row["gain"].items()]
        where = f"{row['n_birds']} classes of birds, {row['n_shot']} shots, relevance {row['relevance']:+.2f}"
        print(f"  {where}: {', '.join(gains)}", flush=True)
    if given.figure:
        draw(results["relevance"], given.figure)
    if given.json:
        write_json(given.json, results)


if __name__ == "__main__":
    main()
