"""
When base classes help, and when they do not
============================================

The gain over plain nearest neighbour (L2N) against the number of examples, with base classes of the same kind and
with base classes that have nothing to do with the task: the same features in a wrong order. Related base classes gain
most with one example, and the default gains more than a fixed weight. Unrelated base classes gain next to nothing
from two examples on. There a fixed weight does harm, and the default hardly any, because it measures how well base
classes fit a task.
"""

import matplotlib.pyplot as plt
import numpy as np

from p3dc import FeatureSet, P3DCClassifier, Priors, compare
from p3dc.baselines import L2N
from p3dc.demo import load_sample

birds = load_sample()
order = np.random.default_rng(0).permutation(birds.validation.features.shape[1])
related = Priors.from_features(birds.validation)
unrelated = Priors.from_features(FeatureSet(birds.validation.features[:, order], birds.validation.labels))

classifiers = {
    "default, other birds": P3DCClassifier(related),
    "β = 0.7, other birds": P3DCClassifier(related, beta=0.7, space="plain", attention="unit"),
    "default, unrelated": P3DCClassifier(unrelated),
    "β = 0.7, unrelated": P3DCClassifier(unrelated, beta=0.7, space="plain", attention="unit"),
}

# %%
# The same tasks for all of them, so that differences are paired and intervals narrow.

shots = [1, 2, 3, 5, 10, 15]
gains = {name: [] for name in classifiers}
for n_shot in shots:
    compared = compare({"L2N": L2N(), **classifiers}, birds.novel, n_shot=n_shot, n_tasks=200)
    for found in compared.differences:
        gains[found.name].append((100 * found.mean, 100 * found.interval))

figure, ax = plt.subplots(figsize=(7.2, 4.2))
for (name, values), style in zip(gains.items(), ("o-", "o--", "s-", "s--"), strict=True):
    mean, interval = np.array(values).T
    colour = "C0" if "birds" in name else "C1"
    ax.errorbar(shots, mean, interval, fmt=style, color=colour, capsize=3, markersize=5, label=name)
ax.axhline(0, color="grey", linewidth=1)
ax.set(xlabel="examples of each class", ylabel="gain over L2N (points)", xticks=shots)
ax.legend(frameon=False)
plt.show()
