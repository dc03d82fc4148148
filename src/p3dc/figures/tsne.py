"""t-SNE of support samples before and after calibration."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from p3dc._arrays import Labels, Rows, read_only
from p3dc._validation import check_count, check_directions, check_power, check_same_width
from p3dc.adaptive.settings import Settings
from p3dc.baselines.dc import calibrated_means
from p3dc.errors import InputError
from p3dc.features import FeatureSet
from p3dc.method import calibrate, l2_normalize, tukey
from p3dc.priors.prototypes import Priors

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000", "#F0E442")
"""The palette of Okabe and Ito, which colour-blind people can tell apart."""

MARKERS = {"class centre": ("*", 300), "support sample": ("s", 75), "P3DC": ("v", 105), "DC": ("D", 65)}
"""Shape and area of each kind of point, in the order of the legend."""

DC_POWER = 0.5
DC_NEAREST = 2

APART = 10.0
"""A distance that makes no neighbours; unit vectors are at most 2 apart."""

ROUNDING = 1e-12

Points = npt.NDArray[np.float64]


@dataclass(eq=False, repr=False)
class CalibrationDisplay:
    """t-SNE of support samples before and after calibration, the paper's Figure 3.

    Build it with :meth:`from_features`.

    Parameters
    ----------
    rows : array of shape (n_shown, 2)
        The other samples of the classes, in the plane of the figure.
    labels : array of shape (n_shown,)
        The class of each, as a position in ``class_names``.
    centres, support, calibrated, dc : arrays of shape (n_way, 2)
        The centre of each class, its support sample, and that sample calibrated by P3DC and by DC.
    support_cosines, calibrated_cosines, dc_cosines : arrays of shape (n_way, n_way)
        Cosines, in the space of the features, of the sample of each class to the centre of each class.
    support_rows : array of shape (n_way,)
        The rows of the support samples.
    class_names : tuple of str
    alpha, beta : float
        The weights that P3DC calibrated with.
    title : str

    Attributes
    ----------
    ax_ : matplotlib Axes
        Set by :meth:`plot`.

    Notes
    -----
    All points are normalised and embedded together. A moved sample counts as a neighbour of rows and of centres, but
    not of the sample it came from nor of other moved samples: those pairs would attract each other wherever the
    classes lie.

    t-SNE keeps neighbourhoods, not distances, so the length of an arrow means little. The cosines are exact, and
    ``str(display)`` puts them into words. They distinguish whether a sample came nearer to the centre of its class, and
    whether that centre is nearer than those of the other classes shown. A pull towards what all classes have in common
    does the first and not the second.

    DC's point is the mean that it calibrates: the average of the square root of the sample and of the two base
    prototypes nearest to that root.

    Examples
    --------
    >>> from p3dc.demo import load_sample
    >>> from p3dc.figures import CalibrationDisplay
    >>> sample = load_sample()
    >>> display = CalibrationDisplay.from_features(sample.novel, sample.priors, alpha=0, beta=0.7, n_way=3, n_rows=10)
    >>> display.calibrated.shape
    (3, 2)
    """

    rows: Points
    labels: Labels
    centres: Points
    support: Points
    calibrated: Points
    dc: Points
    support_cosines: Points
    calibrated_cosines: Points
    dc_cosines: Points
    support_rows: Rows
    class_names: tuple[str, ...]
    alpha: float
    beta: float
    title: str = ""

    @classmethod
    def from_features(
        cls,
        features: FeatureSet,
        priors: Priors,
        *,
        alpha: float,
        beta: float,
        n_way: int = 5,
        seed: int = 0,
        n_nearest: int = 5,
        power: float = 0.5,
        scale: float = 1.0,
        extrapolate: bool = False,
        n_rows: int = 100,
        title: str = "",
    ) -> "CalibrationDisplay":
        """Choose classes and one sample of each, calibrate these as one task, and embed everything together.

        Parameters
        ----------
        features : FeatureSet
            The classes to draw from. No feature may be negative.
        priors : Priors
        alpha, beta : float
            Weights of the sample level and of the task level.
        n_way : int, default=5
            How many classes to show, 8 at most.
        seed : int, default=0
            Seed of the classes, of the rows and of t-SNE.
        n_nearest, power, scale, extrapolate
            As in :class:`P3DCClassifier`.
        n_rows : int, default=100
            How many rows of each class to show at most, the support sample among them. Which sample that is does not
            depend on it, and the centres are those of all rows.
        title : str, default=""

        Returns
        -------
        CalibrationDisplay
            The same for the same arguments.
        """
        Settings(alpha, beta, "plain", n_nearest, power, scale, extrapolate=extrapolate)
        check_directions(features.features, "features")
        check_same_width(features.features, "the features", priors.prototypes, "the priors")
        check_power(features.features, power, "features")
        _check_drawing(features, n_way, seed, n_rows)
        members = _draw_members(features.labels, n_way, seed)
        shown = [features.features[rows].astype(np.float64) for rows in members]
        names = tuple(features.class_names[features.labels[rows[0]]] for rows in members)

        support = np.stack([rows[0] for rows in shown])
        clouds = [l2_normalize(rows) for rows in shown]
        centres = l2_normalize(np.stack([cloud.mean(axis=0) for cloud in clouds]))
        moved = calibrate(
            support, priors.prototypes, alpha=alpha, beta=beta, n_nearest=n_nearest, power=power, scale=scale
        )
        dc, _ = calibrated_means(tukey(support, DC_POWER), priors.prototypes, DC_NEAREST)
        samples = [l2_normalize(support), moved, l2_normalize(dc)]
        clouds = [cloud[1:n_rows] for cloud in clouds]
        embedded = _embed(np.concatenate([centres, *samples, *clouds]), n_way, seed)
        special, rest = np.split(embedded, [4 * n_way])
        places = np.split(special, 4)
        cosines = [sample @ centres.T for sample in samples]
        return cls(
            rows=read_only(rest),
            labels=read_only(np.repeat(np.arange(n_way), [len(cloud) for cloud in clouds])),
            centres=read_only(places[0]),
            support=read_only(places[1]),
            calibrated=read_only(places[2]),
            dc=read_only(places[3]),
            support_cosines=read_only(cosines[0]),
            calibrated_cosines=read_only(cosines[1]),
            dc_cosines=read_only(cosines[2]),
            support_rows=read_only(np.array([rows[0] for rows in members])),
            class_names=names,
            alpha=alpha,
            beta=beta,
            title=title,
        )

    def __str__(self) -> str:
        every = {"support": self.support_cosines, "P3DC": self.calibrated_cosines, "DC": self.dc_cosines}
        n_way = len(self.class_names)
        before = np.diagonal(self.support_cosines)
        mean = {name: np.diagonal(cosines).mean() for name, cosines in every.items()}
        nearer = {name: (np.diagonal(cosines) > before + ROUNDING).sum() for name, cosines in every.items()}
        first = {name: (cosines.argmax(axis=1) == np.arange(n_way)).sum() for name, cosines in every.items()}
        return (
            f"Of {n_way} support samples P3DC at α = {self.alpha:g}, β = {self.beta:g} moves {nearer['P3DC']} "
            "nearer to "
            f"the centre of their class and DC {nearer['DC']}: the mean cosine is {mean['support']:.3f} before, "
            f"{mean['P3DC']:.3f} with P3DC and {mean['DC']:.3f} with DC. That centre is the nearest of the {n_way} for "
            f"{first['support']} before, {first['P3DC']} with P3DC and {first['DC']} with DC. t-SNE keeps "
            "neighbourhoods, "
            "not distances: the cosines count, not the lengths of the arrows."
        )

    def plot(self, ax: "Axes | None" = None) -> "CalibrationDisplay":
        """Draw, on new axes if none are given.

        Parameters
        ----------
        ax : matplotlib Axes, optional

        Returns
        -------
        self
        """
        from matplotlib.lines import Line2D
        from matplotlib.patheffects import withStroke

        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots(figsize=(8, 5.5), layout="constrained")[1]
        colours = np.array(COLOURS[: len(self.class_names)])
        x, y = self.rows.T
        ax.scatter(x, y, s=16, c=colours[self.labels], alpha=0.35, linewidths=0)
        places = (self.centres, self.support, self.calibrated, self.dc)
        for (label, (marker, area)), points in zip(MARKERS.items(), places, strict=True):
            x, y = points.T
            ax.scatter(
                x, y, s=area, c=colours, marker=marker, label=label, zorder=4, edgecolors="black", linewidths=0.9
            )
        arrow = {
            "arrowstyle": "-|>",
            "mutation_scale": 9,
            "color": "black",
            "linewidth": 1.2,
            "shrinkA": 0,
            "shrinkB": 0,
        }
        arrow["path_effects"] = [withStroke(linewidth=3, foreground="white")]  # to be seen on any marker
        for start, end in zip(self.support, self.calibrated, strict=True):
            ax.annotate("", tuple(end), tuple(start), arrowprops=arrow, zorder=5)
        shapes = [
            Line2D([], [], linestyle="", marker=marker, markersize=area**0.5, color="0.75", mec="black", label=label)
            for label, (marker, area) in MARKERS.items()
        ]
        dots = [
            Line2D([], [], linestyle="", marker="o", markersize=7, color=colour, label=name)
            for name, colour in zip(self.class_names, colours, strict=True)
        ]
        ax.legend(handles=shapes + dots, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, borderaxespad=0)
        ax.set(xticks=[], yticks=[], title=self.title)
        ax.spines[:].set_color("0.8")
        self.ax_ = ax
        return self


def _check_drawing(features: FeatureSet, n_way: int, seed: int, n_rows: int) -> None:
    for name, number, least in (("n_way", n_way, 2), ("n_rows", n_rows, 1), ("seed", seed, 0)):
        check_count(name, number, least)
    if n_way > len(COLOURS):
        raise InputError(f"n_way is {n_way}, but a picture can tell {len(COLOURS)} classes apart. Lower n_way.")
    n_classes = len(np.unique(features.labels))
    if n_classes < n_way:
        raise InputError(f"{n_way} ways need {n_way} classes, but there are {n_classes}. Lower n_way.")
    if features.features.shape[1] < 2:
        raise InputError("the features are single numbers, which have no directions. Give at least two features.")
    least = features.features.min()
    if least < 0:
        raise InputError(
            f"the features fall to {least:.6g}, and DC takes their square root. Use features taken after a ReLU."
        )


def _draw_members(labels: Labels, n_way: int, seed: int) -> list[Rows]:
    """Draw classes, and put the rows of each in random order. The first is the support sample."""
    rng = np.random.default_rng(seed)
    classes = rng.choice(np.unique(labels), n_way, replace=False)
    return [rng.permutation(np.flatnonzero(labels == label)) for label in classes]


def _embed(points: Points, n_way: int, seed: int) -> Points:
    """Embed centres, support samples, both kinds of moved samples and rows, in this order, in a plane."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    distances = np.sqrt(np.maximum(2 - 2 * points @ points.T, 0))
    moved = np.arange(2 * n_way, 4 * n_way)
    origin = n_way + moved % n_way
    distances[np.ix_(moved, moved)] = APART
    distances[moved, origin] = distances[origin, moved] = APART
    np.fill_diagonal(distances, 0)
    # The order in which threads add up changes the last digits, and t-SNE amplifies them.
    with threadpool_limits(1):
        begin = PCA(2, svd_solver="full").fit_transform(points)
        begin *= 1e-4 / begin[:, 0].std()  # as TSNE does itself with init="pca", which takes no distances
        # A moved sample has only centres and rows as neighbours; the perplexity may not exceed their number.
        perplexity = max(1.0, min(30.0, (len(points) - 2 * n_way - 1) / 3))
        tsne = TSNE(perplexity=perplexity, metric="precomputed", init=begin, random_state=seed)
        embedded = tsne.fit_transform(distances)
    return np.asarray(embedded, dtype=np.float64)
