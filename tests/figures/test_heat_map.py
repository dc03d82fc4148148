import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from p3dc.evaluation.search import SearchResult, grid
from p3dc.figures import GridDisplay


@pytest.fixture
def result():
    alpha, beta = grid(0.25).T
    return SearchResult(alpha, beta, 0.5 + 0.1 * beta - 0.05 * alpha, np.full(len(alpha), 0.01), n_tasks=100)


def test_nothing_is_drawn_before_plot(result):
    assert not hasattr(GridDisplay.from_search(result), "ax_")


def test_every_point_has_its_colour_and_the_rest_none(result):
    ax = Figure().subplots()
    display = GridDisplay.from_search(result, title="birds").plot(ax)
    assert display.ax_ is ax
    values = ax.collections[0].get_array()
    assert values.count() == len(result.alpha)
    assert values.max() == pytest.approx(100 * result.best.accuracy)
    assert values[4, 0] == pytest.approx(60.0)
    assert ax.get_title() == "birds"
    [marker] = ax.lines
    assert marker.get_xydata().tolist() == [[0.0, 1.0]]


def test_it_makes_its_own_axes(result):
    mpl.use("agg")
    import matplotlib.pyplot as plt

    display = GridDisplay.from_search(result).plot(cmap="viridis")
    assert display.ax_.collections[0].get_cmap().name == "viridis"
    plt.close("all")
