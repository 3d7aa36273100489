"""A model as one ONNX graph: preprocessing, encoder and classifier, joined.

The encoder is traced where it is a torch module and read where it is a file of ONNX. The table of
classes is an input with a default, so that a program can append rows to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cala.encoders.base import Encoder, wrap_errors
from cala.encoders.onnx_loader import Forward
from cala.encoders.torch_module import OPSET, encoder_onnx, to_onnx
from cala.errors import InputError
from cala.export.modules import Front, Tail
from cala.extras import import_extra
from cala.files import shown
from cala.heads import Head

OPSETS = range(13, 21)
IR_VERSION = 8  # the first with opset 18
TABLE = ("weights", "bias")
OUTPUTS = ("logits", "embedding", "new_weight", "new_bias")


def build_graph(encoder: Encoder, head: Head, behind: Tail) -> Any:
    """`images` -> `OUTPUTS`, as an `onnx.ModelProto`; `behind` is what follows the encoder."""
    middle, size = encoder_graph(encoder), encoder.transform.size
    before = Front(encoder.transform, behind.mirrored, middle.channels_last, middle.half)
    example = (torch.zeros(2, size, size, 3, dtype=torch.uint8),)
    names = ["images"], ["inputs"]
    front = parsed(to_onnx(before, example, *names, "the preprocessing", middle.opset))
    features = torch.rand(4, *middle.shape).to(torch.float16 if middle.half else torch.float32)
    rows = (features, torch.zeros(3, head.dim), torch.zeros(3))
    what = f"the method {head.name}"
    tail = parsed(to_onnx(behind, rows, ["features", *TABLE], OUTPUTS, what, middle.opset))
    detail = "the encoder and the method cannot be joined in one graph"  # names may clash
    with wrap_errors(detail, code="no_onnx_form"):
        model = _joined([front, middle.model, tail], middle)
    _name_ends(model, size, head)
    return model


def parsed(graph: bytes) -> Any:
    """An `onnx.ModelProto` from bytes of ONNX."""
    return import_extra("onnx", "export").load_from_string(graph)


def _joined(models: list[Any], middle: EncoderGraph) -> Any:
    """Front, encoder and tail in a row; every name gets the name of its part before it."""
    from onnx import compose

    version = max(IR_VERSION, *(model.ir_version for model in models))
    parts = []
    for name, model in zip(("front", "encoder", "tail"), models, strict=True):
        model.ir_version = version
        parts.append(compose.add_prefix(model, f"{name}/"))
    front, encoder, tail = parts
    features = f"encoder/{middle.output}"
    joined = compose.merge_models(
        front, encoder, [("front/inputs", f"encoder/{middle.input}")], outputs=[features]
    )
    return compose.merge_models(joined, tail, [(features, "tail/features")])


def _name_ends(model: Any, size: int, head: Head) -> None:
    """Inputs and outputs under their own names, with free axes and the table's default."""
    from onnx import TensorProto, helper, numpy_helper

    graph = model.graph
    names = {"front/images": "images", **{f"tail/{name}": name for name in (*TABLE, *OUTPUTS)}}
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for infos in (graph.input, graph.output, graph.value_info):  # shapes inside are inferred anew
        del infos[:]
    shapes = {
        "weights": ("classes", head.dim),
        "bias": ("classes",),
        "logits": ("n", "classes"),
        "embedding": ("n", head.dim),
        "new_weight": (1, head.dim),
        "new_bias": (1,),
    }
    floats = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    }
    images = helper.make_tensor_value_info("images", TensorProto.UINT8, ("n", size, size, 3))
    graph.input.extend([images, *(floats[name] for name in TABLE)])
    graph.output.extend(floats[name] for name in OUTPUTS)
    for name, array in zip(TABLE, head.linear_form(), strict=True):
        graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))


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
    if isinstance(encoder.forward, Forward) and encoder.forward.path is not None:
        return _read(encoder, encoder.forward)
    model = parsed(encoder_onnx(encoder))
    return EncoderGraph(model, "x", "features", OPSET, (encoder.dim,))


def _read(encoder: Encoder, forward: Forward) -> EncoderGraph:
    onnx = import_extra("onnx", "export")
    name = shown(forward.path)
    with wrap_errors(f"{name} cannot be read as ONNX", code="unreadable_file", field="encoder"):
        model = onnx.load(forward.path)
    if forward.layout.batch is not None:
        detail = f"{name} takes batches of {forward.layout.batch} images only"
        raise InputError(detail, "export the network with a free batch size", field="encoder")
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if opset not in OPSETS:
        fix = f"export the network with one from {OPSETS[0]} to {OPSETS[-1]}, such as {OPSET}"
        raise InputError(f"{name} has opset {opset}", fix, field="encoder")
    half, last = in_half_precision(encoder), forward.layout.channels_last
    places = {2: (forward.dim,), 3: (2, forward.dim), 4: (forward.dim, 2, 2)}[forward.axes]
    return EncoderGraph(model, forward.layout.input, forward.output, opset, places, last, half)
