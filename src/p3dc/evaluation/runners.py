"""Runners: how each kind of classifier is run on a batch of tasks, by the fastest way that it has."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from p3dc._arrays import Array, Floats, Labels, as_numpy
from p3dc.baselines.contract import TaskMethod
from p3dc.classifier.estimator import P3DCClassifier
from p3dc.confidence.metrics import Reliability, area_under_roc
from p3dc.confidence.temperature import probabilities
from p3dc.errors import InputError
from p3dc.evaluation.executors import Batch
from p3dc.evaluation.results import BatchResult
from p3dc.features import FeatureSet
from p3dc.scoring.device_memory import Device
from p3dc.scoring.task_scorer import TaskScorer, task_scorer
from p3dc.tasks import Piles, Tasks

Runner = Callable[[Batch], BatchResult]

CHUNK_BYTES = 2**26  # the features of tasks that are learned together


@dataclass(frozen=True, eq=False)
class WithoutPile:
    """A classifier that learns only from the support of each task, to compare with one that learns from its pile."""

    classifier: Any


def make_runner(
    classifier: Any,
    features: FeatureSet,
    device: Device | None = None,
    with_pile: bool = False,
    unequal_shots: bool = False,
) -> Runner:
    """Choose how a classifier is run: all tasks at once, some at a time, or one by one.

    Where tasks come with a pile, a classifier whose ``fit`` takes ``unlabelled`` learns from it, one task at a time.
    """
    if isinstance(classifier, WithoutPile):
        return make_runner(classifier.classifier, features, device, False, unequal_shots)
    learns_pile = with_pile and has_fit_parameter(classifier, "unlabelled")
    if type(classifier) is P3DCClassifier and not learns_pile and not unequal_shots:
        scorer = task_scorer(features.features, classifier.priors, classifier.settings, device=device)
        return partial(_run_p3dc, classifier, scorer)
    if isinstance(classifier, TaskMethod):
        return partial(_run_task_method, classifier, classifier.rows_of(features))
    rows = _at_least_float32(features.features)
    copy = clone(classifier, safe=False)
    if isinstance(copy, P3DCClassifier):
        copy.set_params(reject=None)
    return partial(_run_with_pile if learns_pile else _run_one_by_one, copy, rows)


def _run_p3dc(classifier: P3DCClassifier, scorer: TaskScorer, batch: Batch) -> BatchResult:
    tasks = batch.tasks
    temperature = classifier.temperature_for(tasks.support.shape[2])
    if batch.inside:
        rows, own = batch.queries()
        scores = scorer.scores(Tasks(tasks.classes, tasks.support, rows[:, None]))[:, 0]
        largest, confidence, predicted = _read(scores, temperature)
        return _measure(own, predicted, confidence, largest)
    own = _query_classes(tasks)
    parts: list[tuple[Floats, ...]] = []
    right = scorer.correct(tasks, watch=lambda _, scores: parts.append(_read(scores[..., 0].mT, temperature)))
    largest, confidence, predicted = (np.concatenate(each) for each in zip(*parts, strict=True))
    reliability = Reliability()
    reliability.add(confidence.ravel(), (predicted == own).ravel())
    auroc = None
    if batch.unknown is not None:
        scores = scorer.scores(Tasks(tasks.classes, tasks.support, batch.unknown[:, None]))[:, 0]
        auroc = area_under_roc(largest, scores.max(axis=-1))
    return BatchResult(right[:, 0] / len(own), auroc, reliability)


def _read(scores: Any, temperature: float) -> tuple[Floats, ...]:
    """Find the largest score, its probability and its class, (T, Q, N) -> (T, Q) each, on the device of the scores."""
    xp = array_namespace(scores)
    confidence = xp.max(probabilities(scores, temperature), axis=-1)
    return tuple(map(as_numpy, (xp.max(scores, axis=-1), confidence, xp.argmax(scores, axis=-1))))


def _run_task_method(classifier: TaskMethod, rows: Floats, batch: Batch) -> BatchResult:
    queries, own = batch.queries()
    size = max(
        1, CHUNK_BYTES // (max(4, rows.itemsize) * rows.shape[1] * (batch.tasks.support[0].size + queries.shape[1]))
    )
    parts = []
    for chunk, support, labels in batch.supports(size):
        state = classifier.learn_tasks(_at_least_float32(rows[support]), labels)
        parts.append(classifier.score_tasks(state, _at_least_float32(rows[queries[chunk]])))
    scores = np.concatenate(parts)
    return _measure(own, scores.argmax(axis=-1), largest=scores.max(axis=-1))


def _at_least_float32(rows: Floats) -> Floats:
    return rows.astype(np.float32) if rows.dtype == np.float16 else rows


def _run_with_pile(classifier: Any, rows: Floats, batch: Batch) -> BatchResult:
    """Fit a classifier to the support and the pile of each task."""
    piles: Piles = batch.piles  # type: ignore[assignment]
    queries, own = batch.queries()
    parts: list[tuple[Any, ...]] = []
    for (_, [support], labels), pile, asked in zip(batch.supports(), piles.rows, queries, strict=True):
        classifier.fit(rows[support], labels, unlabelled=rows[pile])
        probability = classifier.transduction_proba_ if batch.inside else classifier.predict_proba(rows[asked])
        predicted = classifier.transduction_ if batch.inside else probability.argmax(axis=1)
        parts.append((predicted, probability.max(axis=1)))
        if own.min() < 0:
            parts[-1] += (classifier.score_samples(rows[asked]),)
    return _measure(own, *(np.stack(part) for part in zip(*parts, strict=True)))


def _run_one_by_one(classifier: Any, rows: Floats, batch: Batch) -> BatchResult:
    """Fit any classifier to the support of each task; where it has probabilities, they are measured too."""
    queries, own = batch.queries()
    found = np.full(own.shape, -1)
    confidence: list[Floats] = []
    largest: list[Floats] = []
    for i, ((_, [support], labels), known) in enumerate(zip(batch.supports(), own >= 0, strict=True)):
        classifier.fit(rows[support], labels)
        found[i, known] = _predict(classifier, rows[queries[i, known]], labels)
        if hasattr(classifier, "predict_proba"):
            confidence.append(np.asarray(classifier.predict_proba(rows[queries[i]])).max(axis=1))
            if not known.all():
                scores = hasattr(classifier, "score_samples")
                largest.append(classifier.score_samples(rows[queries[i]]) if scores else confidence[-1])
    return _measure(own, found, *(np.stack(part) if part else None for part in (confidence, largest)))


def _predict(classifier: Any, rows: Floats, labels: Labels) -> Labels:
    """Label queries, and refuse what are not labels."""
    predicted = np.asarray(classifier.predict(rows))
    if predicted.shape == (len(rows), 1):
        predicted = predicted[:, 0]
    if predicted.shape != (len(rows),) or not np.isin(predicted, labels).all():
        raise InputError(
            f"{type(classifier).__name__} predicts shape {predicted.shape} of {predicted.dtype} for {len(rows)} "
            "queries. It must give each of them one of the labels that it was fitted to."
        )
    return predicted


def _measure(
    own: Labels, predicted: Array, confidence: Floats | None = None, largest: Floats | None = None
) -> BatchResult:
    """Compare predictions with the classes of queries, -1 for unknowns, (T, Q) each."""
    n_tasks, known, right = len(own), own >= 0, predicted == own
    auroc = reliability = None
    if confidence is not None:
        reliability = Reliability()
        reliability.add(confidence[known], right[known])
    if largest is not None and not known.all():
        auroc = area_under_roc(largest[known].reshape(n_tasks, -1), largest[~known].reshape(n_tasks, -1))
    return BatchResult(right[known].reshape(n_tasks, -1).mean(axis=1), auroc, reliability)


def _query_classes(tasks: Tasks) -> Labels:
    """Return the class of each query within its task, (N · Q,)."""
    _, n_way, n_query = tasks.queries.shape
    return np.repeat(np.arange(n_way), n_query)
