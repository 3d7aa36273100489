"""An encoder -> its graph: traced where it is a torch module, read where it is a file of ONNX."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from cala.encoders.base import Encoder, import_extra, one_line
from cala.encoders.onnx_loader import Forward
from cala.errors import InputError
from cala.export.trace import OPSET, to_onnx
from cala.files import shown

OPSETS = range(13, 21)


@dataclass(frozen=True)
class EncoderGraph:
    """A graph with one input and the output that is the embedding.

    shape : of the output but for its first axis; a map or tokens are still to be pooled
    """

    model: Any
    input: str
    output: str
    opset: int
    shape: tuple[int, ...]
    channels_last: bool = False
    half: bool = False


def in_half_precision(encoder: Encoder) -> bool:
    """Whether the encoder is a network that takes numbers of half precision."""
    forward = encoder.forward
    return isinstance(forward, Forward) and forward.layout.dtype == np.float16


def encoder_graph(encoder: Encoder) -> EncoderGraph:
    """The graph of any encoder that has one."""
    if isinstance(encoder.forward, nn.Module):
        return _traced(encoder, encoder.forward)
    if isinstance(encoder.forward, Forward):
        return _read(encoder, encoder.forward)
    raise InputError(
        f"the encoder {shown(encoder.name)} is a Python function, which has no graph: make it a "
        "torch.nn.Module (docs/encoders.md, `torch:`)"
    )


def _traced(encoder: Encoder, module: nn.Module) -> EncoderGraph:
    if encoder.device.type != "cpu":
        module = copy.deepcopy(module).cpu()
    size = encoder.transform.size
    example = (torch.zeros(2, 3, size, size).contiguous(memory_format=torch.channels_last),)
    what = f"the encoder {shown(encoder.name)}"
    model = to_onnx(module, example, ["x"], ["features"], what=what)
    return EncoderGraph(model, "x", "features", OPSET, (encoder.dim,))


def _read(encoder: Encoder, forward: Forward) -> EncoderGraph:
    onnx = import_extra("onnx", "onnx")
    name = shown(forward.path)
    try:
        model = onnx.load(forward.path)
    except Exception as error:  # protobuf has errors of its own
        raise InputError(f"{name} cannot be read as ONNX ({one_line(error)})") from error
    if forward.layout.batch is not None:
        raise InputError(
            f"{name} takes batches of {forward.layout.batch} images only: export the network with "
            "a free batch size"
        )
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if opset not in OPSETS:
        raise InputError(
            f"{name} has opset {opset}: export the network with one from {OPSETS[0]} to "
            f"{OPSETS[-1]}, such as {OPSET}"
        )
    half, last = in_half_precision(encoder), forward.layout.channels_last
    places = {2: (forward.dim,), 3: (2, forward.dim), 4: (forward.dim, 2, 2)}[forward.axes]
    return EncoderGraph(model, forward.layout.input, forward.output, opset, places, last, half)
