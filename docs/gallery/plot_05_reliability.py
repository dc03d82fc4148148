"""
How far to trust a probability
==============================

Of the photos that are labelled with a probability of 80 %, four in five should be labelled correctly. This figure
checks it over 150 tasks. A plain softmax of cosines is far too timid. Divided by one temperature for all tasks,
cosines are too bold, most of all with one example of each class. The default temperature depends on the number of
examples.
"""

import matplotlib.pyplot as plt
import numpy as np

from p3dc import P3DCClassifier, sample_tasks
from p3dc.confidence.metrics import Reliability
from p3dc.demo import load_sample

birds = load_sample()
rows, n_tasks = birds.novel.features, 150


def reliability(classifier: P3DCClassifier, n_shot: int) -> Reliability:
    """Collect the probability of each label, and whether it is right."""
    collected = Reliability()
    tasks = sample_tasks(birds.novel.labels, n_shot=n_shot, n_tasks=n_tasks)
    for support, queries in zip(tasks.support, tasks.queries, strict=True):
        labels = np.arange(5)
        classifier.fit(rows[support.ravel()], labels.repeat(n_shot))
        probabilities = classifier.predict_proba(rows[queries.ravel()])
        collected.add(probabilities.max(axis=1), probabilities.argmax(axis=1) == labels.repeat(15))
    return collected


# %%
# The ideal is the diagonal. The area of a dot is the share of photos in its bin.

temperatures = {"before: softmax of cosines": 1.0, "one temperature, 0.03": 0.03, "after: the default": None}
figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), sharey=True)
for ax, n_shot in zip(axes, (1, 5), strict=True):
    ax.plot([0.2, 1], [0.2, 1], color="grey", linewidth=1, linestyle=":")
    for name, temperature in temperatures.items():
        found = reliability(P3DCClassifier(birds.priors, temperature=temperature), n_shot)
        filled = found.counts > 20
        counts = found.counts[filled]
        confidence, accuracy = found.confidence[filled] / counts, found.right[filled] / counts
        line = ax.plot(confidence, accuracy, label=f"{name} (error {found.error:.3f})")[0]
        ax.scatter(confidence, accuracy, 400 * counts / counts.sum() + 8, color=line.get_color())
    ax.set(
        xlabel="probability of the label",
        title=f"{n_shot} example{'s' * (n_shot > 1)} of each class",
        xlim=(0.15, 1.02),
    )
    ax.legend(frameon=False, loc="lower right", fontsize=9)
axes[0].set_ylabel("share labelled correctly")
plt.show()
