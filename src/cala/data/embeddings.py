"""The embeddings file: arrays of a frozen encoder's output, in one format everywhere."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cala.core.mixing import FakePool
from cala.data.protocol import Protocol
from cala.errors import InputError

REQUIRED = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True)
class Embeddings:
    """Training and test embeddings of all classes, base and novel.

    x_train : (n, d); y_train : (n,); x_test : (m, d); y_test : (m,)
    fakes : image-level fake classes of the base classes, where the file has them
    holdout : (n,) bool, training rows that the encoder never saw, where known
    usable : (n,) bool, training rows that may be learned from
    scale : the logit scale of base training, where known
    """

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    fakes: FakePool | None = None
    holdout: Tensor | None = None
    usable: Tensor | None = None
    scale: float | None = None

    def learnable(self) -> Tensor:
        """(n,) bool: `usable`, or every row."""
        return (
            torch.ones_like(self.y_train, dtype=torch.bool) if self.usable is None else self.usable
        )

    def relabelled(self, protocol: Protocol) -> Embeddings:
        """Labels in the protocol's order of arrival; classes that never arrive are left out."""
        y_train, y_test = protocol.relabel(self.y_train), protocol.relabel(self.y_test)
        arrives = y_test < protocol.n_classes
        usable = self.learnable() & (y_train < protocol.n_classes)
        same_base = not protocol.order
        return replace(
            self,
            y_train=y_train,
            y_test=y_test[arrives],
            x_test=self.x_test[arrives],
            usable=usable,
            # Fake classes were mixed from the base classes of the file's own order.
            fakes=self.fakes if same_base else None,
        )

    def dev(self, per_class: int, seed: int, keep: list[int]) -> Embeddings:
        """The development view: queries come from the training set, the test set is not there.

        Of every class `per_class` training rows become queries and can no longer be learned
        from; rows in `keep` (the canonical shots) stay shots. Where the file marks held-out
        rows, base queries are taken from these.
        """
        generator = torch.Generator().manual_seed(seed)
        order = torch.rand(len(self.y_train), generator=generator)
        free = torch.ones(len(order), dtype=torch.bool)
        free[keep] = False
        if self.holdout is not None:
            has_holdout = torch.zeros(int(self.y_train.max()) + 1, dtype=torch.bool)
            has_holdout[self.y_train[self.holdout]] = True
            free &= self.holdout | ~has_holdout[self.y_train]
        query = torch.zeros(len(order), dtype=torch.bool)
        for label in self.y_train.unique().tolist():
            rows = ((self.y_train == label) & free).nonzero()[:, 0]
            query[rows[order[rows].argsort()][:per_class]] = True
        return replace(self, x_test=self.x_train[query], y_test=self.y_train[query], usable=~query)


def load_embeddings(path: str | Path) -> Embeddings:
    """Read an embeddings file (`.npz`); what is missing or does not fit is named."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"no embeddings file at {path}")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} cannot be read as .npz ({error}): make it again") from error
    missing = [name for name in REQUIRED if name not in arrays]
    if missing:
        raise InputError(f"{path} lacks {', '.join(missing)}: it holds {', '.join(arrays)}")
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if x.ndim != 2 or y.shape != (len(x),):
            raise InputError(
                f"{path}: x_{part} is {x.shape} and y_{part} {y.shape}, not (n, d), (n,)"
            )
        if x.shape[1] != arrays["x_train"].shape[1]:
            raise InputError(f"{path}: x_train and x_{part} differ in dimension")
        if not np.isfinite(x).all():
            raise InputError(f"{path}: x_{part} contains NaN or infinity")
    return Embeddings(
        x_train=_floats(arrays["x_train"]),
        y_train=_labels(arrays["y_train"]),
        x_test=_floats(arrays["x_test"]),
        y_test=_labels(arrays["y_test"]),
        fakes=_fakes(path, arrays),
        holdout=_mask(path, arrays),
        scale=float(arrays["scale"]) if "scale" in arrays else None,
    )


def _fakes(path: Path, arrays: dict[str, NDArray[np.generic]]) -> FakePool | None:
    if "fake" not in arrays:
        return None
    fake, pairs = arrays["fake"], arrays.get("pairs")
    dim = arrays["x_train"].shape[1]
    if pairs is None or fake.ndim != 3 or fake.shape[2] != dim or pairs.shape != (len(fake), 2):
        shape = None if pairs is None else pairs.shape
        raise InputError(f"{path}: fake is {fake.shape}, pairs {shape}, not (P, M, {dim}), (P, 2)")
    return FakePool(_floats(fake), _labels(pairs))


def _mask(path: Path, arrays: dict[str, NDArray[np.generic]]) -> Tensor | None:
    if "holdout" not in arrays:
        return None
    given = arrays["holdout"]
    mask = np.zeros(len(arrays["y_train"]), dtype=bool)
    if given.dtype == bool and given.shape != mask.shape:
        raise InputError(f"{path}: holdout is {given.shape}, not one bool per training row")
    mask[given] = True
    return torch.from_numpy(mask)


def _floats(array: NDArray[np.generic]) -> Tensor:
    return torch.from_numpy(array.astype(np.float32))


def _labels(array: NDArray[np.generic]) -> Tensor:
    return torch.from_numpy(array.astype(np.int64))
