"""Which base classes pull each sample, as a table."""

from typing import TYPE_CHECKING

import numpy as np

from p3dc._arrays import as_numpy
from p3dc.classifier.fitted import FittedClassifier
from p3dc.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa


def pull_table(fitted: FittedClassifier) -> "pa.Table":
    """List the base classes that pull each support sample, strongest first."""
    import pyarrow as pa

    if fitted.priors is None or fitted.calibrated.transformed is None:
        raise InputError("there are no priors that pull the samples. Fit with priors to explain them.")
    similarities, chosen, weights = map(as_numpy, fitted.calibrated.pulls())
    support, level, prior = np.nonzero(chosen)
    order = np.lexsort((-weights[support, level, prior], level, support))
    support, level, prior = support[order], level[order], prior[order]
    return pa.table(
        {
            "support": support,
            "label": fitted.classes[fitted.labels[support]],
            "level": np.array(["sample", "task"])[level],
            "prior": np.array(fitted.priors.class_names)[prior],
            "similarity": similarities[support, prior],
            "weight": weights[support, level, prior],
        }
    )
