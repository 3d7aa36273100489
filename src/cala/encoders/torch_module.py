"""torch modules as encoders, and as graphs in ONNX."""

from __future__ import annotations

import copy
import hashlib
import io
import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cala.encoders.base import Encoder, Float32Array, wrap_errors
from cala.encoders.transform import Transform
from cala.errors import InputError
from cala.extras import import_extra
from cala.files import first_line, shown

OPSET = 18
TRACED_ROWS = 512  # few enough that no code works on them in chunks, in any dimension

Exporter = Callable[[nn.Module, tuple[Tensor, ...], dict[str, Any]], bytes]


@dataclass(frozen=True, eq=False)
class TorchForward:
    """The forward pass of a module on a device, on arrays: (n, 3, s, s) -> (n, d)."""

    module: nn.Module
    device: str = "cpu"
    lock: Any = field(default_factory=threading.Lock)  # a pass uses several threads of its own

    @torch.no_grad()
    def __call__(self, images: Float32Array) -> Float32Array:
        last = np.ascontiguousarray(images.transpose(0, 2, 3, 1), np.float32)
        inputs = torch.from_numpy(last).permute(0, 3, 1, 2).to(self.device)
        with self.lock:
            found: Float32Array = self.module(inputs).float().cpu().numpy()
        return found


def from_module(
    name: str,
    module: nn.Module,
    transform: Transform,
    architecture: str,
    device: torch.device | str = "cpu",
    **about: Any,
) -> Encoder:
    """Make an encoder of a module with a `dim`; freezes the module in evaluation mode."""
    module = module.eval().requires_grad_(False).to(device)
    module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Encoder(
        name=name,
        dim=int(module.dim),  # type: ignore[arg-type]
        transform=transform,
        forward=TorchForward(module, str(device)),
        fingerprint=module_fingerprint(module, architecture),
        device=str(device),
        **about,
    )


def on_torch(encoder: Encoder, device: str) -> Encoder:
    """The encoder, run by torch."""
    if isinstance(encoder.forward, TorchForward):
        return encoder
    module = encoder.module.eval().requires_grad_(False).to(device)
    module = module.to(memory_format=torch.channels_last)
    return replace(encoder, forward=TorchForward(module, device), device=device)


def module_fingerprint(module: nn.Module, architecture: str) -> str:
    """SHA-256 of an architecture's name and the module's weights."""
    digest = hashlib.sha256(architecture.encode())
    for name, tensor in sorted(module.state_dict().items()):
        if name.endswith("num_batches_tracked"):  # counts steps, decides nothing
            continue
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        digest.update(values.reshape(-1).view(torch.uint8).numpy().tobytes())  # bfloat16 as well
    return digest.hexdigest()


def pooled(values: Tensor) -> Tensor:
    """(n, d) as it is; a map (n, d, h, w) or tokens (n, t, d) -> their mean (n, d)."""
    if values.ndim == 4:
        return values.mean((2, 3))
    return values.mean(1) if values.ndim == 3 else values


@torch.no_grad()
def probe(module: nn.Module, size: int, name: str) -> int:
    """Return the dimension of a module's embeddings, from one pass over a black image."""
    with wrap_errors(f"{name} does not take 1×3×{size}×{size} images", code="wrong_input"):
        found = module.eval()(torch.zeros(1, 3, size, size))
    if not isinstance(found, Tensor) or found.ndim != 2 or found.shape[0] != 1:
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        detail = f"{name} returns {shape} for one image, not (1, d) embeddings"
        raise InputError(detail, code="wrong_output")
    return int(found.shape[1])


def encoder_onnx(encoder: Encoder) -> bytes:
    """The graph of an encoder that is a torch module: `x` (n, 3, s, s) -> `features` (n, d)."""
    module, name = encoder.module, shown(encoder.name)
    if not isinstance(module, nn.Module):
        raise InputError(
            f"the encoder {name} is a Python function, which has no graph",
            "make it a torch.nn.Module (docs/encoders.md, `torch:`)",
            field="encoder",
            code="no_onnx_form",
        )
    if encoder.device != "cpu":
        module = copy.deepcopy(module).cpu()
    own = getattr(module, "onnx_graph", None)  # one that knows a better graph than a trace
    if own is not None:
        return bytes(own())
    size = encoder.transform.size
    example = (torch.zeros(2, 3, size, size).contiguous(memory_format=torch.channels_last),)
    return to_onnx(module, example, ["x"], ["features"], f"the encoder {name}")


def to_onnx(
    module: nn.Module,
    example: tuple[Tensor, ...],
    inputs: Sequence[str],
    outputs: Sequence[str],
    what: str,
    opset: int = OPSET,
) -> bytes:
    """The graph of a module as bytes of ONNX; the first axis of every input is free.

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
            problems.append(first_line(error))
    detail = f"{what} cannot be exported to ONNX ({'; then '.join(problems)})"
    raise InputError(detail, code="no_onnx_form")


def by_tracing(module: nn.Module, example: tuple[Tensor, ...], names: dict[str, Any]) -> bytes:
    """Follow one pass through the module."""
    free = {name: {0: f"{name}_rows"} for name in names["input_names"]}
    made: Any = io.BytesIO()  # annotated as a path by torch
    torch.onnx.export(module, example, made, dynamic_axes=free, dynamo=False, **names)
    return made.getvalue()


def by_translating(module: nn.Module, example: tuple[Tensor, ...], names: dict[str, Any]) -> bytes:
    """Translate the module's code."""
    import_extra("onnxscript", "export")
    sizes = {len(tensor) for tensor in example}
    rows = {size: torch.export.Dim(f"rows_{size}", max=TRACED_ROWS) for size in sizes}
    free = tuple({0: rows[len(tensor)]} for tensor in example)
    program = torch.onnx.export(
        module, example, dynamic_shapes=free, dynamo=True, verbose=False, **names
    )
    assert program is not None
    return program.model_proto.SerializeToString()


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
