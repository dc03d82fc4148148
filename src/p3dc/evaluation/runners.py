"""What a classifier makes of tasks: one way for each kind of classifier, the fastest that it has."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace
from sklearn.base import clone

from p3dc._arrays import Floats, Rows, as_numpy
from p3dc.baselines.contract import TaskMethod
from p3dc.classifier.estimator import P3DCClassifier
from p3dc.confidence.temperature import probabilities
from p3dc.errors import InputError
from p3dc.features import FeatureSet
from p3dc.scoring.device_memory import Device
from p3dc.scoring.task_scorer import TaskScorer, task_scorer
from p3dc.tasks import Tasks

Counts = npt.NDArray[np.int64]

CHUNK_BYTES = 2**26  # the features of tasks that are learned together


@dataclass(frozen=True)
class Verdict:
    """What a classifier makes of some tasks.

    Attributes
    ----------
    right : array of shape (T,)
        How many queries it gets right.
    largest : array of shape (T, Q), or None
        The largest score of each query, where there are scores.
    confidence, hits : arrays of shape (T, Q), or None
        The probability of each prediction and whether it is right, where there are probabilities.
    strange : array of shape (T, U), or None
        The largest score of each query of another class.
    """

    right: Counts
    largest: Floats | None = None
    confidence: Floats | None = None
    hits: npt.NDArray[np.bool_] | None = None
    strange: Floats | None = None


Judge = Callable[[Tasks, Rows | None], Verdict]
"""From tasks, and rows of other classes, to a verdict."""


def judge(classifier: Any, features: FeatureSet, device: Device | None = None) -> Judge:
    """Return what judges a classifier on tasks, the fastest way."""
    if type(classifier) is P3DCClassifier:
        return partial(
            _judge_at_once,
            classifier,
            task_scorer(features.features, classifier.priors, classifier.settings, device=device),
        )
    rows = features.features
    if rows.dtype == np.float16:
        rows = rows.astype(np.float32)
    if isinstance(classifier, TaskMethod):
        return partial(_judge_together, classifier, rows)
    alone = clone(classifier, safe=False)
    return lambda tasks, outside: Verdict(_count_one_by_one(alone, rows, tasks))


def _judge_at_once(classifier: P3DCClassifier, scorer: TaskScorer, tasks: Tasks, outside: Rows | None) -> Verdict:
    temperature = classifier.temperature_for(tasks.support.shape[2])
    parts: list[tuple[Floats, ...]] = []
    right = scorer.correct(tasks, watch=lambda _, scores: parts.append(_read(scores[..., 0].mT, temperature)))
    largest, confidence, predicted = (np.concatenate(each) for each in zip(*parts, strict=True))
    strange = None
    if outside is not None:
        strange = scorer.scores(Tasks(tasks.classes, tasks.support, outside[:, None]))[:, 0].max(axis=-1)
    own = np.repeat(np.arange(tasks.queries.shape[1]), tasks.queries.shape[2])
    return Verdict(right[:, 0], largest, confidence, predicted == own, strange)


def _read(scores: Any, temperature: float) -> tuple[Floats, ...]:
    """Find the largest score, its probability and its class, (T, Q, N) -> (T, Q) each, where the scores are."""
    xp = array_namespace(scores)
    confidence = xp.max(probabilities(scores, temperature), axis=-1)
    return tuple(map(as_numpy, (xp.max(scores, axis=-1), confidence, xp.argmax(scores, axis=-1))))


def _judge_together(classifier: TaskMethod, rows: Floats, tasks: Tasks, outside: Rows | None) -> Verdict:
    n_tasks, n_way, n_shot = tasks.support.shape
    labels = np.repeat(np.arange(n_way), n_shot)
    own = np.repeat(np.arange(n_way), tasks.queries.shape[2])
    asked = tasks.queries.reshape(n_tasks, -1)
    if outside is not None:
        asked = np.concatenate([asked, outside], axis=1)
    size = max(1, CHUNK_BYTES // (rows.itemsize * rows.shape[1] * (len(labels) + asked.shape[1])))
    parts = []
    for start in range(0, n_tasks, size):
        some = slice(start, start + size)
        state = classifier.learn_tasks(rows[tasks.support[some].reshape(-1, len(labels))], labels)
        parts.append(classifier.score_tasks(state, rows[asked[some]]))
    scores = np.concatenate(parts)
    known, strange = scores[:, : len(own)], scores[:, len(own) :]
    right = (known.argmax(axis=-1) == own).sum(axis=-1)
    return Verdict(right, known.max(axis=-1), strange=None if outside is None else strange.max(axis=-1))


def _count_one_by_one(classifier: Any, rows: Floats, tasks: Tasks) -> Counts:
    _, n_way, n_shot = tasks.support.shape
    labels = np.repeat(np.arange(n_way), n_shot)
    own = np.repeat(np.arange(n_way), tasks.queries.shape[2])
    right = []
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
        right.append(np.count_nonzero(predicted == own))
    return np.array(right)
