"""The registry of compared methods, which Table 1, ``p3dc evaluate`` and ``docs/explanation/methods.md`` read.

A new method is a file and a line here; :mod:`p3dc.baselines` exports every class that has a line.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from p3dc.baselines.contract import TaskMethod
from p3dc.baselines.deepvoro import N_VIEWS, ONE_SHOT_SHIFTS, SHIFT, DeepVoro, DeepVoroPP
from p3dc.baselines.gda import GDA
from p3dc.baselines.logistic import LogisticRegression
from p3dc.errors import InputError
from p3dc.features import FeatureSet
from p3dc.priors.prototypes import Priors

METRIC = "Meta-learning (metric learning)"
OPTIMIZATION = "Meta-learning (optimization)"
TRANSFER = "Transfer learning"
NEIGHBOUR = "Nearest neighbour"
CALIBRATION = "Data calibration"
OTHERS = "Not in the paper's table"
TRANSDUCTIVE = "Transductive"

TRAINED = ("base", "torch")
CHOSEN = ("base", "validation")
ROOTS = ("nonnegative",)
REMEDIES = {
    "base": "features of single base samples. Give base features instead of priors",
    "validation": "validation classes to choose its parameters on. Add validation features",
    "maps": "feature maps from before the pooling. Extract the features with --maps",
}


@dataclass(frozen=True)
class Sources:
    """The features, priors and folders that methods are built from.

    Attributes
    ----------
    priors : Priors
    base : FeatureSet, optional
    selection_base : FeatureSet, optional
        The base classes that parameters may be chosen with, where those are not all.
    validation : function from classifier to accuracy, optional
        Evaluates a classifier on tasks of validation classes.
    cache : Path, optional
        Folder for trained weights.
    data_set : str, optional
        The paper's name of the data set.
    n_shot : int, optional
        Shots of the tasks.
    views : int
        Views of each photo that have features.
    maps : int, optional
        Positions of the feature maps, if there are any.
    """

    priors: Priors
    base: FeatureSet | None = None
    selection_base: FeatureSet | None = None
    validation: Callable[[TaskMethod], float] | None = None
    cache: Path | None = None
    data_set: str | None = None
    n_shot: int | None = None
    views: int = 1
    maps: int | None = None

    def of_photos(self, features: FeatureSet) -> "Sources":
        """Return the same with the numbers of views and of positions that a set has."""
        views = 1 if features.views is None else features.views.shape[1]
        return replace(self, views=views, maps=None if features.maps is None else features.maps.shape[1])


@dataclass(frozen=True)
class Method:
    """One compared method.

    Attributes
    ----------
    key : str
        Its name on the command line.
    home : str
        Its module and class, below ``p3dc.baselines``.
    name : str
        Its name in the table of ``p3dc evaluate``.
    family : str
        Its group in Table 1; transductive methods have no row there.
    reference : str
        Authors and year, if it was published.
    needs : tuple of str
        Any of "priors", "base", "torch", "validation", "maps" and "nonnegative", which is features without negative
        entries.
    choose : function from Sources to dict, optional
        Chooses the parameters that it leaves open.
    also : tuple of str
        What it reads beside the features, where photos were extracted with it: "views", "maps".
    row : str, optional
        Its name in Table 1, where that is not its name and year.
    slow : bool
        Whether ``p3dc reproduce`` may use fewer tasks.
    """

    key: str
    home: str
    name: str
    family: str
    reference: str = ""
    needs: tuple[str, ...] = ()
    choose: Callable[[Any], dict[str, Any]] = lambda _: {}
    also: tuple[str, ...] = ()
    row: str = ""
    slow: bool = False

    @property
    def kind(self) -> type[TaskMethod]:
        """Its class, which is imported on first use."""
        module, _, name = self.home.partition(".")
        kind: type[TaskMethod] = getattr(import_module(f"p3dc.baselines.{module}"), name)
        return kind

    @property
    def takes_roots(self) -> bool:
        """Whether it is not defined for negative features."""
        return "nonnegative" in self.needs

    @property
    def title(self) -> str:
        """The name of its row in Table 1."""
        return self.row or (f"{self.name} ({self.reference[-4:]})" if self.reference else self.name)

    def check(self, sources: Sources) -> None:
        """Refuse sources that do not have what the method needs."""
        for need, remedy in REMEDIES.items():
            if need in self.needs and getattr(sources, need) is None:
                raise InputError(f"{self.key} needs {remedy}.")

    def build(self, sources: Sources) -> TaskMethod:
        """Build the method with the parameters that it chooses."""
        self.check(sources)
        options = self.choose(sources) | ({"cache": sources.cache} if "torch" in self.needs else {})
        return self.kind(*(getattr(sources, need) for need in self.needs if need in ("priors", "base")), **options)


def _best(sources: Any, candidates: dict[Any, TaskMethod]) -> Any:
    """Return the key of the candidate that is best on validation classes; among equals, the first."""
    return max(candidates, key=lambda key: sources.validation(candidates[key]))


def _published_shift(sources: Any) -> float:
    return ONE_SHOT_SHIFTS.get(sources.data_set, SHIFT) if sources.n_shot == 1 else SHIFT


def _choose_views(sources: Any) -> dict[str, Any]:
    every, photos = range(N_VIEWS * sources.views), {"n_photo_views": sources.views, "shift": _published_shift(sources)}
    accuracy = {number: sources.validation(DeepVoro((number,), **photos)) for number in every}
    ranked = sorted(accuracy, key=lambda number: -accuracy[number])
    counts = sorted({*range(1, N_VIEWS + 1), *range(N_VIEWS, len(every) + 1, N_VIEWS)})
    n_views = _best(sources, {n: DeepVoro(tuple(ranked[:n]), **photos) for n in counts})
    return {"views": tuple(sorted(ranked[:n_views])), **photos}


def _choose_surrogate(sources: Any) -> dict[str, Any]:
    shift = _published_shift(sources)
    number = _best(sources, {number: DeepVoro((number,), shift=shift) for number in range(N_VIEWS)})
    options = [
        {"number": number, "n_nearest": n_nearest, "weight": weight, "n_photo_views": sources.views, "shift": shift}
        for n_nearest in (1, 3, 5, 10)
        for weight in (0.1, 0.3, 1.0, 3.0)
    ]
    base = sources.selection_base or sources.base
    best: int = _best(sources, {i: DeepVoroPP(base, **each) for i, each in enumerate(options)})
    return options[best]


def _choose_shrinkage(sources: Any) -> dict[str, Any]:
    base = sources.selection_base or sources.base
    candidates = {value: GDA(base, shrinkage=value) for value in (0.5, 0.8, 0.9, 0.95, 0.99)}
    return {"shrinkage": _best(sources, candidates)}


def _map_positions(sources: Any) -> dict[str, Any]:
    return {"n_positions": sources.maps}


def _choose_regression(sources: Any) -> dict[str, Any]:
    base, priors = sources.selection_base, sources.priors
    if base is not None and base is not sources.base:
        priors = Priors.from_features(base)
    options: list[dict[str, Any]] = [
        {"C": C, "centred": centred} for centred in (False, True) for C in (0.01, 0.1, 1.0, 10.0, 100.0)
    ]
    best: int = _best(sources, {i: LogisticRegression(priors, **each) for i, each in enumerate(options)})
    return options[best]


def _published_scale(sources: Any) -> dict[str, Any]:
    return {"scale": 4.0 if sources.data_set == "CUB" else 2.0}


_TABLE = (
    Method("matchingnet", "prototypical.MatchingNet", "MatchingNet", METRIC, "Vinyals et al., 2016"),
    Method("protonet", "prototypical.ProtoNet", "ProtoNet", METRIC, "Snell et al., 2017"),
    Method("relationnet", "relationnet.RelationNet", "RelationNet", METRIC, "Sung et al., 2018", TRAINED),
    Method("anil", "anil.ANIL", "ANIL", OPTIMIZATION, "Finn et al., 2017", TRAINED, row="MAML (2017), head only"),
    Method("leo", "leo.LEO", "LEO", OPTIMIZATION, "Rusu et al., 2019", TRAINED),
    Method(
        "metaoptnet-svm",
        "metaoptnet.MetaOptNetSVM",
        "MetaOptNet SVM",
        OPTIMIZATION,
        "Lee et al., 2019",
        row="DCO = MetaOptNet SVM (2019)",
    ),
    Method("metaoptnet-ridge", "metaoptnet.MetaOptNetRidge", "MetaOptNet ridge", OPTIMIZATION, "Lee et al., 2019"),
    Method("baseline++", "sgd_heads.BaselinePP", "Baseline++", TRANSFER, "Chen et al., 2019", choose=_published_scale),
    Method("negative-cosine", "sgd_heads.NegativeCosine", "Negative-Cosine", TRANSFER, "Liu et al., 2020"),
    Method("s2m2", "sgd_heads.S2M2Head", "S2M2_R", TRANSFER, "Mangla et al., 2020"),
    Method("nn", "nearest.NN", "NN", NEIGHBOUR),
    Method("l2n", "nearest.L2N", "L2N", NEIGHBOUR, row="L2N + NN"),
    Method("cl2n", "nearest.CL2N", "CL2N", NEIGHBOUR, needs=("priors",), row="CL2N + NN"),
    Method("simpleshot", "nearest.SimpleShot", "SimpleShot", NEIGHBOUR, "Wang et al., 2019", ("priors",)),
    Method(
        "deepvoro",
        "deepvoro.DeepVoro",
        "DeepVoro",
        NEIGHBOUR,
        "Ma et al., 2022",
        ("validation", *ROOTS),
        _choose_views,
        ("views",),
    ),
    Method(
        "deepvoro++",
        "deepvoro.DeepVoroPP",
        "DeepVoro++",
        NEIGHBOUR,
        "Ma et al., 2022",
        CHOSEN + ROOTS,
        _choose_surrogate,
        ("views",),
    ),
    Method("restorenet", "restorenet.RestoreNet", "RestoreNet", CALIBRATION, "Xue and Wang, 2020", TRAINED),
    Method("dc", "dc.DC", "DC", CALIBRATION, "Yang et al., 2021", ("base", *ROOTS), slow=True),
    Method("dc-nearest", "dc.DCNearest", "DC + L2N + NN", CALIBRATION, needs=("priors", *ROOTS)),
    Method("tcpr", "tcpr.TCPR", "TCPR", CALIBRATION, "Xu et al., 2022", ("base", *ROOTS)),
    Method(
        "mcl-katz",
        "mcl.MCLKatz",
        "MCL-Katz",
        CALIBRATION,
        "Liu et al., 2022",
        ("maps",),
        _map_positions,
        ("maps",),
        row="MCL-Katz (2022), without PSM",
        slow=True,
    ),
    Method(
        "logistic",
        "logistic.LogisticRegression",
        "Logistic regression",
        OTHERS,
        needs=("priors", "validation"),
        choose=_choose_regression,
    ),
    Method("gda", "gda.GDA", "GDA", OTHERS, needs=CHOSEN, choose=_choose_shrinkage),
    Method("soft-k-means", "soft_kmeans.SoftKMeans", "Soft k-means", TRANSDUCTIVE, "Ren et al., 2018"),
    Method("bd-cspn", "bd_cspn.BDCSPN", "BD-CSPN", TRANSDUCTIVE, "Liu et al., 2020", ("priors",)),
    Method(
        "laplacianshot", "laplacian_shot.LaplacianShot", "LaplacianShot", TRANSDUCTIVE, "Ziko et al., 2020", ("priors",)
    ),
    Method("alpha-tim", "alpha_tim.AlphaTIM", "α-TIM", TRANSDUCTIVE, "Veilleux et al., 2021"),
    Method("pt-map", "pt_map.PTMAP", "PT-MAP", TRANSDUCTIVE, "Hu et al., 2021", ROOTS),
)
METHODS = {method.key: method for method in _TABLE}
"""The methods by their keys, in the order of Table 1; then those that label all queries together."""

TABLE_1 = {key: method for key, method in METHODS.items() if method.family != TRANSDUCTIVE}
"""The methods of Table 1, which label one query at a time."""


def also_read(keys: Iterable[str]) -> list[str]:
    """List what methods read beside the features, for :meth:`p3dc.FeatureSet.load`."""
    return sorted({name for key in keys if key in METHODS for name in METHODS[key].also})


def methods_table() -> str:
    """Write the registry as the Markdown table of ``docs/explanation/methods.md``."""
    lines = ["| method | reference | `--method` | class | needs | what differs from its publication |"]
    lines.append("|---|---|---|---|---|---|")
    for method in METHODS.values():
        name, kind = method.row.partition(" (")[0] or method.name, f"`p3dc.baselines.{method.kind.__name__}`"
        cells = (name, method.reference, f"`{method.key}`", kind, ", ".join(method.needs), method.kind.differs)
        lines.append(f"| {' | '.join(cell or '—' for cell in cells)} |")
    return "\n".join(lines)
