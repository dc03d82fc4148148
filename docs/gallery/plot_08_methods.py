"""
All methods on the same tasks
=============================

Every compared method that needs neither torch, feature maps nor single base samples, on the same tasks of five bird
species. Squares mark methods that see all photos to be labelled together. They gain most with one example of each
class. The published ones assume that there are equally many photos of each class, which is true here. Parameters that
a method leaves open are chosen on validation classes.
"""

import matplotlib.pyplot as plt
import numpy as np

from p3dc import P3DCClassifier, compare, evaluate, sample_tasks
from p3dc.baselines.registry import METHODS, TRANSDUCTIVE, Sources
from p3dc.demo import load_sample
from p3dc.evaluation.results import TaskScores

birds = load_sample()
sources = Sources(
    birds.priors,
    validation=lambda classifier: evaluate(classifier, birds.validation, n_tasks=20).mean,
    data_set="CUB",
)
methods = {
    method.name: method
    for method in METHODS.values()
    if not {"base", "maps", "torch"} & set(method.needs) and not method.slow
}


def with_the_pile(n_shot: int) -> TaskScores:
    """Label the photos of each task together, as the transductive methods do."""
    rows, accuracy = birds.novel.features, []
    tasks = sample_tasks(birds.novel.labels, n_shot=n_shot, n_tasks=50)
    for support, queries in zip(tasks.support, tasks.queries, strict=True):
        classifier = P3DCClassifier(birds.priors)
        classifier.fit(rows[support.ravel()], np.repeat(np.arange(5), n_shot), unlabelled=rows[queries.ravel()])
        accuracy.append((classifier.transduction_ == np.repeat(np.arange(5), 15)).mean())
    return TaskScores(np.array(accuracy))


# %%
# P3DC twice: one photo at a time, and all 75 photos of a task together.

figure, axes = plt.subplots(1, 2, figsize=(10, 6), sharey=True)
for ax, n_shot in zip(axes, (1, 5), strict=True):
    classifiers = {name: method.build(sources) for name, method in methods.items()}
    single = compare(
        {**classifiers, "P3DC (auto)": P3DCClassifier(birds.priors)}, birds.novel, n_shot=n_shot, n_tasks=50
    )
    scores = {**single.scores, "P3DC (auto, with the pile)": with_the_pile(n_shot)}
    if n_shot == 1:
        order = sorted(scores, key=lambda name: scores[name].mean)
    for place, name in enumerate(order):
        together = "pile" in name or (name in methods and methods[name].family == TRANSDUCTIVE)
        ax.errorbar(
            100 * scores[name].mean,
            place,
            xerr=100 * scores[name].interval,
            fmt="s" if together else "o",
            color="C0" if "P3DC" in name else "#777777",
            capsize=3,
        )
    ax.set(title=f"{n_shot} example{'s' * (n_shot > 1)} of each class", xlabel="accuracy (%)")
    ax.grid(axis="x", alpha=0.3)
axes[0].set_yticks(np.arange(len(order)), order)
plt.show()
