"""The cache: whatever can be computed again, in one folder.

    cache.sqlite          embeddings of images, and what is known about files, row by row
    images/NAME.safetensors   decoded image sets, mapped into memory

A row or file that is damaged is never used: it is computed again. Without a folder that can be
written, everything still works and is only slower.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import platformdirs

from cala import storage
from cala.core.rows import Array
from cala.errors import CacheWarning, DamagedFile, InputError, StateError
from cala.files import reason, shown, stamp

T = TypeVar("T")
Build = Callable[[Path], tuple[dict[str, Any], dict[str, Array]]]

DATABASE = "cache.sqlite"
_VERSION = 1  # of the database; one of another version is started afresh
TABLES = ("embeddings", "memos")
SLOTS = 64  # lock files for claims; keys that share one wait for each other
_WAIT = 60.0  # seconds for another process to finish writing
FRESH = 2.0  # seconds: a file this young may change again within the same clock tick
MEMO_BYTES = 64 << 20  # of all memos together; those not used for the longest time go first
_KEYS = 500  # per query


def cache_folder(*parts: str) -> Path:
    """A folder below `$CALA_CACHE`, or below the user's cache folder; created if missing."""
    given = os.environ.get("CALA_CACHE")
    folder = (Path(given) if given else Path(platformdirs.user_cache_dir("cala"))).joinpath(*parts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"the cache folder {shown(folder)} cannot be created ({reason(error)})",
            "set CALA_CACHE to a folder that can be written",
            code="not_written",
        ) from error
    return folder


class RowCache:
    """Rows of bytes by 32-byte key, in one table of the database; safe under many processes.

    Each row carries a checksum over its key and its bytes: a wrong byte makes it unknown, never
    wrong. A database that is damaged is deleted and begun again.
    """

    def __init__(self, table: str) -> None:
        self.table = table

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The rows that are known, by key."""

        def select(database: sqlite3.Connection) -> dict[bytes, bytes]:
            rows: list[tuple[bytes, bytes, bytes]] = []
            for start in range(0, len(keys), _KEYS):
                part = keys[start : start + _KEYS]
                marks = ",".join("?" * len(part))
                rows += database.execute(
                    f"SELECT key, row, seal FROM {self.table} WHERE key IN ({marks}) "
                    "AND typeof(row) = 'blob'",
                    part,
                )
            return {key: row for key, row, seal in rows if seal == _seal(key, row)}

        return self._run(select, {})

    def put(self, rows: Iterable[tuple[bytes, bytes]], limit: int | None = None) -> None:
        """Keep rows; with a `limit` of bytes, rows that were not used for longest are dropped."""
        now = time.time()
        entries = [(key, row, _seal(key, row), now) for key, row in rows]

        def insert(database: sqlite3.Connection) -> None:
            with database:
                database.execute("BEGIN IMMEDIATE")
                database.executemany(f"REPLACE INTO {self.table} VALUES (?, ?, ?, ?)", entries)
                if limit is not None:
                    total = "SUM(LENGTH(row)) OVER (ORDER BY used DESC, rowid DESC)"
                    database.execute(
                        f"DELETE FROM {self.table} WHERE used < ? AND key IN (SELECT key FROM "
                        f"(SELECT key, {total} AS total FROM {self.table}) WHERE total > ?)",
                        (now, limit),
                    )

        self._run(insert, None)

    def touch(self, key: bytes) -> None:
        """Note that a row was used just now."""
        update = f"UPDATE {self.table} SET used = ? WHERE key = ?"
        self._run(lambda database: database.execute(update, (time.time(), key)), None)

    def size(self) -> tuple[int, int]:
        """Number of rows, and their bytes."""
        query = f"SELECT COUNT(*), COALESCE(SUM(LENGTH(row)), 0) FROM {self.table}"
        return self._run(lambda database: tuple(database.execute(query).fetchone()), (0, 0))

    def clear(self) -> None:
        """Delete all rows and give their space back."""

        def delete(database: sqlite3.Connection) -> None:
            database.execute(f"DELETE FROM {self.table}")
            database.execute("VACUUM")

        self._run(delete, None)

    @contextmanager
    def claim(self, key: bytes, wait: bool) -> Iterator[bool]:
        """Whether this process may compute what belongs to `key`: no other is about to.

        Without `wait` the answer is False while another process holds the claim.
        """
        mine = True
        with ExitStack() as held:
            try:
                path = cache_folder("locks") / f"{self.table}-{key[0] % SLOTS}"
                held.enter_context(storage.locked(path, shown(path), timeout=-1 if wait else 0))
            except StateError:
                mine = False
            except InputError:
                pass  # nobody else can write there either
            yield mine

    def _run(self, work: Callable[[sqlite3.Connection], Any], otherwise: T) -> T:
        """`work` on the database; `otherwise` where there is none that can be used."""
        path = None
        try:
            path = cache_folder() / DATABASE
            try:
                return _connected(path, work)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError) and not _cut_short(error):
                    raise  # locked, full or read-only; anything else is damage
                _delete(path)
                return _connected(path, work)
        except (sqlite3.Error, OSError, InputError) as error:
            message = (
                f"the cache {shown(path or DATABASE)} cannot be used ({reason(error)}), so nothing "
                "is remembered: free some space, or set CALA_CACHE to another folder"
            )
            warnings.warn(CacheWarning(message, "no_cache"), stacklevel=4)
            return otherwise


def _connected(path: Path, work: Callable[[sqlite3.Connection], Any]) -> Any:
    """A connection for each piece of work: none outlives a fork, a thread or a deleted file."""
    with closing(sqlite3.connect(path, timeout=_WAIT, isolation_level=None)) as database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version not in (0, _VERSION):
            raise sqlite3.DatabaseError(f"it has version {version}")
        if version == 0:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(f"PRAGMA user_version = {_VERSION}")
        for table in TABLES:
            database.execute(
                f"CREATE TABLE IF NOT EXISTS {table} (key BLOB PRIMARY KEY, row BLOB NOT NULL, "
                "seal BLOB NOT NULL, used REAL NOT NULL)"
            )
        database.execute("PRAGMA synchronous = NORMAL")
        return work(database)


def _cut_short(error: sqlite3.Error) -> bool:
    """Whether a file ends too early, which SQLite reports as a failed read."""
    return getattr(error, "sqlite_errorcode", 0) == 522  # SQLITE_IOERR_SHORT_READ


def _delete(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def _seal(key: bytes, row: bytes) -> bytes:
    return hashlib.blake2b(row, key=key, digest_size=16).digest()


def remembered(kind: str, paths: Sequence[Path], build: Callable[[], list[Any]]) -> list[Any]:
    """`build()`, or what it gave last time if no file has changed since."""
    key, youngest = _stamps(kind, paths)
    memos = RowCache("memos")
    found = memos.get([key]).get(key)
    if found is not None:
        memos.touch(key)
        return list(json.loads(found))
    result = build()
    if time.time() - youngest > FRESH and _stamps(kind, paths)[0] == key:
        memos.put([(key, json.dumps(result).encode())], MEMO_BYTES)
    return result


def _stamps(kind: str, paths: Sequence[Path]) -> tuple[bytes, float]:
    """A key for the state of some files, and the time at which the youngest was changed."""
    whole, youngest = hashlib.sha256(kind.encode()), 0
    for path in paths:
        try:
            found = stamp(path)
        except OSError:
            found = []
        youngest = max([youngest, *found[1:]])
        whole.update(json.dumps([os.path.abspath(path), found]).encode())
    return whole.digest(), youngest / 1e9


@dataclass(frozen=True)
class Entry:
    """arrays : read-only memory maps by name; info : what `build` returned"""

    arrays: dict[str, Array]
    info: dict[str, Any]


def cached(name: str, key: str, build: Build, source: Path) -> Entry:
    """The arrays for `key`; one process builds them while others wait.

    name : for people who look into the cache; key : a fingerprint of whatever `build` reads
    build : called with a folder for temporary files, which its arrays may be mapped from
    source : what it is built from; an older entry for the same source is replaced
    """
    place = hashlib.sha256(os.path.abspath(source).encode("utf-8", "surrogateescape")).hexdigest()
    path = cache_folder("images") / f"{name}-{place[:16]}.safetensors"
    entry = _entry(path, key)
    if entry is not None:
        return entry
    with storage.locked(path.with_suffix(".lock"), f"the cache entry {shown(path)}"):
        entry = _entry(path, key)  # another process may have built it in the meantime
        if entry is None:
            work = path.with_suffix(".new")
            shutil.rmtree(work, ignore_errors=True)  # of a build that was killed
            try:
                work.mkdir()
                info, arrays = build(work)
                storage.write(path, "images", {"key": key, "info": info}, arrays)
            except OSError as error:
                raise storage.not_written(path, error) from error
            finally:
                shutil.rmtree(work, ignore_errors=True)
            entry = _entry(path, key)
    if entry is None:
        raise DamagedFile(shown(path), "it cannot be read back", "check the disk")
    return entry


def _entry(path: Path, key: str) -> Entry | None:
    if not path.exists():
        return None
    try:
        # Reading every byte is only worth it when the file was touched.
        remembered("images", [path], lambda: [len(storage.read(path, "images", mapped=True)[1])])
        meta, arrays = storage.read(path, "images", mapped=True, check=False)
        return Entry(arrays, dict(meta["info"])) if meta["key"] == key else None
    except (InputError, KeyError, TypeError):
        return None


def cache_contents() -> dict[str, tuple[int, int]]:
    """Kinds of entries in the cache: how many of each, and their bytes."""
    found = {table: RowCache(table).size() for table in TABLES}
    for folder in sorted(p for p in cache_folder().iterdir() if p.is_dir() and p.name != "locks"):
        count, total = found.get(folder.name, (0, 0))
        for path in folder.rglob("*"):
            with suppress(OSError):  # another process may be at work
                if path.is_file() and path.suffix != ".lock":
                    count, total = count + 1, total + path.stat().st_size
        found[folder.name] = (count, total)
    return {kind: size for kind, size in sorted(found.items()) if size[0]}


def clear_cache(kind: str) -> None:
    """Delete all entries of a kind; a process that uses one keeps what it has open."""
    if kind in TABLES:
        RowCache(kind).clear()
    shutil.rmtree(cache_folder() / kind, ignore_errors=True)
