"""The label of a photo."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Prediction:
    """The label of a photo.

    Attributes
    ----------
    key : str
        The photo's name.
    label : str
        Its class, or "unknown"; empty where the photo could not be read.
    probability : float
        That of the likeliest class.
    runner_up : str
        The class that is next; where the label is "unknown", the likeliest class.
    runner_up_probability : float
    rejected : bool
        Whether the photo belongs to none of the classes.
    failure : str
        Why there is no label, or nothing.
    """

    key: str
    label: str
    probability: float = float("nan")
    runner_up: str = ""
    runner_up_probability: float = float("nan")
    rejected: bool = False
    failure: str = ""
