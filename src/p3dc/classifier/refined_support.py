"""A calibrated support that was refined with unlabelled rows."""

from dataclasses import replace

from p3dc._arrays import Array
from p3dc.adaptive.space import WhitenedSpace, class_averages, members
from p3dc.adaptive.weights import typical_shots
from p3dc.classifier.calibrated_support import CalibratedSupport, calibrate_support
from p3dc.method import l2_normalize
from p3dc.priors.geometry import Geometry
from p3dc.priors.prototypes import Priors
from p3dc.unlabelled.grouping import group_rows, pile_centre
from p3dc.unlabelled.refinement import PSEUDO_OPEN, Balance, refine


def refine_support(
    calibrated: CalibratedSupport,
    support: Array,
    rows: Array,
    priors: Priors,
    geometry: Geometry,
    balance: Balance | None,
) -> CalibratedSupport:
    """Refine a calibrated support with unlabelled rows.

    Rows are grouped first, so that the centre of the task can be estimated from classes and groups. The support is
    calibrated again from that centre, and its prototypes are refined.

    Parameters
    ----------
    calibrated : CalibratedSupport
        In the whitened space of the geometry.
    support, rows : arrays of shape (S, D) and (P, D)
        Features as they were given.
    priors : Priors
    geometry : Geometry
    balance : {"equal"}, optional
        A promise that rows are of the classes alone, equally many of each.
    """
    belonging, space = members(calibrated.labels), WhitenedSpace(geometry)
    averages, shots = class_averages(belonging), typical_shots(belonging)
    whitened_support, whitened = space.whiten(support), space.whiten(rows)

    def grouped(found: CalibratedSupport) -> tuple[Array, Array, Array, Array]:
        """Return prototypes, rows in the space of the task, inner products and groups."""
        prototypes = l2_normalize(averages @ found.samples)
        placed = replace(space, centre=None if found.space is None else found.space.centre).centred(whitened)
        return prototypes, placed, *group_rows(prototypes, placed, PSEUDO_OPEN * shots)

    groups = grouped(calibrated)[3]
    centre = pile_centre(whitened_support, calibrated.labels, whitened, groups, geometry.mean)
    again = calibrate_support(support, calibrated.labels, priors, calibrated.settings, centre)
    refinement = refine(*grouped(again), shots=shots, temperature=again.temperature, balance=balance)
    return replace(again, refinement=refinement)
