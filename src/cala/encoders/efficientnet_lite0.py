"""EfficientNet-Lite0 with weights of ImageNet-1k, which come with the installation.

torch is not needed. The weights file is a pickle in torch's layout before 1.6. Its SHA-256 is
compared before a byte of it is read (`cala.encoders.registry.installed_weights`), and its
unpickler makes arrays and nothing else. The graph has batch norms folded into the convolutions
and no nodes for padding: onnxruntime runs it faster than a traced export.
"""

from __future__ import annotations

import hashlib
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.encoders import onnx_writer
from cala.encoders.base import Encoder
from cala.encoders.onnx_loader import Forward, Layout, open_session
from cala.encoders.registry import LITE0, PACKAGE, SHA256, installed_weights
from cala.encoders.transform import Transform
from cala.extras import needs

# Expansion, channels, blocks, stride of the first block, kernel: the stages of B0.
STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
STEM, HEAD = 32, 1280
TRANSFORM = Transform(224, 256, (127 / 255,) * 3, (128 / 255,) * 3, filter="bicubic")
EPSILON = 1e-3  # of the batch norms
OPSET, IR_VERSION = 18, 8  # as cala.encoders.torch_module exports
_DTYPES = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}

Weights = Mapping[str, NDArray[Any]]


class ArrayUnpickler(pickle.Unpickler):
    """Finds which part of which storage each tensor is, and refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, offset, shape, strides, *_: (*storage, offset, shape, strides)
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        raise pickle.UnpicklingError(f"{module}.{name} is not an array")

    def persistent_load(self, pid: Any) -> tuple[str, np.dtype[Any]]:
        _, dtype, key, *_ = pid
        return key, dtype


def read_pickled(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file in torch's layout before 1.6; for files of a known SHA-256 only."""
    with path.open("rb") as file:
        for _ in range(3):  # magic number, version of the layout, kind of machine
            ArrayUnpickler(file).load()
        tensors, keys = ArrayUnpickler(file).load(), ArrayUnpickler(file).load()
        dtypes = {key: dtype for key, dtype, *_ in tensors.values()}
        data = {}
        for key in keys:
            count = int.from_bytes(file.read(8), "little")
            data[key] = file.read(count * dtypes[key].itemsize)
    found = {}
    for name, (key, dtype, offset, shape, strides) in tensors.items():
        steps = [dtype.itemsize * stride for stride in strides]
        found[name] = np.ndarray(shape, dtype, data[key], offset * dtype.itemsize, steps)
    return found


def renamed(name: str) -> str:
    """A name in the package's file -> here: `_blocks.0._bn1.bias` -> `blocks.0.bn1.bias`."""
    return name.removeprefix("_").replace("._", ".")


def lite0_graph(weights: Weights) -> bytes:
    """A graph in ONNX from the weights by name: `x` (n, 3, h, w) -> `features` (n, 1280)."""
    nodes: list[bytes] = []
    constants: list[bytes] = []

    def add(operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operator.lower()}_{len(nodes)}"
        nodes.append(onnx_writer.node(operator, inputs, name, **attributes))
        return name

    def constant(name: str, value: Any) -> str:
        constants.append(onnx_writer.tensor(name, value))
        return name

    limits = constant("zero", 0.0), constant("six", 6.0)

    def convolved(x: str, conv: str, norm: str, stride: int = 1, bounded: bool = True) -> str:
        kernel = weights[f"{conv}.weight"].astype(np.float64)
        parts = ("running_mean", "running_var", "weight", "bias")
        mean, variance, gain, bias = (weights[f"{norm}.{p}"].astype(np.float64) for p in parts)
        gain = gain / np.sqrt(variance + EPSILON)
        y = add(
            "Conv",
            x,
            constant(f"{conv}.weight", kernel * gain[:, None, None, None]),
            constant(f"{conv}.bias", bias - mean * gain),
            auto_pad="SAME_UPPER",
            group=len(kernel) if kernel.shape[1] == 1 else 1,
            kernel_shape=kernel.shape[2:],
            strides=[stride, stride],
        )
        return add("Clip", y, *limits) if bounded else y

    x = convolved("x", "conv_stem", "bn0", 2)
    number = 0
    for expansion, _, count, stride, _ in STAGES:
        for index in range(count):
            block, start = f"blocks.{number}", x
            if expansion != 1:
                x = convolved(x, f"{block}.expand_conv", f"{block}.bn0")
            step = stride if index == 0 else 1
            x = convolved(x, f"{block}.depthwise_conv", f"{block}.bn1", step)
            x = convolved(x, f"{block}.project_conv", f"{block}.bn2", bounded=False)
            x = add("Add", x, start) if index else x
            number += 1
    x = add("GlobalAveragePool", convolved(x, "conv_head", "bn1"))
    nodes.append(onnx_writer.node("Flatten", [x], "features"))
    ends = (("x", ("n", 3, "h", "w")), ("features", ("n", HEAD)))
    first, last = (onnx_writer.value_info(name, shape) for name, shape in ends)
    given = {"opset": OPSET, "ir_version": IR_VERSION}
    return onnx_writer.model("efficientnet-lite0", nodes, constants, first, last, **given)


def efficientnet_lite0(device: Any = "cpu") -> Encoder:
    """The encoder on onnxruntime; its torch module is loaded when it is asked for."""

    def module() -> Any:
        with needs("train", "engine"):
            from cala.encoders.lite0_module import pretrained

        return pretrained()

    arrays = read_pickled(installed_weights())
    weights = {renamed(name): array for name, array in arrays.items()}
    graph = lite0_graph(weights)
    return Encoder(
        name=LITE0,
        dim=HEAD,
        transform=TRANSFORM,
        forward=Forward(
            open_session(graph), Layout("x"), "features", HEAD, load=module, graph=graph
        ),
        fingerprint=fingerprint(weights),
        pretrained=True,
        about={"weights": f"{PACKAGE} 0.1.0", "sha256": SHA256, "trained on": "ImageNet-1k"},
    )


def fingerprint(weights: Weights) -> str:
    """`cala.encoders.torch_module.module_fingerprint` of the module with these weights."""
    digest = hashlib.sha256(LITE0.encode())
    for name, array in sorted(weights.items()):
        if not name.startswith("fc.") and not name.endswith("num_batches_tracked"):
            digest.update(f"{name} torch.{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
