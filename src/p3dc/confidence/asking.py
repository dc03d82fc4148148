"""Active learning: how doubtful labels are, and which of them a user should be asked for first.

Shape letters: P unlabelled rows, N classes, D features.
"""

import numpy as np

from p3dc._arrays import Floats, Rows

MOST_COMPARED = 500
"""Rows that are compared with each other; of more, the most doubtful ones."""

MOST_CHOSEN = 60
"""Rows that are chosen one after the other; the rest follows by doubt."""


def doubt(probabilities: Floats) -> Floats:
    """Return 1 minus the distance between the two largest probabilities of each row, (P, N) -> (P,)."""
    if probabilities.shape[1] < 2:
        return np.zeros(len(probabilities))
    second, first = np.partition(probabilities, -2, axis=1)[:, -2:].T
    return np.asarray(1 - (first - second))


def asking_order(doubts: Floats, rows: Floats) -> Rows:
    """Order rows so that those whose label would teach most come first.

    A label teaches about the rows that resemble the one that has it. So each choice is the row that covers most of the
    doubt that is left: the sum over all rows of their doubt times how much nearer they are to this row than to any that
    was chosen before. Outliers resemble nothing and near-duplicates of a choice add nothing, so both come late.

    Parameters
    ----------
    doubts : array of shape (P,)
    rows : array of shape (P, D)
        Unit vectors, in the space where they are compared with the classes.

    Returns
    -------
    array of shape (P,)
        Numbers of rows.
    """
    by_doubt = np.argsort(-doubts, kind="stable")
    compared = by_doubt[:MOST_COMPARED]
    alike = np.maximum(rows[compared] @ rows[compared].T, 0)
    weights, covered = doubts[compared], np.zeros(len(compared))
    chosen: list[int] = []
    for _ in range(min(len(compared), MOST_CHOSEN)):
        gains = np.maximum(alike - covered, 0) @ weights
        gains[chosen] = -1
        chosen.append(int(gains.argmax()))
        covered = np.maximum(covered, alike[chosen[-1]])
    first = compared[chosen]
    return np.concatenate([first, by_doubt[~np.isin(by_doubt, first)]])
