"""A folder of shards as embeddings for a protocol: labels in memory, rows where they lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cala.data.shard_rows import open_shards
from cala.errors import InputError
from cala.files import shown


def shard_fields(path: Path) -> dict[str, Any]:
    """The fields of `Embeddings` of a folder of shards.

    Names of images stay in the folder: a hundred million of them do not fit into memory.
    """
    shards = open_shards(path)
    if not shards.rows("train"):
        raise InputError(f"{shown(path)} has no training row: a class is learned from at least one")
    return {
        "x_train": shards.features("train"),
        "y_train": shards.labels("train"),
        "x_test": shards.features("test"),
        "y_test": shards.labels("test"),
        "fakes": shards.fakes(),
        "holdout": shards.holdout(),
        "scale": shards.manifest.scale,
        "class_names": shards.classes,
        "provenance": shards.manifest.provenance or None,
    }
