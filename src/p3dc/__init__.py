"""Few-shot classification without training: prior-driven discrete data calibration."""

from importlib.metadata import version

from p3dc.classifier import P3DCClassifier
from p3dc.evaluation import compare, evaluate
from p3dc.features import FeatureSet
from p3dc.priors import Priors
from p3dc.selection import search
from p3dc.tasks import sample_tasks

__version__ = version("p3dc-shot")

__all__ = ["FeatureSet", "P3DCClassifier", "Priors", "compare", "evaluate", "sample_tasks", "search"]
