"""The three parts as one graph, whose table of classes is an input with a default."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from cala.core.rows import Array
from cala.encoders.base import Encoder, import_extra, one_line
from cala.errors import InputError
from cala.export.check import check_tail
from cala.export.encoder_graph import EncoderGraph, encoder_graph
from cala.export.parts import Front, Tail
from cala.export.trace import to_onnx
from cala.heads import Head

IR_VERSION = 8  # the first with opset 18
TABLE = ("weights", "bias")
OUTPUTS = ("logits", "embedding", "new_weight", "new_bias")


def build_graph(encoder: Encoder, head: Head, *, mirrored: bool) -> Any:
    """`images` -> `OUTPUTS`, as an `onnx.ModelProto`."""
    import_extra("onnx", "onnx")
    table = head.linear_form()
    behind = Tail(head, mirrored=mirrored).eval()
    check_tail(behind, head)
    middle = encoder_graph(encoder)
    front = _front(encoder, middle, mirrored)
    tail = _tail(behind, head, middle)
    try:
        model = _joined([front, middle.model, tail], middle)
    except Exception as error:  # graphs of others may clash with ours
        raise InputError(f"the parts of the graph do not fit ({one_line(error)})") from error
    _public(model, encoder.transform.size, head.dim)
    for name, array in zip(TABLE, table, strict=True):
        _default(model, name, array)
    return model


def _front(encoder: Encoder, middle: EncoderGraph, mirrored: bool) -> Any:
    size = encoder.transform.size
    front = Front(
        encoder.transform,
        mirrored=mirrored,
        channels_last=middle.channels_last,
        half=middle.half,
    )
    example = (torch.zeros(2, size, size, 3, dtype=torch.uint8),)
    return to_onnx(
        front, example, ["images"], ["inputs"], what="the preprocessing", opset=middle.opset
    )


def _tail(tail: Tail, head: Head, middle: EncoderGraph) -> Any:
    dtype = torch.float16 if middle.half else torch.float32
    features = torch.rand(4, *middle.shape).to(dtype)
    return to_onnx(
        tail,
        (features, torch.zeros(3, head.dim), torch.zeros(3)),
        ["features", *TABLE],
        OUTPUTS,
        what=f"the method {head.name}",
        opset=middle.opset,
    )


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


def _public(model: Any, size: int, dim: int) -> None:
    """Inputs and outputs under their own names, with shapes that say what is free."""
    from onnx import TensorProto, helper

    graph = model.graph
    names = {"front/images": "images", **{f"tail/{name}": name for name in (*TABLE, *OUTPUTS)}}
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for infos in (graph.input, graph.output, graph.value_info):  # shapes inside are inferred anew
        del infos[:]
    shapes = {
        "weights": ("classes", dim),
        "bias": ("classes",),
        "logits": ("n", "classes"),
        "embedding": ("n", dim),
        "new_weight": (1, dim),
        "new_bias": (1,),
    }
    floats = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    }
    images = helper.make_tensor_value_info("images", TensorProto.UINT8, ("n", size, size, 3))
    graph.input.extend([images, *(floats[name] for name in TABLE)])
    graph.output.extend(floats[name] for name in OUTPUTS)


def _default(model: Any, name: str, array: Array) -> None:
    """What an input is where a caller does not give it."""
    from onnx import numpy_helper

    model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
