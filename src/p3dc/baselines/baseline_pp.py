"""Baseline++: a weight-normalised cosine head."""

from p3dc.baselines.sgd import SGDHead


class BaselinePP(SGDHead):
    """Cosine head with a learned length for each class, trained on the support of each task.

    The published method also trains its backbone on the base classes with such a head; here features are fixed.

    Parameters
    ----------
    scale : float, default=2.0
        Multiplies the cosines; the published value is 2, and 4 on CUB.
    n_epochs : int, default=100
        How often every support sample is seen.
    random_state : int, default=0
        Seed of the first weights and of the order of the samples.

    Examples
    --------
    >>> from p3dc.baselines.baseline_pp import BaselinePP
    >>> BaselinePP().fit([[1.0, 0.0], [0.0, 1.0]], ["wren", "robin"]).predict([[1.0, 3.0]])
    array(['robin'], dtype='<U5')
    """

    weight_norm = True

    def __init__(self, *, scale: float = 2.0, n_epochs: int = 100, random_state: int = 0) -> None:
        super().__init__(scale=scale, n_epochs=n_epochs, random_state=random_state)
