"""S2M2_R: the head of Baseline++ trained for longer."""

from p3dc.baselines.sgd import SGDHead


class S2M2Head(SGDHead):
    """Cosine head with a learned length for each class, trained for 300 epochs on the support of each task.

    What makes the published method is how its backbone is trained, with rotations and manifold mixup; here features
    are fixed and only its head is left.

    Parameters
    ----------
    scale : float, default=2.0
        Multiplies the cosines.
    n_epochs : int, default=300
        How often every support sample is seen.
    random_state : int, default=0
        Seed of the first weights and of the order of the samples.

    Examples
    --------
    >>> from p3dc.baselines.s2m2 import S2M2Head
    >>> S2M2Head().fit([[1.0, 0.0], [0.0, 1.0]], ["wren", "robin"]).predict([[1.0, 3.0]])
    array(['robin'], dtype='<U5')
    """

    weight_norm = True

    def __init__(self, *, scale: float = 2.0, n_epochs: int = 300, random_state: int = 0) -> None:
        super().__init__(scale=scale, n_epochs=n_epochs, random_state=random_state)
