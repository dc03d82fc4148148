"""
The pile as prior
=================

Photos that wait for a label say something about the classes before anyone labels them: photos of one class resemble
each other. Here one photo of each class is labelled, and a growing pile of other photos is not. The photos that are
classified are not in the pile. Bands are 95 % intervals.
"""

import matplotlib.pyplot as plt
import numpy as np

from p3dc import P3DCClassifier, evaluate
from p3dc.demo import load_sample

birds = load_sample()
classifier = P3DCClassifier(birds.priors)
piles = {
    "equal classes": {},
    "unequal classes (Dirichlet 2)": {"pile_balance": 2.0},
    "half of it of other classes": {"pile_unknown": 0.5},
}
sizes = [10, 25, 50, 75]

# %%
# A pile of no photos is the classifier alone.

alone = evaluate(classifier, birds.novel, n_query=15, n_tasks=60)
figure, ax = plt.subplots(figsize=(7.2, 4.2))
for name, options in piles.items():
    found = [
        evaluate(classifier, birds.novel, n_query=15, n_tasks=60, n_pile=size, pile_queries="outside", **options)
        for size in sizes
    ]
    mean, interval = np.array([(100 * one.mean, 100 * one.interval) for one in [alone, *found]]).T
    line = ax.plot([0, *sizes], mean, "o-", markersize=5, label=name)[0]
    ax.fill_between([0, *sizes], mean - interval, mean + interval, color=line.get_color(), alpha=0.12, linewidth=0)
ax.set(xlabel="photos in the pile", ylabel="accuracy with one example of each class (%)", xticks=[0, *sizes])
ax.legend(frameon=False, loc="upper left")
plt.show()
