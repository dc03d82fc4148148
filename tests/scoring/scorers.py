"""Scorers of tasks for tests."""

from p3dc.adaptive.settings import Settings
from p3dc.scoring.task_scorer import task_scorer


def plain_scorer(features, priors, points, device=None, **options):
    """Score features as they are at some (α, β)."""
    return task_scorer(features, priors, Settings(0.0, 0.0, "plain", **options), points, device)


def whitened_scorer(features, priors, points=None, device=None, **options):
    """Score in the whitened space, at some (α, β) or with weights chosen for each task."""
    return task_scorer(features, priors, Settings(**options), points, device)
