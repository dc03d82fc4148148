import json

import matplotlib as mpl
import numpy as np
import pytest

from p3dc import Priors, evaluate, search, weight_grid
from p3dc.errors import InputError
from p3dc.evaluation.search import GridPoint, SearchResult, gain_outside, grid
from tests.conftest import make_signed, paper


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
        classifier = paper(priors, alpha=point[0], beta=point[1], extrapolate=True, **settings)
        scores = evaluate(classifier, validation, **options)
        assert scores.mean == pytest.approx(point[2])
        assert scores.interval == pytest.approx(point[3])


def test_the_best_point_is_the_most_accurate_and_of_equals_the_nearest_to_none():
    alpha, beta = grid(0.5).T
    accuracy = np.array([0.5, 0.6, 0.7, 0.7, 0.6, 0.7])
    result = SearchResult(alpha, beta, accuracy, np.full(6, 0.01), n_tasks=10)
    assert result.best == GridPoint(0.5, 0.0, 0.7, 0.01)
    assert str(result) == "best of 6 points: α = 0.5, β = 0: 70.00 ± 1.00 % (95 % CI, 10 tasks)"


def test_progress_is_reported(validation, priors):
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


SMALL = {"n_query": 5, "n_tasks": 60, "seed": 3}


def test_several_scales_and_numbers_of_priors_are_searches_by_themselves(validation, priors):
    scales, numbers = (0.1, 1.0, 10.0), [1, 5]
    result = search(priors, validation, step=0.5, scale=scales, n_nearest=numbers, **SMALL)
    assert len(result.alpha) == 6 * 6
    for scale in scales:
        for number in numbers:
            part = result.where((result.scale == scale) & (result.n_nearest == number))
            alone = search(priors, validation, step=0.5, scale=scale, n_nearest=number, **SMALL)
            assert alone.scale is None
            assert alone.n_nearest is None
            for name in ("alpha", "beta", "accuracy", "interval"):
                np.testing.assert_array_equal(getattr(part, name), getattr(alone, name))
    best = result.best
    assert best.accuracy == result.accuracy.max()
    settings = {"alpha": best.alpha, "beta": best.beta, "scale": best.scale, "n_nearest": best.n_nearest}
    assert evaluate(paper(priors, **settings), validation, **SMALL).mean == pytest.approx(best.accuracy)
    assert f"scale = {best.scale:g}, M = {best.n_nearest}: " in str(result)


def test_what_is_given_once_or_twice_is_not_varied(validation, priors):
    expected = search(priors, validation, step=0.5, n_nearest=3, **SMALL)
    found = search(priors, validation, step=0.5, scale=[1.0, 1.0], n_nearest=np.array([3]), **SMALL)
    assert found.scale is None
    assert found.n_nearest is None
    np.testing.assert_array_equal(found.accuracy, expected.accuracy)


def test_one_of_both_may_be_varied(validation, priors):
    result = search(priors, validation, step=0.5, n_nearest=[2, 3], **SMALL)
    assert result.scale is None
    assert result.n_nearest.tolist() == [2] * 6 + [3] * 6
    assert result.best.scale is None


@pytest.mark.parametrize("n_shot", [1, 3])
def test_the_grid_is_searched_in_the_whitened_space_on_request(validation, priors, n_shot):
    settings = {"space": "whitened", "attention": "unit", "n_nearest": 3}
    result = search(priors, validation, step=0.5, margin=0.5, n_shot=n_shot, **settings, **SMALL)
    for point in zip(result.alpha, result.beta, result.accuracy, result.interval, strict=True):
        classifier = paper(priors, alpha=point[0], beta=point[1], extrapolate=True, **settings)
        scores = evaluate(classifier, validation, n_shot=n_shot, **SMALL)
        assert scores.mean == pytest.approx(point[2])
        assert scores.interval == pytest.approx(point[3])


@pytest.fixture
def searched():
    """A search over two scales and two M whose best point is outside the triangle."""
    alpha, beta = np.tile(grid(0.5, 0.5).T, 4)
    n_points = len(alpha) // 4
    scale, n_nearest = np.repeat([0.1, 0.1, 1.0, 1.0], n_points), np.repeat([1, 5, 1, 5], n_points)
    accuracy = 0.5 + 0.01 * beta + 0.02 * scale + 0.003 * n_nearest - 0.001 * alpha
    return SearchResult(alpha, beta, accuracy, np.full(len(alpha), 0.01), 10, scale=scale, n_nearest=n_nearest)


def test_a_plane_has_the_other_settings_of_the_best_point(searched):
    plane = searched.plane()
    assert (plane.scale == 1.0).all()
    assert (plane.n_nearest == 5).all()
    assert len(plane.alpha) == len(grid(0.5, 0.5))
    assert plane.best == searched.best


def test_inside_is_the_triangle_and_where_keeps_what_is_asked(searched):
    inside = searched.where(searched.inside)
    assert len(inside.alpha) == 4 * len(grid(0.5))
    points = {(a, b) for a, b in zip(inside.alpha, inside.beta, strict=True)}
    assert points == {tuple(point) for point in grid(0.5).tolist()}
    assert searched.best.beta > 1
    assert inside.best.beta == 1
    assert inside.n_tasks == searched.n_tasks
    near = np.array([0.5, 0.5 + 1e-12, 0.6, -0.1])  # the second only misses by rounding
    assert SearchResult(near, np.full(4, 0.5), near, near, 10).inside.tolist() == [True, True, False, False]


def test_a_plane_of_a_plain_search_is_the_whole_of_it(validation, priors):
    result = search(priors, validation, step=0.5, **SMALL)
    np.testing.assert_array_equal(result.plane().accuracy, result.accuracy)
    assert result.inside.all()


def test_points_are_ranked_from_the_best(searched):
    ranked = searched.ranked(5)
    assert ranked[0] == searched.best
    assert [point.accuracy for point in ranked] == sorted(searched.accuracy, reverse=True)[:5]
    assert ranked[0] == searched.point(int(np.argmax(searched.accuracy)))


@pytest.mark.parametrize("varied", [{}, {"scale": [0.1, 1.0], "n_nearest": [1, 5]}, {"space": "whitened"}])
def test_the_gain_outside_is_measured_on_fresh_tasks(validation, priors, varied):
    result = search(priors, validation, step=0.5, margin=0.5, attention="unit", power=0.7, **varied, **SMALL)
    found = gain_outside(result, priors, validation, **SMALL)
    rivals = []
    for kept in (~result.inside, result.inside):
        best = result.where(kept).best
        own = {"n_nearest": 5} | varied
        own |= {name: getattr(best, name) for name in ("scale", "n_nearest") if getattr(best, name) is not None}
        rivals.append(
            paper(priors, alpha=best.alpha, beta=best.beta, attention="unit", power=0.7, extrapolate=True, **own)
        )
    one, two = (evaluate(rival, validation, **(SMALL | {"seed": 4})).accuracy for rival in rivals)
    assert (found.name, found.reference) == ("outside", "inside")
    assert found.mean == pytest.approx(np.mean(one - two))
    assert found.interval == pytest.approx(1.96 * np.std(one - two, ddof=1) / np.sqrt(60))


def test_there_is_no_gain_outside_where_nobody_looked(validation, priors):
    result = search(priors, validation, step=0.5, **SMALL)
    assert gain_outside(result, priors, validation, **SMALL) is None


def test_progress_is_reported_over_all_that_is_varied(validation, priors):
    told = []
    options = {"n_query": 5, "n_tasks": 150, "step": 0.5, "scale": [0.1, 1.0]}
    search(priors, validation, **options, progress=lambda *step: told.append(step))
    assert told == [(100, 300), (150, 300), (250, 300), (300, 300)]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"scale": []}, "no values of n_nearest or scale to try"),
        ({"n_nearest": ()}, "no values of n_nearest or scale to try"),
        ({"scale": [1.0, "auto"]}, "scale is 'auto'"),
        ({"scale": [1.0, -1.0]}, "scale is -1.0"),
        ({"n_nearest": [5, 0]}, "n_nearest is 0"),
        ({"priors": None}, "there are no priors, so there is nothing to search"),
        (
            {"priors": np.ones((3, 24)), "space": "whitened"},
            "the priors have no geometry, because they were given as means",
        ),
    ],
)
def test_searches_that_make_no_sense_are_refused(validation, priors, options, sentence):
    with pytest.raises(InputError, match=sentence):
        search(**({"priors": priors, "validation": validation, "step": 0.5} | SMALL | options))


@pytest.mark.parametrize("varied", [{}, {"scale": [0.1, 1.0], "n_nearest": [1, 5]}, {"space": "whitened"}])
@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_the_classifier_of_a_search_has_the_accuracy_of_its_best_point(validation, priors, varied, margin):
    result = search(priors, validation, step=0.5, margin=margin, attention="unit", **varied, **SMALL)
    classifier = result.best_classifier(priors, reject=0.3)
    assert evaluate(classifier, validation, **SMALL).mean == pytest.approx(result.best.accuracy)
    assert classifier.reject == 0.3
    assert classifier.get_params().items() >= result.best_params.items()


def test_pairs_are_searched_like_sets_and_fresh_seeds_are_reported(validation, priors):
    pair = (validation.features, validation.labels)
    one = search(priors, pair, step=0.5, **(SMALL | {"seed": None}))
    two = search(priors, validation, step=0.5, **(SMALL | {"seed": one.seed}))
    np.testing.assert_array_equal(one.accuracy, two.accuracy)


def test_searches_are_tables_json_and_figures(searched):
    found = json.loads(json.dumps(searched.to_dict(), allow_nan=False))
    assert found["best"]["beta"] == searched.best.beta
    assert found["grid"]["n_nearest"] == searched.n_nearest.tolist()
    assert (found["n_tasks"], found["note"]) == (10, "")
    frame = searched.to_pandas()
    assert frame.columns.tolist() == ["alpha", "beta", "scale", "n_nearest", "accuracy", "interval"]
    assert len(frame) == len(searched.alpha)
    assert repr(searched) == f"SearchResult({searched})"
    html = searched._repr_html_()
    assert html.count("<tr>") == 11
    assert "<th>M</th>" in html
    with mpl.rc_context({"backend": "agg"}):
        assert searched.plot().chosen == searched.best
        mpl.pyplot.close("all")


def test_signed_features_are_searched_in_the_whitened_space():
    priors, validation = Priors.from_features(make_signed(1, 12, 20)), make_signed(2, 8, 30)
    with pytest.warns(UserWarning, match="Searched in the whitened space .* auto, the adaptive"):
        result = search(priors, validation, step=0.5, **SMALL)
    assert result.settings["space"] == "whitened"
    assert "root of negative features" in result.note
    expected = search(priors, validation, step=0.5, space="whitened", **SMALL)
    np.testing.assert_array_equal(result.accuracy, expected.accuracy)
    assert expected.note == search(priors, validation, step=0.5, power=1, **SMALL).note == ""
    with pytest.raises(InputError, match="Negative values in data"):
        search(priors, validation, step=0.5, space="plain", **SMALL)


def test_the_weights_for_grid_search_are_the_points_of_the_grid():
    for options in ({"step": 0.25}, {"step": 0.5, "margin": 0.5}):
        points = weight_grid(**options)
        assert [[point["alpha"][0], point["beta"][0]] for point in points] == grid(**options).tolist()
    assert list(weight_grid(0.5, prefix="last__")[0]) == ["last__alpha", "last__beta"]
