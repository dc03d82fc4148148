"""One task at every point of the triangle.

α and β enter where the corners of a sample's triangle are mixed. What comes before is computed once and kept as inner
products, so a point that is dragged is followed at once.

Shape letters: S support, N classes, K samples of a class, Q queries, D features.
"""

import numpy as np
import numpy.typing as npt

from p3dc import method
from p3dc.adaptive import rule as auto
from p3dc.classifier.calibrated_support import Array, Calibration, Labels, calibrate_alone, class_turns, evenly
from p3dc.priors.prototypes import Priors

Point = tuple[float, float]

MOST_HELD_OUT = 60
"""How many samples in turn are labelled by the others."""


class Triangle:
    """Queries and a prepared support, at any (α, β).

    Parameters
    ----------
    calibration : Calibration
        Of prepared features.
    queries : array of shape (Q, D)
    """

    def __init__(self, calibration: Calibration, queries: Array) -> None:
        self.point = calibration.alpha, calibration.beta
        self.spread = None if calibration.geometry is None else calibration.geometry.spread
        corners = calibration.corners()
        flat = corners.reshape(-1, corners.shape[-1])
        products = method.l2_normalize(calibration.prepare(queries)) @ flat.T
        products = products.reshape(len(queries), *corners.shape[:2])
        self.classes = []
        for label in range(int(calibration.labels.max()) + 1):
            own = np.flatnonzero(calibration.labels == label)
            vectors = corners[own].reshape(-1, flat.shape[1])
            grams = (vectors @ vectors.T).reshape(2 * (len(own), corners.shape[1]))
            self.classes.append((products[:, own], grams))

    def cosines(self, point: Point | None = None) -> Array:
        """Score every class for every query at a point, or at the one that was chosen for the task, (Q, N)."""
        alpha, beta = self.point if point is None else point
        weights = np.array([1 - alpha - beta, alpha, beta])
        return np.stack([_attend(products, grams, weights) for products, grams in self.classes], axis=1)


def _attend(products: Array, grams: Array, weights: Array) -> Array:
    """Score one class for all queries, (Q, K, 3), (K, 3, K, 3), (3,) -> (Q,)."""
    kernel = np.einsum("kvlw,v,w->kl", grams, weights, weights)
    lengths = np.sqrt(np.maximum(np.diagonal(kernel), np.finfo(kernel.dtype).tiny))
    kernel = kernel / np.outer(lengths, lengths)
    logits = products @ weights / lengths
    attention = method.masked_softmax(logits, None)
    scores: Array = np.vecdot(attention, logits) / np.sqrt(np.vecdot(attention @ kernel, attention))
    return scores


class Strangers:
    """Each class in turn as a stranger to the others, to tell from what cosine on a query is known.

    Parameters
    ----------
    support : array of shape (S, D)
    labels : array of shape (S,)
        The class of each sample, a number from 0 on, of two classes or more.
    priors : Priors, optional
    """

    def __init__(self, support: Array, labels: Labels, priors: Priors | None) -> None:
        self.n_way = int(labels.max()) + 1
        self.turns = [
            Triangle(calibrate_alone(support[others], left, priors), support[~others])
            for others, left in class_turns(labels)
        ]

    def threshold(self, share: float, point: Point | None = None) -> float:
        """Find the largest cosine that this share of samples of other classes stays below."""
        cosines = np.concatenate([turn.cosines(point).ravel() for turn in self.turns])
        return auto.stranger_threshold(cosines, self.n_way, share, self.turns[0].spread)


class LeaveOneOut:
    """Each sample in turn, labelled by all others.

    A sample that is alone in its class has no turn. Of many samples some have one.

    Parameters
    ----------
    support : array of shape (S, D)
    labels : array of shape (S,)
        The class of each sample, a number from 0 on.
    priors : Priors, optional

    Attributes
    ----------
    rows : array of shape (n,)
        The samples that have a turn.
    n_possible : int
        How many could have one.
    """

    def __init__(self, support: Array, labels: Labels, priors: Priors | None) -> None:
        possible = np.flatnonzero(np.bincount(labels)[labels] > 1)
        self.rows: npt.NDArray[np.int64] = possible[evenly(len(possible), MOST_HELD_OUT)]
        self.n_possible = len(possible)
        self.labels = labels[self.rows]
        self.turns = []
        for row in self.rows:
            rest = np.arange(len(labels)) != row
            self.turns.append(Triangle(calibrate_alone(support[rest], labels[rest], priors), support[~rest]))

    def right(self, point: Point | None = None) -> npt.NDArray[np.bool_]:
        """Tell which samples get their label, at a point or each at the one that is chosen for it, (n,)."""
        found = [int(turn.cosines(point)[0].argmax()) for turn in self.turns]
        return np.equal(found, self.labels)
