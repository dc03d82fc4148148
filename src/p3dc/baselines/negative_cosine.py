"""Negative-Cosine: a plain cosine head."""

from p3dc.baselines.sgd import SGDHead


class NegativeCosine(SGDHead):
    """Cosine head without a margin, trained on the support of each task.

    The negative margin of the published method acts while its backbone is trained on the base classes; here features
    are fixed, and at test the margin is 0.

    Parameters
    ----------
    scale : float, default=5.0
        Multiplies the cosines.
    n_epochs : int, default=100
        How often every support sample is seen.
    random_state : int, default=0
        Seed of the first weights and of the order of the samples.

    Examples
    --------
    >>> from p3dc.baselines.negative_cosine import NegativeCosine
    >>> NegativeCosine().fit([[1.0, 0.0], [0.0, 1.0]], ["wren", "robin"]).predict([[1.0, 3.0]])
    array(['robin'], dtype='<U5')
    """

    weight_norm = False

    def __init__(self, *, scale: float = 5.0, n_epochs: int = 100, random_state: int = 0) -> None:
        super().__init__(scale=scale, n_epochs=n_epochs, random_state=random_state)
