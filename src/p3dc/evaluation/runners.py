"""Runners: how each kind of classifier is run on a batch of tasks, by the fastest way that it has."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from sklearn.base import clone

from p3dc._arrays import Floats, Labels, as_numpy
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
from p3dc.tasks import Tasks

Runner = Callable[[Batch], BatchResult]

CHUNK_BYTES = 2**26  # the features of tasks that are learned together


def make_runner(classifier: Any, features: FeatureSet, device: Device | None = None) -> Runner:
    """Choose how a classifier is run: all tasks at once, some at a time, or one by one."""
    if type(classifier) is P3DCClassifier:
        scorer = task_scorer(features.features, classifier.priors, classifier.settings, device=device)
        return partial(_run_p3dc, classifier, scorer)
    rows = features.features
    if rows.dtype == np.float16:
        rows = rows.astype(np.float32)
    if isinstance(classifier, TaskMethod):
        return partial(_run_task_method, classifier, rows)
    return partial(_run_one_by_one, clone(classifier, safe=False), rows)


def _run_p3dc(classifier: P3DCClassifier, scorer: TaskScorer, batch: Batch) -> BatchResult:
    tasks, unknown = batch
    own = _query_classes(tasks)
    temperature = classifier.temperature_for(tasks.support.shape[2])
    parts: list[tuple[Floats, ...]] = []
    right = scorer.correct(tasks, watch=lambda _, scores: parts.append(_read(scores[..., 0].mT, temperature)))
    largest, confidence, predicted = (np.concatenate(each) for each in zip(*parts, strict=True))
    reliability = Reliability()
    reliability.add(confidence.ravel(), (predicted == own).ravel())
    auroc = None
    if unknown is not None:
        scores = scorer.scores(Tasks(tasks.classes, tasks.support, unknown[:, None]))[:, 0]
        auroc = area_under_roc(largest, scores.max(axis=-1))
    return BatchResult(right[:, 0] / len(own), auroc, reliability)


def _read(scores: Any, temperature: float) -> tuple[Floats, ...]:
    """Find the largest score, its probability and its class, (T, Q, N) -> (T, Q) each, on the device of the scores."""
    xp = array_namespace(scores)
    confidence = xp.max(probabilities(scores, temperature), axis=-1)
    return tuple(map(as_numpy, (xp.max(scores, axis=-1), confidence, xp.argmax(scores, axis=-1))))


def _run_task_method(classifier: TaskMethod, rows: Floats, batch: Batch) -> BatchResult:
    tasks, unknown = batch
    n_tasks, n_way, n_shot = tasks.support.shape
    labels, own = np.repeat(np.arange(n_way), n_shot), _query_classes(tasks)
    queries = tasks.queries.reshape(n_tasks, -1)
    if unknown is not None:
        queries = np.concatenate([queries, unknown], axis=1)
    size = max(1, CHUNK_BYTES // (rows.itemsize * rows.shape[1] * (len(labels) + queries.shape[1])))
    parts = []
    for start in range(0, n_tasks, size):
        chunk = slice(start, start + size)
        state = classifier.learn_tasks(rows[tasks.support[chunk].reshape(-1, len(labels))], labels)
        parts.append(classifier.score_tasks(state, rows[queries[chunk]]))
    scores = np.concatenate(parts)
    right = (scores[:, : len(own)].argmax(axis=-1) == own).sum(axis=-1)
    largest = scores.max(axis=-1)
    auroc = None if unknown is None else area_under_roc(largest[:, : len(own)], largest[:, len(own) :])
    return BatchResult(right / len(own), auroc)


def _run_one_by_one(classifier: Any, rows: Floats, batch: Batch) -> BatchResult:
    tasks = batch.tasks
    _, n_way, n_shot = tasks.support.shape
    labels, own = np.repeat(np.arange(n_way), n_shot), _query_classes(tasks)
    accuracy = []
    for support, queries in zip(tasks.support, tasks.queries, strict=True):
        classifier.fit(rows[support.ravel()], labels)
        predicted = np.asarray(classifier.predict(rows[queries.ravel()]))
        if predicted.shape == (len(own), 1):
            predicted = predicted[:, 0]
        if predicted.shape != own.shape or not np.isin(predicted, labels).all():
            raise InputError(
                f"{type(classifier).__name__} predicts shape {predicted.shape} of {predicted.dtype} for {len(own)} "
                "queries. It must give each of them one of the labels that it was fitted to."
            )
        accuracy.append(np.count_nonzero(predicted == own) / len(own))
    return BatchResult(np.array(accuracy))


def _query_classes(tasks: Tasks) -> Labels:
    """Return the class of each query within its task, (N · Q,)."""
    _, n_way, n_query = tasks.queries.shape
    return np.repeat(np.arange(n_way), n_query)
