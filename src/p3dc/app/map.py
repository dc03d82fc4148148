"""The map of the page: examples, classes and photos in two dimensions.

Shape letters: S examples, N classes, Q photos to be labelled, D features.
"""

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
    def through(cls, corners: Floats, labels: Labels, queries: Floats) -> "Plane":
        """Choose the plane that shows triangles of examples, (S, 3, D), and queries, (Q, D), best."""
        centre, axes = principal_axes(corners, labels)
        shown = np.concatenate([corners.reshape(-1, len(centre)), queries])
        return cls(centre, axes, float(np.abs((shown - centre) @ axes).max()) or 1.0)

    def project(self, rows: Floats) -> Floats:
        """Project rows onto the plane, (n, D) -> (n, 2)."""
        return np.clip((rows - self.centre) @ self.axes / self.reach, -1, 1)


def principal_axes(corners: Floats, labels: Labels) -> tuple[Floats, Floats]:
    """Compute the centre, (D,), and the two axes, (D, 2), that separate classes of triangles, (S, 3, D), best."""
    means = np.einsum("ns,svd->nvd", class_averages(members(labels)), corners)
    centre = means.mean(axis=(0, 1))
    within = WITHIN * (corners - means[labels])
    rows = np.concatenate([means - centre, within]).reshape(-1, len(centre))
    axes = np.linalg.svd(rows, full_matrices=False)[2][:2].T
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    return centre, axes * signs
