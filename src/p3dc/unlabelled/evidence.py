"""How likely it is that rows share a class: Bayes factors of sets of unit vectors.

In the whitened space of a task, a row of a class with mean direction μ is modelled as R μ + noise, where R² of its
energy lies along the mean. The log evidence that n rows with the sum S share a class, less that of n rows without a
common class, is for each dimension

    e(n, |S|²) = ½ [λ |S|² / ((1 − R²)(1 + nλ)) − log(1 + nλ)],    λ = R² / (1 − R²).

So e(a ∪ b) − e(a) − e(b) is the log Bayes factor that two sets share a class. Its sign does not depend on the number of
dimensions. ``docs/explanation/unlabelled.md`` shows what was measured.
"""

from typing import Any

import numpy as np

from p3dc._arrays import Array

COHESION = 0.2
"""R², the squared cosine of a row to the mean of its class, for classes that are new to the network."""

RATIO = COHESION / (1 - COHESION)

SCALE = RATIO / (1 - COHESION)


def evidence(n: Any, squared_length: Any) -> Array:
    """Return the log evidence that n rows whose sum has this squared length share a class, for each dimension."""
    return 0.5 * twice_evidence(1 + n * RATIO, SCALE * squared_length)


def twice_evidence(growth: Any, scaled: Any) -> Array:
    """Return twice the log evidence, from 1 + nλ and the squared length times ``SCALE``."""
    return scaled / growth - np.log(growth)


def bayes_factor(n: Any, squared: Any, m: Any, other_squared: Any, product: Any) -> Array:
    """Return the log Bayes factor that two sets share a class.

    ``n`` and ``m`` are their sizes, ``squared`` and ``other_squared`` the squared lengths of their sums, and
    ``product`` is the inner product of the sums.
    """
    together = evidence(n + m, squared + other_squared + 2 * product)
    return together - evidence(n, squared) - evidence(m, other_squared)


def expected_length(n: float) -> float:
    """Return the expected length of the sum of n rows of one class."""
    return float(n * np.sqrt(COHESION + (1 - COHESION) / n))


def expected_cosine(n: Any) -> Array:
    """Return the expected cosine of a row to the mean of n other rows of its class."""
    return np.asarray(COHESION / np.sqrt(COHESION + (1 - COHESION) / n))


def discount(n: Any, share: Any) -> Array:
    """Return what each of n rows counts for as evidence of a class that only a share of them belongs to, from 0 to 1.

    The mean of such rows is s μ + (1 − s) ν, where ν is the mean of another class. Divided by s it observes μ with an
    error that no number of rows averages out, so that n rows count as n / (1 + n λ ((1 − s) / s)²).
    """
    share = np.clip(share, 1e-6, 1)
    return 1 / (1 + n * RATIO * ((1 - share) / share) ** 2)


def nats(n: float, temperature: float) -> float:
    """Return what turns evidence into nats.

    It makes the evidence for a class of n rows discriminate as sharply as cosines divided by the temperature.
    """
    slope = expected_length(n) * SCALE / (1 + (n + 1) * RATIO)
    return float(1 / (temperature * slope))
