"""Labels as rows of a table."""

from p3dc.images.classifier import Prediction

COLUMNS = ("path", "label", "probability", "runner_up", "runner_up_probability", "failure")


def row(found: Prediction) -> list[str]:
    """Write a prediction as one row; numbers that are not there are left out."""
    numbers = found.probability, found.runner_up_probability
    likely, next_likely = ("" if number != number else f"{number:.4f}" for number in numbers)
    return [found.key, found.label, likely, found.runner_up, next_likely, found.failure]
