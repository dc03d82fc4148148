"""The method as a scikit-learn estimator."""

import os
import re
import warnings
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from p3dc import method
from p3dc._arrays import as_numpy, is_tensor, to_device_of
from p3dc._validation import (
    Weight,
    as_labels,
    check_directions,
    check_finite,
    check_point,
    check_power,
    check_same_width,
    check_settings,
    check_share,
    first_empty,
    is_auto,
    is_number,
)
from p3dc.adaptive import rule as auto
from p3dc.classifier.calibrated_support import Calibration, calibrate_alone, calibrate_as_told, stranger_threshold
from p3dc.errors import InputError
from p3dc.io.safetensors import read_arrays, write_arrays
from p3dc.priors.prototypes import PACKED, Priors, as_priors, pack_priors, unpack_priors, without_geometry

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 2
UNKNOWN: dict[str, Any] = {"U": "unknown", "i": -1, "u": -1}
"""The label of what belongs to no class, by the kind of the other labels."""

Array = npt.NDArray[Any]


class P3DCClassifier(ClassifierMixin, BaseEstimator):
    r"""Few-shot classifier that calibrates its examples with the prototypes of base classes.

    Each support sample :math:`x` is pulled towards the base prototypes it resembles, on its own (:math:`s`) and
    together with the other samples of the task (:math:`t`). A query is then given the class with the largest cosine to
    its prototype, an average of the calibrated samples that attends to the query.

    Parameters
    ----------
    priors : Priors or array of shape (n_base, n_features), optional
        Prototypes of the base classes. Without them nothing is calibrated, and this is the nearest-prototype
        classifier on normalised features.
    alpha : float or "auto", default=0.0
        Weight of the sample level.
    beta : float or "auto", default=0.9
        Weight of the task level. Where ``alpha``, ``beta`` and ``scale`` are all "auto", they are chosen from the
        geometry of the base classes and from the support, and priors that do not fit the task are left alone.
    n_nearest : int, default=5
        How many base classes each sample may be pulled by, the paper's M.
    power : float, default=0.5
        Exponent of Tukey's transform, the paper's λ; 0 is the logarithm. With priors, any but 1 needs features that
        are not negative. Not used where ``scale`` is "auto".
    scale : float or "auto", default=1.0
        Multiplies the similarities to the priors before the softmax; 1 is the paper. With "auto" support and queries
        are whitened by the geometry of the base classes, centred and normalised, so that similarities are cosines and
        neither the length nor the sign of the features matters.
    attention : {"raw", "unit", "mean"}, default="raw"
        How a query weighs the samples of a class: as the paper has it, after normalising the query, or not at all.
    temperature : float or "auto", default="auto"
        Divides the cosines before the softmax of :meth:`predict_proba`. It changes no prediction. "auto" is 0.03, or
        goes by the number of shots where ``scale`` is "auto"; both were chosen on validation classes.
    reject : float, optional
        Share of the queries of other classes that :meth:`predict` is to turn away, from 0 to 1. It gives them the label
        "unknown", or -1 where labels are whole numbers. Some queries of the known classes are turned away with them.
    extrapolate : bool, default=False
        Whether ``alpha`` and ``beta`` may leave the triangle ``alpha >= 0, beta >= 0, alpha + beta <= 1``.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The labels, sorted.
    support_ : array of shape (n_support, n_features)
        The samples given so far.
    labels_ : array of shape (n_support,)
        The position of each sample's label in ``classes_``.
    calibrated_ : array of shape (n_support, n_features)
        The samples after calibration.
    alpha_, beta_, scale_ : float
        The weights and the scale that were used.
    relevance_ : float or None
        With ``scale="auto"``, the mean cosine between the classes and what the priors pull them to. Below zero the
        priors have nothing to say about the task.
    unknown_below_ : float
        The largest cosine below which a query is unknown, where ``reject`` is given.
    n_features_in_ : int
        Number of features.

    Notes
    -----
    Tensors of torch are taken as arrays are, and everything is computed on their device: ``calibrated_``, cosines and
    probabilities are tensors then, and so are predicted labels that are numbers. Queries decide, so what was fitted to
    arrays or loaded from a file takes tensors too.

    The calibrated sample is

    .. math:: x^c = normalize((1 - \alpha - \beta)\,\bar x + \alpha\,\bar s + \beta\,\bar t)

    where :math:`\bar x`, :math:`\bar s` and :math:`\bar t` are normalised. :mod:`p3dc.method` has every equation.

    References
    ----------
    S. Wang, R. Ma, T. Wu, Y. Cao: P3DC-Shot: Prior-Driven Discrete Data Calibration for Nearest-Neighbor Few-Shot
    Classification.

    Examples
    --------
    >>> from p3dc import P3DCClassifier, Priors
    >>> priors = Priors([[3.0, 1.0, 0.0], [0.0, 1.0, 3.0]], ["owl", "lynx"])
    >>> support = [[2.0, 2.0, 1.0], [1.0, 2.0, 2.0]]
    >>> classifier = P3DCClassifier(priors, alpha=0.0, beta=0.9).fit(support, ["bird", "cat"])
    >>> classifier.predict([[4.0, 1.0, 1.0]])
    array(['bird'], dtype='<U4')
    >>> classifier.predict_proba([[4.0, 1.0, 1.0]]).round(2)
    array([[1., 0.]])

    Nothing to choose:

    >>> from p3dc.demo import load_sample
    >>> birds = load_sample()
    >>> features, labels = birds.novel.features, birds.novel.labels
    >>> support = [0, 1, 32, 33, 64, 65]
    >>> classifier = P3DCClassifier(birds.priors, alpha="auto", beta="auto", scale="auto")
    >>> classifier.fit(features[support], labels[support]).predict(features[[5, 40, 90]])
    array([0, 1, 2])
    >>> classifier.alpha_, classifier.beta_, classifier.scale_
    (0.0, 1.0, 10.0)
    """

    def __init__(
        self,
        priors: Priors | npt.ArrayLike | None = None,
        *,
        alpha: Weight = 0.0,
        beta: Weight = 0.9,
        n_nearest: int = 5,
        power: float = 0.5,
        scale: Weight = 1.0,
        attention: method.Attention = "raw",
        temperature: Weight = "auto",
        reject: float | None = None,
        extrapolate: bool = False,
    ) -> None:
        self.priors = priors
        self.alpha = alpha
        self.beta = beta
        self.n_nearest = n_nearest
        self.power = power
        self.scale = scale
        self.attention = attention
        self.temperature = temperature
        self.reject = reject
        self.extrapolate = extrapolate

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.priors is not None and self.power != 1 and not is_auto(self.scale)
        return tags

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> Self:
        """Calibrate the support samples.

        Parameters
        ----------
        X : array of shape (n_support, n_features)
        y : array of shape (n_support,)
            Labels of two or more classes; classes may differ in how many samples they have.

        Returns
        -------
        self
        """
        support, labels = self._check_support(X, y, first=True)
        classes = np.unique(labels)
        if len(classes) < 2:
            raise InputError(f"y has one class, {classes.tolist()[0]!r}. Add samples of at least one other class.")
        return self._learn(support, labels)

    def partial_fit(self, X: npt.ArrayLike, y: npt.ArrayLike, classes: npt.ArrayLike | None = None) -> Self:
        """Add samples of known or of new classes; the result is that of one fit on all samples.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,)
        classes : array, optional
            If given, any label outside it is an error. New classes need not be announced.

        Returns
        -------
        self

        Examples
        --------
        >>> from p3dc import P3DCClassifier
        >>> classifier = P3DCClassifier().partial_fit([[1.0, 0.0]], ["wren"])
        >>> classifier.partial_fit([[0.0, 1.0]], ["robin"]).predict([[0.2, 1.0]])
        array(['robin'], dtype='<U5')
        """
        first = not hasattr(self, "support_")
        support, labels = self._check_support(X, y, first=first)
        if classes is not None and not np.isin(labels, classes).all():
            outside = np.setdiff1d(labels, classes).tolist()
            raise InputError(f"y has labels outside classes: {outside}. Add them to classes.")
        if not first:
            known = self.classes_[self.labels_]
            if (known.dtype.kind in "OU") != (labels.dtype.kind in "OU"):
                raise InputError(f"labels are of type {labels.dtype}, but those before of {known.dtype}. Use one type.")
            support = array_namespace(support).concat([to_device_of(self.support_, support), support])
            labels = np.concatenate([known, labels])
        return self._learn(support, labels)

    def predict(self, X: npt.ArrayLike) -> Array:
        """Give each query the class of the largest cosine, or none where ``reject`` says so.

        Parameters
        ----------
        X : array of shape (n_queries, n_features)

        Returns
        -------
        array of shape (n_queries,)
        """
        cosines = self._cosines(X)
        if self.classes_.dtype.kind not in "iufb":
            cosines = as_numpy(cosines)
        best = cosines.argmax(axis=1)
        if self._fitted["reject"] is None:
            return _labels(self.classes_, best)
        kind = as_labels(self.classes_).dtype.kind
        labels = _labels(self.classes_.astype(np.int64) if kind == "u" else self.classes_, best)
        strange = self._largest(cosines) < self.unknown_below_
        found: Array = array_namespace(cosines).where(strange, UNKNOWN[kind], labels)
        return found

    def score_samples(self, X: npt.ArrayLike) -> Array:
        """Tell how well each query fits any of the classes: its largest cosine.

        Parameters
        ----------
        X : array of shape (n_queries, n_features)

        Returns
        -------
        array of shape (n_queries,)
        """
        return self._largest(self._cosines(X))

    def decision_function(self, X: npt.ArrayLike) -> Array:
        """Cosine of each query to the prototype of each class.

        Parameters
        ----------
        X : array of shape (n_queries, n_features)

        Returns
        -------
        array of shape (n_queries, n_classes), or (n_queries,) for two classes
            For two classes the cosine to the second less that to the first, as scikit-learn has it.
        """
        cosines = self._cosines(X)
        return cosines[:, 1] - cosines[:, 0] if len(self.classes_) == 2 else cosines

    def predict_proba(self, X: npt.ArrayLike) -> Array:
        """Softmax of the cosines divided by ``temperature``.

        Parameters
        ----------
        X : array of shape (n_queries, n_features)

        Returns
        -------
        array of shape (n_queries, n_classes)
        """
        cosines = self._cosines(X)
        divisor = self._calibration.temperature if is_auto(self.temperature) else self._check_temperature()
        probabilities: Array = method.masked_softmax(cosines / divisor, None)
        return probabilities

    def temperature_for(self, shots: float) -> float:
        """Say what :meth:`predict_proba` will divide cosines by after a fit to so many shots."""
        if not is_auto(self.temperature):
            return self._check_temperature()
        priors = as_priors(self.priors)
        prepared = is_auto(self.scale) and priors is not None and priors.geometry is not None
        return auto.temperature(shots, prepared=prepared)

    def _check_temperature(self) -> float:
        if not is_number(self.temperature) or float(self.temperature) <= 0:
            raise InputError(f"temperature is {self.temperature!r}. It must be a number more than 0, or 'auto'.")
        return float(self.temperature)

    def explain(self) -> "pa.Table":
        """Tell which base classes pull each support sample, and how much.

        Returns
        -------
        pyarrow.Table
            One row for each support sample, level and base class that pulls it, strongest first, with columns
            ``support`` (position in ``support_``), ``label``, ``level`` ("sample" or "task"), ``prior`` (the base
            class), ``similarity`` (their inner product) and ``weight`` (weights of one sample and level sum to 1).

        Examples
        --------
        >>> from p3dc import P3DCClassifier, Priors
        >>> priors = Priors([[3.0, 1.0, 0.0], [0.0, 1.0, 3.0]], ["owl", "lynx"])
        >>> classifier = P3DCClassifier(priors, n_nearest=1).fit([[2.0, 2.0, 1.0], [1.0, 2.0, 2.0]], ["bird", "cat"])
        >>> for row in classifier.explain().slice(0, 3).to_pylist():
        ...     print(row["label"], row["level"], row["prior"], round(row["weight"], 2))
        bird sample owl 1.0
        bird task owl 0.78
        bird task lynx 0.22
        """
        import pyarrow as pa

        check_is_fitted(self)
        priors = as_priors(self._fitted["priors"])
        if priors is None or self._calibration.transformed is None:
            raise InputError("there are no priors that pull the samples. Fit with priors to explain them.")
        similarities, chosen, weights = map(as_numpy, self._calibration.pulls())
        support, level, prior = np.nonzero(chosen)
        order = np.lexsort((-weights[support, level, prior], level, support))
        support, level, prior = support[order], level[order], prior[order]
        return pa.table(
            {
                "support": support,
                "label": self.classes_[self.labels_[support]],
                "level": np.array(["sample", "task"])[level],
                "prior": np.array(priors.class_names)[prior],
                "similarity": similarities[support, prior],
                "weight": weights[support, level, prior],
            }
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted classifier as one safetensors file. It appears whole or not at all."""
        check_is_fitted(self)
        classes = as_labels(self.classes_)
        priors = as_priors(self._fitted["priors"])
        known, facts_of_priors = pack_priors(priors)
        arrays: dict[str, Array] = {"support": as_numpy(self.support_), "labels": self.labels_, **known}
        facts = {
            "parameters": {name: _plain(value) for name, value in self._fitted.items() if name != "priors"},
            "classes": classes.tolist(),
            "class_type": str(classes.dtype),
            "priors": facts_of_priors,
        }
        write_arrays(path, "classifier", VERSION, arrays, facts)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what :meth:`save` wrote. Nothing in the file is run.

        Examples
        --------
        >>> from p3dc import P3DCClassifier
        >>> folder = getfixture("tmp_path")
        >>> P3DCClassifier().fit([[1.0, 0.0], [0.0, 1.0]], ["wren", "robin"]).save(folder / "birds.safetensors")
        >>> P3DCClassifier.load(folder / "birds.safetensors").predict([[0.2, 1.0]])
        array(['robin'], dtype='<U5')
        """
        arrays, facts = read_arrays(
            path,
            "classifier",
            VERSION,
            required=["support", "labels"],
            optional=PACKED,
            facts=["parameters", "classes", "class_type", "priors"],
        )
        try:
            return cls._restore(arrays, facts)
        except (TypeError, ValueError, IndexError, AttributeError, KeyError) as error:
            raise InputError(f"{path} is damaged: {error}") from None

    @classmethod
    def _restore(cls, arrays: dict[str, Array], facts: dict[str, Any]) -> Self:
        priors = unpack_priors(arrays, facts["priors"])
        unknown = set(facts["parameters"]) - (set(cls().get_params()) - {"priors"})
        if unknown:
            raise InputError(
                f"it has unknown parameters: {', '.join(sorted(unknown))}. Install the p3dc that wrote it."
            )
        if re.fullmatch(r"[<>=|]?([iufb]\d+|U\d+)|bool|u?int\d+|float\d+", str(facts["class_type"])) is None:
            raise InputError(f"its labels are of type {facts['class_type']!r}. They must be strings or numbers.")
        labels = np.array(facts["classes"], dtype=facts["class_type"])[arrays["labels"]]
        return cls(priors, **facts["parameters"]).partial_fit(arrays["support"], labels)

    def _largest(self, cosines: Array) -> Array:
        largest: Array = array_namespace(cosines).max(cosines, axis=1)
        return largest

    def _check_support(self, X: npt.ArrayLike, y: npt.ArrayLike, *, first: bool) -> tuple[Array, Array]:
        check_settings(n_nearest=self.n_nearest, power=self.power, scale=self.scale, attention=self.attention)
        check_point(self.alpha, self.beta, extrapolate=self.extrapolate, scale=self.scale)
        check_share("reject", self.reject)
        if is_tensor(X):
            support = self._check_tensor(X, reset=first)
            labels = as_labels(as_numpy(y), len(support))
        else:
            support, labels = validate_data(
                self, X, as_numpy(y), reset=first, dtype=[np.float64, np.float32], ensure_all_finite=False
            )
            as_labels(labels)
        check_classification_targets(labels)
        self._check_rows(support, "support")
        priors = as_priors(self.priors)
        if priors is not None:
            check_same_width(support, "support samples", priors.prototypes, "the priors")
            if not is_auto(self.scale):
                check_power(support, self.power, "support")
        return support, labels

    def _check_tensor(self, X: Any, *, reset: bool) -> Array:
        """Take a tensor as scikit-learn's check takes an array."""
        xp = array_namespace(X)
        if X.ndim != 2 or 0 in X.shape:
            raise InputError(
                f"X has shape {tuple(X.shape)}. It must have two axes: one row a sample, and at least one."
            )
        if reset:
            self.n_features_in_ = X.shape[1]
        elif X.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} features "
                "as input. Extract both with the same backbone."
            )
        rows: Array = X.detach() if X.dtype in (xp.float32, xp.float64) else X.detach().to(xp.float64)
        return rows

    def _check_rows(self, X: Array, what: str) -> None:
        check_finite(X, what)
        if self.priors is not None:
            check_directions(X, what)
        elif (row := first_empty(X)) is not None:
            warnings.warn(f"{what} row {row} is all zeros, so all its cosines are 0. Remove the row.", stacklevel=4)

    def _learn(self, X: Array, y: Array) -> Self:
        self.classes_, self.labels_ = np.unique(y, return_inverse=True)
        self.support_ = X
        self._fitted = self.get_params(deep=False)
        priors = as_priors(self.priors)
        if is_auto(self.scale) and priors is not None and priors.geometry is None:
            warnings.warn(without_geometry(priors), stacklevel=3)
        found = self._calibration = self._calibrate(X, self.labels_)
        self.calibrated_, self.relevance_ = found.samples, found.relevance
        self.alpha_, self.beta_, self.scale_ = found.alpha, found.beta, found.scale
        if self.reject is not None and len(self.classes_) > 1:
            self._check_unknown()
            self.unknown_below_ = stranger_threshold(X, self.labels_, self._calibrate, self.reject, self.attention)
        return self

    def _calibrate(self, support: Array, labels: npt.NDArray[np.int64]) -> Calibration:
        priors = as_priors(self.priors)
        if is_auto(self.scale):
            point = None if is_auto(self.beta) else (float(self.alpha), float(self.beta))
            return calibrate_alone(support, labels, priors, point=point, n_nearest=self.n_nearest)
        return calibrate_as_told(
            support,
            labels,
            priors,
            alpha=float(self.alpha),
            beta=float(self.beta),
            n_nearest=self.n_nearest,
            power=self.power,
            scale=float(self.scale),
        )

    def _check_unknown(self) -> None:
        classes = as_labels(self.classes_)
        if classes.dtype.kind not in UNKNOWN:
            raise InputError(f"labels are of type {classes.dtype}. To reject, give text or whole numbers.")
        unknown = UNKNOWN[classes.dtype.kind]
        if unknown in classes:
            raise InputError(f"there is a class {unknown!r}, which is what reject calls others. Rename it.")

    def _cosines(self, X: npt.ArrayLike) -> Array:
        check_is_fitted(self)
        if is_tensor(X):
            queries = self._check_tensor(X, reset=False)
        else:
            try:
                queries = validate_data(self, X, reset=False, dtype=[np.float64, np.float32], ensure_all_finite=False)
            except ValueError as error:
                if "is expecting" not in str(error):
                    raise
                raise InputError(f"{error} Extract both with the same backbone.") from None
        self._check_rows(queries, "queries")
        if len(self.classes_) < 2:
            raise InputError(
                f"there is one class, {self.classes_.tolist()[0]!r}. Add samples of at least one other class."
            )
        known = self._calibration
        if is_tensor(queries) or is_tensor(known.samples):
            queries = to_device_of(queries, queries, _wider(queries, known.samples))
            known = known.to_device_of(queries)
        return known.cosines(queries, self.attention)


def _wider(one: Array, two: Array) -> Any:
    """Return the type of the first array, or float64 where the second has that."""
    return array_namespace(one).float64 if str(two.dtype).endswith("float64") else one.dtype


def _labels(classes: Array, best: Array) -> Array:
    """Take the labels of some classes, beside their numbers."""
    found: Array = to_device_of(classes, best)[best]
    return found


def _plain(value: Any) -> Any:
    """Turn a NumPy scalar into Python's, which JSON can hold."""
    return value.item() if isinstance(value, np.generic) else value
