"""A folder whose photos are recognised as they arrive, each once, whatever ends the process.

What is in the ledger is done. A photo is sorted first (`cala.model.sorting` knows how to finish
what was interrupted) and entered then, so that none is lost and none arrives twice.
"""

from __future__ import annotations

import itertools
import json
import os
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cala.connections.running import LatestModel, Once, Say
from cala.data.decoding import CHANGED
from cala.data.formats import cannot_read, is_system, why_left_out
from cala.errors import DamagedFile, InputError
from cala.files import reason, sha256, shown
from cala.model import Model
from cala.model.model import check_limits
from cala.model.photos import with_readable
from cala.model.prediction import Prediction
from cala.model.sorting import Sorted, finish_sorting, sort_photos

LEDGER = "cala-watch.jsonl"
AT_A_TIME = 32  # photos that are recognised before they are sorted and entered
#: How names end while a browser, a camera or an editor still writes the file.
TEMPORARY = (".tmp", ".temp", ".part", ".partial", ".crdownload", ".download", ".filepart", "~")

LedgerEntry = dict[str, Any]
Stamp = tuple[int, int, int]  # size, times of the last change of content and of anything


class Ledger:
    """What became of each file, as JSON lines: image, size, modified, label or error, and more.

    done : (image, size, modified) of all files that were handled
    placed : (image, sha256) of those that were sorted
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: set[tuple[str, int, int]] = set()
        self.placed: set[tuple[str, str]] = set()
        text = path.read_bytes() if path.exists() else b""
        whole = text[: text.rfind(b"\n") + 1]
        try:
            self._enter(json.loads(line) for line in whole.split(b"\n")[:-1])
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedFile(shown(path), reason(error), "move it away to start anew") from error
        if len(whole) < len(text):  # a process was killed while it wrote this line
            os.truncate(path, len(whole))

    def add(self, entries: Sequence[LedgerEntry]) -> None:
        """Append entries, and see them on the disk before returning."""
        with self.path.open("ab") as file:
            file.write("".join(json.dumps(entry) + "\n" for entry in entries).encode())
            file.flush()
            os.fsync(file.fileno())
        self._enter(entries)

    def _enter(self, entries: Iterable[LedgerEntry]) -> None:
        for entry in entries:
            self.done.add((entry["image"], entry["size"], entry["modified"]))
            self.placed.add((entry["image"], entry.get("sha256", "")))


class Watcher:
    """Recognises the photos of a folder, at any depth, and may sort them into another.

    Parameters
    ----------
    model : Model
        Changes that other processes make to it are followed.
    inbox : Path
        The folder; hidden and temporary files in it, and links, are ignored.
    ledger : Path
        File of one JSON line per photo, which decides what is done.
    out : Path, optional
        Folder to sort into, as `cala sort` does.
    action : {"copy", "link", "move"}, default="copy"
        How to sort.
    reject : float, optional
        As `Model.explain` takes it.
    say : callable, optional
        Called with what the user should know.

    Examples
    --------
    >>> watcher = Watcher(model, Path("inbox"), Path("answers.jsonl"))  # doctest: +SKIP
    >>> for entry in watcher.run(every=2, stop=threading.Event()):  # doctest: +SKIP
    ...     print(entry["image"], entry.get("label"))
    """

    def __init__(
        self,
        model: Model,
        inbox: Path,
        ledger: Path,
        *,
        out: Path | None = None,
        action: str = "copy",
        reject: float | None = None,
        say: Say = lambda text: None,
    ) -> None:
        self.inbox, self.out, self.action = inbox.absolute(), out and out.absolute(), action
        if not inbox.is_dir():
            raise InputError(f"{shown(inbox)} is not a folder", "create it", field="inbox")
        if self.out in (self.inbox, *self.inbox.parents):
            detail = f"{shown(inbox)} is in the folder to sort into"
            raise InputError(detail, "choose another one", field="sort")
        self.model, self._trouble = LatestModel(model, say), Once(say)
        check_limits(reject=reject)
        self.reject = reject
        self.ledger = Ledger(ledger.absolute())
        self.seen: dict[str, Stamp] = {}

    def run(self, every: float, stop: threading.Event, once: bool = False) -> Iterator[LedgerEntry]:
        """Entries of the ledger as they are made, until `stop` is set.

        every : seconds between two looks; a file is complete if it has not changed between them
        once : end after the second look
        """
        yield from self._finish()
        for look in itertools.count(1):
            ready = self._look()
            for start in range(0, len(ready), AT_A_TIME):
                if stop.is_set():
                    return
                yield from self._handle(ready[start : start + AT_A_TIME])
            if (once and (look == 2 or not self.seen)) or stop.wait(every):
                return

    @property
    def waiting(self) -> int:
        """Files that are there and are not done, since they are still changing."""
        return sum((path, *stamp[:2]) not in self.ledger.done for path, stamp in self.seen.items())

    def _look(self) -> list[str]:
        """Files that are not done and are as they were at the last look, by name."""
        try:
            found = dict(self._files())
            self._trouble("")
        except OSError as error:
            found = {}
            self._trouble(f"{shown(self.inbox)} cannot be read ({reason(error)})")
        new = {p: s for p, s in found.items() if (p, *s[:2]) not in self.ledger.done}
        ready = sorted(path for path, stamp in new.items() if self.seen.get(path) == stamp)
        self.seen = new
        return ready

    def _files(self) -> Iterator[tuple[str, Stamp]]:
        def refuse(error: OSError) -> None:
            if error.filename == str(self.inbox):  # folders in it may go at any time
                raise error

        for root, folders, names in os.walk(self.inbox, onerror=refuse):
            folders[:] = [
                name for name in folders if not is_system(name) and Path(root, name) != self.out
            ]
            for path in (os.path.join(root, name) for name in names if not _is_temporary(name)):
                found = _stamp(path)
                if found is not None and path != str(self.ledger.path):
                    yield path, found

    def _handle(self, paths: Sequence[str]) -> list[LedgerEntry]:
        """Recognise, sort and enter files; those that change meanwhile are left for later."""
        others = {path: why_left_out(Path(path)) for path in paths}
        said = {path: {"error": cannot_read(why)} for path, why in others.items() if why}
        photos = [Path(path) for path in paths if path not in said]
        model = self.model.get()
        try:
            answers, bad = with_readable(
                photos, lambda good: model.explain(good, top=1, reject=self.reject) if good else []
            )
            said |= {str(path): {"error": why} for path, why in bad}
            good = [one for one in answers or () if _stamp(one.image) == self.seen[one.image]]
            said = {path: s for path, s in said.items() if _stamp(path) == self.seen[path]}
            said |= self._sort(good)
        except InputError as error:
            gone = isinstance(error.__cause__, FileNotFoundError)
            if not gone and error.code not in (CHANGED, "unreadable"):
                raise
            return self._finish()  # a photo was taken away: the others have their turn next time
        entries = [_entry(path, self.seen[path], said[path]) for path in paths if path in said]
        self.ledger.add(entries)
        return entries

    def _sort(self, answers: Sequence[Prediction]) -> dict[str, LedgerEntry]:
        """What to enter for photos, which are sorted if that was asked for."""
        said = {
            a.image: {"label": a.label, "probability": round(a.probability, 6)} for a in answers
        }
        if self.out is not None and answers:
            done, _ = sort_photos(answers, self.out, self.action)
            said |= {one.source: _about(one) for one in done}
        return said

    def _finish(self) -> list[LedgerEntry]:
        """Enter photos that a process sorted before it was killed."""
        entries = []
        for one in finish_sorting(self.out, self.ledger.placed) if self.out else ():
            source, target = Path(one.source), Path(str(self.out), one.target)
            if self.inbox in source.parents:
                same = source.is_file() and sha256(source) == one.sha256
                found = _stamp(source if same else target)
                entries += [] if found is None else [_entry(one.source, found, _about(one))]
        if entries:
            self.ledger.add(entries)
        return entries


def _is_temporary(name: str) -> bool:
    """Whether a name is hidden, or one that a file has while it is written.

    >>> _is_temporary("robin.jpg.part"), _is_temporary(".robin.jpg"), _is_temporary("robin.jpg")
    (True, True, False)
    """
    return is_system(name) or name.lower().endswith(TEMPORARY)


def _stamp(path: str | Path) -> Stamp | None:
    """The state of a regular file; None if it is something else or is gone."""
    with suppress(OSError):
        found = os.lstat(path)
        if stat.S_ISREG(found.st_mode):
            return found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return None


def _entry(path: str, stamp: Stamp, said: LedgerEntry) -> LedgerEntry:
    return {"image": path, "size": stamp[0], "modified": stamp[1], **said}


def _about(one: Sorted) -> LedgerEntry:
    return {key: getattr(one, key) for key in ("label", "probability", "target", "sha256")}
