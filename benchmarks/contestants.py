"""Classifiers that people would pick for classes that grow: all with `fit`, `add` and `predict`.

scikit-learn's refit on everything at each session, since none of them takes a new class later;
so they keep every embedding. Others learn from the new rows alone.
"""

from __future__ import annotations

import pickle  # to measure, never written
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from cala import CalaClassifier

LIBRARIES: list[Any] = []  # what they define goes with them


class NotInstalled(Exception):
    """What is there cannot be loaded."""


class Refitted:
    """An estimator of scikit-learn's, fitted anew to all rows that were ever seen."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make
        make()  # imports it, which is no part of fitting

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        self.x, self.y = x, y
        self.model = self.make().fit(x, y)

    def add(self, x: np.ndarray, y: np.ndarray) -> None:
        self.fit(np.concatenate([self.x, x]), np.concatenate([self.y, y]))

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.model.predict(x)

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self.model, "x": self.x, "y": self.y}


class Ours:
    """`CalaClassifier`; `holdout="all"`: these embeddings did not train their encoder."""

    def __init__(self, method: str, holdout: Any = "all") -> None:
        self.model, self.holdout = CalaClassifier(method), holdout

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        self.model.fit(x, y, holdout=self.holdout)

    def add(self, x: np.ndarray, y: np.ndarray) -> None:
        self.model.partial_fit(x, y)

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.model.predict(x)


class Neighbours:
    """faiss: the most frequent label among the k nearest of all embeddings, by the cosine."""

    def __init__(self, k: int) -> None:
        self.k = k

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        import faiss

        self.index, self.y = faiss.IndexFlatIP(x.shape[1]), np.zeros(0, np.int64)
        self.add(x, y)

    def add(self, x: np.ndarray, y: np.ndarray) -> None:
        self.index.add(_unit(x))
        self.y = np.concatenate([self.y, y])

    def predict(self, x: np.ndarray) -> np.ndarray:
        near = self.y[self.index.search(_unit(x), self.k)[1]]
        votes = (near[:, :, None] == near[:, None, :]).sum(2)
        return near[np.arange(len(near)), votes.argmax(1)]  # the nearest one breaks a tie

    def __getstate__(self) -> dict[str, Any]:
        import faiss

        return {"index": faiss.serialize_index(self.index), "y": self.y}


class StreamingLDA:
    """Avalanche's: a mean per class and one covariance, one row at a time."""

    MORE = 1000  # classes that may come: it wants to know their number in advance

    def __init__(self) -> None:
        _torchvision_without_operators()
        try:
            from avalanche.training.supervised.deep_slda import StreamingLDA as Theirs
        except RuntimeError as error:  # torchvision's, of another build of torch
            raise NotInstalled(str(error)) from error

        self.theirs, self.seen = Theirs, 0

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        import torch

        self.model = self.theirs(
            slda_model=torch.nn.Identity(),
            criterion=torch.nn.CrossEntropyLoss(),
            input_size=x.shape[1],
            num_classes=int(y.max()) + self.MORE,
            device="cpu",
        )
        self.add(x, y)

    def add(self, x: np.ndarray, y: np.ndarray) -> None:
        import torch

        rows, labels = torch.from_numpy(x), torch.from_numpy(y)
        for row, label in zip(rows, labels, strict=True):
            self.model.fit(row[None], label[None])
        self.seen = max(self.seen, int(y.max()) + 1)

    def predict(self, x: np.ndarray) -> np.ndarray:
        import torch

        scores = self.model.predict(torch.from_numpy(x))[:, : self.seen]
        return scores.argmax(1).numpy()

    def __getstate__(self) -> dict[str, Any]:
        return {"Sigma": self.model.Sigma, "muK": self.model.muK[: self.seen].clone()}


def _torchvision_without_operators() -> None:
    """Its wheel for other builds of torch fails at import, for want of two names."""
    import torch

    with suppress(Exception):
        LIBRARIES.append(torch.library.Library("torchvision", "DEF"))
        for name in ("nms", "qnms"):
            LIBRARIES[-1].define(
                f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def _nearest_centroid() -> Any:
    from sklearn.neighbors import NearestCentroid

    return NearestCentroid()


def _sgd(**options: Any) -> Callable[[], Any]:
    def make() -> Any:
        from sklearn.linear_model import SGDClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        descent = SGDClassifier(loss="log_loss", random_state=0, **options)
        return make_pipeline(StandardScaler(), descent)

    return make


def _logistic(**options: Any) -> Callable[[], Any]:
    def make() -> Any:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        return make_pipeline(StandardScaler(), LogisticRegression(max_iter=200, **options))

    return make


OURS = ("cala-plus", "cala")
CONTESTANTS: dict[str, Callable[[], Any]] = {
    "cala-plus": lambda: Ours("cala-plus"),
    "cala": lambda: Ours("cala"),
    "NearestCentroid": lambda: Refitted(_nearest_centroid),
    "LogisticRegression": lambda: Refitted(_logistic()),
    "LogisticRegression, balanced": lambda: Refitted(_logistic(class_weight="balanced")),
    "faiss kNN, k=1": lambda: Neighbours(1),
    "faiss kNN, k=5": lambda: Neighbours(5),
    "Avalanche StreamingLDA": StreamingLDA,
    "SGDClassifier": lambda: Refitted(_sgd()),
    "SGDClassifier, balanced": lambda: Refitted(_sgd(class_weight="balanced")),
}
REFITTED = tuple(name for name in CONTESTANTS if name.startswith(("Nearest", "SGD", "Logistic")))


def kept_bytes(contestant: Any) -> int:
    """What it must keep to go on learning, embeddings included; measured in memory only."""
    return len(pickle.dumps(contestant, protocol=5))
