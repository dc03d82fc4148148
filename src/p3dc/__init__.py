"""Few-shot classification without training.

Public names are imported when they are first used, so that a command imports only what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from p3dc.classifier.estimator import P3DCClassifier
    from p3dc.classifier.pipeline import make_pipeline
    from p3dc.errors import InputError
    from p3dc.evaluation.evaluate import compare, evaluate
    from p3dc.evaluation.search import search, weight_grid
    from p3dc.features import FeatureSet
    from p3dc.images.classifier import ImageClassifier
    from p3dc.priors.prototypes import Priors
    from p3dc.tasks import sample_tasks

__all__ = [
    "FeatureSet",
    "ImageClassifier",
    "InputError",
    "P3DCClassifier",
    "Priors",
    "compare",
    "evaluate",
    "make_pipeline",
    "sample_tasks",
    "search",
    "weight_grid",
]

HOMES = {
    "FeatureSet": "features",
    "ImageClassifier": "images.classifier",
    "InputError": "errors",
    "P3DCClassifier": "classifier.estimator",
    "Priors": "priors.prototypes",
    "compare": "evaluation.evaluate",
    "evaluate": "evaluation.evaluate",
    "make_pipeline": "classifier.pipeline",
    "sample_tasks": "tasks",
    "search": "evaluation.search",
    "weight_grid": "evaluation.search",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("p3dc-shot")
    if name not in HOMES:
        raise AttributeError(f"module 'p3dc' has no attribute {name!r}")
    return getattr(import_module(f"p3dc.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
