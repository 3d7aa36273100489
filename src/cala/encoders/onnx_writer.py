"""Graphs in ONNX, written without the onnx package: what one network needs of its format.

A message of protobuf is a sequence of numbered fields; the numbers are those of `onnx.proto`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

Field: TypeAlias = "tuple[int, int | str | bytes]"

FLOAT = 1  # TensorProto.DataType
INT, STRING, INTS = 2, 3, 7  # AttributeProto.AttributeType


def message(*fields: Field) -> bytes:
    """A message of (number, value): integers as varints, all else with its length in front.

    >>> message((1, 300), (2, "ab"))
    b'\\x08\\xac\\x02\\x12\\x02ab'
    """
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(_varint(number << 3) + _varint(value))
        else:
            data = value.encode() if isinstance(value, str) else value
            parts += [_varint(number << 3 | 2) + _varint(len(data)), data]
    return b"".join(parts)


def node(operator: str, inputs: Iterable[str], output: str, **attributes: Any) -> bytes:
    """A node with one output, which is also its name; attributes: int, str or integers."""
    return message(
        *((1, name) for name in inputs),
        (2, output),
        (3, output),
        (4, operator),
        *((5, _attribute(name, value)) for name, value in sorted(attributes.items())),
    )


def tensor(name: str, value: Any) -> bytes:
    """A constant of floats."""
    array = np.asarray(value, "<f4", order="C")
    return message(
        *((1, side) for side in array.shape), (2, FLOAT), (8, name), (9, array.tobytes())
    )


def value_info(name: str, shape: Sequence[int | str]) -> bytes:
    """An input or output of floats; a side that is text may have any length."""
    sides = [(1, message((1 if isinstance(side, int) else 2, side))) for side in shape]
    return message((1, name), (2, message((1, message((1, FLOAT), (2, message(*sides)))))))


def model(
    name: str,
    nodes: Sequence[bytes],
    constants: Sequence[bytes],
    first: bytes,
    last: bytes,
    *,
    opset: int,
    ir_version: int,
) -> bytes:
    """A file of ONNX with one input and one output."""
    graph = message(
        *((1, one) for one in nodes),
        (2, name),
        *((5, one) for one in constants),
        (11, first),
        (12, last),
    )
    return message((1, ir_version), (7, graph), (8, message((1, ""), (2, opset))))


def _attribute(name: str, value: Any) -> bytes:
    if isinstance(value, int):
        return message((1, name), (3, value), (20, INT))
    if isinstance(value, str):
        return message((1, name), (4, value), (20, STRING))
    return message((1, name), *((8, int(one)) for one in value), (20, INTS))


def _varint(value: int) -> bytes:
    """A natural number, seven bits to a byte, the lowest first."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
