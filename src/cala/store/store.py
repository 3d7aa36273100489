"""A model's folder: versions, each written aside and switched to in one step.

    model.json      the current version: what a person wants to know, and names of blobs
    history/N.json  versions that undo can reach; N.undone.json those that redo can
    blobs/*.safetensors  arrays, named after their SHA-256

A change writes its blobs, then the history, then replaces `model.json`: that is the moment at
which it happens. Killed before, the model is as it was; killed later, it has changed. What a
killed process leaves behind is cleared away by the next change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from cala.errors import InputError, StateError
from cala.files import reason, shown, sync_folder
from cala.store.blobs import drop_blobs, read_blob, write_blob
from cala.store.content import Arrays, Content, Entry, Present
from cala.store.document import (
    FORMAT,
    Document,
    NewerFormatError,
    read_document,
    write_document,
)

CURRENT = "model.json"
UNDO_STEPS = 20
WAIT_SECONDS = 60.0
TRIES = 5


def is_store(path: Path) -> bool:
    """Whether a model lies there, whole or damaged."""
    try:
        path.lstat()
        return (path / CURRENT).exists() or any((path / "history").glob("[0-9]*.json"))
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:
        raise InputError(f"no model can lie at {shown(path)} ({reason(error)})") from error


def is_rest(path: Path) -> bool:
    """Whether a writer of `model.json` that was killed has left this."""
    return path.name.startswith(f".{CURRENT}.") and path.name.endswith(".tmp")


def _blobs_of(path: Path) -> set[str]:
    """What a version needs; one that is damaged needs nothing and goes."""
    try:
        return set(read_document(path)["blobs"].values())
    except InputError:
        path.unlink()
        return set()


class Store:
    """The folder of one model.

    >>> import tempfile, numpy
    >>> store = Store(Path(tempfile.mkdtemp(), "birds"))
    >>> first = Content({"name": "birds"}, {"base": {"x": numpy.zeros(2)}})
    >>> store.create(first, Entry("fit"))
    1
    >>> store.change(lambda old: (Content({"name": "more birds"}, old.groups), Entry("rename")))
    2
    >>> store.undo(), store.read().meta
    (3, {'name': 'birds'})
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = FileLock(self.path / ".lock")  # a thread that has it may take it again

    def create(self, content: Content, entry: Entry) -> int:
        """Make the folder with version 1; refused where there is something already."""
        self.check_free()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            sync_folder(self.path.parent)
            with self._locked():
                self.check_free()
                return self._write(content, entry, before=None)
        except OSError as error:
            raise self._unwritable(error) from error

    def check_free(self) -> None:
        """Raise if a model or anything else is there."""
        if is_store(self.path):
            raise InputError(
                f"{shown(self.path)} holds a model already: choose another name, delete it, or add "
                f"to it with `cala add {shown(self.path)} PHOTOS`"
            )
        own = {".lock", "blobs", "history"}  # left by a process that was killed before version 1
        if self.path.exists() and (
            not self.path.is_dir()
            or any(p.name not in own and not is_rest(p) for p in self.path.iterdir())
        ):
            raise InputError(
                f"{shown(self.path)} is there already and holds other files: choose another name"
            )

    def change(self, make: Callable[[Content], tuple[Content, Entry] | None]) -> int:
        """The next version, made from the present one; changes come one after the other.

        make : old content -> new content and what the journal says, or None to change nothing
        Returns the number of the version that is then the present one.
        """
        self._check_there()
        try:
            with self._locked():
                now = self._document()
                made = make(self._content(now))
                if made is None:
                    return int(now["version"])
                return self._write(*made, before=now)
        except OSError as error:
            raise self._unwritable(error) from error

    def undo(self) -> int:
        """Go back by one change: a new version with the content of the one before."""
        self._check_there()
        try:
            with self._locked():
                return self._undo()
        except OSError as error:
            raise self._unwritable(error) from error

    def _undo(self) -> int:
        try:
            now = self._document()
            self._content(now)
        except NewerFormatError:
            raise
        except (InputError, FileNotFoundError):
            return self._recover()
        stack = list(now["undo"])
        while stack:
            last = stack.pop()
            try:
                target = self._whole(self._history(last))
            except (InputError, FileNotFoundError):
                continue  # damaged or gone: the one before it, then
            self._keep(now, undone=True)
            entry = Entry("undo", {"of": now.get("like", now["version"]), "to": last})
            return self._move(now, target, entry, stack, [*now["redo"], now["version"]])
        raise StateError(f"{shown(self.path)} has no earlier version to go back to")

    def redo(self) -> int:
        """Take an undo back, as long as nothing else was changed since."""
        self._check_there()
        try:
            with self._locked():
                now = self._document()
                if not now["redo"]:
                    raise StateError(f"{shown(self.path)} has no undo to take back")
                *rest, last = now["redo"]
                try:
                    target = self._whole(self._history(last, undone=True))
                except FileNotFoundError as error:
                    raise InputError(f"version {last} of {shown(self.path)} is gone") from error
                self._keep(now)
                undo = [*now["undo"], now["version"]]
                return self._move(now, target, Entry("redo", {"to": last}), undo, rest)
        except OSError as error:
            raise self._unwritable(error) from error

    def read(self) -> Content:
        """The present version, every byte of it checked."""
        return self._retried(lambda: self._content(self._document()))

    def version(self) -> int:
        """Number of the present version."""
        return int(self._retried(self._document)["version"])

    def journal(self) -> list[dict[str, Any]]:
        """Every change since the model was made, oldest first."""
        return list(self._retried(self._document)["journal"])

    def present(self) -> Present:
        """Version, journal and steps of the present version, in one look."""
        found = self._retried(self._document)
        journal = tuple(found["journal"])
        return Present(int(found["version"]), journal, len(found["undo"]), len(found["redo"]))

    def reachable(self, group: str) -> Iterator[Arrays]:
        """One group of every version that undo and redo can reach, and of the present one."""
        with self._locked():
            now = self._document()
            names = {now["blobs"][group]}
            for path in self._reachable(now):
                names.add(read_document(path)["blobs"][group])
            yield from (read_blob(self.path / "blobs", name) for name in sorted(names))

    def _retried(self, look: Callable[[], Any]) -> Any:
        """A reader needs no lock: what is cleared away meanwhile is not the present any more."""
        for _ in range(TRIES):
            with suppress(FileNotFoundError):
                return look()
        try:
            return look()
        except FileNotFoundError as error:
            raise InputError(
                f"{shown(error.filename)} is missing: put back a copy of it, or go back to the "
                f"last version that is whole with `cala undo {shown(self.path)}`"
            ) from error

    def _check_there(self) -> None:
        if not is_store(self.path):
            raise InputError(
                f"there is no model at {shown(self.path)}; the model comes first, then photos. "
                "`cala fit PHOTOS -o MODEL` makes one"
            )

    def _document(self) -> Document:
        self._check_there()
        return read_document(self.path / CURRENT)

    def _content(self, document: Document) -> Content:
        groups: dict[str, Arrays] = {
            group: read_blob(self.path / "blobs", name) for group, name in document["blobs"].items()
        }
        return Content(document["meta"], groups)

    def _history(self, version: int, undone: bool = False) -> Path:
        return self.path / "history" / f"{version:06}{'.undone' if undone else ''}.json"

    def _reachable(self, document: Document) -> list[Path]:
        """Versions that undo and redo can reach, and the one that an undo went back to."""
        versions = {*document["undo"], *([document["like"]] if document.get("like") else [])}
        paths = [self._history(version) for version in sorted(versions)]
        return paths + [self._history(version, undone=True) for version in document["redo"]]

    def _whole(self, path: Path) -> Document:
        """A version of which nothing is damaged or gone."""
        document = read_document(path)
        self._content(document)
        return document

    def _keep(self, document: Document, undone: bool = False) -> None:
        write_document(self._history(document["version"], undone), document)

    def _write(self, content: Content, entry: Entry, before: Document | None) -> int:
        blobs = self.path / "blobs"
        for folder in (blobs, self.path / "history"):
            if not folder.is_dir():
                folder.mkdir()
                sync_folder(self.path)
        before_it = {path.name for path in blobs.iterdir()}
        try:
            names = {group: write_blob(blobs, arrays) for group, arrays in content.groups.items()}
            version = 1 if before is None else before["version"] + 1
            new = {
                "format": FORMAT,
                "version": version,
                "meta": content.meta,
                "blobs": names,
                "journal": [*(before["journal"] if before else []), entry.dated(version)],
                "undo": [*before["undo"], before["version"]][-UNDO_STEPS:] if before else [],
                "redo": [],
            }
            if before is not None:
                self._keep(before)
            self._switch(new)
        except OSError:
            self._take_back(before, before_it)
            raise
        return version

    def _take_back(self, before: Document | None, blobs: set[str]) -> None:
        """Delete what a change that failed has written: a full disk is not to stay full by it."""
        with suppress(OSError):
            if before is not None:
                self._history(before["version"]).unlink(missing_ok=True)
            for path in (self.path / "blobs").iterdir():
                if path.name not in blobs:
                    path.unlink(missing_ok=True)

    def _move(
        self, now: Document, target: Document, entry: Entry, undo: list[int], redo: list[int]
    ) -> int:
        version = now["version"] + 1
        journal = [*now["journal"], entry.dated(version)]
        moved = {"version": version, "journal": journal, "undo": undo, "redo": redo}
        if entry.action == "undo":
            moved["like"] = target["version"]
        self._switch({**target, **moved})
        return version

    def _recover(self) -> int:
        """Where the present version is damaged: the newest one that is not.

        One that was undone only where nothing else is left.
        """
        history = self.path / "history"
        kept = sorted(history.glob("[0-9]*[0-9].json"), reverse=True)
        for path in [*kept, *sorted(history.glob("*.undone.json"), reverse=True)]:
            try:
                target = self._whole(path)
            except (InputError, FileNotFoundError):
                continue
            newest = max(int(other.name[:6]) for other in history.glob("[0-9]*.json"))
            version = newest + 2  # the damaged one may have been the next
            entry = Entry("recover", {"to": target["version"]})
            journal = [*target["journal"], entry.dated(version)]
            undo = [number for number in target["undo"] if self._history(number).exists()]
            moved = {"version": version, "journal": journal, "undo": undo, "redo": []}
            self._switch({**target, **moved})
            return version
        raise InputError(
            f"{shown(self.path)} is damaged and has no earlier version to go back to: put back a "
            "copy, or make it again with `cala fit`"
        )

    def _switch(self, new: Document) -> None:
        write_document(self.path / CURRENT, new)  # from here on the change has happened
        with suppress(OSError, InputError):
            self._clear(new)

    def _clear(self, document: Document) -> None:
        needed = set(document["blobs"].values())
        kept = {path.name for path in self._reachable(document)}
        for path in (self.path / "history").iterdir():
            if path.name in kept:
                needed |= _blobs_of(path)
            else:
                path.unlink()
        drop_blobs(self.path / "blobs", needed)
        for path in self.path.iterdir():
            if is_rest(path):
                path.unlink()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else changes it meanwhile: what was looked up is still so when it is used."""
        self._check_there()
        with self._locked():
            yield

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self._lock.acquire(timeout=WAIT_SECONDS)
        except Timeout:
            raise StateError(
                f"another process has been changing {shown(self.path)} for {WAIT_SECONDS:.0f} "
                "seconds: try again when it is done"
            ) from None
        try:
            yield
        finally:
            self._lock.release()

    def _unwritable(self, error: OSError) -> InputError:
        return InputError(
            f"{shown(self.path)} cannot be changed ({reason(error)}): it is as it was; look at its "
            "rights and at the free space"
        )
