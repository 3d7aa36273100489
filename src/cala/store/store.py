"""A model's folder: versions, each written aside and switched to in one step.

    model.json      the current version: what a person wants to know, and names of blobs
    history/N.json  versions that undo can reach; N.undone.json those that redo can
    blobs/*.safetensors  arrays, named after their SHA-256

A change writes its blobs, then the history, then replaces `model.json`: that is the moment at
which it happens. Killed before, the model is as it was; killed later, it has changed. The next
change deletes what a killed process leaves behind, and never a file that a store did not write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from cala.errors import DamagedFile, InputError, StateError
from cala.files import make_folder, quoted, reason, shown, sync_folder
from cala.store.files import (
    BLOBS,
    FIELDS,
    FORMAT,
    HISTORY,
    VERSION_FILE,
    Document,
    Group,
    check_not_linked,
    delete_own,
    own_files,
    read_blob,
    read_document,
    write_blob,
    write_document,
)
from cala.version import __version__

CURRENT = "model.json"
FOLDERS = {"blobs": BLOBS, "history": HISTORY}
LEFTOVERS = own_files(r"model\.json")
UNDO_STEPS = 20
WAIT_SECONDS = 60.0
_TRIES = 5


@dataclass(frozen=True)
class Content:
    """A model as the store sees it: JSON values, and arrays in groups.

    meta : for people to read as well as for the program
    groups : a group that a change leaves alone is not written again
    """

    meta: dict[str, Any]
    groups: dict[str, Group]


@dataclass(frozen=True)
class JournalEntry:
    """One line of the journal.

    action : fit, add, annotate, forget, rename, reject, tune, refit, undo, redo, recover
    details : such as {"classes": {"kingfisher": 5}}
    """

    action: str
    details: dict[str, Any] = field(default_factory=dict)

    def dated(self, version: int) -> dict[str, Any]:
        """The line as the journal keeps it."""
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        head = {"version": version, "time": now, "action": self.action}
        return {**head, **self.details, "cala": __version__}


@dataclass(frozen=True)
class Present:
    """What a store says of its present version without its content.

    journal : every change, oldest first; undo, redo : how many steps are possible
    """

    version: int
    journal: tuple[dict[str, Any], ...]
    undo: int
    redo: int


def is_store(path: Path) -> bool:
    """Whether a folder holds a model, intact or damaged."""
    try:
        path.lstat()
        return (path / CURRENT).exists() or bool(_versions(path / "history"))
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:
        raise InputError(f"a model cannot be stored at {shown(path)} ({reason(error)})") from error


def _versions(history: Path) -> list[Path]:
    """Earlier versions, newest first; behind them those that were undone."""
    found = (
        [p for p in history.iterdir() if VERSION_FILE.fullmatch(p.name)] if history.is_dir() else []
    )
    return sorted(found, key=lambda p: ("undone" not in p.name, _number(p)), reverse=True)


def _number(path: Path) -> int:
    return int(path.name.partition(".")[0])


def _origin(document: Document) -> int:
    """The version that first had this content: later ones are undone and redone copies of it."""
    return int(document.get("origin") or document.get("like") or document["version"])


class Store:
    """The folder of one model.

    >>> import tempfile, numpy
    >>> store = Store(Path(tempfile.mkdtemp(), "birds"))
    >>> first = Content({"name": "birds"}, {"base": {"x": numpy.zeros(2)}})
    >>> store.create(first, JournalEntry("fit"))
    1
    >>> renamed = Content({"name": "more birds"}, first.groups)
    >>> store.change(lambda old: (renamed, JournalEntry("rename")))
    2
    >>> store.undo(), store.read().meta
    (3, {'name': 'birds'})
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = FileLock(self.path / ".lock")  # a thread that has it may take it again

    # Reading needs no lock

    def read(self) -> Content:
        """Read the present version and check every byte of it."""
        return self._retried(lambda: self._content(self._document()))

    def present(self) -> Present:
        """Version, journal and steps of the present version, in one look."""
        found = self._retried(self._document)
        journal = tuple(found["journal"])
        return Present(found["version"], journal, len(found["undo"]), len(found["redo"]))

    def version(self) -> int:
        """Number of the present version."""
        return self.present().version

    def journal(self) -> list[dict[str, Any]]:
        """Every change since the model was made, oldest first."""
        return list(self.present().journal)

    def reachable(self, group: str) -> Iterator[Group]:
        """One group of every version that undo and redo can reach, and of the present one."""
        with self._locked():
            now = self._document()
            names = {now["blobs"][group]}
            for path in self._reachable(now):
                names.add(read_document(path)["blobs"][group])
            yield from (read_blob(self.path / "blobs", name) for name in sorted(names))

    def _retried(self, look: Callable[[], Any]) -> Any:
        """Look again where a file has gone: another process has just made the next version."""
        try:
            for _ in range(_TRIES):
                with suppress(FileNotFoundError):
                    return look()
            return look()
        except FileNotFoundError as error:
            fix = f"restore a copy of it, or run `cala undo {quoted(self.path)}`"
            raise DamagedFile(shown(error.filename), "it is missing", fix) from error
        except OSError as error:
            detail = f"{shown(self.path)} cannot be read ({reason(error)})"
            raise InputError(detail, "check its permissions", code="unreadable") from error

    def _check_there(self) -> None:
        if not is_store(self.path):
            raise InputError(
                f"there is no model at {shown(self.path)}",
                "create one with `cala fit PHOTOS -o MODEL`",
                code="no_model",
            )

    def _document(self) -> Document:
        self._check_there()
        return read_document(self.path / CURRENT)

    def _content(self, document: Document) -> Content:
        blobs = self.path / "blobs"
        groups = {group: read_blob(blobs, name) for group, name in document["blobs"].items()}
        return Content(document["meta"], groups)

    def _whole(self, path: Path) -> Document:
        """A version of which nothing is damaged or gone."""
        document = read_document(path)
        self._content(document)
        return document

    def _history(self, version: int, undone: bool = False) -> Path:
        return self.path / "history" / f"{version:06}{'.undone' if undone else ''}.json"

    def _reachable(self, document: Document) -> list[Path]:
        """Versions that undo and redo can reach, and the one that an undo went back to."""
        versions = {*document["undo"], *([document["like"]] if document.get("like") else [])}
        paths = [self._history(version) for version in sorted(versions)]
        return paths + [self._history(version, undone=True) for version in document["redo"]]

    # Changes

    def create(self, content: Content, entry: JournalEntry) -> int:
        """Make the folder with version 1; refuse where there is something already."""
        self.check_free()
        with self._writing():
            make_folder(self.path)
            with self._locked():
                self.check_free()
                return self._write(content, entry, {"version": 0, "journal": [], "undo": []})

    def check_free(self) -> None:
        """Raise if a model or anything else is there."""
        if is_store(self.path):
            raise InputError(
                f"{shown(self.path)} already holds a model",
                "choose another name, delete it, or add to it with `cala add`",
                field="out",
                code="model_exists",
            )
        if self.path.exists() and not (self.path.is_dir() and self._is_leftover()):
            raise InputError(
                f"{shown(self.path)} already exists and holds other files",
                "choose another name",
                field="out",
                code="not_empty",
            )

    def _is_leftover(self) -> bool:
        """Whether the folder holds nothing but what a process left that died before version 1."""
        for path in self.path.iterdir():
            own = FOLDERS.get(path.name)
            if own is None:
                ours = path.name == ".lock" or bool(LEFTOVERS.fullmatch(path.name))
            else:
                ours = path.is_dir() and not path.is_symlink()
                ours = ours and all(own.fullmatch(inside.name) for inside in path.iterdir())
            if not ours:
                return False
        return True

    def change(self, make: Callable[[Content], tuple[Content, JournalEntry] | None]) -> int:
        """Make the next version from the present one; changes come one after the other.

        make : old content -> new content and its line of the journal, or None to change nothing
        Returns the number of the version that is then the present one.
        """
        with self.held():
            now = self._document()
            made = make(self._content(now))
            return int(now["version"]) if made is None else self._write(*made, now)

    def undo(self) -> int:
        """Go back by one change: a new version with the content of the one before.

        Where that one is damaged, the one before it is taken, and the journal names both changes.
        """
        with self.held():
            try:
                now = self._document()
                self._content(now)
            except (DamagedFile, FileNotFoundError):
                return self._recover()
            stack, also = list(now["undo"]), []
            while stack:
                last = stack.pop()
                try:
                    target = self._whole(self._history(last))
                except (DamagedFile, FileNotFoundError):
                    also.append(last)
                    continue
                self._keep(now, undone=True)
                details = {"of": _origin(now), "to": last, **({"also": also} if also else {})}
                redo = [*now["redo"], now["version"]]
                moved = {**target, "origin": _origin(target), "like": last}
                return self._switch(moved, now, JournalEntry("undo", details), stack, redo)
            raise StateError(
                f"{shown(self.path)} has no earlier version to go back to", code="nothing_to_undo"
            )

    def redo(self) -> int:
        """Take an undo back, as long as nothing else was changed since."""
        with self.held():
            now = self._document()
            if not now["redo"]:
                raise StateError(f"{shown(self.path)} has no undo to redo", code="nothing_to_redo")
            *rest, last = now["redo"]
            target = self._whole(self._history(last, undone=True))
            self._keep(now)
            entry = JournalEntry("redo", {"of": _origin(target), "to": last})
            moved = {**target, "origin": _origin(target)}
            return self._switch(moved, now, entry, [*now["undo"], now["version"]], rest)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep others from changing it: what was looked up still holds when it is used."""
        self._check_there()
        with self._writing(), self._locked():
            yield

    def _write(self, content: Content, entry: JournalEntry, before: Document) -> int:
        blobs = self.path / "blobs"
        for folder in FOLDERS:
            if not (self.path / folder).is_dir():
                (self.path / folder).mkdir()
                sync_folder(self.path)
        before_it = {path.name for path in blobs.iterdir()}
        try:
            names = {group: write_blob(blobs, arrays) for group, arrays in content.groups.items()}
            known = {*FIELDS, "like", "origin"}
            new = {name: value for name, value in before.items() if name not in known}
            new.update(format=FORMAT, meta=content.meta, blobs=names)
            undo: list[int] = []
            if before["version"]:
                self._keep(before)
                undo = [*before["undo"], before["version"]][-UNDO_STEPS:]
            return self._switch(new, before, entry, undo, [])
        except OSError:  # on a full disk, free what the failed change has written
            with suppress(OSError):
                self._history(before["version"]).unlink(missing_ok=True)
                delete_own(blobs, BLOBS, before_it)
            raise

    def _keep(self, document: Document, undone: bool = False) -> None:
        write_document(self._history(document["version"], undone), document)

    def _recover(self) -> int:
        """Where the present version is damaged: the newest one that is not.

        One that was undone only where nothing else is left.
        """
        versions = _versions(self.path / "history")
        for path in versions:
            try:
                target = self._whole(path)
            except (DamagedFile, FileNotFoundError):
                continue
            damaged = max(map(_number, versions)) + 1  # its highest number
            entry = JournalEntry("recover", {"to": target["version"]})
            undo = [number for number in target["undo"] if self._history(number).exists()]
            return self._switch(target, {**target, "version": damaged}, entry, undo, [])
        fix = "restore a copy, or make it again with `cala fit`"
        raise DamagedFile(shown(self.path), "no earlier version is intact either", fix)

    def _switch(
        self,
        document: Document,
        before: Document,
        entry: JournalEntry,
        undo: list[int],
        redo: list[int],
    ) -> int:
        """Make a document the version after `before`, and delete what no version needs."""
        version = before["version"] + 1
        journal = [*before["journal"], entry.dated(version)]
        new = {**document, "version": version, "journal": journal, "undo": undo, "redo": redo}
        write_document(self.path / CURRENT, new)  # from here on the change has happened
        with suppress(OSError, InputError):
            self._clear(new)
        return int(version)

    def _clear(self, document: Document) -> None:
        """Delete what no version needs; no blob as long as a version cannot be read."""
        kept = self._reachable(document)
        delete_own(self.path, LEFTOVERS, {CURRENT})
        delete_own(self.path / "history", HISTORY, {path.name for path in kept})
        needed = set(document["blobs"].values())
        for path in kept:
            with suppress(FileNotFoundError):
                needed |= set(read_document(path)["blobs"].values())
        delete_own(self.path / "blobs", BLOBS, {f"{name}.safetensors" for name in needed})

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            for name in FOLDERS:
                check_not_linked(self.path / name)
            yield
        except OSError as error:
            raise InputError(
                f"{shown(self.path)} cannot be changed ({reason(error)})",
                "nothing was changed; check its permissions and the free space",
                code="not_saved",
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self._lock.acquire(timeout=WAIT_SECONDS)
        except Timeout:
            raise StateError(
                f"another process has been changing {shown(self.path)} for {WAIT_SECONDS:.0f} "
                "seconds",
                "try again when it is done",
                code="locked",
            ) from None
        try:
            yield
        finally:
            self._lock.release()
