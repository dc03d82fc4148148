from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from PIL import Image

from p3dc.errors import InputError
from p3dc.figures import ExplanationDisplay
from p3dc.images.classifier import Prediction
from p3dc.images.examples import Example, thumbnail
from p3dc.images.explanation import Explanation, Neighbour, Pull
from p3dc.priors.central import CentralRow


@pytest.fixture
def explanation():
    jpeg = thumbnail(Image.new("RGB", (40, 30), "olive"))
    pulls = (Pull("stork", 0.6), Pull("a class with a very long name indeed", 0.4))
    near = [Neighbour(Example(f"{i}.jpg", "tern", np.ones(3), jpeg), 0.9 - i / 10, pulls) for i in range(3)]
    prediction = Prediction("new.jpg", "tern", 0.8, "gull", 0.2)
    return Explanation(prediction, jpeg, {"gull": 0.3, "tern": 0.7}, tuple(near), 0.0, 0.5, 0.1)


def titles(explanation):
    figure = ExplanationDisplay(explanation).plot().figure_
    return figure.get_suptitle(), [ax.get_title() for ax in figure.axes if ax.get_title()]


def test_nothing_is_drawn_before_plot(explanation):
    assert not hasattr(ExplanationDisplay(explanation), "figure_")


def test_the_photo_stands_before_its_neighbours(explanation):
    figure = Figure()
    assert ExplanationDisplay(explanation).plot(figure).figure_ is figure
    photo, cosines, *neighbours = figure.axes
    assert photo.get_title() == "tern\n80 %, then gull"
    assert [label.get_text() for label in cosines.get_yticklabels()] == ["gull", "tern"]
    assert cosines.lines[0].get_xdata() == [0.1, 0.1]
    assert [ax.get_title() for ax in neighbours[::2]] == [f"tern\ncosine 0.{9 - i}0" for i in range(3)]
    assert [text.get_text() for text in neighbours[1].texts] == [" stork", " a class with a very…"]


def test_the_title_tells_how_base_classes_pull(explanation):
    assert titles(explanation)[0].endswith("pulled by base classes with weight β = 0.50")
    assert titles(replace(explanation, alpha=0.25))[0].endswith("with weight α = 0.25, β = 0.50")
    assert titles(replace(explanation, beta=0.0))[0].endswith("base classes do not pull")


def test_an_unknown_photo_names_the_nearest_class(explanation):
    rejected = Prediction("new.jpg", "unknown", 0.8, "tern", 0.8, rejected=True)
    assert titles(replace(explanation, prediction=rejected))[1][0] == "unknown\nnearest is tern"


def test_it_is_drawn_without_base_classes_and_without_a_threshold(explanation, tmp_path):
    near = tuple(replace(each, pulls=()) for each in explanation.neighbours)
    plain = replace(explanation, neighbours=near, unknown_below=-np.inf)
    ExplanationDisplay(plain).save(tmp_path / "plain.png")
    assert imread(tmp_path / "plain.png").shape[1] > 1000


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_it_is_saved_in_the_format_of_the_ending(explanation, tmp_path, ending, start):
    path = tmp_path / f"why.{ending}"
    ExplanationDisplay(explanation).save(path)
    assert path.read_bytes().startswith(start)
    assert list(tmp_path.iterdir()) == [path]


def test_names_that_the_font_cannot_show_are_no_warning(explanation, tmp_path):
    named = replace(explanation, cosines={"鳥": 0.5, "tern": 0.7})
    ExplanationDisplay(named).save(tmp_path / "why.png")


def test_a_damaged_thumbnail_is_refused(explanation):
    with pytest.raises(InputError, match="thumbnail in the model is damaged"):
        ExplanationDisplay(replace(explanation, photo=b"junk")).plot()


def test_a_cluster_shows_thumbnails_or_a_key(explanation, tmp_path):
    small = explanation.photo
    pulls = (
        Pull("cluster 0001", 0.5, (CentralRow("a.jpg", small), CentralRow("b.jpg", small), CentralRow("c.jpg"))),
        Pull("cluster 0002", 0.3, (CentralRow("17"),)),
        Pull("stork", 0.2),
    )
    near = tuple(replace(each, pulls=pulls) for each in explanation.neighbours)
    display = ExplanationDisplay(replace(explanation, neighbours=near)).plot()
    bars = display.figure_.axes[3]
    assert [text.get_text() for text in bars.texts] == [" cluster of 17", " stork"]
    (row,) = (artist for artist in bars.get_children() if isinstance(artist, AnnotationBbox))
    assert len(row.findobj(OffsetImage)) == 2
    display.save(tmp_path / "why.png")
    damaged = replace(near[0], pulls=(replace(pulls[0], central=(CentralRow("a.jpg", b"junk"),)),))
    with pytest.raises(InputError, match="thumbnail in the model is damaged"):
        ExplanationDisplay(replace(explanation, neighbours=(damaged,))).plot()
