"""A pipeline whose steps transform base features, support and queries alike."""

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.pipeline import make_pipeline as join_steps

from p3dc.classifier.estimator import P3DCClassifier
from p3dc.features import FeatureSet, LabelledFeatures, as_feature_set
from p3dc.priors.prototypes import Priors


def make_pipeline(*steps: Any, base: LabelledFeatures, **parameters: Any) -> Pipeline:
    """Put transforming steps in front of a :class:`P3DCClassifier`.

    In a ``Pipeline`` of scikit-learn, a step would be fitted to the few samples of the support and would not transform
    the priors. Here steps are fitted to the base features, once, and the priors are those of the transformed base
    features.

    Parameters
    ----------
    *steps : transformers of scikit-learn
        Copies of them are fitted, each to what the last one returns.
    base : FeatureSet, (X, y) or mapping from class to rows
        Features of the base classes, as the network gives them.
    **parameters
        Parameters of :class:`P3DCClassifier`, apart from ``priors``.

    Returns
    -------
    sklearn.pipeline.Pipeline
        Its steps stay as they are when it is fitted or cloned.

    Examples
    --------
    >>> from p3dc import make_pipeline
    >>> from p3dc.demo import load_sample
    >>> from sklearn.preprocessing import StandardScaler
    >>> birds = load_sample()
    >>> pipeline = make_pipeline(StandardScaler(), base=birds.validation)
    >>> features, labels = birds.novel.features, birds.novel.labels
    >>> pipeline.fit(features[[0, 1, 32, 33, 64, 65]], labels[[0, 1, 32, 33, 64, 65]]).predict(features[[5, 40, 90]])
    array([0, 1, 2])
    """
    whole = as_feature_set(base)
    rows = whole.features.astype(np.float32) if whole.features.dtype == np.float16 else whole.features
    frozen = []
    for step in steps:
        fitted = clone(step).fit(rows, whole.labels)
        rows = fitted.transform(rows)
        frozen.append(FrozenEstimator(fitted))
    priors = Priors.from_features(FeatureSet(rows, whole.labels, whole.class_names))
    return join_steps(*frozen, P3DCClassifier(priors, **parameters))
