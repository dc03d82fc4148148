"""Views of a photo: squares of several sizes around its centre, the whole of it, and mirror images.

Features that are averaged over several views depend less on how large the object is in the photo.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from p3dc._arrays import Floats
from p3dc.errors import InputError
from p3dc.method import l2_normalize, vector_norm

TIGHT = 0.75
"""Sides of the square "tight", as a share of those of the square "centre"."""

Area = Literal["centre", "wide", "tight", "whole"]


@dataclass(frozen=True)
class View:
    """What of a photo the network sees.

    Attributes
    ----------
    area : {"centre", "wide", "tight", "whole"}
        The square that the backbone's preprocessing cuts from the centre; the largest square; a square with sides three
        quarters as long as those of the first; or the whole photo, squeezed into a square.
    flip : bool
        Whether left and right change places.
    """

    area: Area = "centre"
    flip: bool = False

    @property
    def name(self) -> str:
        """The name in files."""
        return f"{self.area}, flipped" if self.flip else self.area


CENTRE = View()
VIEWS = (
    CENTRE,
    View(flip=True),
    View("wide"),
    View("tight"),
    View("whole"),
    View("wide", flip=True),
    View("tight", flip=True),
)
"""All views, in the order in which they are used: N views are the first N."""


def views_of(n_views: int) -> tuple[View, ...]:
    """Return the first views.

    Examples
    --------
    >>> from p3dc.images.views import views_of
    >>> [view.name for view in views_of(3)]
    ['centre', 'centre, flipped', 'wide']
    """
    if isinstance(n_views, bool) or not isinstance(n_views, int | np.integer) or not 1 <= n_views <= len(VIEWS):
        raise InputError(f"views is {n_views!r:.40}. It must be a whole number from 1 to {len(VIEWS)}.")
    return VIEWS[:n_views]


def average_views(features: Floats) -> Floats:
    """Average the features of each photo over its views, (n, V, D) -> (n, D).

    Directions and lengths are averaged separately, so that no view counts more because its features are longer.
    """
    if features.shape[1] == 1:
        return features[:, 0]
    lengths = vector_norm(features).mean(axis=1, keepdims=True)
    averaged: Floats = l2_normalize(features).mean(axis=1) * lengths
    return averaged
