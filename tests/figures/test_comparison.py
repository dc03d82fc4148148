import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from p3dc.errors import InputError
from p3dc.evaluation.search import SearchResult, grid
from p3dc.figures import GridComparisonDisplay


def made_search(accuracy, step=0.25):
    alpha, beta = grid(step).T
    return SearchResult(alpha, beta, accuracy(alpha, beta), np.full(len(alpha), 0.01), n_tasks=100)


@pytest.fixture
def validation():
    return made_search(lambda alpha, beta: 0.5 + 0.1 * beta - 0.05 * alpha)


@pytest.fixture
def novel():
    return made_search(lambda alpha, beta: 0.7 + 0.2 * alpha + 0.04 * beta)


def test_nothing_is_drawn_before_plot(validation, novel):
    display = GridComparisonDisplay.from_searches(validation, novel)
    assert not hasattr(display, "axes_")
    assert not hasattr(display.novel, "ax_")


def test_both_panels_mark_the_point_chosen_on_validation(validation, novel):
    axes = Figure().subplots(1, 2)
    display = GridComparisonDisplay.from_searches(validation, novel).plot(axes)
    assert display.axes_ == tuple(axes)
    assert (novel.best.alpha, novel.best.beta) == (1.0, 0.0)
    for ax in axes:
        [marker] = ax.lines
        assert marker.get_xydata().tolist() == [[0.0, 1.0]]


def test_each_panel_says_its_set_and_its_own_accuracy_there(validation, novel):
    axes = Figure().subplots(1, 2)
    GridComparisonDisplay.from_searches(validation, novel, title="birds").plot(axes)
    titles = [ax.get_title() for ax in axes]
    assert titles == ["birds, validation (★ chosen here)", "birds, novel (★ chosen on validation)"]
    assert [ax.texts[0].get_text() for ax in axes] == ["(0, 1): 60.00 %", "(0, 1): 74.00 %"]


def test_each_panel_has_its_own_colour_scale(validation, novel):
    axes = Figure().subplots(1, 2)
    GridComparisonDisplay.from_searches(validation, novel).plot(axes, cmap="viridis")
    limits = [ax.collections[0].get_clim() for ax in axes]
    assert limits == [pytest.approx((45.0, 60.0)), pytest.approx((70.0, 90.0))]
    assert {ax.collections[0].get_cmap().name for ax in axes} == {"viridis"}


def test_the_sentence_states_how_far_the_choice_is_from_the_best_on_novel(validation, novel):
    assert str(GridComparisonDisplay.from_searches(validation, novel)) == (
        "Chosen on validation, α = 0, β = 1: 60.00 ± 1.00 %; "
        "on novel 74.00 ± 1.00 %, 16.00 points below its best point."
    )
    assert str(GridComparisonDisplay.from_searches(validation, validation)).endswith("its best point too.")


def test_points_are_matched_by_value_and_not_by_position(validation, novel):
    order = np.arange(len(novel.alpha))[::-1]
    turned = SearchResult(novel.alpha[order], novel.beta[order], novel.accuracy[order], novel.interval, n_tasks=100)
    there = GridComparisonDisplay.from_searches(validation, turned).novel.chosen
    assert there == GridComparisonDisplay.from_searches(validation, novel).novel.chosen


def test_a_grid_without_the_chosen_point_is_refused(novel):
    validation = made_search(lambda alpha, beta: 0.5 - (beta - 0.1) ** 2 - alpha, step=0.1)
    with pytest.raises(InputError, match="α = 0, β = 0.1 was chosen on validation, but is not in the grid on novel"):
        GridComparisonDisplay.from_searches(validation, novel)


def test_the_number_of_axes_is_checked(validation, novel):
    with pytest.raises(InputError, match="there are 3 axes. Give two"):
        GridComparisonDisplay.from_searches(validation, novel).plot(Figure().subplots(1, 3))


def test_it_makes_its_own_axes(validation, novel):
    mpl.use("agg")
    import matplotlib.pyplot as plt

    display = GridComparisonDisplay.from_searches(validation, novel).plot()
    assert display.axes_[0].figure is display.axes_[1].figure
    plt.close("all")
