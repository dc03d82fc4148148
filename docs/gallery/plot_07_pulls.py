"""
Which base classes pull an example
==================================

The method ``P3DCClassifier.explain`` lists which base classes pull each example, and how much. Most of these birds
are pulled by their relatives: a warbler by warblers, a tern by terns. An example that is pulled by something else
entirely deserves a look.
"""

import matplotlib.pyplot as plt
import numpy as np

from p3dc import P3DCClassifier
from p3dc.demo import load_sample

birds = load_sample()
species = ["Ring_billed_Gull", "Fox_Sparrow", "Common_Tern", "Kentucky_Warbler", "House_Wren"]
chosen = birds.novel.select(name for name in birds.novel.class_names if name.partition(".")[2] in species)
names = np.array([name.partition(".")[2].replace("_", " ") for name in chosen.class_names])
support = np.concatenate([np.flatnonzero(chosen.labels == label)[:1] for label in range(len(names))])
classifier = P3DCClassifier(birds.priors).fit(chosen.features[support], names[chosen.labels[support]])

# %%
# The weights of the sample level, at which each example chooses its own base classes.

pulls = [row for row in classifier.explain().to_pylist() if row["level"] == "sample"]
base = list(dict.fromkeys(row["prior"] for row in pulls))
weights = np.zeros((len(support), len(base)))
for row in pulls:
    weights[row["support"], base.index(row["prior"])] = 100 * row["weight"]

figure, ax = plt.subplots(figsize=(9.5, 4.4))
drawn = ax.imshow(weights, cmap="Blues", vmin=0, aspect="auto")
for (row, column), weight in np.ndenumerate(weights):
    if weight:
        ax.text(column, row, f"{weight:.0f}", ha="center", va="center", color="white" if weight > 30 else "black")
ax.set_xticks(range(len(base)), [one.partition(".")[2].replace("_", " ") for one in base], rotation=40, ha="right")
ax.set_yticks(range(len(support)), [str(label) for label in names[chosen.labels[support]]])
ax.set(xlabel="base class", ylabel="example")
ax.spines[:].set_visible(False)
figure.colorbar(drawn, ax=ax, label="share of the pull (%)", shrink=0.8)
plt.show()
