"""
Speed against shots, ways and base classes
==========================================

How much processor time a task takes, on one thread of the machine that built this page: learning it and labelling 15
photos of each class, on 640 random features. Each panel varies one number and keeps the others at 5 ways, 5 shots and
64 base classes.
"""

from time import process_time

import matplotlib.pyplot as plt
import numpy as np

from p3dc import FeatureSet, P3DCClassifier, Priors, evaluate

rng = np.random.default_rng(0)


def features(n_classes: int, n_rows: int) -> FeatureSet:
    """Make features that look like those of a network: never negative, clustered by class."""
    centres = rng.gamma(0.6, 1.5, size=(n_classes, 1, 640))
    rows = rng.gamma(2.0, centres / 2 + 0.05, size=(n_classes, n_rows, 640))
    return FeatureSet(rows.reshape(-1, 640).astype(np.float32), np.repeat(np.arange(n_classes), n_rows))


def milliseconds(n_shot: int = 5, n_way: int = 5, n_base: int = 64, **weights: object) -> float:
    """Measure a task: the fastest of three runs of 40 tasks."""
    classifier = P3DCClassifier(priors[n_base], **weights)
    times = []
    for _ in range(3):
        begin = process_time()
        evaluate(classifier, novel, n_shot=n_shot, n_way=n_way, n_tasks=40)
        times.append(process_time() - begin)
    return 1000 / 40 * min(times)


# %%
# The adaptive default, and the paper's method with given weights.

novel = features(20, 40)
base = features(1024, 4)
priors = {n: Priors.from_features(base[: 4 * n]) for n in (16, 64, 256, 1024)}
axes_of = {"n_shot": [1, 2, 5, 10, 20], "n_way": [2, 5, 10, 20], "n_base": [16, 64, 256, 1024]}
names = {"n_shot": "examples of each class", "n_way": "classes", "n_base": "base classes"}

figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), sharey=True)
for ax, (name, values) in zip(axes, axes_of.items(), strict=True):
    for label, weights in (("default", {}), ("given α and β", {"beta": 0.9, "space": "plain"})):
        ax.loglog(values, [milliseconds(**{name: value}, **weights) for value in values], "o-", label=label)
    ax.set_xticks(values, [str(value) for value in values])
    ax.minorticks_off()
    ax.set(xlabel=names[name])
    ax.grid(alpha=0.3)
axes[0].set_ylabel("processor time of a task (ms)")
axes[0].set_yticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"])
axes[0].legend(frameon=False)
plt.show()
