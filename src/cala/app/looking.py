"""Uploads -> photos with embeddings: decoded in a few threads, encoded together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from cala.app.batching import Batcher
from cala.app.problems import Problem, busy
from cala.app.recent import Photo, Recent
from cala.app.settings import Limits
from cala.app.uploads import Upload
from cala.data.decoding import ImageError, Pixels, decode_bytes
from cala.model.thumbnails import small_copy

DECODER = "cala-decoder"
DECODERS = max(2, min(4, os.cpu_count() or 1))

T = TypeVar("T")


class Looker:
    """What stands between a request's bytes and its embeddings."""

    def __init__(self, batcher: Batcher, limits: Limits, keep_small: bool) -> None:
        self.batcher, self.limits, self.keep_small = batcher, limits, keep_small
        self.recent = Recent(limits.recent)
        self.waiting = 0
        self._decoders = ThreadPoolExecutor(DECODERS, DECODER)

    async def photos(
        self, uploads: Sequence[Upload], seconds: float
    ) -> list[Photo | ImageError | Problem]:
        """One for each upload, or what is wrong with it."""
        if self.waiting + len(uploads) > max(self.limits.waiting, len(uploads)):
            raise busy(f"{self.waiting} photos are waiting already")
        self.waiting += len(uploads)
        looks = [asyncio.ensure_future(self._photo(upload)) for upload in uploads]
        try:
            return await asyncio.wait_for(asyncio.gather(*looks), seconds)
        except asyncio.TimeoutError:
            raise busy(f"the photos were not looked at within {seconds:.0f} seconds") from None
        finally:
            self.waiting -= len(uploads)

    async def _photo(self, upload: Upload) -> Photo | ImageError | Problem:
        found = self.recent.get(upload.digest)
        if found is not None:
            return found
        if upload.data is None:
            return Problem(
                410,
                "photo_gone",
                "the service does not remember this photo",
                field=upload.field,
                fix="send the photo itself",
            )
        loop = asyncio.get_running_loop()
        try:
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
