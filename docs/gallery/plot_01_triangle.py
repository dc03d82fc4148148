"""
The triangle at work
====================

One photo of each of five bird species. Each photo x spans a triangle with the points s and t, to which base classes
pull it: α moves it towards s and β towards t. Where in the triangle is the photo nearest to the centre of its
species, which nobody knows in practice? And where are the other photos of the task labelled best?
"""

import matplotlib.pyplot as plt
import numpy as np

from p3dc import method, sample_tasks
from p3dc.demo import load_sample
from p3dc.evaluation.search import grid

birds = load_sample()
rows = birds.novel.features.astype(float)
task = sample_tasks(birds.novel.labels, n_shot=1, n_query=30, n_tasks=3, seed=4)
support, queries = rows[task.support[2, :, 0]], rows[task.queries[2]]

s, t = method.endpoints(support, birds.priors.prototypes, n_nearest=5, power=0.5, scale=10.0)
x, s, t = (method.l2_normalize(one) for one in (support, s, t))
centres = method.l2_normalize(method.l2_normalize(queries).mean(axis=1))

# %%
# The two numbers at every point of the triangle: the mean cosine of the calibrated photos to the centres of their
# species, and the share of the 150 other photos that the nearest calibrated photo labels correctly.

alpha, beta = grid(step=0.05).T
cosines, accuracies = [], []
for a, b in zip(alpha, beta, strict=True):
    calibrated = method.mix(x, s, t, a, b)
    cosines.append(np.vecdot(calibrated, centres).mean())
    scores = method.l2_normalize(queries) @ calibrated.T
    accuracies.append(100 * (scores.argmax(axis=-1) == np.arange(5)[:, None]).mean())

# %%
# An equilateral triangle, with the photo itself at the bottom left.

corners = np.array([[0, 0], [1, 0], [0.5, np.sqrt(3) / 2]])
places = np.column_stack([1 - alpha - beta, alpha, beta]) @ corners

figure, axes = plt.subplots(1, 2, figsize=(10, 4.4))
for ax, values, title in (
    (axes[0], np.array(cosines), "cosine to the centre of the species"),
    (axes[1], np.array(accuracies), "photos labelled correctly (%)"),
):
    drawn = ax.tricontourf(*places.T, values, levels=14, cmap="viridis")
    ax.triplot(*corners.T, color="black", linewidth=1)
    best = places[values.argmax()]
    ax.plot(*best, marker="*", markersize=18, color="white", markeredgecolor="black")
    for corner, name, offset in zip(
        corners, ("x: the photo", "s: α = 1", "t: β = 1"), (-0.07, -0.07, 0.03), strict=True
    ):
        ax.annotate(name, (corner[0], corner[1] + offset), ha="center", va="bottom" if offset > 0 else "center")
    ax.set(
        title=f"{title}\n{values[0]:.3g} at x, {values.max():.3g} at the star",
        aspect="equal",
        xlim=(-0.12, 1.12),
        ylim=(-0.12, 0.98),
    )
    ax.axis("off")
    figure.colorbar(drawn, ax=ax, shrink=0.7)
plt.show()
