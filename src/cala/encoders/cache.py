"""Embeddings that were computed once, by the digest of their image.

One folder per encoder, transform and view. In it, segments: `.npy` files with one record
(digest, embedding) per image, written in one step and never changed, their CRC-32 in the name.
A damaged segment is dropped, so its images are encoded again. Of a segment only its digests stay
in memory; embeddings are read, a few records at a time, when they are asked for.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from cala.encoders.base import Encoder
from cala.errors import InputError
from cala.files import atomic, cache_folder, crc32, reason, shown

ROOM = "embeddings"
SMALL = 1024  # records below which a segment counts as small
MANY = 32  # small segments that are merged
READ = 1 << 22  # bytes of records in memory at a time
NAME = re.compile(r"[0-9a-f]{16}-([0-9a-f]{8})\.npy")


class EmbeddingCache:
    """What is known of one encoder's embeddings under one view.

    view : `plain`, `flip` or `mix`
    """

    def __init__(self, encoder: Encoder, view: str = "plain") -> None:
        label = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(encoder.name).name)[:40]
        self.folder = cache_folder(ROOM, f"{label}-{encoder.key[:24]}-{view}")
        self.record = np.dtype([("digest", "V32"), ("embedding", "<f4", (encoder.dim,))])
        self.lock = FileLock(self.folder / "lock", poll_interval=0.005)
        self._digests: dict[str, NDArray[Any]] = {}  # of each segment, (n,) V32
        self._rows: dict[bytes, tuple[str, int]] = {}
        self._dropped: set[str] = set()

    def __len__(self) -> int:
        self._refresh()
        return len(self._rows)

    def has(self, digests: Sequence[bytes]) -> NDArray[np.bool_]:
        """Which embeddings are there: (n,)."""
        self._refresh()
        return np.fromiter((digest in self._rows for digest in digests), bool, len(digests))

    def find(self, digests: Sequence[bytes]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Embeddings (n, d) and which of them are there (n,); the others are 0."""
        out = np.zeros((len(digests), *self.record["embedding"].shape), dtype=np.float32)
        while True:
            self._refresh()
            found = np.zeros(len(digests), dtype=bool)
            try:
                for name, places, rows in self._wanted(digests):
                    self._gather(name, rows, places, out)
                    found[places] = True
                return out, found
            except FileNotFoundError:  # merged by another process: look again
                out[:] = 0
            except ValueError:
                self._drop(name)
                out[:] = 0

    def _wanted(
        self, digests: Sequence[bytes]
    ) -> Iterator[tuple[str, NDArray[np.int64], NDArray[np.int64]]]:
        """Segment by segment, places in `digests` and the rows that belong there."""
        wanted: dict[str, tuple[list[int], list[int]]] = {}
        for place, digest in enumerate(digests):
            known = self._rows.get(digest)
            if known is not None:
                places, rows = wanted.setdefault(known[0], ([], []))
                places.append(place)
                rows.append(known[1])
        for name, (places, rows) in wanted.items():
            yield name, np.array(places), np.array(rows)

    def _gather(
        self,
        name: str,
        rows: NDArray[np.int64],
        places: NDArray[np.int64],
        out: NDArray[np.float32],
    ) -> None:
        """out[places] = the embeddings in `rows` of a segment."""
        start = 0
        for records in self._records(name):
            here = (rows >= start) & (rows < start + len(records))
            out[places[here]] = records["embedding"][rows[here] - start]
            start += len(records)
        if start != len(self._digests[name]):
            raise ValueError("cut short")

    def put(self, digests: Sequence[bytes], embeddings: NDArray[np.float32]) -> None:
        """Keep embeddings; to be called while holding `lock`."""
        records = np.empty(len(digests), dtype=self.record)
        records["digest"] = np.frombuffer(b"".join(digests), dtype="V32")
        records["embedding"] = embeddings
        self._write(records)
        self._merge()

    def _write(self, records: NDArray[Any]) -> None:
        temporary = self.folder / f"{secrets.token_hex(8)}.part"
        try:
            with atomic(temporary) as path, path.open("wb") as file:
                np.save(file, records, allow_pickle=False)
            # The name carries the checksum, so it can only be given once the bytes are there.
            name = f"{secrets.token_hex(8)}-{crc32(temporary):08x}.npy"
            temporary.replace(self.folder / name)
        except OSError as error:
            raise InputError(
                f"the embedding cache {shown(self.folder)} cannot be written ({reason(error)}): "
                "free some space, or set CALA_CACHE to another folder"
            ) from error
        finally:
            temporary.unlink(missing_ok=True)

    def _merge(self) -> None:
        """Write many small segments as a few that are not, each of less than two times `SMALL`."""
        self._refresh()
        small = [n for n, digests in self._digests.items() if len(digests) < SMALL]
        if len(small) <= MANY:
            return
        parts: list[NDArray[Any]] = []
        for number, name in enumerate(small, start=1):
            parts += self._records(name)
            if sum(map(len, parts)) >= SMALL or number == len(small):
                self._write(np.concatenate(parts))
                parts = []
        for name in small:
            with suppress(OSError):
                (self.folder / name).unlink()

    def _refresh(self) -> None:
        present = {p.name for p in self.folder.glob("*.npy") if NAME.fullmatch(p.name)}
        present -= self._dropped
        gone = self._digests.keys() - present
        for name in gone:
            del self._digests[name]
        if gone:
            self._rows = {}
        fresh = sorted(present - self._digests.keys())
        for name in fresh:
            digests = self._read_digests(name)
            if digests is not None:
                self._digests[name] = digests
        for name in self._digests if gone else fresh:
            known = self._digests.get(name, np.empty(0, "V32"))
            self._rows.update((bytes(d), (name, row)) for row, d in enumerate(known.tolist()))

    def _read_digests(self, name: str) -> NDArray[Any] | None:
        """Digests of a segment (n,), checked against its name; None if it is of no use."""
        known = NAME.fullmatch(name)
        try:
            if known is None or crc32(self.folder / name) != int(known[1], 16):
                raise ValueError("damaged")
            return np.concatenate([records["digest"].copy() for records in self._records(name)])
        except FileNotFoundError:
            return None  # merged by another process
        except (ValueError, EOFError):
            self._drop(name)
            return None

    def _records(self, name: str) -> Iterator[NDArray[Any]]:
        """The records of a segment, `READ` bytes at a time.

        Read and not mapped: mapped pages count as memory of the process for as long as they are.
        """
        with (self.folder / name).open("rb") as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0
            shape, _, dtype = read(file) if version == (1, 0) else ((), False, None)
            if dtype != self.record or len(shape) != 1:
                raise ValueError("of another shape")
            most = max(1, READ // self.record.itemsize)
            for start in range(0, shape[0], most):
                yield np.fromfile(file, self.record, min(most, shape[0] - start))

    def _drop(self, name: str) -> None:
        self._dropped.add(name)  # where the folder cannot be written it stays there
        with suppress(OSError):
            (self.folder / name).unlink()
