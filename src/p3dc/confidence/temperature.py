"""From cosines to probabilities: the temperature of a softmax."""

from typing import Any

from p3dc._arrays import Array
from p3dc._validation import is_number
from p3dc.errors import InputError
from p3dc.method import masked_softmax

PLAIN_TEMPERATURE = 0.03
"""For features as they are; chosen on validation classes by ``benchmarks/temperature.py``."""

MANY_SHOTS = 0.05
ONE_SHOT = 0.0225
"""For the whitened space: the temperature with many shots, and what one shot adds; see ``docs/explanation/auto.md``."""


def temperature(shots: float, *, whitened: bool) -> float:
    """Return what cosines are divided by before the softmax."""
    return MANY_SHOTS + ONE_SHOT / shots if whitened else PLAIN_TEMPERATURE


def probabilities(cosines: Array, temperature: float) -> Array:
    """Turn cosines into probabilities of the classes, (..., N) -> (..., N)."""
    return masked_softmax(cosines / temperature, None)


def check_temperature(temperature: Any) -> float | None:
    """Return a positive temperature, or None where it follows from the shots; refuse anything else."""
    if temperature is None:
        return None
    if not is_number(temperature) or temperature <= 0:
        raise InputError(f"temperature is {temperature!r}. It must be a number more than 0, or None.")
    return float(temperature)
