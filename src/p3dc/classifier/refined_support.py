"""A calibrated support that was refined with unlabelled rows."""

from dataclasses import replace

from p3dc._arrays import Array, Labels
from p3dc.adaptive.settings import Settings
from p3dc.adaptive.space import WhitenedSpace, class_averages, members
from p3dc.adaptive.weights import typical_shots
from p3dc.classifier.calibrated_support import CalibratedSupport, calibrate_whitened
from p3dc.method import l2_normalize
from p3dc.priors.geometry import Geometry
from p3dc.unlabelled.grouping import group_rows, inner_products, pile_centre
from p3dc.unlabelled.refinement import PSEUDO_OPEN, Balance, refine


def refine_support(
    support: Array, labels: Labels, rows: Array, geometry: Geometry, settings: Settings, balance: Balance | None
) -> CalibratedSupport:
    """Calibrate the support of one task and refine it with unlabelled rows.

    Rows are grouped first, so that the centre of the task can be estimated from classes and groups. Seen from that
    centre, the support is calibrated and the rows are grouped again, and its prototypes are refined.

    Parameters
    ----------
    support, rows : arrays of shape (S, D) and (P, D)
        Whitened by the geometry.
    labels : array of shape (S,)
        The class of each sample, a number from 0 on.
    geometry : Geometry
    settings : Settings
    balance : {"equal"}, optional
        A promise that rows are of the classes alone, equally many of each.
    """
    belonging = members(labels)
    averages, shots = class_averages(belonging), typical_shots(belonging)

    def seen_from(space: WhitenedSpace) -> tuple[CalibratedSupport, tuple[Array, Array, Array, Labels]]:
        """Return the calibrated support, and what :func:`refine` needs of the task in that space."""
        found = calibrate_whitened(support, labels, space, settings)
        prototypes, own_rows = l2_normalize(averages @ found.samples), space.centred(rows)
        gram = inner_products(prototypes, own_rows, PSEUDO_OPEN * shots)
        return found, (prototypes, own_rows, gram, group_rows(gram, len(averages), PSEUDO_OPEN * shots))

    space = WhitenedSpace(geometry).centred_on(support, averages)
    found, task = seen_from(space)
    centre = pile_centre(support, labels, rows, task[-1], geometry.mean)
    if (centre != space.centre).any():
        found, task = seen_from(replace(space, centre=centre))
    refinement = refine(*task, shots=shots, temperature=found.temperature, balance=balance)
    return replace(found, refinement=refinement)
