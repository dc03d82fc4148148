import numpy as np
import pytest

from p3dc import FeatureSet, P3DCClassifier, Priors, evaluate, search
from p3dc.errors import InputError
from p3dc.selection import GridPoint, SearchResult, check_disjoint, grid


def test_the_default_grid_is_that_of_the_paper():
    points = grid()
    assert len(points) == 66
    assert (points >= 0).all()
    assert (points.sum(axis=1) <= 1 + 1e-12).all()
    np.testing.assert_allclose(points * 10, np.round(points * 10), atol=1e-12)


@pytest.mark.parametrize("step", [0.5, 0.25, 0.1, 0.05])
def test_a_margin_extends_the_triangle_evenly(step):
    points = {tuple(np.round(p / step).astype(int)) for p in grid(step, margin=0.5)}
    n, out = round(1 / step), int(0.5 / step)
    reach = range(-out - 1, n + 2 * out + 2)
    expected = {(i, j) for i in reach for j in reach if min(i, j, n - i - j) >= -out}
    assert points == expected


@pytest.mark.parametrize("n_shot", [1, 3])
def test_each_point_has_the_accuracy_of_its_classifier(validation, priors, n_shot):
    options = {"n_shot": n_shot, "n_query": 5, "n_tasks": 60, "seed": 3}
    settings = {"n_nearest": 3, "power": 0.7, "scale": 0.5, "attention": "unit"}
    result = search(priors, validation, step=0.25, margin=0.25, **options, **settings)
    assert len(result.alpha) == len(grid(0.25, 0.25))
    for point in zip(result.alpha, result.beta, result.accuracy, result.interval, strict=True):
        classifier = P3DCClassifier(priors, alpha=point[0], beta=point[1], extrapolate=True, **settings)
        scores = evaluate(classifier, validation, **options)
        assert scores.mean == pytest.approx(point[2])
        assert scores.interval == pytest.approx(point[3])


def test_the_best_point_is_the_most_accurate_and_of_equals_the_nearest_to_none():
    alpha, beta = grid(0.5).T
    accuracy = np.array([0.5, 0.6, 0.7, 0.7, 0.6, 0.7])
    result = SearchResult(alpha, beta, accuracy, np.full(6, 0.01), n_tasks=10)
    assert result.best == GridPoint(0.5, 0.0, 0.7, 0.01)
    assert str(result) == "best of 6 points: α = 0.5, β = 0: 70.00 ± 1.00 % (95 % CI, 10 tasks)"


def test_progress_is_told(validation, priors):
    told = []
    search(priors, validation, n_query=5, n_tasks=250, step=0.5, progress=lambda *step: told.append(step))
    assert told == [(100, 250), (200, 250), (250, 250)]


def test_a_single_task_has_no_interval(validation, priors):
    assert np.isnan(search(priors, validation, n_query=5, n_tasks=1, step=0.5).interval).all()


@pytest.mark.parametrize("step", [0, -0.1, 2])
def test_steps_that_lead_nowhere_are_refused(step):
    with pytest.raises(InputError, match="It must be more than 0 and at most 1"):
        grid(step)


def test_a_step_need_not_divide_the_triangle():
    points = grid(0.3, margin=0.3)
    assert points.min() == pytest.approx(-0.3)
    assert np.unique(np.round(points[:, 0] / 0.3)).tolist() == list(range(-1, 6))
    assert (points.sum(axis=1) <= 1.3 + 1e-9).all()
    assert len(grid(0.3)) == 10


def test_negative_margins_are_refused():
    with pytest.raises(InputError, match="margin is -1"):
        grid(margin=-1)


def test_sets_with_common_classes_are_refused(base, validation, novel, priors):
    check_disjoint(base=priors, validation=validation, novel=novel)
    with pytest.raises(InputError, match=r"base and novel share 12 classes: base-0.*…"):
        check_disjoint(base=priors, novel=base)


def test_numbered_classes_are_told_apart_by_their_rows(validation, novel):
    one, two = FeatureSet(validation.features, validation.labels), FeatureSet(novel.features, novel.labels)
    check_disjoint(validation=one, novel=two, base=Priors([[1.0]]))
    copied = FeatureSet(np.vstack([novel.features[:3], two.features[5:6]]).astype(np.float64), [0, 0, 1, 1])
    with pytest.raises(InputError, match="validation and novel share 4 identical rows"):
        check_disjoint(validation=copied, novel=two)


def test_a_stray_duplicate_is_let_pass(validation, novel):
    rows = np.vstack([validation.features, novel.features[:1]])
    check_disjoint(
        validation=FeatureSet(rows, np.arange(len(rows)) % 4), novel=FeatureSet(novel.features, novel.labels)
    )
