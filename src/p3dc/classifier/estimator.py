"""The method as a scikit-learn estimator."""

import os
import warnings
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from p3dc import method
from p3dc._arrays import Array, is_tensor, to_device_of
from p3dc.adaptive.settings import Settings, Space
from p3dc.classifier.calibrated_support import Scores
from p3dc.classifier.explanation import pull_table
from p3dc.classifier.file import read_classifier, write_classifier
from p3dc.classifier.fitted import FittedClassifier
from p3dc.classifier.inputs import check_queries, check_rows, check_support, check_unlabelled
from p3dc.classifier.transformed_support import check_untransformed
from p3dc.confidence.temperature import check_temperature, temperature
from p3dc.errors import InputError
from p3dc.priors.prototypes import Priors, as_priors, geometry_warning
from p3dc.unlabelled.refinement import Balance

if TYPE_CHECKING:
    import pyarrow as pa

UNUSED = "unlabelled rows are not used: they need the whitened space and priors with a geometry. Build such priors."
SETTINGS = ("alpha", "beta", "space", "n_nearest", "power", "scale", "attention", "extrapolate")


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
    alpha, beta : float, optional
        Weights of the sample level and of the task level. Where neither is given, they are chosen for the task from the
        geometry of the base classes and from the support, and priors that do not fit the task are not used. Where one
        is given, the other is 0.
    space : {"whitened", "plain"}, default="whitened"
        Where support and queries are compared. "whitened": normalised, whitened by the geometry of the base classes and
        centred, so that similarities are cosines and neither the length nor the sign of the features matters. "plain":
        features as they are, which is the paper; ``alpha`` and ``beta`` must be given then.
    n_nearest : int, default=5
        How many base classes each sample may be pulled by, the paper's M.
    power : float, default=0.5
        Exponent of Tukey's transform, the paper's λ; 0 is the logarithm. Used in the plain space, where any but 1 needs
        features that are not negative.
    scale : float, optional
        Multiplies the similarities to the priors before the softmax: by default 1 in the plain space, which is the
        paper, and 10 in the whitened space.
    attention : {"raw", "unit", "mean"}, default="raw"
        How a query weighs the samples of a class: as the paper has it, after normalising the query, or not at all.
    temperature : float, optional
        Divides the cosines before the softmax of :meth:`predict_proba`. It changes no prediction. By default 0.03 in
        the plain space, and a function of the shots in the whitened space; both were chosen on validation classes.
    reject : float, optional
        Share of out-of-distribution queries that :meth:`predict` is to reject, from 0 to 1. It gives them the label
        "unknown", or -1 where labels are whole numbers. Some queries of the known classes are rejected with them.
    extrapolate : bool, default=False
        Whether ``alpha`` and ``beta`` may leave the triangle ``alpha >= 0, beta >= 0, alpha + beta <= 1``.
    pile_balance : {"equal"}, optional
        A promise that the unlabelled rows given to :meth:`fit` are of the classes alone, equally many of each. Their
        labels are balanced accordingly.

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
        In the whitened space, the mean cosine between the classes and what the priors pull them to. Below zero the
        priors do not fit the task.
    unknown_below_ : float
        The largest cosine below which a query is unknown, where ``reject`` is given.
    transduction_, transduction_proba_ : arrays of shape (n_unlabelled,) and (n_unlabelled, n_classes)
        Labels and probabilities of the unlabelled rows, where there are any.
    unlabelled_use_ : float
        How much of the classes' prototypes comes from the unlabelled rows, from 0 to 1.
    groups_ : list of arrays
        Unlabelled rows that resemble each other and none of the classes, the most central of each group first.
    n_features_in_ : int
        Number of features.

    Notes
    -----
    Tensors of torch are accepted like arrays, and everything is computed on their device: ``calibrated_``, cosines and
    probabilities are tensors then, and so are predicted labels that are numbers. The queries decide, so a classifier
    that was fitted to arrays or loaded from a file accepts tensors too.

    What is set after :meth:`fit` takes effect with the next fit.

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
    >>> classifier = P3DCClassifier(priors, alpha=0.0, beta=0.9, space="plain").fit(support, ["bird", "cat"])
    >>> classifier.predict([[4.0, 1.0, 1.0]])
    array(['bird'], dtype='<U4')
    >>> classifier.predict_proba([[4.0, 1.0, 1.0]]).round(2)
    array([[1., 0.]])

    That is the paper's method. With priors that know how their classes scatter, nothing has to be chosen:

    >>> from p3dc.demo import load_sample
    >>> birds = load_sample()
    >>> features, labels = birds.novel.features, birds.novel.labels
    >>> support = [0, 1, 32, 33, 64, 65]
    >>> classifier = P3DCClassifier(birds.priors)
    >>> classifier.fit(features[support], labels[support]).predict(features[[5, 40, 90]])
    array([0, 1, 2])
    >>> classifier.alpha_, classifier.beta_, classifier.scale_
    (0.0, 1.0, 10.0)
    """

    def __init__(
        self,
        priors: Priors | npt.ArrayLike | None = None,
        *,
        alpha: float | None = None,
        beta: float | None = None,
        space: Space = "whitened",
        n_nearest: int = 5,
        power: float = 0.5,
        scale: float | None = None,
        attention: method.Attention = "raw",
        temperature: float | None = None,
        reject: float | None = None,
        extrapolate: bool = False,
        pile_balance: Balance | None = None,
    ) -> None:
        self.priors = priors
        self.alpha = alpha
        self.beta = beta
        self.space = space
        self.n_nearest = n_nearest
        self.power = power
        self.scale = scale
        self.attention = attention
        self.temperature = temperature
        self.reject = reject
        self.extrapolate = extrapolate
        self.pile_balance = pile_balance

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.priors is not None and self.power != 1 and self.space == "plain"
        return tags

    @property
    def settings(self) -> Settings:
        """The parameters of the method, checked."""
        return Settings(**{name: getattr(self, name) for name in SETTINGS})

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, unlabelled: npt.ArrayLike | None = None) -> Self:
        """Calibrate the support samples, and refine the classes with rows that have no label.

        Parameters
        ----------
        X : array of shape (n_support, n_features)
        y : array of shape (n_support,)
            Labels of two or more classes; classes may differ in how many samples they have.
        unlabelled : array of shape (n_unlabelled, n_features), optional
            Rows without labels, those that wait for one for example. They need priors with a geometry.

        Returns
        -------
        self
        """
        support, labels = check_support(self, X, y, reset=True)
        classes = np.unique(labels)
        if len(classes) < 2:
            raise InputError(f"y has one class, {classes.tolist()[0]!r}. Add samples of at least one other class.")
        return self._learn(support, labels, check_unlabelled(self, unlabelled))

    def partial_fit(self, X: npt.ArrayLike, y: npt.ArrayLike, classes: npt.ArrayLike | None = None) -> Self:
        """Add samples of known or new classes; the result equals one fit on all samples.

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
        support, labels = check_support(self, X, y, reset=first)
        if classes is not None and not np.isin(labels, classes).all():
            outside = np.setdiff1d(labels, classes).tolist()
            raise InputError(f"y has labels outside classes: {outside}. Add them to classes.")
        if not first:
            known = self.classes_[self.labels_]
            if (known.dtype.kind in "OU") != (labels.dtype.kind in "OU"):
                raise InputError(f"labels are of type {labels.dtype}, but those before of {known.dtype}. Use one type.")
            support = array_namespace(support).concat([to_device_of(self.support_, support), support])
            labels = np.concatenate([known, labels])
        return self._learn(support, labels, None if first else self._fitted.unlabelled)

    def predict(self, X: npt.ArrayLike) -> Array:
        """Predict the class with the largest cosine for each query, or unknown where ``reject`` applies.

        Parameters
        ----------
        X : array of shape (n_queries, n_features)

        Returns
        -------
        array of shape (n_queries,)
        """
        scores = self._score(X)
        return self._fitted.predict(scores)

    def score_samples(self, X: npt.ArrayLike) -> Array:
        """Return how well each query fits any of the classes: its largest cosine.

        With unlabelled rows, a query that resembles a group of them which is none of the classes scores less.

        Parameters
        ----------
        X : array of shape (n_queries, n_features)

        Returns
        -------
        array of shape (n_queries,)
        """
        return self._score(X).known

    def decision_function(self, X: npt.ArrayLike) -> Array:
        """Return the cosine of each query to the prototype of each class.

        Parameters
        ----------
        X : array of shape (n_queries, n_features)

        Returns
        -------
        array of shape (n_queries, n_classes), or (n_queries,) for two classes
            For two classes the cosine to the second less that to the first, as scikit-learn has it.
        """
        cosines = self._score(X).cosines
        return cosines[:, 1] - cosines[:, 0] if len(self.classes_) == 2 else cosines

    def predict_proba(self, X: npt.ArrayLike) -> Array:
        """Return the softmax of the cosines divided by ``temperature``.

        Parameters
        ----------
        X : array of shape (n_queries, n_features)

        Returns
        -------
        array of shape (n_queries, n_classes)
        """
        scores = self._score(X)
        return self._fitted.probabilities(scores.cosines)

    def temperature_for(self, shots: float) -> float:
        """Return the temperature of :meth:`predict_proba` after a fit with this many shots."""
        given = check_temperature(self.temperature)
        if given is not None:
            return given
        priors = as_priors(self.priors)
        whitened = self.settings.whitened and priors is not None and priors.geometry is not None
        return temperature(shots, whitened=whitened)

    def explain(self) -> "pa.Table":
        """Return which base classes pull each support sample, and how much.

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
        >>> classifier = P3DCClassifier(priors, beta=0.9, space="plain", n_nearest=1)
        >>> classifier = classifier.fit([[2.0, 2.0, 1.0], [1.0, 2.0, 2.0]], ["bird", "cat"])
        >>> for row in classifier.explain().slice(0, 3).to_pylist():
        ...     print(row["label"], row["level"], row["prior"], round(row["weight"], 2))
        bird sample owl 1.0
        bird task owl 0.78
        bird task lynx 0.22
        """
        check_is_fitted(self)
        return pull_table(self._fitted)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted classifier as one safetensors file, which appears complete or not at all."""
        check_is_fitted(self)
        write_classifier(path, self._fitted)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a classifier that :meth:`save` wrote; no code in the file is run.

        Examples
        --------
        >>> from p3dc import P3DCClassifier
        >>> folder = getfixture("tmp_path")
        >>> P3DCClassifier().fit([[1.0, 0.0], [0.0, 1.0]], ["wren", "robin"]).save(folder / "birds.safetensors")
        >>> P3DCClassifier.load(folder / "birds.safetensors").predict([[0.2, 1.0]])
        array(['robin'], dtype='<U5')
        """
        fitted = read_classifier(path)
        parameters = {name: getattr(fitted.settings, name) for name in SETTINGS}
        others = {name: getattr(fitted, name) for name in ("reject", "pile_balance")}
        return cls(fitted.priors, **parameters, **others, temperature=fitted.given_temperature)._keep(fitted)

    def _learn(self, X: Array, y: npt.NDArray[Any], unlabelled: Array | None) -> Self:
        classes, labels = np.unique(y, return_inverse=True)
        priors = as_priors(self.priors)
        if self.settings.whitened and priors is not None and priors.geometry is None:
            warnings.warn(geometry_warning(priors), stacklevel=3)
        if priors is not None and not is_tensor(X):
            check_untransformed(X, labels, priors, whitened=self.settings.whitened)
        reject = self.reject if len(classes) > 1 else None
        temperature = check_temperature(self.temperature)
        fitted = FittedClassifier(
            X, labels, classes, priors, self.settings, reject, temperature, unlabelled, self.pile_balance
        )
        if unlabelled is not None and fitted.calibrated.refinement is None:
            warnings.warn(UNUSED, stacklevel=3)
        return self._keep(fitted)

    def _keep(self, fitted: FittedClassifier) -> Self:
        """Set the attributes that scikit-learn expects of a fitted estimator."""
        self._fitted, self.n_features_in_ = fitted, fitted.support.shape[1]
        self.support_, self.labels_, self.classes_ = fitted.support, fitted.labels, fitted.classes
        found = fitted.calibrated
        self.calibrated_, self.relevance_ = found.samples, found.relevance
        self.alpha_, self.beta_, self.scale_ = found.alpha, found.beta, fitted.settings.prior_scale
        if fitted.unlabelled is not None:
            scores = fitted.transduction
            self.transduction_, self.transduction_proba_ = fitted.predict(scores), fitted.probabilities(scores.cosines)
            self.unlabelled_use_ = 0.0 if found.refinement is None else found.refinement.used
            self.groups_ = fitted.groups
        if fitted.reject is not None:
            self.unknown_below_ = fitted.unknown_below
        return self

    def _score(self, X: npt.ArrayLike) -> Scores:
        check_is_fitted(self)
        queries = check_queries(self, X)
        check_rows(queries, "queries", calibrated=self.priors is not None)
        if len(self.classes_) < 2:
            raise InputError(
                f"there is one class, {self.classes_.tolist()[0]!r}. Add samples of at least one other class."
            )
        return self._fitted.score(queries)
