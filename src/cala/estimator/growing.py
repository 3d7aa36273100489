"""Growing a classifier: fit, partial_fit, forget, predict, and moving along the trade-off.

It does not import scikit-learn, which takes longer to import than a photo takes to recognise.
"""

from __future__ import annotations

import copy
import inspect
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Self

from cala.core.rejection import FEWEST_IMAGES, MOST_IMAGES, Rejection
from cala.errors import FallbackWarning, InputError
from cala.estimator.arguments import (
    array,
    check_adapted,
    check_frozen,
    fake_pool,
    holdout_mask,
    seed_of,
    shot_numbers,
    whole_number,
)
from cala.estimator.labels import find_label, given_labels, labels_like
from cala.files import preview
from cala.heads import BaseData, make_head
from cala.heads.checks import check_features, check_number, check_operating_point, is_auto
from cala.registry import check_choice

PRESETS = (None, "paper")
_PAPER = ("cala-literal", "cosine")  # method and metric
#: The one way preset="paper" departs from the text, whose own loss drives β to minus infinity.
PAPER_LOSS = {"loss": "balanced", "rho": 0.0}
PAPER_REPORT = {
    "paper": "to the letter except for Eq. 9",
    "loss": "balanced: cross-entropy of base and fake queries, equal weight per class, without the "
    "term in μ, which has no minimum as printed",
}
PREDICT_ROWS = 8192  # at a time, or fewer so that embeddings and logits fit in the CPU cache
FEWEST_ROWS, CACHED = 256, 2**19
BASE_QUERIES = 15  # genuine images of a base class
SWAPPING = threading.Lock()  # held for a comparison and an assignment, never while learning


class GrowingClassifier:
    """What `CalaClassifier` does, without scikit-learn: `model` and `app` use it."""

    classes_: NDArray[Any]
    n_features_in_: int
    _head: Any
    _next_id: int
    _rejection: Rejection

    def __init__(
        self,
        method: str = "auto",
        *,
        preset: str | None = None,
        metric: str | None = None,
        scale: float | str = "auto",
        objective: str = "accuracy",
        max_base_loss: float | None = None,
        expected_novel: int | None = None,
        shots: int | tuple[int, ...] | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.method = method
        self.preset = preset
        self.metric = metric
        self.scale = scale
        self.objective = objective
        self.max_base_loss = max_base_loss
        self.expected_novel = expected_novel
        self.shots = shots
        self.random_state = random_state

    @classmethod
    def options(cls) -> list[str]:
        """Names of the constructor's parameters."""
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def fit(
        self,
        X: Any,
        y: Any,
        fake: ArrayLike | None = None,
        pairs: ArrayLike | None = None,
        holdout: ArrayLike | str | None = None,
        fake_shots: ArrayLike | None = None,
    ) -> Self:
        """Learn the base classes and train the adapter.

        Parameters
        ----------
        X : array of shape (n, d)
            Embeddings of base images.
        y : array of shape (n,)
            Their labels, all strings or all numbers; at least two classes.
        fake : array of shape (P, M, d), optional
            Embeddings of M images of each of P fake classes, each mixed from images of two
            base classes. Without it, fake classes are mixed from `X`.
        pairs : array of shape (P, 2), optional
            Integers that name the two parents of each fake class. If given, the fake classes of one
            pseudo session have distinct parents.
        holdout : {"all"} or bool array of shape (n,), optional
            Rows that the encoder was not trained on; "all" for a pretrained encoder that saw
            none of them. If it is missing or leaves classes out, the classifier warns that base
            classes may look easier than they are.
        fake_shots : array of shape (P, M, d), optional
            The images of `fake`, embedded as shots. Give it if you embed the shots of new classes
            differently from queries, for example averaged over several views.

        Returns
        -------
        self

        Examples
        --------
        >>> from cala import CalaClassifier
        >>> X = [[1, 0, 0], [1, 0.1, 0], [0, 1, 0], [0.1, 1, 0]]
        >>> CalaClassifier("nearest-mean").fit(X, ["a", "a", "b", "b"]).predict([[0.9, 0.2, 0]])
        array(['a'], dtype='<U1')
        """
        draft = copy.copy(self)  # a failure or interruption leaves this one as it was
        X, y = draft._labelled(X, given_labels(y), first=True)
        classes, columns = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            detail = f"fit got 1 class ({classes[0]!r})"
            fix = "give at least two base classes, then add more with partial_fit"
            raise InputError(detail, fix, field="y", code="one_class")
        check_operating_point(self.objective, self.max_base_loss)
        head = self._make_head()
        if self.objective != "accuracy" or self.max_base_loss is not None:
            check_adapted(self.method, head)
        fakes, held = fake_pool(fake, pairs, fake_shots), holdout_mask(holdout, len(X))
        data = BaseData(X, columns, fakes=fakes, holdout=held)
        head.fit_base(data)
        draft.n_features_in_ = head.dim
        if head.adapted:
            head.set_operating_point(self.objective, self.max_base_loss)
        draft._rejection = learn_rejection(data)
        draft._head, draft.classes_, draft._next_id = head, classes, len(classes)
        with SWAPPING:
            self.__dict__ = draft.__dict__
        return self

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Add classes never seen before; fold examples of known classes into their means.

        Parameters
        ----------
        X : array of shape (n, d)
            Embeddings.
        y : array of shape (n,)
            Their labels, of the same type as those given to `fit`.

        Returns
        -------
        self

        Examples
        --------
        >>> from cala import CalaClassifier
        >>> X = [[1, 0, 0], [1, 0.1, 0], [0, 1, 0], [0.1, 1, 0]]
        >>> model = CalaClassifier("nearest-mean").fit(X, ["a", "a", "b", "b"])
        >>> model.partial_fit([[0.0, 0.0, 1.0]], ["c"]).classes_
        array(['a', 'b', 'c'], dtype='<U1')
        """
        return self._change(lambda now: now._added(X, y))

    def _added(self, X: Any, y: Any) -> dict[str, Any]:
        self._fitted_head("fit the base classes before partial_fit adds others: call fit(X, y)")
        X, y = self._labelled(X, given_labels(y), first=False)
        names, inverse = np.unique(labels_like(y, self.classes_), return_inverse=True)
        ids = dict(zip(self.classes_.tolist(), self._head.classes, strict=True))
        is_new = np.array([name not in ids for name in names.tolist()])
        new = names[is_new]
        ids.update((name, self._next_id + i) for i, name in enumerate(new.tolist()))
        codes = np.array([ids[name] for name in names.tolist()])[inverse]
        head = self._head.fork().add(X, codes)
        columns = np.searchsorted(head.classes, codes)
        return {
            "_head": head,
            "_rejection": self._rejection.added(X, columns),
            "classes_": np.concatenate([self.classes_, new]),
            "_next_id": self._next_id + len(new),
        }

    def forget(self, label: Any) -> Self:
        """Remove a class.

        A forgotten base class still counts in the similarity to base.

        Parameters
        ----------
        label : str or number
            One of `classes_`.

        Returns
        -------
        self

        Examples
        --------
        >>> from cala import CalaClassifier
        >>> X = [[1, 0, 0], [1, 0.1, 0], [0, 1, 0], [0.1, 1, 0]]
        >>> model = CalaClassifier("nearest-mean").fit(X, ["a", "a", "b", "b"])
        >>> model.partial_fit([[0.0, 0.0, 1.0]], ["c"]).forget("a").classes_
        array(['b', 'c'], dtype='<U1')
        """
        return self._change(lambda now: now._without(label))

    def _without(self, label: Any) -> dict[str, Any]:
        column = self._column_of(label, "forget")
        try:
            head = self._head.fork().forget(self._head.classes[column])
        except InputError as error:  # heads know classes by number only
            raise InputError(f"cannot forget {label!r}", error.fix, code=error.code) from None
        rejection = self._rejection.without(column)
        classes = np.delete(self.classes_, column)
        return {"_head": head, "_rejection": rejection, "classes_": classes}

    def remove(self, X: Any, label: Any) -> Self:
        """Take rows out of the mean of their class.

        What `fit` learned from all base rows together, such as the metric, stays.

        Parameters
        ----------
        X : array of shape (n, d)
            Embeddings that the class has learned from; at least one other must remain.
        label : str or number
            Their class, one of `classes_`.

        Returns
        -------
        self

        Examples
        --------
        >>> from cala import CalaClassifier
        >>> X = [[1, 0, 0], [1, 0.1, 0], [0, 1, 0], [0.1, 1, 0]]
        >>> model = CalaClassifier("nearest-mean").fit(X, ["a", "a", "b", "b"])
        >>> model.remove([[0.1, 1, 0]], "b").n_shots_
        array([2, 1])
        """
        return self._change(lambda now: now._removed(X, label))

    def _removed(self, X: Any, label: Any) -> dict[str, Any]:
        column = self._column_of(label, "remove from")
        rows = check_features(self._rows(X))
        try:
            head = self._head.fork().remove(rows, self._head.classes[column])
            return {"_head": head, "_rejection": self._rejection.removed(rows, column)}
        except InputError as error:  # heads know classes by number only
            detail = f"cannot remove rows of {label!r}"
            raise InputError(detail, error.fix, code=error.code) from None

    def rename(self, old: Any, new: Any) -> Self:
        """Give a class another label; nothing else changes.

        Parameters
        ----------
        old : str or number
            One of `classes_`.
        new : str or number
            A label that no other class has.

        Returns
        -------
        self

        Examples
        --------
        >>> from cala import CalaClassifier
        >>> X = [[1, 0, 0], [1, 0.1, 0], [0, 1, 0], [0.1, 1, 0]]
        >>> model = CalaClassifier("nearest-mean").fit(X, ["a", "a", "b", "b"])
        >>> model.rename("a", "robin").classes_
        array(['robin', 'b'], dtype='<U5')
        """
        return self._change(lambda now: now._renamed(old, new))

    def _renamed(self, old: Any, new: Any) -> dict[str, Any]:
        column = self._column_of(old, "rename")
        label = labels_like(given_labels([new]), self.classes_)
        taken = find_label(new, self.classes_)
        if taken not in (None, column):
            detail = f"cannot rename {old!r} to {new!r}"
            raise InputError(detail, "choose a label that no class has", code="label_taken")
        classes = self.classes_.astype(np.result_type(self.classes_.dtype, label.dtype))
        classes[column] = label[0]
        return {"classes_": classes}

    def set_operating_point(
        self,
        objective: str = "accuracy",
        *,
        max_base_loss: float | None = None,
        delta: float | None = None,
    ) -> Self:
        """Move along the base/novel trade-off, without any image. Give one of the three.

        Parameters
        ----------
        objective : {"accuracy", "harmonic"}, default="accuracy"
            "accuracy" is the point that the adapter was trained for; "harmonic" has the largest
            harmonic mean of base and novel accuracy on fake classes.
        max_base_loss : float, optional
            Favour new classes as far as this loss of base accuracy allows, compared with base
            accuracy without any new class. The shift is updated as classes arrive.
        delta : float, optional
            The shift to use.

        Returns
        -------
        self

        Examples
        --------
        >>> from cala import CalaClassifier
        >>> X = [[1, 0, 0], [1, 0.1, 0], [0, 1, 0], [0.1, 1, 0]]
        >>> model = CalaClassifier("la", shots=1).fit(X, ["a", "a", "b", "b"], holdout="all")
        >>> model.set_operating_point(delta=0.5).delta_
        0.5
        """
        return self._change(lambda now: now._moved(objective, max_base_loss, delta))

    def _moved(
        self, objective: str, max_base_loss: float | None, delta: float | None
    ) -> dict[str, Any]:
        check_adapted(self.method, self._fitted_head())
        head = self._head.fork()
        head.set_operating_point(objective, max_base_loss, delta)
        return {"_head": head}

    def _change(self, changed: Callable[[Self], dict[str, Any]]) -> Self:
        """Replace attributes in one step with those that `changed` computes from the current state.

        If another thread was faster, its change stays and this one is made on top of it.
        """
        while True:
            now = copy.copy(self)
            new = changed(now)
            with SWAPPING:
                same = self._head is now._head and self._rejection is now._rejection
                if same and self.classes_ is now.classes_:
                    self.__dict__ = {**self.__dict__, **new}
                    return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the class of each row.

        Parameters
        ----------
        X : array of shape (n, d)
            Embeddings.

        Returns
        -------
        ndarray of shape (n,)
            Labels.

        Examples
        --------
        >>> from cala import CalaClassifier
        >>> X = [[1, 0, 0], [1, 0.1, 0], [0, 1, 0], [0.1, 1, 0]]
        >>> model = CalaClassifier("nearest-mean").fit(X, ["a", "a", "b", "b"])
        >>> model.predict([[0.9, 0.2, 0.0]])
        array(['a'], dtype='<U1')
        """
        now = copy.copy(self)
        best = np.concatenate([z.argmax(1) for z in now._logits(X)])
        return now.classes_[best]

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Predict how likely each class is.

        Parameters
        ----------
        X : array of shape (n, d)
            Embeddings.

        Returns
        -------
        ndarray of shape (n, n_classes)
            The softmax of the adjusted logits, at a temperature fitted on held-out classes;
            columns as in `classes_`.

        Examples
        --------
        >>> from cala import CalaClassifier
        >>> X = [[1, 0, 0], [1, 0.1, 0], [0, 1, 0], [0.1, 1, 0]]
        >>> model = CalaClassifier("nearest-mean").fit(X, ["a", "a", "b", "b"])
        >>> model.predict_proba([[0.9, 0.2, 0.0]]).argmax(1)
        array([0])
        """
        now = copy.copy(self)
        return np.concatenate([now._head.probabilities(z) for z in now._logits(X)])

    def sorted_proba(self, X: Any) -> NDArray[Any]:
        """`predict_proba` with its columns in the sorted order of the labels.

        scikit-learn's `log_loss` and `roc_auc_score` assume this order; they do not look at
        `classes_`, which is in order of arrival.

        Parameters
        ----------
        X : array of shape (n, d)
            Embeddings.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Probabilities.

        Examples
        --------
        >>> from cala import CalaClassifier
        >>> X = [[1, 0, 0], [1, 0.1, 0], [0, 1, 0], [0.1, 1, 0]]
        >>> model = CalaClassifier("nearest-mean").fit(X, ["a", "a", "b", "b"])
        >>> model.rename("a", "z").sorted_proba([[0.9, 0.2, 0.0]]).argmax(1)
        array([1])
        """
        now = copy.copy(self)
        return now.predict_proba(X)[:, np.argsort(now.classes_, kind="stable")]

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Compute the adjusted logits.

        Parameters
        ----------
        X : array of shape (n, d)
            Embeddings.

        Returns
        -------
        ndarray of shape (n, n_classes), or (n,) with two classes
            With two classes, the logit of the second minus that of the first.

        Examples
        --------
        >>> from cala import CalaClassifier
        >>> X = [[1, 0, 0], [1, 0.1, 0], [0, 1, 0], [0.1, 1, 0]]
        >>> model = CalaClassifier("nearest-mean").fit(X, ["a", "a", "b", "b"])
        >>> model.decision_function([[0.9, 0.2, 0.0]]) < 0
        array([ True])
        """
        now = copy.copy(self)
        z = np.concatenate(list(now._logits(X)))
        return z[:, 1] - z[:, 0] if z.shape[1] == 2 else z

    def familiarity(self, X: Any) -> NDArray[np.float64]:
        """Compute how well the best-fitting class fits each row.

        Parameters
        ----------
        X : array of shape (n, d)
            Embeddings.

        Returns
        -------
        ndarray of shape (n,)
            p-values: roughly the share of genuine images that fit no better, or 1 if this is not
            known. They depend neither on the method nor on the operating point.

        Examples
        --------
        >>> from cala import CalaClassifier
        >>> X = [[1, 0, 0], [1, 0.1, 0], [0, 1, 0], [0.1, 1, 0]]
        >>> model = CalaClassifier("nearest-mean").fit(X, ["a", "a", "b", "b"])
        >>> model.familiarity(X).shape
        (4,)
        """
        now = copy.copy(self)
        return np.concatenate([now._rejection.p_values(rows) for rows in now._checked_rows(X)])

    def reject(self, X: Any) -> Self:
        """Learn rows that belong to no class: images like them are called unknown more readily.

        Parameters
        ----------
        X : array of shape (n, d)
            Embeddings.

        Returns
        -------
        self

        Examples
        --------
        >>> from cala import CalaClassifier
        >>> X = [[1, 0, 0], [1, 0.1, 0], [0, 1, 0], [0.1, 1, 0]]
        >>> model = CalaClassifier("nearest-mean").fit(X, ["a", "a", "b", "b"])
        >>> model.reject([[0.0, 0.1, 1.0]]).classes_
        array(['a', 'b'], dtype='<U1')
        """
        return self._change(lambda now: now._rejecting(X))

    def _rejecting(self, X: Any) -> dict[str, Any]:
        rejection = self._rejection
        for rows in self._checked_rows(X):
            rejection = rejection.rejecting(rows)
        return {"_rejection": rejection}

    def keep_rejected(self, other: GrowingClassifier) -> Self:
        """Take over the rows that another classifier of the same encoder has rejected."""
        rejected = other.rejection_.rejected
        return self._change(lambda now: {"_rejection": replace(now.rejection_, rejected=rejected)})

    def expect_spread(self, spread: float) -> Self:
        """Tell how far images of a class scatter with this encoder, for `familiarity`.

        Parameters
        ----------
        spread : float
            `cala.core.rejection.Rejection.spread`, as `benchmarks/unknowns.py --spread` measures
            it; 0 if it is not known.

        Returns
        -------
        self
        """
        return self._change(lambda now: {"_rejection": replace(now.rejection_, spread=spread)})

    def is_unknown(self, X: Any, rate: float = 0.05) -> NDArray[np.bool_]:
        """Find the rows that no class fits.

        Parameters
        ----------
        X : array of shape (n, d)
            Embeddings.
        rate : float, default=0.05
            Fraction of images of the classes, base and few-shot alike, that may be called unknown.

        Returns
        -------
        ndarray of shape (n,)
            True where a row is unknown.

        Examples
        --------
        >>> from cala import CalaClassifier
        >>> X = [[1, 0, 0], [1, 0.1, 0], [0, 1, 0], [0.1, 1, 0]]
        >>> model = CalaClassifier("nearest-mean").fit(X, ["a", "a", "b", "b"])
        >>> model.is_unknown(X, rate=0.01)
        array([False, False, False, False])
        """
        check_number("rate", rate, 0, 1, above=True, below=True)
        return self.familiarity(X) < rate

    def _logits(self, X: Any) -> Iterator[NDArray[Any]]:
        head = self._fitted_head()
        return (head.unit_logits(unit) for unit in self._embedded(X))

    def _embedded(self, X: Any) -> Iterator[NDArray[Any]]:
        """Yield embedded rows, some at a time."""
        head = self._fitted_head()
        return (head.embed(rows) for rows in self._checked_rows(X))

    def _checked_rows(self, X: Any) -> Iterator[NDArray[Any]]:
        """Yield rows, some at a time.

        Call it on a copy, whose head stays the same from the first rows to the last.
        """
        head = self._fitted_head()
        X = check_features(self._rows(X), dim=head.dim, dtype=head.dtype)
        cached = CACHED // max(len(head.classes), head.dim)
        size = min(PREDICT_ROWS, max(FEWEST_ROWS, cached))
        return (X[start : start + size] for start in range(0, len(X), size))

    # A head never changes once it is in place, so reading it once gives one consistent state.

    @property
    def prototypes_(self) -> NDArray[Any]:
        return self._fitted_head().prototypes

    @property
    def beta_(self) -> NDArray[Any]:
        return self._fitted_head().beta.copy()

    @property
    def n_shots_(self) -> NDArray[Any]:
        return self._fitted_head().table.counts.copy()

    @property
    def n_base_(self) -> int:
        return self._fitted_head().n_base

    @property
    def delta_(self) -> float:
        head = self._fitted_head()
        return head.delta if head.adapted else 0.0

    @property
    def shift_(self) -> NDArray[Any]:
        """What is added to the logits of each class: (n_classes,), zero for base classes."""
        return self._fitted_head().shift

    @property
    def report_(self) -> dict[str, Any]:
        """What `fit` decided and why; empty if the method leaves no choice."""
        head = self._fitted_head()
        if self.preset == "paper":
            fallback = head.trained_as.adapter != head.recipe.adapter
            return {"fallback": "LA: too few classes for CALA"} if fallback else dict(PAPER_REPORT)
        return dict(head.report) if head.adapted else {}

    @property
    def rejection_(self) -> Rejection:
        """The data from which `familiarity` is computed."""
        self._fitted_head()
        return self._rejection

    @property
    def head_(self) -> Any:
        """The fitted head; every change replaces it with another one."""
        return self._fitted_head()

    def _column_of(self, label: Any, verb: str) -> int:
        """The column of a class to `verb`."""
        self._fitted_head()
        column = find_label(label, self.classes_)
        if column is None:
            known = f"known classes are {preview(map(repr, self.classes_.tolist()), 10)}"
            raise InputError(f"cannot {verb} {label!r}", known, code="unknown_class")
        return column

    def _fitted_head(self, message: str = "not fitted yet: call fit first") -> Any:
        if not hasattr(self, "_head"):
            raise self._not_fitted(message)
        return self._head

    # Checks of X and y and the not-fitted error; `CalaClassifier` uses scikit-learn's instead.

    def _labelled(self, X: Any, y: NDArray[Any], first: bool) -> tuple[NDArray[Any], NDArray[Any]]:
        X, y = check_features(array("X", X)), np.asarray(y)
        if y.shape != X.shape[:1]:
            fix = f"give one label for each of {len(X)} rows"
            raise InputError(f"y has shape {y.shape}", fix, field="y", code="wrong_shape")
        return X, y

    def _rows(self, X: Any) -> NDArray[Any]:
        return array("X", X)

    def _not_fitted(self, message: str) -> Exception:
        return AttributeError(message)

    def _make_head(self) -> Any:
        check_choice("preset", self.preset, PRESETS)
        method, metric = _PAPER if self.preset == "paper" else (self.method, self.metric)
        adapter: dict[str, Any] = {
            "novel": whole_number("expected_novel", self.expected_novel),
            "objective": self.objective,
            "max_base_loss": self.max_base_loss,
            **(PAPER_LOSS if self.preset == "paper" else {}),
        }
        if self.shots is not None:
            adapter["shots"] = shot_numbers(self.shots)
        # "auto" is the head's own default; not every head has a scale.
        scale = {} if is_auto(self.scale) else {"scale": self.scale}
        check_frozen(method)
        seed = seed_of(self.random_state)
        return make_head(method, metric=metric, seed=seed, adapter=adapter, **scale)


def learn_rejection(data: BaseData) -> Rejection:
    """What base classes look like, to tell when an image is of none."""
    rng = np.random.default_rng(0)
    drawn = data.rows.where(data.queries).draw(BASE_QUERIES, rng).thinned(MOST_IMAGES, rng)
    if len(drawn) >= FEWEST_IMAGES:
        return Rejection.of(data.features, data.columns, drawn)
    message = (
        f"{len(drawn)} base images can be judged by others of their class, which is too few: "
        "nothing will be called unknown; give at least two images per base class"
    )
    warnings.warn(FallbackWarning(message, "nothing_unknown"), stacklevel=3)
    return Rejection.off()
