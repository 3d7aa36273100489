"""Does the graph say what cala says? Asked of every export before it is written."""

from __future__ import annotations

import numpy as np
import torch

from cala.encoders.base import Encoder
from cala.encoders.extras import import_extra, one_line
from cala.errors import InputError
from cala.export.encoder_graph import in_half_precision
from cala.files import shown
from cala.heads import Head

IMAGES = 3
TOLERANCE = 1e-3
HALF_TOLERANCE = 0.05  # of a half-precision network; 0.0045 was seen on a tiny one


def check_graph(data: bytes, encoder: Encoder, head: Head, *, mirrored: bool) -> float:
    """The largest difference of a logit on images of noise; an error where it is not small."""
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
        found, row, bias = session.run(["logits", "new_weight", "new_bias"], {"images": images})
    except Exception as error:  # onnxruntime has an error class for every cause
        raise InputError(f"the graph does not run ({one_line(error)})") from error
    inputs = encoder.transform.normalise(torch.from_numpy(images).to(encoder.device))
    features = encoder.encode(inputs)
    if mirrored:
        features = (features + encoder.encode(inputs.flip(-1))) / 2
    unit = head.embed(features.to(head.dtype))
    expected = [head.unit_logits(unit), *head.new_row(unit)]
    pairs = zip((found, row, bias), expected, strict=True)
    off = max(float(np.abs(a - b.detach().numpy()).max()) for a, b in pairs)
    if not off <= (HALF_TOLERANCE if in_half_precision(encoder) else TOLERANCE):
        raise InputError(
            f"the graph and cala disagree by {off:.2g} on images of noise: the encoder "
            f"{shown(encoder.name)} does something that ONNX cannot follow"
        )
    return off
