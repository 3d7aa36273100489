"""A process that decodes photos for the service: one at a time, from stdin to stdout.

A job is a line of JSON and the bytes of a file; so is an answer, with pixels and a small copy.
Before a large photo it says so and waits for a line, since few of them fit into memory.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from contextlib import suppress
from typing import Any, BinaryIO

import numpy as np

from cala.data.decoding import ImageError, decode_bytes
from cala.encoders.transform import Transform
from cala.model.thumbnails import small_copy

SECONDS = 30.0  # for one photo
LARGE = 16_000_000  # pixels
MEMORY = 1536 << 20  # bytes of address space; 50 million pixels of any format need less


def main() -> None:
    """Answer jobs until stdin ends, which it does with the service."""
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the service, which ends this
        signal.signal(number, signal.SIG_IGN)
    _limit_memory()
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whatever decoders print
    while line := source.readline():
        job = json.loads(line)
        told, content = _answer(job, source.read(job["bytes"]), source, sink)
        sink.write(json.dumps(told).encode() + b"\n" + content)
        sink.flush()


def _answer(
    job: dict[str, Any], data: bytes, source: BinaryIO, sink: BinaryIO
) -> tuple[dict[str, Any], bytes]:
    large = False

    def admit(pixels: int) -> None:
        nonlocal large
        large = pixels > LARGE
        if large:
            sink.write(b'{"large": true}\n')
            sink.flush()
            _allow(0)
            source.readline()
            _allow(SECONDS)

    _allow(SECONDS)
    try:
        transform = job["transform"] and Transform.from_dict(job["transform"])
        least = transform.least if transform else None
        pixels = decode_bytes(data, job["name"], job["pixels"], least, admit)
        ready = transform.prepare(pixels) if transform else np.zeros((0, 0, 3), np.uint8)
        small = small_copy(pixels) if job["small"] else b""
    except ImageError as error:
        return {"why": error.why, "fix": error.fix, "code": error.code, "bytes": 0}, b""
    except MemoryError:
        return {"why": "it takes too much memory", "fix": None, "code": "bomb", "bytes": 0}, b""
    finally:
        _allow(0)
        if large:
            _return_memory()
    content = ready.tobytes() + small
    return {"shape": ready.shape, "bytes": len(content)}, content


def _limit_memory() -> None:
    with suppress(ImportError, ValueError, OSError):  # not on Windows
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _allow(seconds: float) -> None:
    """When they are over, the signal ends this process, whatever it does; 0 is no limit."""
    with suppress(AttributeError):  # not on Windows
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _return_memory() -> None:
    """glibc keeps what was freed for the next photo, which is seldom as large."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


if __name__ == "__main__":
    main()
