"""Real features: the figures measured once by a plain float64 loop, 500 tasks of 5 ways and 15 queries.

They are in points, from the notes that come with the features; their 95 % intervals are at most 1 point.
"""

import pytest

from p3dc import FeatureSet, Priors, compare
from p3dc.baselines import CL2N, L2N, NN
from tests.conftest import paper

pytestmark = pytest.mark.data

MEASURED = {
    ("miniimagenet-resnet12", 1): {"NN": 51.8, "L2N": 59.1, "CL2N": 62.0, "P3DC": 60.9, "scale 0.1": 62.9},
    ("miniimagenet-resnet12", 5): {
        "NN": 66.5,
        "L2N": 78.8,
        "CL2N": 78.9,
        "P3DC": 78.8,
        "unit": 79.7,
        "scale 0.1": 78.9,
        "unit, scale 0.1": 79.8,
    },
    ("cub-resnet12", 1): {"NN": 59.0, "L2N": 67.8, "CL2N": 69.7, "P3DC": 70.9, "scale 0.1": 72.6},
    ("cub-resnet12", 5): {
        "NN": 76.6,
        "L2N": 86.6,
        "CL2N": 86.1,
        "P3DC": 86.1,
        "unit": 87.3,
        "scale 0.1": 86.0,
        "unit, scale 0.1": 87.3,
    },
}


@pytest.mark.parametrize(("name", "n_shot"), MEASURED)
def test_accuracies_are_those_of_the_plain_loop(data_folder, name, n_shot):
    priors = Priors.from_features(FeatureSet.load(data_folder / name / "base.npz"))
    novel = FeatureSet.load(data_folder / name / "novel.npz")
    beta = 0.9 if n_shot == 1 else 0.4
    rows = {
        "NN": NN(),
        "L2N": L2N(),
        "CL2N": CL2N(priors),
        "P3DC": paper(priors, beta=beta),
        "unit": paper(priors, beta=beta, attention="unit"),
        "scale 0.1": paper(priors, beta=beta, scale=0.1),
        "unit, scale 0.1": paper(priors, beta=beta, scale=0.1, attention="unit"),
    }
    measured = MEASURED[name, n_shot]
    comparison = compare({row: rows[row] for row in measured}, novel, n_shot=n_shot)
    for row, points in measured.items():
        assert 100 * comparison.scores[row].mean == pytest.approx(points, abs=1.0), row
