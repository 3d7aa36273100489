"""Does the graph say what cala says? Asked of every export before it is written.

The graph has the formulas of the head a second time, so they are compared with the head's own:
before the graph is made on random embeddings, and in it on images of noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from cala.core.rows import Array
from cala.encoders.base import Encoder, import_extra, one_line
from cala.errors import InputError
from cala.export.encoder_graph import in_half_precision
from cala.export.parts import Tail
from cala.files import shown
from cala.heads import Head

IMAGES = 3
SHOTS = (1, 2, 5, 20)
TOLERANCE = 1e-3
HALF_TOLERANCE = 0.05  # of a half-precision network; 0.0045 was seen on a tiny one


def check_tail(tail: Tail, head: Head) -> None:
    """Refuse a head that works in another way than what stands behind the encoder."""
    draw = np.random.default_rng(0)
    for shots in SHOTS:
        rows = draw.normal(size=(shots, head.dim)).astype(np.float32)
        rows += 3 * draw.normal(size=head.dim).astype(np.float32)  # a class of its own
        unit = head.embed(rows.astype(head.dtype))
        expected = [unit, *head.new_row(unit)]
        with torch.no_grad():
            made = tail.metric(torch.from_numpy(rows))
            found = [array.numpy() for array in (made, *tail.new_class(made))]
        if not _apart(found, expected) <= TOLERANCE * max(np.abs(e).max() for e in expected):
            raise InputError(
                f"{head.host.name} makes new classes by a formula that the graph does not have: a "
                "head can give it as `torch_prototype` (cala.export.new_class)"
            )


def check_graph(data: bytes, encoder: Encoder, head: Head, *, mirrored: bool) -> float:
    """The largest difference of a logit on images of noise; an error where it is not small.

    A new class is made from one of the images, and from all of them.
    """
    onnx = import_extra("onnx", "onnx")
    runtime = import_extra("onnxruntime", "onnx")
    size = encoder.transform.size
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (IMAGES, size, size, 3), dtype=np.uint8)
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        onnx.checker.check_model(data)
        session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        outputs = ["logits", "new_weight", "new_bias"]
        found = session.run(outputs, {"images": images})
        found += session.run(outputs, {"images": images[:1]})
    except Exception as error:  # onnxruntime has an error class for every cause
        raise InputError(f"the graph does not run ({one_line(error)})") from error
    inputs = encoder.transform.normalise(torch.from_numpy(images).to(encoder.device))
    features = encoder.encode(inputs, "flip" if mirrored else "none")
    unit = head.embed(features.numpy().astype(head.dtype))
    expected = [head.unit_logits(unit), *head.new_row(unit)]
    expected += [expected[0][:1], *head.new_row(unit[:1])]
    off = _apart(found, expected)
    if not off <= (HALF_TOLERANCE if in_half_precision(encoder) else TOLERANCE):
        raise InputError(
            f"the graph and cala disagree by {off:.2g} on images of noise: the encoder "
            f"{shown(encoder.name)} does something that ONNX cannot follow"
        )
    return off


def _apart(found: Sequence[Array], expected: Sequence[Array]) -> float:
    """The largest difference of any two numbers; NaN where one of them is none."""
    pairs = zip(found, expected, strict=True)
    return float(np.max([np.abs(a - b).max() for a, b in pairs]))
