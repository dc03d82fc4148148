"""
Accuracy over α and β
=====================

The paper's method needs two weights. A search scores all 66 points of the triangle on tasks of validation classes; a
star marks the best. With one example of each class a strong pull gains several points. With five there is less to
gain, and a strong pull towards s loses.
"""

import matplotlib.pyplot as plt

from p3dc import search
from p3dc.demo import load_sample
from p3dc.figures import GridDisplay

birds = load_sample()
figure, axes = plt.subplots(1, 2, figsize=(10, 4.2))
for ax, n_shot in zip(axes, (1, 5), strict=True):
    result = search(birds.priors, birds.validation, n_shot=n_shot, attention="unit", n_tasks=500)
    title = "one example of each class" if n_shot == 1 else f"{n_shot} examples of each class"
    GridDisplay.from_search(result, title=title).plot(ax)
plt.show()
