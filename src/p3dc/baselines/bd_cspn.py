"""BD-CSPN: cosine prototypes, rectified by pseudo-labelled queries that were shifted onto the support."""

import numpy as np

from p3dc._arrays import Array
from p3dc.baselines.transductive import CentredMethod, rectify
from p3dc.method import l2_normalize
from p3dc.priors.prototypes import Priors


class BDCSPN(CentredMethod):
    """Largest cosine to prototypes that are estimated from the support and the shifted queries together.

    Parameters
    ----------
    priors : Priors, optional
        Their mean is subtracted from all features.
    scale : float, default=10.0
        Multiplies the cosines whose softmax weighs the samples; ε in the publication.

    Examples
    --------
    >>> from p3dc.baselines import BDCSPN
    >>> model = BDCSPN().fit([[1.0, 0.0], [0.0, 1.0]], ["wren", "robin"])
    >>> model.predict([[1.0, 3.0], [2.0, 3.0], [9.0, 1.0]])
    array(['robin', 'robin', 'wren'], dtype='<U5')
    """

    differs = (
        "the network is not trained with a cosine head; as in the code of α-TIM's authors, features are centred by the "
        "base mean, weights are a softmax over classes, and queries are shifted for the prototypes only, which is "
        "better on unequal classes"
    )

    def __init__(self, priors: Priors | None = None, *, scale: float = 10.0) -> None:
        super().__init__(priors)
        self.scale = scale

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Rectify the prototypes and compute the cosines of the queries to them."""
        support, own = state
        queries = self._transform(queries)
        return np.asarray(queries @ l2_normalize(rectify(support, own, queries, self.scale)).mT)
