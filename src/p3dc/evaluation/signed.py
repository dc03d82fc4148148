"""Features with negative entries: which methods are not defined for them."""

from collections.abc import Mapping, Sequence
from typing import Any

from p3dc._validation import has_negative
from p3dc.baselines.registry import METHODS
from p3dc.errors import InputError
from p3dc.evaluation.runners import WithoutPile
from p3dc.features import FeatureSet

REASON = (
    "a root of negative features is not defined; auto, the adaptive P3DCClassifier(priors), takes features of any sign"
)


def undefined_classifiers(classifiers: Mapping[str, Any], features: FeatureSet) -> list[str]:
    """List the classifiers that say by their scikit-learn tags that they need what these features are not."""
    needing = [name for name, classifier in classifiers.items() if _positive_only(classifier)]
    return needing if needing and has_negative(features.features) else []


def undefined_methods(methods: Sequence[str], sets: Sequence[FeatureSet], power: float) -> list[str]:
    """List the keys of methods that take a root of negative features; "p3dc" takes one unless its power is 1."""
    needing = [key for key in methods if (power != 1 if key == "p3dc" else key in METHODS and METHODS[key].takes_roots)]
    return needing if needing and any(has_negative(each.features) for each in sets) else []


def refuse(names: Sequence[str]) -> InputError:
    """Return the error where nothing is left to run."""
    return InputError(f"Negative values in data: {', '.join(names)} cannot be run, because {REASON}.")


def _positive_only(classifier: Any) -> bool:
    if isinstance(classifier, WithoutPile):
        return _positive_only(classifier.classifier)
    tags = getattr(classifier, "__sklearn_tags__", None)
    return tags is not None and bool(tags().input_tags.positive_only)
