"""Few-shot classification without training.

Public names are imported when they are first used, so that a command imports only what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from p3dc.classifier import P3DCClassifier
    from p3dc.evaluation import compare, evaluate
    from p3dc.features import FeatureSet
    from p3dc.images.classifier import ImageClassifier
    from p3dc.priors import Priors
    from p3dc.selection import search
    from p3dc.tasks import sample_tasks

__all__ = ["FeatureSet", "ImageClassifier", "P3DCClassifier", "Priors", "compare", "evaluate", "sample_tasks", "search"]

HOMES = {
    "FeatureSet": "features",
    "ImageClassifier": "images.classifier",
    "P3DCClassifier": "classifier",
    "Priors": "priors",
    "compare": "evaluation",
    "evaluate": "evaluation",
    "sample_tasks": "tasks",
    "search": "selection",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("p3dc-shot")
    if name not in HOMES:
        raise AttributeError(f"module 'p3dc' has no attribute {name!r}")
    return getattr(import_module(f"p3dc.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
