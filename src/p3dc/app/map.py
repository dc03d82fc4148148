"""The map of the page: examples, classes and photos in two dimensions.

Shape letters: S examples, N classes, Q photos to be labelled, D features.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from p3dc._arrays import Floats, Labels
from p3dc.adaptive.space import class_averages, members

WITHIN = 0.3
"""Weight of differences within a class, relative to those between class means, when the axes are chosen."""


@dataclass(frozen=True)
class Map:
    """Positions in two dimensions, each coordinate from -1 to 1."""

    before: Floats  # the examples before calibration, (S, 2)
    after: Floats  # the examples after calibration, (S, 2)
    prototypes: Floats  # the means of the calibrated examples, (N, 2)
    queries: Floats  # the photos to be labelled, (Q, 2)


class Plane(NamedTuple):
    """Two axes, (D, 2), their origin, (D,), and the largest coordinate that is shown."""

    centre: Floats
    axes: Floats
    reach: float

    @classmethod
    def reaching(cls, centre: Floats, axes: Floats, shown: Iterable[Floats]) -> "Plane":
        """Return the plane of two axes that shows all of the given rows, (n, D) each."""
        reach = max(float(np.abs((rows - centre) @ axes).max()) for rows in shown if len(rows))
        return cls(centre, axes, reach or 1.0)

    def project(self, rows: Floats) -> Floats:
        """Project rows onto the plane, (n, D) -> (n, 2)."""
        return np.clip((rows - self.centre) @ self.axes / self.reach, -1, 1)


def principal_axes(corners: Floats, labels: Labels) -> tuple[Floats, Floats]:
    """Compute the centre, (D,), and the two axes, (D, 2), that separate classes of triangles, (S, 3, D), best."""
    means = np.einsum("ns,svd->nvd", class_averages(members(labels)), corners)
    centre = means.mean(axis=(0, 1))
    within = WITHIN * (corners - means[labels])
    rows = np.concatenate([means - centre, within]).reshape(-1, len(centre))
    wide = rows.shape[0] < rows.shape[1]
    leading = np.linalg.eigh(rows @ rows.T if wide else rows.T @ rows)[1][:, :-3:-1]  # much faster than all axes
    axes = np.linalg.qr(rows.T @ leading if wide else leading)[0]
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    return centre, axes * signs
