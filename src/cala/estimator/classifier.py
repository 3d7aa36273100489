"""`CalaClassifier`: the scikit-learn interface of a classifier that grows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from cala.estimator.arguments import untracked
from cala.estimator.growing import GrowingClassifier

FLOATS = [np.float32, np.float64]


class CalaClassifier(ClassifierMixin, BaseEstimator, GrowingClassifier):  # type: ignore[misc]
    """A classifier over embeddings that learns new classes from a handful of examples.

    `fit` learns the base classes and, on fake classes mixed from them, how far to favour a class
    known from few examples. `partial_fit` then adds classes, or examples of known ones, without
    touching any other class. Only sums, counts, base statistics, the adapter and a sample of at
    most 2,000 base rows are kept, never all training embeddings.

    Threads may share a classifier. A change is atomic: a thread that predicts meanwhile sees all of
    it or none of it, and changes made at the same time are applied one after the other. To read
    several attributes of one state, read them from `copy.copy(model)`.

    Parameters
    ----------
    method : str, default="auto"
        "auto" holds out classes in turn and takes the simplest metric and shift that they support
        (see `report_`); or "nearest-mean", "la", "cala", "cala-plus", "HOST+la" and the like.
    preset : {None, "paper"}, default=None
        "paper" is CALA as in its paper: cosine metric, softmax inputs, its optimiser and numbers,
        and Eq. 9 in a form that has a minimum, which `report_` states (`method="cala-literal"` has
        Eq. 9 as printed, and diverges). It overrides `method` and `metric`.
    metric : {None, "cosine", "whitened"}, default=None
        None uses the method's own.
    scale : float or "auto", default="auto"
        Logit scale; "auto" fits it by leave-one-out cross-entropy on the base classes. Give the
        scale that the encoder was trained with if it has one.
    objective : {"accuracy", "harmonic"}, default="accuracy"
        Operating point: see `set_operating_point`.
    max_base_loss : float, default=None
        Operating point: how much accuracy base classes may lose, such as 0.01, compared with
        before any class is added. The shift is updated as classes arrive, so that with 95 %
        confidence no more is lost.
    expected_novel : int, default=None
        How many classes will be added in all; None prepares for 2/3 of the base classes.
    shots : int or tuple of int, default=None
        How many examples a new class will have; None uses the method's own.
    random_state : int, RandomState or None, default=0
        The same seed gives the same classifier bit for bit on one machine.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Sorted after `fit`; later classes are appended as they arrive. scikit-learn's `log_loss`
        assumes sorted columns: give it `sorted_proba(X)`.
    prototypes_ : ndarray of shape (n_classes, n_features)
        Class means, in the metric's space.
    beta_ : ndarray of shape (n_classes,)
        Balance factors; zero for base classes.
    n_shots_ : ndarray of shape (n_classes,)
        Number of examples of each class.
    n_base_ : int
        How many of the first classes are base classes.
    report_ : dict
        What `method="auto"` chose (host, metric, shift: "none", "one" or "class-aware") and on what
        evidence, or how preset="paper" reads Eq. 9; empty for other methods.
    delta_ : float
        The shift of the operating point, δ.
    shift_ : ndarray of shape (n_classes,)
        What is added to the logits of each class: γβ + δ for new classes, zero for base classes.

    References
    ----------
    Liu et al., "CALA: A Class-Aware Logit Adapter for Few-Shot Class-Incremental Learning".

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from cala import CalaClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = CalaClassifier().fit(X[y < 8], y[y < 8], holdout="all")
    >>> model.partial_fit(X[y == 8][:5], y[y == 8][:5]).classes_
    array([0, 1, 2, 3, 4, 5, 6, 7, 8])
    """

    def _labelled(self, X: Any, y: NDArray[Any], first: bool) -> tuple[NDArray[Any], NDArray[Any]]:
        X, y = validate_data(self, untracked(X), y, reset=first, dtype=FLOATS)
        if y.dtype.kind not in "biuU":  # whole numbers and strings are always labels
            check_classification_targets(y)
        return X, y

    def _rows(self, X: Any) -> NDArray[Any]:
        return validate_data(self, untracked(X), reset=False, dtype=FLOATS)

    def _not_fitted(self, message: str) -> Exception:
        return NotFittedError(message)
