"""Photos that the service has just seen, so that they can be named instead of sent again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Photo:
    """What is left of a photo: its SHA-256, its embedding (d,), a small copy as JPEG."""

    digest: str
    features: NDArray[np.float32]
    small: bytes

    @property
    def size(self) -> int:
        return self.features.nbytes + len(self.small) + 500  # what Python adds, about


class Recent:
    """The latest photos within a number of bytes, in memory only."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._photos: OrderedDict[str, Photo] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._photos)

    def get(self, digest: str) -> Photo | None:
        with self._lock:
            found = self._photos.get(digest)
            if found is not None:
                self._photos.move_to_end(digest)
            return found

    def put(self, photo: Photo) -> None:
        with self._lock:
            before = self._photos.pop(photo.digest, None)
            self._bytes += photo.size - (before.size if before else 0)
            self._photos[photo.digest] = photo
            while self._bytes > self.most and len(self._photos) > 1:
                self._bytes -= self._photos.popitem(last=False)[1].size
