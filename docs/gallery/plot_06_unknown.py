"""
Photos that belong to no class
==============================

A classifier of five species sees photos of those species and of others. How well a photo fits its nearest class is
its largest cosine. The line between known and unknown is a compromise: the more unknown photos are rejected, the more
known ones go with them. The parameter ``reject`` sets the share of unknown photos to aim at, and the classifier draws
the line without having seen any. High aims are not quite reached here, because the other photos are birds as well.
"""

import matplotlib.pyplot as plt
import numpy as np

from p3dc import P3DCClassifier, sample_tasks
from p3dc.demo import load_sample

birds = load_sample()
rows, labels = birds.novel.features, birds.novel.labels
tasks = sample_tasks(labels, n_shot=5, n_tasks=60, seed=1)
aims = np.array([0.2, 0.5, 0.8, 0.95])
rng = np.random.default_rng(0)

# %%
# In each task, 75 photos of its species and 75 of the other 45.

known, unknown, rejected, lost = [], [], [], []
for support, queries, classes in zip(tasks.support, tasks.queries, tasks.classes, strict=True):
    others = rng.choice(np.flatnonzero(~np.isin(labels, classes)), 75, replace=False)
    thresholds = []
    for aim in aims:
        classifier = P3DCClassifier(birds.priors, reject=aim).fit(rows[support.ravel()], labels[support.ravel()])
        thresholds.append(classifier.unknown_below_)
    known.append(classifier.score_samples(rows[queries.ravel()]))
    unknown.append(classifier.score_samples(rows[others]))
    rejected.append([(unknown[-1] < threshold).mean() for threshold in thresholds])
    lost.append([(known[-1] < threshold).mean() for threshold in thresholds])

# %%
# On the left, how well photos fit. On the right, what each aim rejects in fact.

figure, axes = plt.subplots(1, 2, figsize=(10, 4.2))
bins = np.linspace(-0.2, 1, 60)
for values, name in ((known, "photos of the five species"), (unknown, "photos of other species")):
    axes[0].hist(np.concatenate(values), bins, density=True, alpha=0.6, label=name)
axes[0].set(xlabel="largest cosine to a class", yticks=[])
axes[0].spines["left"].set_visible(False)
axes[0].legend(frameon=False, loc="upper right")
axes[1].plot([0, 100], [0, 100], color="grey", linewidth=1, linestyle=":")
axes[1].plot(100 * aims, 100 * np.mean(rejected, axis=0), "o-", color="C1", label="of other species (dotted: the aim)")
axes[1].plot(100 * aims, 100 * np.mean(lost, axis=0), "s-", color="C0", label="of the five species")
axes[1].set(xlabel="reject (%)", ylabel="photos labelled unknown (%)", xlim=(0, 100), ylim=(0, 100))
axes[1].legend(frameon=False, loc="upper left")
plt.show()
