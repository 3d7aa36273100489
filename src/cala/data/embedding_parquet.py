"""Embeddings as a flat table, one row per image: what data frames read and write.

    part       train, test, or fake
    label      the class (integer or string); of a fake image, the number of its fake class
    name       file name, or null
    holdout    whether the encoder never saw the image (train), else null
    vector     the embedding
    pair_a, pair_b  the two classes that a fake class mixes, else null

Class names, scale and provenance are JSON under the key `cala` of the schema. Only part, label
and vector are needed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.data.embedding_checks import Members
from cala.errors import InputError, install
from cala.files import shown

COLUMNS = ("part", "label", "name", "holdout", "vector", "pair_a", "pair_b")
PARTS = ("train", "test", "fake")


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            f".parquet files need pyarrow: {install('parquet')}, or use .npz"
        ) from error
    return pyarrow


def write_parquet(path: Path, members: Members) -> None:
    pa = _pyarrow()
    x_train, x_test = members["x_train"], members["x_test"]
    dim = x_train.shape[1]
    fake = members.get("fake", np.zeros((0, 1, dim), x_train.dtype))
    sizes = len(x_train), len(x_test), fake.shape[0] * fake.shape[1]
    part = np.repeat(PARTS, sizes)
    number = np.repeat(np.arange(len(fake)), fake.shape[1])
    pairs = members.get("pairs", np.zeros((0, 2), np.int64)).astype(np.int64)[number]
    vectors = np.concatenate([x_train, x_test, fake.reshape(-1, dim)])
    whole = sum(sizes)

    def padded(values: NDArray[Any], start: int) -> Any:
        """`values` from row `start` on, null everywhere else."""
        filled = np.zeros(whole, dtype=values.dtype)
        filled[start : start + len(values)] = values
        rows = np.arange(whole)
        return pa.array(filled, mask=(rows < start) | (rows >= start + len(values)))

    names: list[str | None] = [None] * whole
    if "names_train" in members:
        names[: sizes[0]] = members["names_train"].tolist()
    if "names_test" in members:
        names[sizes[0] : sizes[0] + sizes[1]] = members["names_test"].tolist()
    labels = [members[y].astype(np.int64) for y in ("y_train", "y_test")]
    table = pa.table(
        {
            "part": pa.array(part.tolist()),
            "label": pa.array(np.concatenate([*labels, number])),
            "name": pa.array(names, pa.string()),
            "holdout": padded(members.get("holdout", np.zeros(0, bool)), 0),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), dim),
            "pair_a": padded(pairs[:, 0], sizes[0] + sizes[1]),
            "pair_b": padded(pairs[:, 1], sizes[0] + sizes[1]),
        }
    )
    extra: dict[str, Any] = {
        name: members[name].tolist() for name in ("class_names", "scale") if name in members
    }
    if "provenance" in members:
        extra["provenance"] = json.loads(str(members["provenance"]))
    pa.parquet.write_table(table.replace_schema_metadata({"cala": json.dumps(extra)}), path)


def read_parquet(path: Path) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    table = _pyarrow().parquet.ParquetFile(path).read()
    missing = [name for name in ("part", "label", "vector") if name not in table.column_names]
    if missing:
        raise InputError(
            f"{shown(path)} lacks the column {', '.join(missing)}: it has "
            f"{', '.join(shown(name) for name in table.column_names)}"
        )
    part = np.array(table["part"].to_pylist(), dtype=object)
    other = [p for p in part if p not in PARTS]
    if other:
        raise InputError(f"{shown(path)}: part is {other[0]!r}: use {', '.join(PARTS)}")
    vectors, labels = _matrix(path, table["vector"]), np.array(table["label"].to_pylist())
    members: dict[str, NDArray[Any]] = {}
    for name in ("train", "test"):
        members[f"x_{name}"], members[f"y_{name}"] = vectors[part == name], labels[part == name]
        given = _column(table, "name", part == name)
        if given:
            members[f"names_{name}"] = np.array(given)
    holdout = _column(table, "holdout", part == "train")
    if holdout:
        members["holdout"] = np.array(holdout)
    if (part == "fake").any():
        members["fake"], members["pairs"] = _fakes(path, table, part == "fake", vectors, labels)
    extra = json.loads((table.schema.metadata or {}).get(b"cala", b"{}"))
    if "class_names" in extra:
        members["class_names"] = np.array(extra["class_names"])
    if "scale" in extra:
        members["scale"] = np.array(extra["scale"])
    if "provenance" in extra:
        members["provenance"] = np.array(json.dumps(extra["provenance"]))
    return members, tuple(name for name in table.column_names if name not in COLUMNS)


def _matrix(path: Path, column: Any) -> NDArray[Any]:
    from pyarrow import compute

    flat = column.combine_chunks()
    lengths = compute.unique(compute.list_value_length(flat)).to_pylist()
    if len(lengths) > 1 or lengths == [None]:
        raise InputError(f"{shown(path)}: vector is empty or of different lengths in some rows")
    values: NDArray[Any] = flat.flatten().to_numpy(zero_copy_only=False)
    return values.reshape(len(flat), -1) if len(flat) else values.reshape(0, 0)


def _column(table: Any, name: str, rows: NDArray[np.bool_]) -> list[Any]:
    """The values of these rows, empty where none is given."""
    if name not in table.column_names:
        return []
    values = [v for v, used in zip(table[name].to_pylist(), rows, strict=True) if used]
    return [] if all(value is None for value in values) else values


def _fakes(
    path: Path, table: Any, rows: NDArray[np.bool_], vectors: NDArray[Any], labels: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    order = np.flatnonzero(rows)
    order = order[np.argsort(labels[order], kind="stable")]
    _, counts = np.unique(labels[order], return_counts=True)
    if len(set(counts.tolist())) > 1:
        raise InputError(f"{shown(path)}: fake classes differ in their number of images")
    first = order[:: counts[0]]
    sides = [_column(table, side, np.ones(len(rows), bool)) for side in ("pair_a", "pair_b")]
    if not all(sides):
        raise InputError(f"{shown(path)}: fake rows need pair_a and pair_b")
    pairs = np.array([[side[row] for side in sides] for row in first])
    return vectors[order].reshape(len(counts), counts[0], -1), pairs
