"""The embeddings file: arrays of a frozen encoder's output, in one format everywhere."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from cala.core.fakes import FakePool
from cala.core.rows import Array, Features, StoredRows, where
from cala.data.embedding_files import (
    PART,
    REQUIRED,
    TEXTS,
    checked,
    provenance_text,
    read_members,
    write_members,
)
from cala.data.protocol import Protocol
from cala.data.shard_rows import shard_fields
from cala.data.shards import is_shards
from cala.errors import InputError

HALF_MAX = 65_504
VECTORS = ("x_train", "x_test", "fake", "x_shot", "fake_shot")  # what `half` applies to


@dataclass(frozen=True)
class Embeddings:
    """Training and test embeddings of all classes, base and novel.

    x_train : (n, d); y_train : (n,); x_test : (m, d); y_test : (m,); rows of a folder of shards are
        read as they are asked for
    fakes : image-level fake classes of the base classes, where the file has them
    x_shot, shot_rows : (k, d), (k,) how some training rows are embedded when they are shots, and
        which ones; all others as in `x_train`
    holdout : (n,) bool, training rows that the encoder never saw, where known
    usable : (n,) bool, training rows that may be learned from
    scale : the logit scale of base training, where known
    parts : what was trained together with the encoder, for the head of that method
    class_names : by label
    names_train, names_test : file names of the rows, relative to the data set
    image_test : (m,) which image each test row shows, counted over training, then test images;
        only known while the images are at hand
    provenance : where the numbers come from: encoder, fingerprint, transform, data set, command
    """

    x_train: Features
    y_train: Array
    x_test: Features
    y_test: Array
    fakes: FakePool | None = None
    x_shot: Array | None = None
    shot_rows: Array | None = None
    holdout: Array | None = None
    usable: Array | None = None
    scale: float | None = None
    parts: dict[str, Array] = field(default_factory=dict)
    class_names: tuple[str, ...] | None = None
    names_train: tuple[str, ...] | None = None
    names_test: tuple[str, ...] | None = None
    image_test: Array | None = None
    provenance: dict[str, Any] | None = None

    def learnable(self) -> Array:
        """(n,) bool: `usable`, or every row."""
        return np.ones(len(self.y_train), dtype=bool) if self.usable is None else self.usable

    def shots(self, rows: Array) -> Array:
        """Embeddings (m, d) of training rows (m,) that are to be shots."""
        found: Array = self.x_train[rows]
        if self.x_shot is None or self.shot_rows is None:
            return found
        order = np.argsort(self.shot_rows)
        place = np.searchsorted(self.shot_rows, rows, sorter=order)
        place = order[np.minimum(place, len(order) - 1)]
        lost = int((self.shot_rows[place] != rows).sum())
        if lost:
            raise InputError(
                f"{lost} of {len(rows)} shots have no row in x_shot",
                "encode again with --shot-views and the same --base",
                field="shot_views",
            )
        return self.x_shot[place]

    def relabelled(self, protocol: Protocol) -> Embeddings:
        """Labels in the protocol's order of arrival; classes that never arrive are left out.

        Where file and benchmark name their classes alike, names decide, not the file's order.
        Fake classes are kept whose two parents are base classes.
        """
        named = self._sorted_like(protocol)
        y_train, y_test = protocol.relabel(named.y_train), protocol.relabel(named.y_test)
        class_names = named.class_names
        if class_names is not None and protocol.order:
            class_names = tuple(class_names[label] for label in protocol.order)
        arrives = y_test < protocol.n_classes
        return replace(
            named,
            y_train=y_train,
            y_test=y_test[arrives],
            x_test=where(self.x_test, arrives),
            names_test=_picked(self.names_test, arrives),
            image_test=None if self.image_test is None else self.image_test[arrives],
            usable=self.learnable() & (y_train < protocol.n_classes),
            class_names=class_names,
            fakes=named._base_fakes(protocol),
        )

    def _sorted_like(self, protocol: Protocol) -> Embeddings:
        wanted = () if protocol.expected is None else protocol.expected.classes
        if not self.class_names or self.class_names == wanted:
            return self
        column = {name: label for label, name in enumerate(wanted)}
        if not set(self.class_names) <= set(column):
            return self
        place = np.array([column[name] for name in self.class_names])
        fakes = self.fakes
        fakes = None if fakes is None else replace(fakes, pairs=place[fakes.pairs])
        y_train, y_test = place[self.y_train], place[self.y_test]
        return replace(self, y_train=y_train, y_test=y_test, fakes=fakes, class_names=wanted)

    def _base_fakes(self, protocol: Protocol) -> FakePool | None:
        if self.fakes is None:
            return None
        pairs = protocol.relabel(self.fakes.pairs)
        base = np.asarray((pairs < protocol.base).all(1))
        return replace(self.fakes, pairs=pairs).take(base) if base.any() else None

    def dev(self, per_class: int, seed: int, keep: list[int]) -> Embeddings:
        """The development view: queries come from the training set, the test set is not there.

        Of every class `per_class` training rows become queries and can no longer be learned
        from; rows in `keep` (the canonical shots) stay shots. Where the file marks held-out
        rows, base queries are taken from these.
        """
        order = np.random.default_rng(seed).random(len(self.y_train))
        free = self.learnable().copy()
        free[keep] = False
        has_holdout = np.zeros(int(self.y_train.max()) + 1, dtype=bool)
        if self.holdout is not None:
            has_holdout[self.y_train[self.holdout]] = True
            free &= self.holdout | ~has_holdout[self.y_train]
        query = np.zeros(len(order), dtype=bool)
        for label in np.unique(self.y_train).tolist():
            rows = np.flatnonzero((self.y_train == label) & free)
            most = min(per_class, len(rows) // 2) if has_holdout[label] else per_class
            query[rows[order[rows].argsort()][:most]] = True
        return replace(
            self,
            x_test=where(self.x_train, query),
            y_test=self.y_train[query],
            names_test=_picked(self.names_train, query),
            image_test=None if self.image_test is None else np.flatnonzero(query),
            usable=self.learnable() & ~query,
        )


def load_embeddings(path: str | Path) -> Embeddings:
    """Read an embeddings file, or a folder of shards.

    Parameters
    ----------
    path : str or Path
        A `.npz` or `.safetensors` file, or a folder of shards, whose rows stay on the disk.

    Returns
    -------
    Embeddings
        Checked arrays. Labels that are strings become places in `class_names`, or in the sorted
        order of the labels if the file names no classes.

    Raises
    ------
    InputError
        If the file is damaged, lacks an array, or its arrays do not fit together.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> path, x, y = f"{mkdtemp()}/my.npz", np.eye(4), ["cat", "cat", "dog", "dog"]
    >>> np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    >>> data = load_embeddings(path)
    >>> data.class_names, data.y_train.tolist()
    (('cat', 'dog'), [0, 0, 1, 1])
    """
    path = Path(path)
    if is_shards(path):
        return Embeddings(**shard_fields(path))
    members, others = read_members(path)
    return Embeddings(**checked(path, members, others))


def save_embeddings(
    path: str | Path, data: Embeddings, *, half: bool = False, compress: bool = False
) -> Path:
    """Write an embeddings file in one step, in the format of its suffix.

    half : store vectors in half precision (float16), at half the size
    compress : a smaller `.npz` that takes longer to write

    >>> from tempfile import mkdtemp
    >>> x, y = np.eye(4, dtype=np.float32), np.array([0, 0, 1, 1])
    >>> path = save_embeddings(f"{mkdtemp()}/my.npz", Embeddings(x, y, x, y))
    >>> np.array_equal(load_embeddings(path).x_train, x)
    True
    """
    path = Path(path)
    if data.usable is not None:
        detail = "these embeddings are a view for one protocol or split"
        raise InputError(detail, "save the original ones", code="not_original")
    if isinstance(data.x_train, StoredRows) or isinstance(data.x_test, StoredRows):
        detail = "these embeddings are in a folder of shards"
        raise InputError(detail, "copy the folder", code="in_shards")
    members = _members(data, half)
    checked(path, members)  # what could not be read again is refused before anything is written
    write_members(path, members, compress)
    return path


def _members(data: Embeddings, half: bool) -> dict[str, Array]:
    same = (*REQUIRED, "x_shot", "shot_rows", "holdout", "scale", *TEXTS)
    found: dict[str, Any] = {name: getattr(data, name) for name in same}
    found |= {PART + name: values for name, values in data.parts.items()}
    if data.fakes is not None:
        fakes = data.fakes
        found |= {"fake": fakes.features, "pairs": fakes.pairs, "fake_shot": fakes.shots}
    if data.provenance is not None:
        found["provenance"] = provenance_text(data.provenance)
    members = {
        name: np.array(values, dtype=str) if name in TEXTS else np.asarray(values)
        for name, values in found.items()
        if values is not None
    }
    for name in [name for name in VECTORS if half and name in members]:
        if np.abs(members[name]).max(initial=0) > HALF_MAX:
            detail = f"{name} has numbers beyond {HALF_MAX:,}, the limit of half precision"
            raise InputError(detail, "save it without half", field=name)
        members[name] = members[name].astype(np.float16)
    return members


def _picked(names: tuple[str, ...] | None, rows: Array) -> tuple[str, ...] | None:
    return None if names is None else tuple(names[row] for row in np.flatnonzero(rows).tolist())
