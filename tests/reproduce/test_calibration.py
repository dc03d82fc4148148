import numpy as np
import pytest

from p3dc import FeatureSet, Priors
from p3dc.reproduce.calibration import measure_calibration
from p3dc.tasks import TaskSampler
from tests import reference

POINT = (0.2, 0.5)


def entropy(weights):
    return -sum(w * np.log(w) for w in weights if w > 0)


def restated(features, priors, tasks):
    """The same measures sample by sample, in plain loops."""
    rows = [reference.normalize(row) for row in features.features.astype(float)]
    largest, entropies, agreement = {"sample": [], "task": []}, {"sample": [], "task": []}, []
    own = {key: [] for key in ("before", "sample", "task", "p3dc", "dc")}
    nearest = {key: [] for key in own}
    for support, classes in zip(tasks.support[..., 0], tasks.classes, strict=True):
        samples = [features.features[i].astype(float) for i in support]
        chosen = [set(np.argsort(-(priors @ np.sqrt(x)), kind="stable")[:5].tolist()) for x in samples]
        union = set().union(*chosen)
        for place, (i, x) in enumerate(zip(support, samples, strict=True)):
            ends = {}
            for level, kept in (("sample", sorted(chosen[place])), ("task", sorted(union))):
                weights = reference.softmax(priors[kept] @ np.sqrt(x))
                largest[level].append(max(weights))
                entropies[level].append(entropy(weights))
                ends[level] = reference.normalize(np.sqrt(x) + weights @ priors[kept])
            agreement.append(ends["sample"] @ ends["task"])
            two = np.argsort(((priors - np.sqrt(x)) ** 2).sum(axis=1), kind="stable")[:2]
            a, b = POINT
            points = {
                "before": rows[i],
                **ends,
                "p3dc": reference.normalize((1 - a - b) * rows[i] + a * ends["sample"] + b * ends["task"]),
                "dc": reference.normalize(np.sqrt(x) + priors[two].sum(axis=0)),
            }
            members = [[j for j in np.flatnonzero(features.labels == c) if j != i] for c in classes]
            centres = [reference.normalize(sum(rows[j] for j in each)) for each in members]
            for key, point in points.items():
                cosines = [point @ centre for centre in centres]
                own[key].append(cosines[place])
                nearest[key].append(int(np.argmax(cosines)) == place)
    return largest, entropies, agreement, own, nearest


@pytest.fixture(scope="module")
def small(novel):
    return FeatureSet(novel.features / 4, novel.labels, novel.class_names)


def test_measures_are_those_of_plain_loops(small, base):
    priors = Priors.from_features(base).prototypes.astype(float)
    sampler = TaskSampler(small.labels, n_way=5, n_shot=1, n_query=3, seed=0)
    found = measure_calibration(small, priors, sampler.batches(8, 3), POINT)
    largest, entropies, agreement, own, nearest = restated(small, priors, sampler.draw(8))
    for level in ("sample", "task"):
        assert found.weights[level].largest == pytest.approx(np.mean(largest[level]))
        assert found.weights[level].entropy == pytest.approx(np.mean(entropies[level]))
    assert found.weights["sample"].n_priors == 5
    assert 5 < found.weights["task"].n_priors <= 12
    assert found.agreement == pytest.approx(np.mean(agreement))
    for key, values in own.items():
        np.testing.assert_allclose(found.cosines[key], np.reshape(values, (8, 5)).mean(axis=1))
        assert found.nearest[key] == pytest.approx(np.mean(nearest[key]))
    assert found.away["dc"] == pytest.approx(np.mean(np.array(own["dc"]) < own["before"]))
    outside = ~np.array(nearest["before"]).reshape(8, 5)
    beyond = (np.array(own["task"]) - own["sample"]).reshape(8, 5)
    expected = [row[mask].mean() for row, mask in zip(beyond, outside, strict=True) if mask.any()]
    np.testing.assert_allclose(found.boundary, expected)


def test_long_features_make_the_levels_coincide(novel, base):
    priors = Priors.from_features(base).prototypes.astype(float)
    sampler = TaskSampler(novel.labels, n_way=5, n_shot=1, n_query=3, seed=0)
    long = FeatureSet(novel.features * 400, novel.labels, novel.class_names)
    found = measure_calibration(long, priors * 20, sampler.batches(8), POINT)
    assert found.weights["task"].largest > 0.98
    assert found.coincide
    short = FeatureSet(novel.features / 400, novel.labels, novel.class_names)
    found = measure_calibration(short, priors / 20, sampler.batches(8), POINT)
    assert found.weights["task"].entropy == pytest.approx(np.log(found.weights["task"].n_priors), rel=0.05)
