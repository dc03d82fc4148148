"""Refinement of class prototypes with unlabelled rows, as far as they can be believed.

Two mixtures are fitted: open, where groups and a background compete with the classes, and closed, where every row
belongs to a class, except rows of groups that are surely none of the classes. The evidence of both decides how far the
closed one is believed. How far rows count at all is decided by the support alone: the less it agrees with the mixtures
about them, the more of them are taken to be of other classes.

Shape letters: N classes, P unlabelled rows, J groups, D features.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from array_api_compat import array_namespace

from p3dc._arrays import Array, Labels, Mask, to_device_of
from p3dc.confidence.open_set import known_score
from p3dc.method import masked_softmax
from p3dc.unlabelled.balance import judge_balance
from p3dc.unlabelled.evidence import discount, expected_length, nats
from p3dc.unlabelled.matching import match_components
from p3dc.unlabelled.mixture import ComponentSums, fit_closed, fit_open, partition_evidence
from p3dc.unlabelled.proposals import centres, propose
from p3dc.unlabelled.shares import EQUAL, balancing_offsets, count_rows, offsets_by
from p3dc.unlabelled.temperature import by_cohesion, pile_temperature

Balance = Literal["equal"]

PSEUDO_OPEN = 2.0
"""Pseudo-rows that each shot counts for in the open mixture, and while rows are grouped."""

PSEUDO_CLOSED = 3.0
"""The same in the closed mixture."""

DOUBT = 4.0
"""Over N: the cost of the closed mixture for each row, in nats, at which both are believed equally.

It is multiplied by the squared share of rows outside proposed groups: where there are such groups, others are likely.
"""

KNOWN = 2 / 3
"""Share of the rows of a class in the open mixture that are of any of the classes."""


@dataclass(frozen=True, eq=False)
class Refinement:
    """What unlabelled rows say about a task.

    Attributes
    ----------
    pull : array of shape (N, D)
        What is added to the unit prototype of each class: a weighted sum of the rows.
    weights : array of shape (P, N)
        The weights of the rows in that sum.
    offsets, query_offsets : arrays of shape (N,)
        What is added to the cosines of the unlabelled rows and of other queries, for the shares of the classes and for
        errors that their cosines have in common.
    groups : array of shape (J, D)
        Centres of rows that resemble each other and none of the classes. Their length, from 0 to 1, is how well a
        centre is known.
    members : mask of shape (P, J)
        The rows of each group.
    proposed : mask of shape (J,)
        The groups that are as tight as a class and surely none of the classes, which wait for a name.
    closed : float
        How far every row outside these groups is believed to belong to a class, from 0 to 1.
    used : float
        How much of the prototypes comes from the unlabelled rows, from 0 to 1.
    coverage : float
        How evenly the rows cover the classes, from 0 for rows of one class to 1: other queries are compared with
        prototypes that have moved only so far, because a class that has moved alone would attract those of all others.
    temperature : float
        What cosines are divided by before the softmax.
    """

    pull: Array
    weights: Array
    offsets: Array
    query_offsets: Array
    groups: Array
    members: Mask
    proposed: Mask
    closed: float
    used: float
    coverage: float
    temperature: float

    def to_device_of(self, other: Array) -> "Refinement":
        """Move what queries are compared with to the library and device of another array, in its type."""
        moved = {
            name: to_device_of(getattr(self, name), other, other.dtype) for name in ("pull", "query_offsets", "groups")
        }
        return replace(self, **moved)

    def cosines(self, along: Array, together: Array, rows: Array, own_weights: Array | None = None) -> Array:
        """Return the cosines of unit rows to the refined prototypes, (Q, D) -> (Q, N).

        With ``own_weights``, (Q, N), the rows are unlabelled ones with these weights in the prototypes. Each class is
        then compared without one of its rows: the row itself, or as much of all its rows where it has no part in them.

        Parameters
        ----------
        along, together : arrays of shape (Q, N)
            Products of each unit prototype with the row and with its own pull.
        rows : array of shape (Q, D)
        own_weights : array of shape (Q, N), optional
        """
        xp = array_namespace(rows)
        towards, squared = rows @ self.pull.T, xp.vecdot(self.pull, self.pull)
        if own_weights is None:
            moved = self.coverage
            return (along + moved * towards) / xp.sqrt(1 + 2 * moved * together + moved**2 * squared)
        total = np.maximum(self.weights.sum(axis=0), 1e-12)
        one_row = (self.weights**2).sum(axis=0) / total
        kept = 1 - np.maximum(one_row - own_weights, 0) / total
        products = along + kept * towards
        squares = 1 + 2 * kept * together + kept**2 * squared - 2 * own_weights * products + own_weights**2
        return (products - own_weights) / np.sqrt(np.maximum(squares, 1e-12))

    def known(self, along: Array, cosines: Array, rows: Array) -> Array:
        """Return how surely unit rows belong to any of the classes, (Q, D) -> (Q,).

        Unlabelled rows of another class that have joined a class raise each other's cosines to it. So the prototypes
        that they moved count for half as much as they moved, and those of the support alone for the rest.

        Parameters
        ----------
        along, cosines : arrays of shape (Q, N)
            Cosines to the prototypes of the support alone, and to the refined ones.
        rows : array of shape (Q, D)
        """
        moved = self.used / 2
        return known_score((1 - moved) * along + moved * cosines, self.penalty(rows))

    def penalty(self, rows: Array) -> Array:
        """Return how much less a row counts as known because it resembles a group, (Q, D) -> (Q,)."""
        xp = array_namespace(rows)
        if not len(self.groups):
            return xp.zeros_like(rows[:, 0])
        return 0.5 * xp.max(rows @ self.groups.T, axis=1).clip(min=0)


def refine(
    prototypes: Array,
    rows: Array,
    gram: Array,
    groups: Labels,
    *,
    shots: float,
    temperature: float,
    balance: Balance | None = None,
) -> Refinement:
    """Refine the prototypes of a task.

    Parameters
    ----------
    prototypes : array of shape (N, D)
        Calibrated, unit vectors.
    rows : array of shape (P, D)
        Unit vectors.
    gram, groups
        As :func:`p3dc.unlabelled.grouping.inner_products` and :func:`p3dc.unlabelled.grouping.group_rows` return them.
    shots, temperature : float
    balance : {"equal"}, optional
        A promise that the rows hold equally many of each class and nothing else.
    """
    n_way, equal = len(prototypes), balance == "equal"
    held, held_closed = PSEUDO_OPEN * shots, PSEUDO_CLOSED * shots
    sums = ComponentSums(gram, n_way, held)
    closed_sums = ComponentSums(gram, n_way, held_closed, expected_length(held_closed) / expected_length(held))
    temperature = pile_temperature(sums, groups, temperature)
    per_evidence = nats(held, temperature)
    opened = fit_open(sums, groups, temperature, per_evidence)
    component = np.concatenate([opened, 1 - opened.sum(axis=1, keepdims=True)], axis=1).argmax(axis=1)
    cosines, n_components = sums.cosines(opened), opened.shape[1]
    members, proposed = propose(sums, component, n_components, cosines, per_evidence)
    proposed &= not equal
    kept = ~(members @ proposed)
    kept |= not kept.any()
    rest, closed_rest = sums.of(kept), closed_sums.of(kept)
    posterior = EQUAL if equal else judge_balance(closed_rest, temperature, per_evidence)
    offsets = balancing_offsets if equal else offsets_by(posterior)
    closed = np.zeros((len(rows), n_way))
    closed[kept] = fit_closed(closed_rest, temperature, offsets)
    cost = partition_evidence(rest, component[kept], n_components)
    cost = per_evidence / kept.sum() * (cost - partition_evidence(rest, closed[kept].argmax(axis=1), n_way))
    belief = 1.0 if equal else _ramp(1 - cost * n_way / (DOUBT * kept.mean() ** 2), 0.3)

    along = (rows @ prototypes.T.astype(rows.dtype)).astype(np.float64)
    by_support = masked_softmax(along / temperature, None)
    by_closed, by_open = closed, opened @ match_components(sums, opened, per_evidence).T
    if not equal:
        by_closed, by_open = _trusted(by_closed, by_support, 1.0), _trusted(by_open, by_support, KNOWN)
    weights = belief * by_closed / expected_length(held_closed) + (1 - belief) * by_open / expected_length(held)
    pull = (weights.T.astype(rows.dtype) @ rows).astype(np.float64)
    temperature = temperature * by_cohesion(opened[:, :n_way], cosines[:, :n_way], held)
    counts = (belief * by_closed + (1 - belief) * by_open).sum(axis=0)
    found = Refinement(
        pull,
        weights,
        np.zeros(n_way),
        np.zeros(n_way),
        centres(opened[:, n_way:].astype(rows.dtype), rows),
        members,
        proposed,
        belief,
        float((counts / (counts + held)).mean()),
        _coverage(counts),
        temperature,
    )
    logits = found.cosines(along, np.vecdot(prototypes, pull), rows, weights)[kept] / temperature
    scale, per_class = belief * temperature, count_rows(logits)
    uncertainty = 0.0 if equal else belief * found.used * per_class.uncertainty(posterior)
    return replace(
        found,
        offsets=scale * offsets(logits),
        query_offsets=-scale * found.coverage * per_class.errors(posterior),
        temperature=temperature * _softening(uncertainty),
    )


def _trusted(counts: Array, by_support: Array, known: float) -> Array:
    """Discount the rows that each class has in a mixture, (P, N), by how far the support alone agrees, (P, N)."""
    agreement = (counts * by_support).sum() / max(counts.sum(), 1e-12)
    return counts * discount(counts.sum(axis=0), known * agreement)


def _softening(variance: float) -> float:
    """Return what to multiply the temperature by if the offset of each class has this variance (MacKay, 1992)."""
    return float(np.sqrt(1 + np.pi / 8 * 2 * variance))


def _coverage(counts: Array) -> float:
    """Return the root of how many classes the rows effectively belong to, less one, over all classes, less one."""
    if len(counts) == 1:
        return 1.0
    effective = counts.sum() ** 2 / max((counts**2).sum(), 1e-12)
    return float(np.sqrt(max(effective - 1, 0) / (len(counts) - 1)))


def _ramp(value: float, width: float) -> float:
    """Rise from 0 to 1 around zero."""
    return float(np.clip(0.5 + value / width, 0, 1))
