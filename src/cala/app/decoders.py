"""Photos are decoded in other processes, which are ended if one takes too long or crashes."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import cala
from cala.data.decoding import ImageError, Pixels
from cala.encoders.transform import Transform

WORKER = (sys.executable, "-m", "cala.app.decode_worker")


class DecoderProcess:
    """One process, which is started by the first photo, and again after it was ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def decode(
        self, job: dict[str, Any], data: bytes, one_large: threading.Lock
    ) -> tuple[dict[str, Any], bytes]:
        """The answer of the worker and what follows it; raises ImageError."""
        process = self._running()
        told = None
        try:
            told = self._told(process, json.dumps({**job, "bytes": len(data)}).encode(), data)
            if told and "large" in told:
                with one_large:
                    told = self._told(process)
            content = self._read(process, told["bytes"]) if told else b""
        except (OSError, ValueError):  # of a pipe whose other end is gone
            told = None
        if told is None or len(content) < told["bytes"]:
            late = self._end() == -getattr(signal, "SIGALRM", 0)
            why = "it takes too long to decode" if late else "its decoder crashed"
            raise ImageError(job["name"], why, "make it smaller, or leave it out", "bomb")
        if "why" in told:
            raise ImageError(job["name"], told["why"], told["fix"], told["code"])
        return told, content

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._end()
        if self._process is None:
            # From there it imports this very package, and nothing of the folder that we are in.
            home = Path(cala.__file__).parents[1]
            pipe, null = subprocess.PIPE, subprocess.DEVNULL
            one = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
            self._process = subprocess.Popen(
                WORKER, cwd=home, env={**os.environ, **one}, stdin=pipe, stdout=pipe, stderr=null
            )
        return self._process

    @staticmethod
    def _told(process: subprocess.Popen[bytes], line: bytes = b"", data: bytes = b"") -> Any:
        """Send a line and what belongs to it; the line that comes back, None if none does."""
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line + b"\n")
        process.stdin.write(data)
        process.stdin.flush()
        return json.loads(process.stdout.readline() or b"null")

    @staticmethod
    def _read(process: subprocess.Popen[bytes], size: int) -> bytes:
        assert process.stdout is not None
        return process.stdout.read(size)

    def kill(self) -> None:
        """Whoever decodes with it gets an error at once."""
        if self._process is not None:
            self._process.kill()

    def _end(self) -> int:
        """Wait for its end, and free its pipes; the exit code."""
        assert self._process is not None
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()
        code = self._process.wait()
        self._process = None
        return code


class Decoders:
    """As many processes as photos are decoded at a time, kept for the next ones."""

    def __init__(self) -> None:
        self._all: list[DecoderProcess] = []
        self._free: list[DecoderProcess] = []
        self._one_large = threading.Lock()
        atexit.register(self.kill)

    def decode(
        self,
        data: bytes,
        name: str,
        max_pixels: int,
        transform: Transform | None = None,
        keep_small: bool = False,
    ) -> tuple[Pixels, bytes]:
        """What an encoder takes (size, size, 3), and a small copy as JPEG; raises ImageError."""
        fields = None if transform is None else transform.as_dict()
        job = {"name": name, "pixels": max_pixels, "transform": fields, "small": keep_small}
        try:
            decoder = self._free.pop()
        except IndexError:
            decoder = DecoderProcess()
            self._all.append(decoder)
        try:
            told, content = decoder.decode(job, data, self._one_large)
        finally:
            self._free.append(decoder)
        shape = tuple(told["shape"])
        size = int(np.prod(shape))
        return np.frombuffer(content[:size], np.uint8).reshape(shape), content[size:]

    def kill(self) -> None:
        """For the end: a photo that takes long is not waited for."""
        for decoder in self._all:
            decoder.kill()


#: Shared by all services of this process: the one without a model becomes the one with it.
DECODER_PROCESSES = Decoders()
