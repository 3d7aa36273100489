"""`export_onnx`: from a model to a file of ONNX and the table of its classes beside it.

The graph has the formulas of the head a second time, so every export is compared with the head
before it is written: what follows the encoder on random embeddings, the graph on images of noise.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cala import __version__
from cala.core.rows import Array
from cala.encoders.base import Encoder, wrap_errors
from cala.encoders.onnx_loader import Forward, open_session
from cala.errors import InputError
from cala.export.graph import build_graph, in_half_precision
from cala.export.modules import Tail
from cala.extras import import_extra
from cala.files import atomic, reason, shown
from cala.heads import Head, restore_head
from cala.model import Model

_FORMAT = 1
KEY = "cala"
_ABOUT = (
    "Classifies photos and can learn new classes. `images`: RGB, resized and cropped as the "
    "metadata says. `logits` = `embedding` @ `weights`.T + `bias`. `new_weight` and `new_bias`: "
    "the batch read as photos of one new class; append them to `weights` and `bias`."
)
_IMAGES = 3
_SHOTS = (1, 2, 5, 20)
TOLERANCE = 1e-3
HALF_TOLERANCE = 0.05  # of a half-precision network; 0.0045 was seen on a tiny one


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

    Parameters
    ----------
    model : Model
        The model.
    path : path-like
        The file to write; it ends in .onnx.
    force : bool, default=False
        Replace files that exist.

    Returns
    -------
    Exported
        The paths, and how far the graph agrees with cala.

    Examples
    --------
    >>> import cala
    >>> export_onnx(cala.load("birds"), "birds.onnx").difference  # doctest: +SKIP
    """
    target = Path(path)
    table = _check_target(target, force)
    import_extra("onnx", "export")
    current, encoder = model.current, model.encoder
    own = encoder.forward.path if isinstance(encoder.forward, Forward) else None
    if own is not None and own.exists() and target.exists() and os.path.samefile(own, target):
        detail = f"{shown(target)} is the model's own encoder"
        raise InputError(detail, "choose another name", field="path")
    head = restore_head(current.classifier.head_.state())
    weights, bias = (array.astype(np.float32) for array in head.linear_form())
    tail = Tail(head, current.encoder.tta == "flip").eval()
    check_tail(tail, head)
    proto = build_graph(encoder, head, tail)
    opset = next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))
    _describe(proto, model, encoder, opset)
    detail = f"{shown(encoder.name)} does not fit into one file of ONNX"  # protobuf ends at 2 GB
    with wrap_errors(detail, "use a smaller encoder", "too_large", "encoder"):
        data = proto.SerializeToString()
    difference = check_graph(data, encoder, head, tail)
    names = np.array(current.names, dtype=str)
    try:
        with atomic(target) as graph_file, atomic(table) as table_file:
            graph_file.write_bytes(data)
            with table_file.open("wb") as file:
                np.savez(file, weights=weights, bias=bias, classes=names)
    except OSError as error:
        detail = f"{shown(target)} cannot be written ({reason(error)})"
        raise InputError(detail, field="path", code="not_written") from error
    return Exported(target, table, len(names), len(data), opset, difference)


def _check_target(target: Path, force: bool) -> Path:
    """The table's path, after everything that can be wrong with the target."""
    if target.suffix != ".onnx":
        raise InputError(f"{shown(target)} does not end in .onnx", "rename it", field="path")
    table = target.with_suffix(".npz")
    if not target.parent.is_dir():
        detail = f"{shown(target.parent)} is not a directory"
        raise InputError(detail, "create it", field="path", code="no_folder")
    for path in (target, table):
        if path.is_dir():
            detail = f"{shown(path)} is a folder"
            raise InputError(detail, "choose another name", field="path", code="is_folder")
        if path.exists() and not force:
            fix = "replace it with --force (force=True in Python), or choose another name"
            raise InputError(f"{shown(path)} already exists", fix, field="path", code="exists")
    if not os.access(target.parent, os.W_OK):
        detail = f"{shown(target.parent)} is not writable"
        raise InputError(detail, "choose another folder", field="path")
    return table


def _describe(proto: Any, model: Model, encoder: Encoder, opset: int) -> None:
    """Write what the file says about itself into an `onnx.ModelProto`, under the key `cala`."""
    current = model.current
    card = {
        "format": _FORMAT,
        "cala": __version__,
        "model_version": model.version,
        "opset": opset,
        "classes": current.names,
        "n_known": current.n_known,
        "method": current.classifier.method,
        "encoder": {
            "uri": without_folders(current.encoder.uri),
            "fingerprint": current.encoder.fingerprint,
            "dim": encoder.dim,
        },
        "tta": current.encoder.tta,
        "preprocessing": {
            **encoder.transform.as_dict(),
            "outside": ["resize", "fit", "filter", "size"],
            "inside": ["mean", "std"],
        },
    }
    proto.producer_name, proto.producer_version = "cala", __version__
    proto.model_version = model.version
    proto.graph.name, proto.doc_string = "cala", _ABOUT
    del proto.metadata_props[:]
    proto.metadata_props.add(key=KEY, value=json.dumps(card, ensure_ascii=False))


def without_folders(uri: str) -> str:
    """A URI without the folders of this machine: the file may go anywhere.

    >>> without_folders("/home/ann/base/encoder.safetensors"), without_folders("timm:resnet18")
    ('encoder.safetensors', 'timm:resnet18')
    >>> without_folders("timm:local-dir:/data/vit")
    'timm:local-dir:vit'
    """
    return re.sub(r"(^|:)(?:/|~|[A-Za-z]:\\).*[/\\]([^/\\]+)[/\\]*$", r"\1\2", uri)


def check_tail(tail: Tail, head: Head) -> None:
    """Refuse a head whose formulas differ from those of `Tail`."""
    draw = np.random.default_rng(0)
    for shots in _SHOTS:
        rows = draw.normal(size=(shots, head.dim)).astype(np.float32)
        rows += 3 * draw.normal(size=head.dim).astype(np.float32)  # a class of its own
        unit = head.embed(rows.astype(head.dtype))
        expected = [unit, *head.new_row(unit)]
        with torch.no_grad():
            made = tail.metric(torch.from_numpy(rows))
            found = [array.numpy() for array in (made, *tail.new_class(made))]
        if not _apart(found, expected) <= TOLERANCE * max(np.abs(e).max() for e in expected):
            raise InputError(
                f"{head.host.name} makes new classes by a formula that the graph does not have",
                "a head can give it as `torch_prototype` (cala.export.modules)",
                field="method",
                code="no_onnx_form",
            )


def check_graph(data: bytes, encoder: Encoder, head: Head, tail: Tail) -> float:
    """The largest difference of a logit on images of noise; an error where it is not small.

    A new class is made from one of the images, and from all of them.
    """
    onnx = import_extra("onnx", "export")
    size = encoder.transform.size
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (_IMAGES, size, size, 3), dtype=np.uint8)
    with wrap_errors("the exported graph does not run", code="does_not_run"):
        onnx.checker.check_model(data)
        session = open_session(data)
        outputs = ["logits", "new_weight", "new_bias"]
        found = session.run(outputs, {"images": images})
        found += session.run(outputs, {"images": images[:1]})
    inputs = encoder.transform.normalise(images)
    features = encoder.encode(inputs, "flip" if tail.mirrored else "none")
    unit = head.embed(features.astype(head.dtype))
    expected = [head.unit_logits(unit), *head.new_row(unit)]
    expected += [expected[0][:1], *head.new_row(unit[:1])]
    off = _apart(found, expected)
    if not off <= (HALF_TOLERANCE if in_half_precision(encoder) else TOLERANCE):
        raise InputError(
            f"the exported graph differs from cala by {off:.2g} on random images: the encoder "
            f"{shown(encoder.name)} does something that ONNX cannot express",
            code="disagree",
        )
    return off


def _apart(found: Sequence[Array], expected: Sequence[Array]) -> float:
    """The largest difference of any two numbers; NaN where one of them is none."""
    pairs = zip(found, expected, strict=True)
    return float(np.max([np.abs(a - b).max() for a, b in pairs]))
