"""A model as one ONNX graph: preprocessing, encoder and classifier, joined.

The encoder is traced where it is a torch module and read where it is a file of ONNX. The table of
classes is an input with a default, so that a program can append rows to it.
"""

from __future__ import annotations

import copy
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cala.encoders.base import Encoder, import_extra, one_line
from cala.encoders.onnx_loader import Forward
from cala.errors import InputError
from cala.export.modules import Front, Tail
from cala.files import shown
from cala.heads import Head

OPSET = 18
OPSETS = range(13, 21)
IR_VERSION = 8  # the first with opset 18
TRACED_ROWS = 512  # so few rows are never worked on in chunks, whatever their dimension
TABLE = ("weights", "bias")
OUTPUTS = ("logits", "embedding", "new_weight", "new_bias")

Exporter = Callable[[nn.Module, tuple[Tensor, ...], dict[str, Any]], Any]


def build_graph(encoder: Encoder, head: Head, behind: Tail) -> Any:
    """`images` -> `OUTPUTS`, as an `onnx.ModelProto`; `behind` is what follows the encoder."""
    middle, size = encoder_graph(encoder), encoder.transform.size
    before = Front(encoder.transform, behind.mirrored, middle.channels_last, middle.half)
    example = (torch.zeros(2, size, size, 3, dtype=torch.uint8),)
    front = to_onnx(before, example, ["images"], ["inputs"], "the preprocessing", middle.opset)
    features = torch.rand(4, *middle.shape).to(torch.float16 if middle.half else torch.float32)
    rows = (features, torch.zeros(3, head.dim), torch.zeros(3))
    what = f"the method {head.name}"
    tail = to_onnx(behind, rows, ["features", *TABLE], OUTPUTS, what, middle.opset)
    try:
        model = _joined([front, middle.model, tail], middle)
    except Exception as error:  # graphs of others may clash with ours
        raise InputError(f"the parts of the graph do not fit ({one_line(error)})") from error
    _name_ends(model, size, head)
    return model


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
    module, name = encoder.forward, shown(encoder.name)
    if isinstance(module, Forward):
        return _read(encoder, module)
    if not isinstance(module, nn.Module):
        raise InputError(
            f"the encoder {name} is a Python function, which has no graph",
            "make it a torch.nn.Module (docs/encoders.md, `torch:`)",
            field="encoder",
        )
    if encoder.device.type != "cpu":
        module = copy.deepcopy(module).cpu()
    size = encoder.transform.size
    example = (torch.zeros(2, 3, size, size).contiguous(memory_format=torch.channels_last),)
    model = to_onnx(module, example, ["x"], ["features"], f"the encoder {name}")
    return EncoderGraph(model, "x", "features", OPSET, (encoder.dim,))


def _read(encoder: Encoder, forward: Forward) -> EncoderGraph:
    onnx = import_extra("onnx", "onnx")
    name = shown(forward.path)
    try:
        model = onnx.load(forward.path)
    except Exception as error:  # protobuf has errors of its own
        raise InputError(f"{name} cannot be read as ONNX ({one_line(error)})") from error
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


def to_onnx(
    module: nn.Module,
    example: tuple[Tensor, ...],
    inputs: Sequence[str],
    outputs: Sequence[str],
    what: str,
    opset: int = OPSET,
) -> Any:
    """The graph of a module as an `onnx.ModelProto`; the first axis of every input is free.

    torch's older exporter is several times quicker; the newer one stands in where the older one
    gives up.

    what : the module in words, for errors
    """
    names = {"input_names": [*inputs], "output_names": [*outputs], "opset_version": opset}
    problems = []
    for export in EXPORTERS:
        try:
            with torch.no_grad(), _quiet():
                return export(module, example, names)
        except Exception as error:  # noqa: PERF203  fails in as many ways as there are modules
            problems.append(one_line(error))
    raise InputError(f"{what} cannot be turned into ONNX ({'; then '.join(problems)})")


def by_tracing(module: nn.Module, example: tuple[Tensor, ...], names: dict[str, Any]) -> Any:
    """Follow one pass through the module."""
    onnx = import_extra("onnx", "onnx")
    free = {name: {0: f"{name}_rows"} for name in names["input_names"]}
    with TemporaryDirectory() as folder:
        path = os.path.join(folder, "part.onnx")
        torch.onnx.export(module, example, path, dynamic_axes=free, dynamo=False, **names)
        return onnx.load(path)


def by_translating(module: nn.Module, example: tuple[Tensor, ...], names: dict[str, Any]) -> Any:
    """Translate the module's code."""
    import_extra("onnxscript", "onnx")
    sizes = {len(tensor) for tensor in example}
    rows = {size: torch.export.Dim(f"rows_{size}", max=TRACED_ROWS) for size in sizes}
    free = tuple({0: rows[len(tensor)]} for tensor in example)
    program = torch.onnx.export(
        module, example, dynamic_shapes=free, dynamo=True, verbose=False, **names
    )
    assert program is not None
    return program.model_proto


EXPORTERS: tuple[Exporter, ...] = (by_tracing, by_translating)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporters' remarks: what they write is checked afterwards."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
