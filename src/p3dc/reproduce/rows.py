"""The rows of Table 1: which methods there are, how each is made and what is said of it.

Whatever a method leaves open is chosen on validation classes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p3dc.baselines import (
    ANIL,
    CL2N,
    DC,
    GDA,
    L2N,
    LEO,
    NN,
    TCPR,
    BaselinePP,
    DCNearest,
    DeepVoro,
    DeepVoroPP,
    LogisticRegression,
    MatchingNet,
    MetaOptNetRidge,
    MetaOptNetSVM,
    NegativeCosine,
    ProtoNet,
    RelationNet,
    RestoreNet,
    S2M2Head,
    SimpleShot,
)
from p3dc.baselines.deepvoro import N_VIEWS
from p3dc.reproduce.datasets import DataSet

METRIC = "Meta-learning (metric learning)"
OPTIMIZATION = "Meta-learning (optimization)"
TRANSFER = "Transfer learning"
NEIGHBOUR = "Nearest neighbour"
CALIBRATION = "Data calibration"
OTHERS = "Not in the paper's table"


@dataclass(frozen=True)
class Setting:
    """What a method is made for.

    Attributes
    ----------
    data : DataSet
    n_shot : int
    accuracy : function from classifier to float
        Accuracy on tasks of validation classes.
    cache : Path
        Folder for what is trained.
    """

    data: DataSet
    n_shot: int
    accuracy: Callable[[Any], float]
    cache: Path


@dataclass(frozen=True)
class Row:
    """One method.

    Attributes
    ----------
    key, title, group : str
    make : function from Setting to classifier
    remark : str
        What differs from its publication because the features are fixed.
    slow : bool
        Whether it may use fewer tasks.
    """

    key: str
    title: str
    group: str
    make: Callable[[Setting], Any]
    remark: str
    slow: bool = False


def _best(setting: Setting, candidates: dict[Any, Any]) -> Any:
    """Return the name of the candidate that is best on validation classes; of equals, the first."""
    return max(candidates, key=lambda name: setting.accuracy(candidates[name]))


def _deepvoro(setting: Setting) -> DeepVoro:
    alone = {number: setting.accuracy(DeepVoro((number,))) for number in range(N_VIEWS)}
    ranked = sorted(alone, key=lambda number: -alone[number])
    n_views = _best(setting, {n: DeepVoro(tuple(ranked[:n])) for n in range(1, N_VIEWS + 1)})
    return DeepVoro(tuple(sorted(ranked[:n_views])))


def _deepvoro_pp(setting: Setting) -> DeepVoroPP:
    number = _best(setting, {number: DeepVoro((number,)) for number in range(N_VIEWS)})
    base = setting.data.selection_base
    grid = {
        (n_nearest, weight): DeepVoroPP(base, number=number, n_nearest=n_nearest, weight=weight)
        for n_nearest in (1, 3, 5, 10)
        for weight in (0.1, 0.3, 1.0, 3.0)
    }
    n_nearest, weight = _best(setting, grid)
    return DeepVoroPP(setting.data.base, number=number, n_nearest=n_nearest, weight=weight)


def _gda(setting: Setting) -> GDA:
    base = setting.data.selection_base
    shrinkage = _best(setting, {value: GDA(base, shrinkage=value) for value in (0.5, 0.8, 0.9, 0.95, 0.99)})
    return GDA(setting.data.base, shrinkage=shrinkage)


def _baseline_pp(setting: Setting) -> BaselinePP:
    return BaselinePP(scale=4.0 if setting.data.paper_name == "CUB" else 2.0)


ROWS = [
    Row("matchingnet", "MatchingNet (2016)", METRIC, lambda _: MatchingNet(), "its rule, without LSTMs"),
    Row("protonet", "ProtoNet (2017)", METRIC, lambda _: ProtoNet(), "its rule"),
    Row(
        "relationnet",
        "RelationNet (2018)",
        METRIC,
        lambda s: RelationNet(s.data.base, cache=s.cache),
        "its relation module on vectors, trained on base features",
    ),
    Row(
        "anil",
        "MAML (2017), head only",
        OPTIMIZATION,
        lambda s: ANIL(s.data.base, cache=s.cache),
        "only the last layer adapts (ANIL), meta-trained on base features",
    ),
    Row("leo", "LEO (2019)", OPTIMIZATION, lambda s: LEO(s.data.base, cache=s.cache), "meta-trained on base features"),
    Row("metaoptnet-svm", "DCO = MetaOptNet SVM (2019)", OPTIMIZATION, lambda _: MetaOptNetSVM(), "its SVM head"),
    Row("metaoptnet-ridge", "MetaOptNet ridge (2019)", OPTIMIZATION, lambda _: MetaOptNetRidge(), "its ridge head"),
    Row("baseline++", "Baseline++ (2019)", TRANSFER, _baseline_pp, "its head"),
    Row("negative-cosine", "Negative-Cosine (2020)", TRANSFER, lambda _: NegativeCosine(), "its head"),
    Row("s2m2", "S2M2_R (2020)", TRANSFER, lambda _: S2M2Head(), "its head"),
    Row("nn", "NN", NEIGHBOUR, lambda _: NN(), "inner product"),
    Row("l2n", "L2N + NN", NEIGHBOUR, lambda _: L2N(), "cosine to the mean of normalised features"),
    Row("cl2n", "CL2N + NN", NEIGHBOUR, lambda s: CL2N(s.data.priors), "the same on centred features"),
    Row("simpleshot", "SimpleShot (2019)", NEIGHBOUR, lambda s: SimpleShot(s.data.priors), "CL2N by distance"),
    Row("deepvoro", "DeepVoro (2022)", NEIGHBOUR, _deepvoro, "8 of its 512 views need no new images"),
    Row("deepvoro++", "DeepVoro++ (2022)", NEIGHBOUR, _deepvoro_pp, "one view"),
    Row(
        "restorenet",
        "RestoreNet (2020)",
        CALIBRATION,
        lambda s: RestoreNet(s.data.base, cache=s.cache),
        "its module trained on base features",
    ),
    Row("dc", "DC (2021)", CALIBRATION, lambda s: DC(s.data.base), "nothing", slow=True),
    Row(
        "dc-nearest", "DC + L2N + NN", CALIBRATION, lambda s: DCNearest(s.data.priors), "the paper's own variant of DC"
    ),
    Row("tcpr", "TCPR (2022)", CALIBRATION, lambda s: TCPR(s.data.base), "nothing"),
    Row("logistic", "Logistic regression", OTHERS, lambda _: LogisticRegression(), "on normalised features"),
    Row("gda", "GDA", OTHERS, _gda, "covariance of the base classes, shrunk"),
]
KEYS = [row.key for row in ROWS]
P3DC_TITLES = {
    "p3dc-0-0": "P3DC-Shot (α = 0, β = 0)",
    "p3dc-1-0": "P3DC-Shot (α = 1, β = 0)",
    "p3dc-0-1": "P3DC-Shot (α = 0, β = 1)",
    "p3dc-third": "P3DC-Shot (α = β = 1/3)",
    "p3dc": "P3DC-Shot (selected α, β)",
    "p3dc-unit": "P3DC-Shot, unit query (selected α, β)",
}
TITLES = {row.key: row.title for row in ROWS} | P3DC_TITLES
