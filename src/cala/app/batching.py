"""Photos of all requests through the encoder together, a few at a time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.data.decoding import Pixels
from cala.encoders.base import Encoder
from cala.encoders.embed import batch_size

WAIT = 0.002  # seconds: photos of one request are decoded one after the other

Embedding = NDArray[np.float32]


class Batcher:
    """One thread that encodes whatever has arrived while it was busy.

    Under load the queue fills during a forward pass, so batches form by themselves; `WAIT` only
    serves requests that arrive alone with several photos.

    tta : as the model's encoder card says; seen : hears of the size of every batch
    """

    def __init__(
        self, encoder: Encoder, tta: str = "none", seen: Callable[[int], Any] = lambda size: None
    ) -> None:
        self.encoder, self.tta, self.seen = encoder, tta, seen
        self.size = batch_size(encoder)
        self._waiting: deque[tuple[Pixels, Future[Embedding]]] = deque()
        self._there = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="cala-encoder", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, prepared: Pixels) -> Future[Embedding]:
        """(size, size, 3) uint8, as `Transform.prepare` makes it -> (d,), later."""
        future: Future[Embedding] = Future()
        with self._there:
            if self._closed:
                raise RuntimeError("the encoder has been closed")
            self._waiting.append((prepared, future))
            self._there.notify()
        return future

    def close(self) -> None:
        """Encode what has been accepted, then end."""
        with self._there:
            self._closed = True
            self._there.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next():
            self.seen(len(batch))
            try:
                rows = self._encode(np.stack([pixels for pixels, _ in batch]))
            except BaseException as error:
                for _, future in batch:
                    future.set_exception(error)
                continue
            for (_, future), row in zip(batch, rows, strict=True):
                future.set_result(row)

    def _next(self) -> list[tuple[Pixels, Future[Embedding]]]:
        """Up to `size` photos; none when closed and done."""
        batch: list[tuple[Pixels, Future[Embedding]]] = []
        with self._there:
            while not batch:
                while not self._waiting and not self._closed:
                    self._there.wait()
                if not self._waiting:
                    return []
                until = time.monotonic() + WAIT
                while len(self._waiting) < self.size and not self._closed:
                    if not self._there.wait(until - time.monotonic()):
                        break
                while self._waiting and len(batch) < self.size:
                    item = self._waiting.popleft()
                    if item[1].set_running_or_notify_cancel():
                        batch.append(item)
        return batch

    def _encode(self, prepared: Pixels) -> Embedding:
        """(n, size, size, 3) uint8 -> (n, d)"""
        import torch

        pixels = torch.from_numpy(prepared).to(self.encoder.device)
        inputs = self.encoder.transform.normalise(pixels)
        return self.encoder.encode(inputs, self.tta).numpy()
