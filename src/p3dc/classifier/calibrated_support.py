"""The support of one task after calibration, and queries scored by it."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from array_api_compat import array_namespace

from p3dc import method
from p3dc._arrays import Array, Labels, Mask, to_device_of
from p3dc.adaptive import weights
from p3dc.adaptive.settings import Settings
from p3dc.adaptive.space import WhitenedSpace, class_averages, members
from p3dc.confidence.open_set import known_score
from p3dc.confidence.temperature import temperature
from p3dc.priors.prototypes import Priors
from p3dc.scoring.kernel import triangle
from p3dc.unlabelled.refinement import Refinement

QUERY_BYTES = 2**26
"""What the prototypes of one block of queries may take."""


class Scores(NamedTuple):
    """Scores of queries.

    Attributes
    ----------
    cosines : array of shape (Q, N)
        To the classes.
    known : array of shape (Q,)
        How surely each query belongs to any of the classes.
    grouped : mask of shape (Q,), or None
        Which of them belong to a group that waits for a name.
    """

    cosines: Array
    known: Array
    grouped: Mask | None = None


@dataclass(frozen=True, eq=False)
class CalibratedSupport:
    """A calibrated support and the space in which queries are compared with it.

    Attributes
    ----------
    samples : array of shape (S, D)
        The calibrated support, normalised.
    labels : array of shape (S,)
        The class of each sample, a number from 0 on.
    settings : Settings
    alpha, beta : float
        The weights that were used; 0 where nothing pulls.
    space : WhitenedSpace or None
        None for features as they are.
    normalised : array of shape (S, D)
        The support in that space, x̄.
    transformed, prototypes : arrays of shape (S, D) and (B, D), or None
        The samples that were pulled and the base prototypes that pulled them, the latter as seen from the origin; None
        where nothing did.
    ends : pair of arrays of shape (S, D), or None
        Both endpoints of each sample, s and t.
    relevance : float or None
        How well the priors fit the task, where that is known.
    refinement : Refinement or None
        What unlabelled rows say about the classes, where there are any.
    """

    samples: Array
    labels: Labels
    settings: Settings
    alpha: float
    beta: float
    space: WhitenedSpace | None
    normalised: Array
    transformed: Array | None = None
    prototypes: Array | None = None
    ends: tuple[Array, Array] | None = None
    relevance: float | None = None
    refinement: Refinement | None = None

    @property
    def has_geometry(self) -> bool:
        """Whether features are whitened by what is known of base classes."""
        return self.space is not None and self.space.geometry is not None

    @property
    def temperature(self) -> float:
        """What cosines are divided by before the softmax, unless a temperature is given."""
        if self.refinement is not None:
            return self.refinement.temperature
        return temperature(weights.typical_shots(members(self.labels)), whitened=self.has_geometry)

    def to_device_of(self, queries: Array) -> "CalibratedSupport":
        """Move what queries are compared with to their library and device, in their type."""
        return replace(
            self,
            samples=to_device_of(self.samples, queries, queries.dtype),
            space=None if self.space is None else self.space.to_device_of(queries),
            refinement=None if self.refinement is None else self.refinement.to_device_of(queries),
        )

    def transform(self, queries: Array) -> Array:
        """Bring queries into the space of the support, (Q, D) -> (Q, D)."""
        return queries if self.space is None else self.space.transform(queries)

    def at(self, alpha: float, beta: float) -> "CalibratedSupport":
        """Move the samples to another point of their triangles; where nothing pulls, there is no other point."""
        if self.ends is None:
            return self
        samples = method.unify(self.normalised, *self.ends, alpha, beta)
        return replace(self, samples=samples, alpha=alpha, beta=beta)

    def without_priors(self) -> "CalibratedSupport":
        """Drop what only explanations need."""
        return replace(self, transformed=None, prototypes=None)

    def corners(self) -> Array:
        """Return the triangle of each sample, x̄, s̄ and t̄; all the same where nothing pulls, (S, 3, D)."""
        if self.ends is None:
            return np.repeat(self.samples[:, None], 3, axis=1)
        return triangle(self.normalised, *self.ends)

    def cosines(self, queries: Array) -> Array:
        """Score every class for every query, (Q, D) -> (Q, N)."""
        return self.scores(queries).cosines

    def scores(self, queries: Array) -> Scores:
        """Score queries, (Q, D), a bounded number of them at a time."""
        n_way, n_shot, n_features = self._by_class[0].shape
        size = max(1, QUERY_BYTES // (8 * n_way * (n_features + n_shot)))
        cosines, known = [], []
        for start in range(0, len(queries), size):
            found = self.scores_of(self.transform(queries[start : start + size]))
            cosines.append(found.cosines if self.refinement is None else found.cosines + self.refinement.query_offsets)
            known.append(found.known)
        concat = array_namespace(queries).concat
        return Scores(concat(cosines), concat(known))

    def scores_of(self, transformed: Array, own_weights: Array | None = None) -> Scores:
        """Score queries that are in the space of the support, (Q, D), without offsets.

        ``own_weights``, (Q, N), are the weights of unlabelled rows in the prototypes, of which one is then left out.
        Refined prototypes are never made for each query: their products with it follow from those of the samples.
        """
        by_class, present = self._by_class
        if self.refinement is None:
            cosines = method.classify(transformed, by_class, present, self.settings.attention)
            return Scores(cosines, known_score(cosines))
        attention = method.attention_weights(transformed, by_class, present, self.settings.attention)
        xp, refinement = array_namespace(transformed), self.refinement
        lengths = xp.sqrt(xp.vecdot(attention, attention @ (by_class @ by_class.mT)))
        shrinking = 1 / xp.where(lengths == 0, xp.ones_like(lengths), lengths)
        along = xp.vecdot(attention, transformed @ by_class.mT) * shrinking
        together = xp.vecdot(attention, (by_class @ refinement.pull[..., None]).mT) * shrinking
        cosines = refinement.cosines(along.mT, together.mT, transformed, own_weights)
        return Scores(cosines, refinement.known(along.mT, cosines, transformed))

    @cached_property
    def _by_class(self) -> tuple[Array, Mask]:
        """The samples as (N, K, D), K the size of the largest class, with a mask of the places that are filled."""
        counts = np.bincount(self.labels)
        order = np.argsort(self.labels, kind="stable")
        place = np.arange(counts.max())
        present = place < counts[:, None]
        first = (np.cumsum(counts) - counts)[:, None]
        rows = order[first + np.where(present, place, 0)]
        return self.samples[to_device_of(rows, self.samples)], to_device_of(present, self.samples)

    def pulls(self) -> tuple[Array, Array, Array]:
        """Return which base classes pull each sample, on its own and with its task, and how much.

        Returns
        -------
        similarities : array of shape (S, B)
        chosen : mask of shape (S, 2, B)
            Sample level, then task level.
        weights : array of shape (S, 2, B)
        """
        prototypes = self.prototypes if self.space is None else self.space.centred(self.prototypes)
        similarities = method.prior_similarities(self.transformed, prototypes)
        nearest = method.nearest_priors(similarities, self.settings.n_nearest)
        xp = array_namespace(nearest)
        shared = xp.broadcast_to(method.task_priors(nearest), nearest.shape)
        chosen = xp.stack([nearest, shared], axis=1)
        return similarities, chosen, method.prior_weights(similarities[:, None], chosen, self.settings.prior_scale)


def calibrate_support(support: Array, labels: Labels, priors: Priors | None, settings: Settings) -> CalibratedSupport:
    """Calibrate the support of one task.

    Without priors, and in the whitened space without their geometry, the support is only normalised.

    Parameters
    ----------
    support : array of shape (S, D)
    labels : array of shape (S,)
        The class of each sample, a number from 0 on.
    priors : Priors, optional
    settings : Settings
    """
    if settings.whitened:
        space = WhitenedSpace(None if priors is None else priors.geometry).to_device_of(support)
        whitened = space.whiten(support)
        averages = class_averages(to_device_of(members(labels), support))
        return calibrate_whitened(whitened, labels, space.centred_on(whitened, averages), settings)
    normalised = method.l2_normalize(support)
    if priors is None:
        return CalibratedSupport(normalised, labels, settings, 0.0, 0.0, None, normalised)
    alpha, beta = settings.fixed_weights()
    prototypes = to_device_of(priors.prototypes, support, support.dtype)
    transformed = method.tukey(support, settings.power)
    ends = method.endpoints(transformed, prototypes, n_nearest=settings.n_nearest, power=1, scale=settings.prior_scale)
    samples = method.unify(normalised, *ends, alpha, beta)
    return CalibratedSupport(samples, labels, settings, alpha, beta, None, normalised, transformed, prototypes, ends)


def calibrate_whitened(
    whitened: Array, labels: Labels, space: WhitenedSpace, settings: Settings, products: Array | None = None
) -> CalibratedSupport:
    """Calibrate a whitened support, (S, D), in the space of its task.

    ``products``, (S, B), are its inner products with the base prototypes, where they are known.
    """
    geometry = space.geometry
    if geometry is None:
        return CalibratedSupport(whitened, labels, settings, 0.0, 0.0, space, whitened)
    belonging = members(labels)
    samples = space.centred(whitened)
    ends = _whitened_endpoints(whitened, samples, space, settings, products)
    relevant = weights.relevance(samples, ends[1], class_averages(to_device_of(belonging, whitened)))
    point = settings.weights
    if point is None:
        shots, tightness = weights.typical_shots(belonging), geometry.tightness
        point = 0.0, weights.choose_beta(relevant, samples, ends[1], shots, tightness).item()
    calibrated = method.unify(samples, *ends, *point)
    return CalibratedSupport(
        calibrated, labels, settings, *point, space, samples, samples, geometry.prototypes, ends, relevant.item()
    )


def _whitened_endpoints(
    whitened: Array, samples: Array, space: WhitenedSpace, settings: Settings, products: Array | None
) -> tuple[Array, Array]:
    """Find both endpoints of each sample in the space of its task; only the sums of base prototypes are centred."""
    assert space.geometry is not None
    prototypes = space.geometry.prototypes
    cosines, lengths = space.prior_cosines(whitened, whitened @ prototypes.mT if products is None else products)
    nearest = method.nearest_priors(cosines, settings.n_nearest)
    xp = array_namespace(nearest)
    used = xp.nonzero(xp.any(nearest, axis=0))[0]  # the others weigh nothing
    cosines, nearest, prototypes = cosines[:, used], nearest[:, used], prototypes[used]

    def end(chosen: Array) -> Array:
        weights = method.prior_weights(cosines, chosen, settings.prior_scale) / lengths[used]
        return method.pull(samples, prototypes, weights) - xp.sum(weights, axis=1, keepdims=True) * space.centre

    return end(nearest), end(method.task_priors(nearest))
