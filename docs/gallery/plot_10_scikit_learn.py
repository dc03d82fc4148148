"""
Inside GridSearchCV and a pipeline
==================================

``P3DCClassifier`` is a scikit-learn estimator. ``weight_grid`` lists the points of the triangle for ``GridSearchCV``,
since a grid of α times β would have points outside it. ``make_pipeline`` puts steps in front of the classifier and
applies them to the base features as well, so that examples and base classes stay comparable.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from p3dc import P3DCClassifier, compare, make_pipeline, weight_grid
from p3dc.demo import load_sample

birds = load_sample()
rows, labels = birds.novel.features, birds.novel.labels

# %%
# Cross-validation on twenty species with three examples of each: what a user can do who has no validation classes.

support = np.concatenate([np.flatnonzero(labels == label)[:3] for label in range(20)])
found = GridSearchCV(P3DCClassifier(birds.priors), weight_grid(step=0.1), cv=3).fit(rows[support], labels[support])
print(found.best_params_)

# %%
# Steps in front of the classifier, fitted to features of base classes.

steps = {"no step": (), "StandardScaler": (StandardScaler(),), "square root": (FunctionTransformer(np.sqrt),)}
pipelines = {name: make_pipeline(*one, base=birds.validation) for name, one in steps.items()}
compared = compare(pipelines, birds.novel, n_shot=5, n_tasks=60)
print(compared)

# %%
# The accuracy at each point of the triangle, and those of the pipelines.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), width_ratios=(1, 1.2))
alpha, beta = (np.array([point[name] for point in found.cv_results_["params"]]) for name in ("alpha", "beta"))
score = 100 * found.cv_results_["mean_test_score"]
drawn = left.scatter(alpha, beta, 160, score, cmap="magma", marker="s")
left.plot(
    found.best_params_["alpha"], found.best_params_["beta"], "*", markersize=16, color="white", markeredgecolor="black"
)
left.set(xlabel="α (sample level)", ylabel="β (task level)", aspect="equal", title="GridSearchCV, three folds")
figure.colorbar(drawn, ax=left, label="accuracy (%)", shrink=0.8)
compared.plot(right)
right.set_title("make_pipeline, five examples of each class")
plt.show()
