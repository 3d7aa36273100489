"""Uploads -> photos with embeddings: decoded in a few threads, encoded together, remembered."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.app.problems import Problem, busy
from cala.app.settings import Limits
from cala.app.uploads import Upload
from cala.data.decoding import ImageError, Pixels, decode_bytes
from cala.encoders.base import Encoder
from cala.encoders.embed import batch_size
from cala.model.thumbnails import small_copy

WAIT = 0.002  # seconds: photos of one request are decoded one after the other
DECODER = "cala-decoder"
DECODERS = max(2, min(4, os.cpu_count() or 1))
TURN = 4  # photos of one request that wait for a decoder at a time, so that others have their turn

Embedding = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Photo:
    """What is left of a photo: its SHA-256, its embedding (d,), a small copy as JPEG."""

    digest: str
    features: Embedding
    small: bytes

    @property
    def size(self) -> int:
        return self.features.nbytes + len(self.small) + 500  # what Python adds, about


class EmbeddingLRU:
    """The latest photos within a number of bytes, so that they can be named, not sent again."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._photos: OrderedDict[str, Photo] = OrderedDict()
        self._bytes = 0

    def get(self, digest: str) -> Photo | None:
        found = self._photos.get(digest)
        if found is not None:
            self._photos.move_to_end(digest)
        return found

    def put(self, photo: Photo) -> None:
        before = self._photos.pop(photo.digest, None)
        self._bytes += photo.size - (before.size if before else 0)
        self._photos[photo.digest] = photo
        while self._bytes > self.most and len(self._photos) > 1:
            self._bytes -= self._photos.popitem(last=False)[1].size


class Batcher:
    """One thread that encodes whatever has arrived while it was busy.

    Under load the queue fills during a forward pass, so batches form by themselves; `WAIT` only
    serves requests that arrive alone with several photos.

    tta : as the model's encoder card says; observe : called with the size of every batch
    """

    def __init__(
        self, encoder: Encoder, tta: str = "none", observe: Callable[[int], Any] = lambda size: None
    ) -> None:
        self.encoder, self.tta, self.observe = encoder, tta, observe
        self.size = batch_size(encoder)
        self._waiting: deque[tuple[Pixels, Future[Embedding]]] = deque()
        self._there = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="cala-encoder", daemon=True)
        self._thread.start()

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
            self.observe(len(batch))
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
                self._there.wait_for(lambda: self._waiting or self._closed)
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


class PhotoEncoder:
    """What stands between a request's bytes and its embeddings; used by the event loop alone."""

    def __init__(self, batcher: Batcher, limits: Limits, keep_small: bool) -> None:
        self.batcher, self.limits, self.keep_small = batcher, limits, keep_small
        self.recent = EmbeddingLRU(limits.recent)
        self.waiting = 0
        self._decoders = ThreadPoolExecutor(DECODERS, DECODER)

    async def photos(
        self, uploads: Sequence[Upload], seconds: float
    ) -> list[Photo | ImageError | Problem]:
        """One for each upload, or what is wrong with it."""
        if self.waiting + len(uploads) > max(self.limits.waiting, len(uploads)):
            raise busy(f"{self.waiting} photos are waiting already")
        self.waiting += len(uploads)
        turn = asyncio.Semaphore(TURN)
        work = asyncio.gather(*(self._photo(upload, turn) for upload in uploads))
        try:
            return await asyncio.wait_for(work, seconds)
        except asyncio.TimeoutError:
            raise busy(f"the photos were not encoded within {seconds:.0f} seconds") from None
        finally:
            self.waiting -= len(uploads)

    async def _photo(self, upload: Upload, turn: asyncio.Semaphore) -> Photo | ImageError | Problem:
        found = self.recent.get(upload.digest)
        if found is not None:
            return found
        if upload.data is None:
            detail, fix = "the service does not remember this photo", "send the photo itself"
            return Problem("photo_gone", detail, fix, field=upload.field)
        loop = asyncio.get_running_loop()
        try:
            async with turn:
                ready, small = await loop.run_in_executor(self._decoders, self._decode, upload)
        except ImageError as error:
            return error
        features = await asyncio.wrap_future(self.batcher.submit(ready))
        photo = Photo(upload.digest, features, small)
        self.recent.put(photo)
        return photo

    def _decode(self, upload: Upload) -> tuple[Pixels, bytes]:
        assert upload.data is not None
        pixels = decode_bytes(upload.data, upload.name, self.limits.pixels)
        ready = self.batcher.encoder.transform.prepare(pixels)
        small = small_copy(pixels) if self.keep_small else b""
        return np.array(ready), small  # a copy: a view would keep the whole photo in memory

    def close(self) -> None:
        """Nobody waits any more, so a photo that takes for ever is not waited for either."""
        self._decoders.shutdown(wait=False, cancel_futures=True)
        self.batcher.close()
