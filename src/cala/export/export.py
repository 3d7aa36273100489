"""`export_onnx`: from a model to a file of ONNX and the table of its classes beside it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cala.encoders.base import import_extra, one_line
from cala.encoders.onnx_loader import Forward
from cala.errors import InputError
from cala.export.card import card, describe
from cala.export.check import check_graph
from cala.export.graph import build_graph
from cala.files import atomic, reason, shown
from cala.heads import restore_head
from cala.model import Model


@dataclass(frozen=True)
class Exported:
    """What was written: the graph, the table beside it, and how far both agree with cala.

    difference : the largest difference of a logit on a few images of noise
    """

    path: Path
    table: Path
    classes: int
    bytes: int
    opset: int
    difference: float


def export_onnx(model: Model, path: str | os.PathLike[str], *, force: bool = False) -> Exported:
    """Write a model as `NAME.onnx`, and its weights, bias and classes as `NAME.npz`.

    force : replace files that are there
    """
    target = Path(path)
    table = _check_target(target, force)
    for needed in ("onnx", "onnxruntime"):
        import_extra(needed, "onnx")
    knowledge, encoder = model.knowledge, model.encoder
    if isinstance(encoder.forward, Forward) and _same(encoder.forward.path, target):
        raise InputError(f"{shown(target)} is the model's own encoder: choose another name")
    head = restore_head(knowledge.classifier.head_.state())
    weights, bias = (array.astype(np.float32) for array in head.linear_form())
    mirrored = knowledge.encoder.tta == "flip"
    proto = build_graph(encoder, head, mirrored=mirrored)
    opset = next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))
    describe(proto, card(model, encoder, opset))
    try:
        data = proto.SerializeToString()
    except Exception as error:  # protobuf ends at 2 GB
        raise InputError(
            f"{shown(encoder.name)} does not fit into one file of ONNX ({one_line(error)})"
        ) from error
    difference = check_graph(data, encoder, head, mirrored=mirrored)
    names = np.array(knowledge.names, dtype=str)
    try:
        with atomic(target) as graph_file, atomic(table) as table_file:
            graph_file.write_bytes(data)
            with table_file.open("wb") as file:
                np.savez(file, weights=weights, bias=bias, classes=names)
    except OSError as error:
        raise InputError(f"{shown(target)} cannot be written ({reason(error)})") from error
    return Exported(target, table, len(names), len(data), opset, difference)


def _check_target(target: Path, force: bool) -> Path:
    """The table's path, after everything that can be wrong with the target."""
    if target.suffix != ".onnx":
        raise InputError(f"{shown(target)} should end in .onnx")
    table = target.with_suffix(".npz")
    if not target.parent.is_dir():
        raise InputError(f"there is no folder {shown(target.parent)}: make it first")
    for path in (target, table):
        if path.is_dir():
            raise InputError(f"{shown(path)} is a folder: choose another name")
        if path.exists() and not force:
            raise InputError(
                f"{shown(path)} is there already: give --force to replace it, or another name"
            )
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"{shown(target.parent)} cannot be written: choose another folder")
    return table


def _same(one: Path, other: Path) -> bool:
    return other.exists() and one.exists() and os.path.samefile(one, other)
