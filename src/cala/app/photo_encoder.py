"""Uploads -> photos with embeddings: decoded in a few processes, encoded together, remembered."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.app.decoders import DECODER_PROCESSES
from cala.app.problems import Problem, as_problem, busy
from cala.app.settings import Limits
from cala.app.uploads import Upload
from cala.data.decoding import ImageError, Pixels
from cala.data.image_scan import worker_count
from cala.encoders.base import Encoder
from cala.encoders.embed import batch_size

WAIT = 0.002  # seconds: photos of one request are decoded one after the other
DECODERS = max(2, min(4, os.cpu_count() or 1))
TURN = 4  # photos of one request that are looked at at a time, so that others have their turn

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


Encoded = tuple[Upload, Photo]


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


class PhotoEncoder:
    """What stands between a request's bytes and its embeddings; used by the event loop alone.

    Photos are decoded in a few processes and encoded in as many threads as there are processors;
    each takes whatever has arrived while it was busy. Under load batches form by themselves; `WAIT`
    only serves requests that arrive alone with several photos. One decoder is kept for the first
    photos of requests, so that who asks about one photo never waits for somebody's two hundred.

    tta : as the model's encoder card says; observe : called with the size of every batch
    """

    def __init__(
        self,
        encoder: Encoder,
        tta: str,
        limits: Limits,
        keep_small: bool = True,
        observe: Callable[[int], Any] = lambda size: None,
    ) -> None:
        self.encoder, self.tta, self.limits = encoder, tta, limits
        self.keep_small, self.observe = keep_small, observe
        self.recent = EmbeddingLRU(limits.recent)
        self.waiting = 0
        self._decoders = ThreadPoolExecutor(DECODERS, "cala-decoder")
        self._decoding = asyncio.Semaphore(DECODERS)
        self._decoding_more = asyncio.Semaphore(DECODERS - 1)
        self._threads = ThreadPoolExecutor(worker_count(), "cala-encoder")
        self._queue: deque[tuple[Pixels, asyncio.Future[Embedding]]] = deque()
        self._encoding: set[asyncio.Task[None]] = set()

    async def photos(
        self, uploads: Sequence[Upload], seconds: float, part: bool = False
    ) -> tuple[list[Encoded], list[tuple[Upload, Problem]]]:
        """Uploads with their photos, and those that cannot be used with what is wrong.

        part : the request has brought others before
        """
        if self.waiting + len(uploads) > max(self.limits.waiting, len(uploads)):
            raise busy(f"{self.waiting} photos are waiting already")
        self.waiting += len(uploads)
        turn = asyncio.Semaphore(TURN)
        work = asyncio.gather(
            *(self._photo(upload, turn, part or n > 0) for n, upload in enumerate(uploads))
        )
        try:
            found = await asyncio.wait_for(work, seconds)
        except asyncio.TimeoutError:
            raise busy(f"the photos were not encoded within {seconds:.0f} seconds") from None
        finally:
            self.waiting -= len(uploads)
        pairs = list(zip(uploads, found, strict=True))
        good = [(upload, one) for upload, one in pairs if isinstance(one, Photo)]
        bad = [(u, as_problem(one, u.field)) for u, one in pairs if not isinstance(one, Photo)]
        return good, bad

    async def _photo(
        self, upload: Upload, turn: asyncio.Semaphore, later: bool
    ) -> Photo | ImageError | Problem:
        found = self.recent.get(upload.digest)
        if found is not None:
            return found
        if upload.data is None:
            detail, fix = "the service does not remember this photo", "send the photo itself"
            return Problem("photo_gone", detail, fix, field=upload.field)
        async with turn:
            try:
                ready, small = await self._decoded(upload, later)
            except ImageError as error:
                return error
            photo = Photo(upload.digest, await self._encoded(ready), small)
        self.recent.put(photo)
        return photo

    async def _decoded(self, upload: Upload, later: bool) -> tuple[Pixels, bytes]:
        loop = asyncio.get_running_loop()
        async with self._decoding_more if later else nullcontext(), self._decoding:
            return await loop.run_in_executor(self._decoders, self._decode, upload)

    async def _encoded(self, ready: Pixels) -> Embedding:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Embedding] = loop.create_future()
        self._queue.append((ready, future))
        if len(self._encoding) < worker_count():
            self._encoding.add(loop.create_task(self._encode_queue()))
        return await future

    async def _encode_queue(self) -> None:
        try:
            await asyncio.sleep(WAIT)
            while self._queue:
                await self._encode_batch(batch_size(self.encoder))
        finally:
            self._encoding.discard(asyncio.current_task())

    async def _encode_batch(self, size: int) -> None:
        taken = [self._queue.popleft() for _ in range(min(size, len(self._queue)))]
        batch = [(pixels, future) for pixels, future in taken if not future.done()]
        if not batch:  # nobody waits for those that are cancelled
            return
        self.observe(len(batch))
        pixels = np.stack([pixels for pixels, _ in batch])
        loop = asyncio.get_running_loop()
        try:
            rows = await loop.run_in_executor(self._threads, self._encode, pixels)
        except Exception as error:
            rows = [error] * len(batch)
        for (_, future), row in zip(batch, rows, strict=True):
            if not future.done():
                failed = isinstance(row, Exception)
                (future.set_exception if failed else future.set_result)(row)

    def _encode(self, prepared: Pixels) -> Any:
        """(n, size, size, 3) uint8, as `Transform.prepare` makes it -> (n, d)"""
        return self.encoder.encode(self.encoder.transform.normalise(prepared), self.tta)

    def _decode(self, upload: Upload) -> tuple[Pixels, bytes]:
        assert upload.data is not None
        return DECODER_PROCESSES.decode(
            upload.data, upload.name, self.limits.pixels, self.encoder.transform, self.keep_small
        )

    def close(self) -> None:
        """Nobody waits any more, so a photo that takes long is not waited for either."""
        self._decoders.shutdown(wait=False, cancel_futures=True)
        self._threads.shutdown()
