"""Reading the pickles of the official CIFAR archive, and nothing else that a pickle could do.

A pickle is a program. Here it may build containers, strings, numbers and plain arrays; every other
name it asks for is refused.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, BinaryIO

import numpy as np

from cala.errors import InputError
from cala.files import reason, shown


class _Array:
    """Stands in for an array while a pickle describes it; `value` is the real one."""

    __slots__ = ("value",)

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, raw = state
        if not isinstance(kind, _Dtype) or not isinstance(raw, bytes):
            raise pickle.UnpicklingError(f"an array of {type(raw).__name__}")
        flat = np.frombuffer(raw, dtype=kind.code)
        self.value = flat.reshape(tuple(shape), order="F" if fortran else "C")


class _Dtype:
    """Stands in for a type of numbers: an array of objects would hold whatever it likes."""

    __slots__ = ("code",)

    def __init__(self, code: Any) -> None:
        text = code.decode("ascii") if isinstance(code, bytes) else code
        if text not in ("u1", "i1"):
            raise pickle.UnpicklingError(f"an array of type {text!r}")
        self.code = text

    def __setstate__(self, state: Any) -> None:
        """Byte order and the like: nothing to know about single bytes."""


class _ArrayKind:
    """`numpy.ndarray`, as a word: calling the real one could fill the memory."""

    __slots__ = ()


class _Reconstruct:
    """`_reconstruct(ndarray, (0,), b"b")`: the empty array that a pickle then fills."""

    __slots__ = ()  # without a place for attributes a pickle cannot change this object

    def __call__(self, kind: Any, shape: Any, code: Any) -> _Array:
        if not isinstance(kind, _ArrayKind):
            raise pickle.UnpicklingError(f"an array of kind {kind!r}")
        return _Array()


class _MakeDtype:
    """`dtype("u1", 0, 1)`"""

    __slots__ = ()

    def __call__(self, code: Any, *flags: Any) -> _Dtype:
        return _Dtype(code)


class _Encode:
    """`_codecs.encode(text, "latin1")`: how newer pickles of the old protocol write bytes."""

    __slots__ = ()

    def __call__(self, text: Any, codec: Any = "latin1") -> bytes:
        if not isinstance(text, str) or codec not in ("latin1", b"latin1"):
            raise pickle.UnpicklingError(f"a text in {codec!r}")
        return text.encode("latin1")


class _NoBytes:
    """`bytes()`; with a number it would fill the memory."""

    __slots__ = ()

    def __call__(self) -> bytes:
        return b""


_RECONSTRUCT, _NO_BYTES = _Reconstruct(), _NoBytes()
ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _ArrayKind(),
    ("numpy", "dtype"): _MakeDtype(),
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("_codecs", "encode"): _Encode(),
    ("builtins", "bytes"): _NO_BYTES,
    ("__builtin__", "bytes"): _NO_BYTES,
}


class RestrictedUnpickler(pickle.Unpickler):
    """Finds the few names above and refuses every other, by name."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"the name {module}.{name}") from None


def load_pickle(file: BinaryIO | bytes, name: str) -> dict[str, Any]:
    """The dictionary in a pickle, keys as text; `name` stands in the message if it is refused."""
    stream = io.BytesIO(file) if isinstance(file, bytes) else file
    try:
        content = RestrictedUnpickler(stream, encoding="bytes").load()
    except pickle.UnpicklingError as error:
        raise InputError(
            f"{shown(name)} is no CIFAR file: it is damaged or asks for something that is refused "
            f"({reason(error)}): get it again from the official place"
        ) from error
    except Exception as error:  # broken bytes lead the reader to any kind of error
        raise InputError(
            f"{shown(name)} is damaged or cut short ({type(error).__name__}: {reason(error)}): "
            "get it again"
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"{shown(name)} holds {type(content).__name__}, not the CIFAR dictionary")
    return {_text(key): _plain(value) for key, value in content.items()}


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _plain(value: Any) -> Any:
    return getattr(value, "value", None) if isinstance(value, _Array) else value
