"""The scikit-learn face of cala: a classifier whose classes may grow after `fit`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from typing_extensions import Self

from cala.core.logits import DEFAULT_SCALE
from cala.core.mixing import FakePool
from cala.core.operating_point import OBJECTIVES
from cala.errors import InputError
from cala.heads import AdaptedHead, make_head
from cala.registry import check_choice

PRESETS = (None, "paper")
PAPER = {"method": "cala", "metric": "cosine", "scale": DEFAULT_SCALE}
PREDICT_ROWS = 8192


class CalaClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier over embeddings that learns new classes from a handful of examples.

    `fit` learns the base classes and, on fake classes mixed from them, how far to favour a class
    known from few examples. `partial_fit` then adds classes, or examples of known ones, without
    touching any other class. Only sums, counts, base statistics and the adapter are kept, never
    the training embeddings.

    Parameters
    ----------
    method : str, default="cala-plus"
        "nearest-mean", "la", "cala", "cala-plus", or "HOST+la" and the like.
    preset : {None, "paper"}, default=None
        "paper" is the paper's method exactly: `cala` in the cosine metric with scale 16. It
        overrides `method`, `metric` and `scale`.
    metric : {None, "cosine", "whitened"}, default=None
        None takes the method's own.
    scale : float or "auto", default="auto"
        Logit scale; "auto" fits it by leave-one-out cross-entropy on the base classes. Give the
        scale that the encoder was trained with if it has one.
    objective : {"accuracy", "harmonic"}, default="accuracy"
        Operating point: see `set_operating_point`.
    max_base_loss : float, default=None
        Operating point: accuracy that base classes may lose, such as 0.01, against what they
        have before any class is added.
    expected_novel : int, default=None
        How many classes will be added in all; None prepares for 2/3 of the base classes.
    shots : int or tuple of int, default=None
        How many examples a new class will have; None takes the method's own.
    random_state : int, RandomState or None, default=0
        The same seed gives the same classifier bit for bit on one machine.
    device : str, default="cpu"
        A torch device.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Sorted after `fit`; later classes are appended as they arrive.
    prototypes_ : ndarray of shape (n_classes, n_features)
        Class means, in the metric's space.
    beta_ : ndarray of shape (n_classes,)
        Balance factors; zero for base classes.
    n_shots_ : ndarray of shape (n_classes,)
        Examples seen of each class.
    n_base_ : int
        How many of the first classes are base classes.
    delta_ : float
        The operating point's shift.

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

    def __init__(
        self,
        method: str = "cala-plus",
        *,
        preset: str | None = None,
        metric: str | None = None,
        scale: float | str = "auto",
        objective: str = "accuracy",
        max_base_loss: float | None = None,
        expected_novel: int | None = None,
        shots: int | tuple[int, ...] | None = None,
        random_state: int | np.random.RandomState | None = 0,
        device: str = "cpu",
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
        self.device = device

    def fit(
        self,
        X: Any,
        y: Any,
        fake: ArrayLike | None = None,
        pairs: ArrayLike | None = None,
        holdout: ArrayLike | str | None = None,
    ) -> Self:
        """Learn the base classes and train the adapter.

        Parameters
        ----------
        X : array of shape (n, d)
            Embeddings of base images.
        y : array of shape (n,)
            Their labels, all strings or all numbers; at least two classes.
        fake : array of shape (P, M, d), optional
            Embeddings of M images of each of P fake classes, mixed from two base classes each at
            image level. Without it fakes are mixed from `X`.
        pairs : array of shape (P, 2), optional
            The integers that name the two parents of each fake class; with it the fake classes
            of one pseudo session have distinct parents.
        holdout : {"all"} or bool array of shape (n,), optional
            Rows that the encoder was not trained on; "all" for a pretrained encoder that saw
            none of them. Without it the classifier warns that base may look safer than it is.
        """
        with self._unchanged_on_error():
            return self._fit(X, y, fake, pairs, holdout)

    def _fit(self, X: Any, y: Any, fake: Any, pairs: Any, holdout: Any) -> Self:
        if y is not None:
            _check_label_types(y)
        X, y = validate_data(self, X, y, dtype=[np.float32, np.float64])
        classes, columns = np.unique(_labels(y), return_inverse=True)
        if len(classes) < 2:
            raise InputError(
                f"fit got 1 class ({classes[0]!r}): give at least two base classes, then add more "
                "with partial_fit"
            )
        _checked_device(self.device)
        head = self._make_head()
        check_choice("objective", self.objective, OBJECTIVES)
        head.fit_base(
            self._tensor(X),
            torch.as_tensor(columns, device=self.device),
            fakes=self._fakes(fake, pairs),
            holdout=_holdout_mask(holdout, len(X)),
        )
        if isinstance(head, AdaptedHead):
            head.set_operating_point(self.objective, self.max_base_loss)
        return self._take_over(head, classes, len(classes))

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Add classes never seen before; fold examples of known classes into their means.

        X : array of shape (n, d); y : array of shape (n,), labels of the same type as in `fit`
        """
        if not hasattr(self, "classes_"):
            raise NotFittedError(
                "partial_fit adds classes to a fitted classifier: call fit(X, y) with the base "
                "classes first"
            )
        _check_label_types(y, like=self.classes_)
        X, y = validate_data(self, X, y, reset=False, dtype=[np.float32, np.float64])
        names, inverse = np.unique(_labels(y), return_inverse=True)
        ids = dict(zip(self.classes_.tolist(), self._head.classes, strict=True))
        new = [name for name in names.tolist() if name not in ids]
        ids.update((name, self._next_id + i) for i, name in enumerate(new))
        codes = np.array([ids[name] for name in names.tolist()])[inverse]
        head = self._head.fork().add(self._tensor(X), torch.as_tensor(codes, device=self.device))
        classes = np.concatenate([self.classes_, np.array(new)]) if new else self.classes_
        return self._take_over(head, classes, self._next_id + len(new))

    def forget(self, label: Any) -> Self:
        """Remove a class. Similarity to base still counts a forgotten base class."""
        check_is_fitted(self)
        same = self.classes_ == label if np.ndim(label) == 0 else np.zeros(0)
        where = np.flatnonzero(same)
        if len(where) == 0:
            raise InputError(f"cannot forget {label!r}: known classes are {self._known()}")
        head = self._head.fork().forget(self._head.classes[where[0]])
        return self._take_over(head, np.delete(self.classes_, where[0]), self._next_id)

    def _take_over(self, head: Any, classes: NDArray[Any], next_id: int) -> Self:
        """The last step of every change, and a single one: an interrupt finds old or new."""
        changed = {"_head": head, "classes_": classes, "_next_id": next_id}
        self.__dict__ = {**self.__dict__, **changed}
        return self

    def set_operating_point(
        self,
        objective: str = "accuracy",
        *,
        max_base_loss: float | None = None,
        delta: float | None = None,
    ) -> Self:
        """Move along the base/novel trade-off, without any image.

        objective : "accuracy" (where the adapter was trained to be) or "harmonic" (largest
            harmonic mean of base and novel accuracy on fake classes)
        max_base_loss : as far towards the new classes as this loss of base accuracy allows,
            against what it is without any new class (so 0.01 is stricter than it sounds); goes
            before `objective`
        delta : the shift itself; goes before both
        """
        check_is_fitted(self)
        if not isinstance(self._head, AdaptedHead):
            raise InputError(
                f'method "{self.method}" has no adapter and no operating point: '
                'use "la", "cala" or "cala-plus"'
            )
        head = self._head.fork()
        head.set_operating_point(objective, max_base_loss, delta)
        return self._take_over(head, self.classes_, self._next_id)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of each row: (n,)."""
        best = [z.argmax(1).cpu().numpy() for z in self._logits(X)]
        return self.classes_[np.concatenate(best)]

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Softmax of the adjusted logits: (n, n_classes)."""
        return np.concatenate([z.softmax(1).cpu().numpy() for z in self._logits(X)])

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Adjusted logits (n, n_classes); with two classes their difference (n,)."""
        z = np.concatenate([z.cpu().numpy() for z in self._logits(X)])
        return z[:, 1] - z[:, 0] if z.shape[1] == 2 else z

    @property
    def prototypes_(self) -> NDArray[Any]:
        return self._fitted_head().prototypes.cpu().numpy()

    @property
    def beta_(self) -> NDArray[Any]:
        head = self._fitted_head()
        if isinstance(head, AdaptedHead):
            return head.beta.cpu().numpy().copy()
        return np.zeros(len(self.classes_))

    @property
    def n_shots_(self) -> NDArray[Any]:
        return self._fitted_head().table.counts.cpu().numpy().copy()

    @property
    def n_base_(self) -> int:
        return self._fitted_head().n_base

    @property
    def delta_(self) -> float:
        head = self._fitted_head()
        return head.delta if isinstance(head, AdaptedHead) else 0.0

    @contextmanager
    def _unchanged_on_error(self) -> Iterator[None]:
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    def _fitted_head(self) -> Any:
        if not hasattr(self, "_head"):
            raise AttributeError("not fitted yet: call fit first")
        return self._head

    def _make_head(self) -> Any:
        check_choice("preset", self.preset, PRESETS)
        options: dict[str, Any] = {
            "method": self.method,
            "metric": self.metric,
            "scale": self.scale,
        }
        options.update(PAPER if self.preset == "paper" else {})
        if options["scale"] == "auto":  # every head's own default; not every head has a scale
            del options["scale"]
        adapter: dict[str, Any] = {"novel": _whole("expected_novel", self.expected_novel)}
        if self.shots is not None:
            several = isinstance(self.shots, tuple | list)
            given = tuple(self.shots) if several else (self.shots,)  # type: ignore[arg-type]
            adapter["shots"] = tuple(_whole("shots", k) for k in given)
        return make_head(options.pop("method"), seed=self._seed(), adapter=adapter, **options)

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _fakes(self, fake: ArrayLike | None, pairs: ArrayLike | None) -> FakePool | None:
        if fake is None:
            return None
        features = self._tensor(np.asarray(fake))
        if pairs is None:
            return FakePool(features, torch.arange(2 * len(features)).reshape(-1, 2))
        return FakePool(features, torch.as_tensor(np.asarray(pairs).astype(np.int64)))

    def _tensor(self, X: NDArray[Any]) -> torch.Tensor:
        kept = X if X.dtype in (np.float32, np.float64) else X.astype(np.float32)
        with warnings.catch_warnings():
            # Memory-mapped arrays are read-only; nothing here writes to them.
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            return torch.as_tensor(np.ascontiguousarray(kept), device=self.device)

    def _logits(self, X: Any) -> Iterator[torch.Tensor]:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float32, np.float64])
        for start in range(0, len(X), PREDICT_ROWS):
            yield self._head.logits(self._tensor(X[start : start + PREDICT_ROWS]))

    def _known(self, most: int = 10) -> str:
        names = ", ".join(repr(name) for name in self.classes_[:most].tolist())
        return names + (f", … ({len(self.classes_)} in all)" if len(self.classes_) > most else "")


def _check_label_types(y: Any, like: NDArray[Any] | None = None) -> None:
    """Refuse labels that mix strings and numbers, before NumPy makes strings of them all."""
    given = y if isinstance(y, np.ndarray) else np.asarray(y, dtype=object)
    if given.dtype.kind == "S" or any(isinstance(label, bytes) for label in given.ravel()[:1]):
        raise InputError("labels are bytes: decode them to strings, such as label.decode()")
    if given.dtype.kind == "O":
        kinds = {"string" if isinstance(label, str) else "number" for label in given.ravel()}
    else:
        kinds = {"string" if given.dtype.kind in "US" else "number"}
    if like is not None:
        kinds.add("string" if like.dtype.kind in "US" else "number")
    if len(kinds) > 1:
        raise InputError(
            "labels mix strings and numbers: use one type for all classes, such as "
            "[str(label) for label in y]"
        )


def _labels(y: NDArray[Any]) -> NDArray[Any]:
    """Checked labels as a typed array."""
    check_classification_targets(y)
    return y.astype(str) if y.dtype.kind == "O" and isinstance(y[0], str) else y


def _whole(name: str, value: Any) -> int | None:
    """A whole number from 1 on, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{name} is {value!r}: give a whole number, at least 1")
    return int(value)


def _checked_device(name: str) -> str:
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f'device is {name!r} ({reason}): use "cpu", or one that is there'
        ) from None
    return name


def _holdout_mask(holdout: ArrayLike | str | None, n: int) -> torch.Tensor | None:
    if holdout is None:
        return None
    if isinstance(holdout, str):
        check_choice("holdout", holdout, ("all",))
        return torch.ones(n, dtype=torch.bool)
    return torch.as_tensor(np.asarray(holdout))
