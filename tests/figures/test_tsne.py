import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from sklearn.manifold import TSNE

from p3dc import FeatureSet, Priors
from p3dc.errors import InputError
from p3dc.figures.tsne import COLOURS, MARKERS, CalibrationDisplay
from p3dc.method import calibrate

WAYS = 4
SETTINGS = {"alpha": 0.2, "beta": 0.5, "n_way": WAYS, "seed": 3, "n_nearest": 3, "power": 0.7, "scale": 0.4}


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def made_display(features, priors, **changes):
    return CalibrationDisplay.from_features(features, priors, **SETTINGS | {"n_rows": 20} | changes)


@pytest.fixture(scope="module")
def display(novel, priors):
    return made_display(novel, priors, title="birds")


@pytest.fixture(scope="module")
def restated(novel, display):
    """The support samples and the centres of their classes."""
    rows = novel.features.astype(np.float64)
    centres = [unit(rows)[novel.labels == novel.class_names.index(name)].mean(axis=0) for name in display.class_names]
    return rows[display.support_rows], unit(np.stack(centres))


def arrays_of(display):
    return {name: value for name, value in vars(display).items() if isinstance(value, np.ndarray)}


def test_the_same_seed_gives_the_same_points(novel, priors, display):
    again = arrays_of(made_display(novel, priors))
    assert len(again) == 10
    for name, array in arrays_of(display).items():
        np.testing.assert_array_equal(again[name], array)


def test_another_seed_draws_other_samples(novel, priors, display):
    assert set(made_display(novel, priors, seed=4).support_rows) != set(display.support_rows)


def test_each_support_sample_is_of_its_class(novel, display):
    assert len(set(display.class_names)) == WAYS
    assert tuple(novel.class_names[code] for code in novel.labels[display.support_rows]) == display.class_names


def test_cosines_before_calibration_are_to_the_centres_of_all_rows(restated, display):
    support, centres = restated
    np.testing.assert_allclose(display.support_cosines, unit(support) @ centres.T, rtol=1e-10)


def test_the_chosen_samples_are_calibrated_as_one_task(priors, restated, display):
    support, centres = restated
    options = {name: SETTINGS[name] for name in ("alpha", "beta", "n_nearest", "power", "scale")}
    np.testing.assert_allclose(
        display.calibrated_cosines, calibrate(support, priors.prototypes, **options) @ centres.T, rtol=1e-10
    )
    alone = np.concatenate([calibrate(sample[None], priors.prototypes, **options) for sample in support])
    assert np.abs(display.calibrated_cosines - alone @ centres.T).max() > 1e-6


def test_the_task_level_by_itself_equals_a_plain_loop(novel, priors, restated):
    support, centres = restated
    display = made_display(novel, priors, alpha=0, beta=0.8, power=0.5, scale=1.0)
    base = priors.prototypes
    union = {int(j) for x in support for j in np.argsort(np.sqrt(x) @ base.T)[-3:]}
    for i, x in enumerate(support):
        weights = {j: np.exp(np.sqrt(x) @ base[j]) for j in union}
        end = np.sqrt(x) + sum(weights[j] * base[j] for j in union) / sum(weights.values())
        expected = unit(0.2 * unit(x) + 0.8 * unit(end)) @ centres.T
        np.testing.assert_allclose(display.calibrated_cosines[i], expected, rtol=1e-10)


def test_the_point_of_dc_is_the_mean_of_the_root_and_its_two_nearest_priors(priors, restated, display):
    support, centres = restated
    for i, x in enumerate(support):
        one, two, *_ = np.argsort([np.sum((np.sqrt(x) - prior) ** 2) for prior in priors.prototypes])
        mean = (np.sqrt(x) + priors.prototypes[one] + priors.prototypes[two]) / 3
        np.testing.assert_allclose(display.dc_cosines[i], unit(mean) @ centres.T, rtol=1e-10)


def test_the_number_of_rows_shown_changes_neither_samples_nor_centres(novel, priors, display):
    fewer = made_display(novel, priors, n_rows=4)
    np.testing.assert_array_equal(fewer.support_rows, display.support_rows)
    np.testing.assert_array_equal(fewer.dc_cosines, display.dc_cosines)
    assert np.bincount(fewer.labels).tolist() == [3] * WAYS
    assert np.bincount(display.labels).tolist() == [19] * WAYS


def test_no_weight_leaves_the_sample_where_it_was(novel, priors):
    still = made_display(novel, priors, alpha=0, beta=0, n_rows=4)
    np.testing.assert_allclose(still.calibrated_cosines, still.support_cosines, rtol=1e-12)
    assert "P3DC at α = 0, β = 0 moves 0 nearer" in str(still)


def test_moved_samples_are_neighbours_of_rows_and_centres_only(novel, priors, monkeypatch):
    seen = []
    monkeypatch.setattr(TSNE, "fit_transform", lambda self, distances: seen.append(distances) or distances[:, :2])
    made_display(novel, priors, n_way=2, n_rows=3)
    [distances] = seen
    far = {(i, j) for i, j in np.argwhere(distances > 2).tolist() if i < j}
    assert far == {(2, 4), (3, 5), (2, 6), (3, 7), (4, 5), (4, 6), (4, 7), (5, 6), (5, 7), (6, 7)}
    np.testing.assert_array_equal(distances, distances.T)


@pytest.mark.parametrize("n_rows", [1, 2, 3])
def test_few_rows_a_class_are_enough(novel, priors, n_rows):
    few = made_display(novel, priors, n_way=2, n_rows=n_rows)
    assert few.rows.shape == (2 * (n_rows - 1), 2)
    for points in (few.rows, few.centres, few.support, few.calibrated, few.dc):
        assert np.isfinite(points).all()
    few.plot(Figure().subplots())


def test_classes_of_one_row_are_their_own_centres(priors, rng):
    features = FeatureSet(rng.gamma(2.0, size=(3, 24)), ["a", "b", "c"])
    display = made_display(features, priors, n_way=3)
    np.testing.assert_allclose(np.diagonal(display.support_cosines), 1.0)
    assert len(display.rows) == 0


def test_half_precision_is_measured_in_double(novel, priors):
    half = FeatureSet(novel.features.astype(np.float16), novel.labels, novel.class_names)
    display = made_display(half, priors, n_rows=3)
    rows = unit(half.features.astype(np.float64))
    own = [rows[novel.labels == novel.class_names.index(name)].mean(axis=0) for name in display.class_names]
    expected = np.vecdot(rows[display.support_rows], unit(np.stack(own)))
    np.testing.assert_allclose(np.diagonal(display.support_cosines), expected, rtol=1e-12)


def test_arrays_cannot_be_changed(display):
    for array in arrays_of(display).values():
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_nothing_is_drawn_before_plot(novel, priors):
    assert not hasattr(made_display(novel, priors, n_rows=2), "ax_")


def test_each_class_has_one_marker_of_each_shape_in_its_colour(display):
    ax = Figure().subplots()
    assert display.plot(ax).ax_ is ax
    cloud, *shapes = ax.collections
    assert len(cloud.get_offsets()) == len(display.rows) == 19 * WAYS
    assert [shape.get_label() for shape in shapes] == list(MARKERS)
    places = (display.centres, display.support, display.calibrated, display.dc)
    for shape, points in zip(shapes, places, strict=True):
        np.testing.assert_allclose(shape.get_offsets(), points)
        assert [to_hex(colour).upper() for colour in shape.get_facecolors()] == list(COLOURS[:WAYS])
    assert ax.get_title() == "birds"
    assert len(ax.get_xticks()) == len(ax.get_yticks()) == 0


def test_an_arrow_leads_from_each_sample_to_its_calibration(display):
    ax = Figure().subplots()
    display.plot(ax)
    np.testing.assert_allclose([arrow.xyann for arrow in ax.texts], display.support)
    np.testing.assert_allclose([arrow.xy for arrow in ax.texts], display.calibrated)


def test_the_legend_names_the_shapes_and_the_classes(display):
    ax = Figure().subplots()
    display.plot(ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [*MARKERS, *display.class_names]


def test_it_makes_its_own_axes(display):
    mpl.use("agg")
    import matplotlib.pyplot as plt

    assert len(display.plot().ax_.collections) == 5
    plt.close("all")


def test_no_arrow_lies_under_a_marker(display):
    ax = Figure().subplots()
    display.plot(ax)
    arrows = [text.arrow_patch for text in ax.texts]
    assert len(arrows) == WAYS
    assert min(text.zorder for text in ax.texts) > max(points.zorder for points in ax.collections)


def test_the_sentence_counts_what_the_cosines_say():
    plane = np.zeros((2, 2))
    display = CalibrationDisplay(
        *(plane, np.array([0, 1]), plane, plane, plane, plane),
        support_cosines=np.array([[0.8, 0.1], [0.1, 0.6]]),
        calibrated_cosines=np.array([[0.9, 0.2], [0.7, 0.5]]),
        dc_cosines=np.array([[0.9, 0.95], [0.9, 0.6 + 1e-15]]),
        support_rows=np.array([0, 1]),
        class_names=("owl", "wren"),
        alpha=0.2,
        beta=0.5,
    )
    assert str(display) == (
        "Of 2 support samples P3DC at α = 0.2, β = 0.5 moves 1 nearer to the centre of their class and DC 1: the mean "
        "cosine is 0.700 before, 0.700 with P3DC and 0.750 with DC. That centre is the nearest of the 2 for 2 before, "
        "1 with P3DC and 0 with DC. t-SNE keeps neighbourhoods, not distances: the cosines count, not the lengths of "
        "the arrows."
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"n_way": 1}, "n_way is 1. It must be at least 2."),
        ({"n_way": 9}, "n_way is 9, but a picture can tell 8 classes apart. Lower n_way."),
        ({"n_rows": 0}, "n_rows is 0. It must be at least 1."),
        ({"seed": -1}, "seed is -1. It must be at least 0."),
        ({"beta": 0.9}, "outside the triangle"),
        ({"alpha": float("nan")}, "alpha is nan. It must be a finite number."),
        ({"n_nearest": 0}, "n_nearest is 0"),
    ],
)
def test_what_cannot_be_shown_is_refused(novel, priors, changes, sentence):
    with pytest.raises(InputError, match=sentence):
        made_display(novel, priors, **changes)


def test_features_that_cannot_be_shown_are_refused(priors):
    ones = np.ones((3, 24))
    with pytest.raises(InputError, match="4 ways need 4 classes, but there are 3. Lower n_way."):
        made_display(FeatureSet(ones, ["a", "b", "c"]), priors)
    with pytest.raises(InputError, match="the features have 2 features but the priors have 24"):
        made_display(FeatureSet(np.ones((4, 2)), ["a", "b", "c", "d"]), priors)
    with pytest.raises(InputError, match="features row 1 is all zeros"):
        made_display(FeatureSet(np.diag([1.0, 0.0, 1.0]) @ ones, ["a", "b", "c"]), priors, n_way=3)
    with pytest.raises(InputError, match="Negative values in data"):
        made_display(FeatureSet(-ones, ["a", "b", "c"]), priors, n_way=3)
    with pytest.raises(InputError, match="the features fall to -1, and DC takes their square root"):
        made_display(FeatureSet(-ones, ["a", "b", "c"]), priors, n_way=3, power=1)
    with pytest.raises(InputError, match="single numbers"):
        made_display(FeatureSet(ones[:, :1], ["a", "b", "c"]), Priors([[1.0]]), n_way=3)


def test_points_outside_the_triangle_are_shown_when_asked_for(novel, priors):
    assert made_display(novel, priors, beta=1.2, extrapolate=True, n_rows=2).calibrated.shape == (WAYS, 2)
