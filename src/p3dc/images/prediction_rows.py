"""Predictions as rows of a CSV."""

from p3dc.images.predictions import Prediction

COLUMNS = ("path", "label", "probability", "runner_up", "runner_up_probability", "failure")


def row(found: Prediction) -> list[str]:
    """Format a prediction as one row; probabilities that are NaN become empty cells."""
    numbers = found.probability, found.runner_up_probability
    probability, next_probability = ("" if number != number else f"{number:.4f}" for number in numbers)
    return [found.key, found.label, probability, found.runner_up, next_probability, found.failure]
