"""Priors that come with a backbone: the classes that it was trained on.

A row of the backbone's last layer is a direction, not a point. Seen from the mean of all features, its class lies in
the direction of the row minus the mean of all rows. Each prototype lies in that direction, at three times the distance
of real classes; prototypes that lie nearer pull less well. The geometry, how features of a class scatter, was estimated
from photos by ``scripts/make_lite0_geometry.py``.
"""

from importlib.resources import as_file, files

import numpy as np

from p3dc.images.backbones import lite0
from p3dc.images.backbones.backbone import Backbone
from p3dc.io.safetensors import read_arrays
from p3dc.method import l2_normalize
from p3dc.priors.geometry import Geometry, whiten
from p3dc.priors.prototypes import Priors

VERSION = 1
FAR = 3.0
"""Distance of the prototypes from the mean, as a multiple of the mean distance of real classes."""

NUMBERS = ("rest", "tightness", "spread", "distance")


def backbone_priors(backbone: Backbone) -> Priors | None:
    """Return the classes that a backbone was trained on: the 1,000 of EfficientNet-Lite0, None for other backbones.

    Examples
    --------
    >>> from p3dc.images.backbones.loading import load_backbone
    >>> from p3dc.images.backbone_priors import backbone_priors
    >>> priors = backbone_priors(load_backbone())
    >>> priors
    Priors(1,000 base classes, 1,280 features)
    >>> priors.class_names[10:13]
    ('brambling', 'goldfinch', 'house finch')
    """
    if backbone.name != lite0.NAME:
        return None
    with as_file(files("p3dc") / "data") as folder:
        path = folder / "lite0-geometry.safetensors"
        arrays, facts = read_arrays(path, "geometry", VERSION, required=["axes", "gains", "mean"], facts=NUMBERS)
        names = (folder / "imagenet-classes.txt").read_text(encoding="utf-8").splitlines()
    rows = lite0.class_rows().astype(np.float64)
    directions = l2_normalize(rows - rows.mean(axis=0))
    prototypes = arrays["mean"].astype(np.float64) + FAR * facts.pop("distance") * directions
    axes, gains = arrays["axes"].astype(np.float64), arrays["gains"].astype(np.float64)
    whitened = whiten(prototypes, axes, gains, facts["rest"])
    geometry = Geometry(axes, gains, **facts, lengths=np.ones(len(rows)), prototypes=whitened)
    return Priors(prototypes, names, geometry=geometry)
