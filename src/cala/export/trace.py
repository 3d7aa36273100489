"""A torch module -> an ONNX graph whose first axes are free."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from cala.encoders.base import import_extra, one_line
from cala.errors import InputError

OPSET = 18
TRACED_ROWS = 512  # so few rows are never worked on in chunks, whatever their dimension

Trace = Callable[[nn.Module, tuple[Tensor, ...], Sequence[str], Sequence[str], int], Any]


def to_onnx(
    module: nn.Module,
    example: tuple[Tensor, ...],
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    what: str,
    opset: int = OPSET,
    ways: Sequence[Trace] | None = None,
) -> Any:
    """The graph of a module as an `onnx.ModelProto`; the first axis of every input is free.

    what : the module in words, for errors
    ways : exporters to try, by default all. torch's older exporter is several times quicker; the
        newer one stands in where the older one gives up.
    """
    problems = []
    for way in WAYS if ways is None else ways:
        with torch.no_grad(), _quiet():
            made, problem = _tried(way, module, example, inputs, outputs, opset)
        if problem is None:
            return made
        problems.append(problem)
    raise InputError(f"{what} cannot be turned into ONNX ({'; then '.join(problems)})")


def _tried(way: Trace, *arguments: Any) -> tuple[Any, str | None]:
    """What an exporter gave, and what went wrong if anything did."""
    try:
        return way(*arguments), None
    except Exception as error:  # an exporter fails in as many ways as there are modules
        return None, one_line(error)


def by_running(
    module: nn.Module,
    example: tuple[Tensor, ...],
    inputs: Sequence[str],
    outputs: Sequence[str],
    opset: int,
) -> Any:
    """Follow one pass through the module."""
    onnx = import_extra("onnx", "onnx")
    with TemporaryDirectory() as folder:
        path = os.path.join(folder, "part.onnx")
        torch.onnx.export(
            module,
            example,
            path,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes={name: {0: f"{name}_rows"} for name in inputs},
            opset_version=opset,
            dynamo=False,
        )
        return onnx.load(path)


def by_reading(
    module: nn.Module,
    example: tuple[Tensor, ...],
    inputs: Sequence[str],
    outputs: Sequence[str],
    opset: int,
) -> Any:
    """Translate the module's code."""
    import_extra("onnxscript", "onnx")
    sizes = {len(tensor) for tensor in example}
    rows = {size: torch.export.Dim(f"rows_{size}", max=TRACED_ROWS) for size in sizes}
    program = torch.onnx.export(
        module,
        example,
        input_names=list(inputs),
        output_names=list(outputs),
        dynamic_shapes=tuple({0: rows[len(tensor)]} for tensor in example),
        opset_version=opset,
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    return program.model_proto


WAYS: tuple[Trace, ...] = (by_running, by_reading)


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
