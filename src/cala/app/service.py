"""Many readers, one writer.

Readers take the snapshot of the moment and never wait. All changes happen in one thread, one after
the other, through the store: a change is on the disk before the snapshot is exchanged, and the
snapshot is exchanged before the change is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from cala.app.answers import evaluation, predictions
from cala.app.archive import labelled_photos
from cala.app.idempotency import KnownRequests, RequestKey
from cala.app.middleware import Metrics
from cala.app.photo_encoder import Encoded, Photo, PhotoEncoder
from cala.app.problems import LOG, Problem, as_problem, damaged, without_path
from cala.app.settings import Settings
from cala.app.snapshot import Snapshot, pictures
from cala.app.uploads import Sent, Upload
from cala.errors import CalaError
from cala.files import stamp
from cala.model import Model
from cala.model.model import Added, check_limits
from cala.model.thumbnails import put_thumbnails
from cala.model.version import ModelVersion, check_name
from cala.store import Present
from cala.store.store import CURRENT

READERS = 2
PART, PART_BYTES = 4, 32 << 20  # of a large request, before others have their turn
EACH = 3.0  # seconds for each photo of a large request that teaches, while others have their turn
CHECKS = 2  # large requests at a time; others wait
POLL = 1.0  # seconds between looks at what other processes have changed

T = TypeVar("T")
PhotoError = dict[str, Any]


class Service:
    """One model: what can be asked of it, and how it is changed."""

    def __init__(self, model: Model, settings: Settings) -> None:
        self.model, self.settings, self.limits = model, settings, settings.limits
        self.metrics = Metrics()
        self.encoder = PhotoEncoder(
            model.encoder,
            model.current.encoder.tta,
            self.limits,
            settings.thumbnails,
            self.metrics.batches.observe,
        )
        self.known = KnownRequests()
        self.fault: str | None = None
        self._readers = ThreadPoolExecutor(READERS, "cala-reader")
        self._judges = ThreadPoolExecutor(CHECKS, "cala-judge")
        self._checking = asyncio.Semaphore(CHECKS)
        self._writer = ThreadPoolExecutor(1, "cala-writer")
        self._stamp = stamp(model.path / CURRENT)
        self.snapshot = Snapshot.read(model.store)

    # Questions

    async def predict(
        self,
        uploads: Sequence[Upload],
        *,
        top: int,
        unknown: str,
        reject: float | None,
        similar: int = 0,
    ) -> dict[str, Any]:
        """Answers to the photos that can be read, and what is wrong with the others."""
        check_limits(reject=reject)
        good, bad = await self.encoder.photos(uploads, self.limits.seconds)
        if not good:
            raise bad[0][1]
        snapshot = self.snapshot
        answers = await self._run(
            self._readers,
            lambda: predictions(
                snapshot, good, top=top, unknown=unknown, reject=reject, similar=similar
            ),
        )
        return {"version": snapshot.version, "predictions": answers, "errors": _errors(bad)}

    async def evaluate(self, sent: Sent, reject: float | None) -> dict[str, Any]:
        """Labelled photos, of the request itself or of an archive in it."""
        check_limits(reject=reject)
        async with self._checking:
            kept, errors = await self._encoded(labelled_photos(sent, self.limits))
            snapshot = self.snapshot
            judged = await self._run(self._judges, lambda: evaluation(snapshot, kept, reject))
        return {"version": snapshot.version, **judged, "errors": errors}

    async def estimate(self) -> dict[str, Any]:
        """What to expect on new photos, and which learned photos are doubtful."""
        snapshot = self.snapshot
        told = await self._run(self._judges, lambda: snapshot.estimate)
        return {"version": snapshot.version, **told}

    async def _encoded(self, uploads: Iterator[Upload]) -> tuple[list[Encoded], list[PhotoError]]:
        """Many photos, a few at a time; their bytes are dropped on the way."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.limits.check_seconds
        kept: list[Encoded] = []
        errors: list[PhotoError] = []
        while part := await self._run(self._judges, lambda: _part(uploads)):
            good, bad = await self.encoder.photos(part, max(deadline - clock(), 0.0), part=True)
            for _, problem in bad:
                if problem.code == "photo_gone":
                    raise problem  # it is to be sent again
            kept += [(replace(upload, data=None), photo) for upload, photo in good]
            errors += _errors(bad)
        if not kept:
            raise Problem("bad_image", "none of the photos can be read", field="images")
        return kept, errors

    # Changes

    async def teach(
        self, uploads: Sequence[Upload], key: str | None, *, name: str = "", id: str = ""
    ) -> tuple[dict[str, Any], bool]:
        """Photos of a new class, or more of the class with an id: the answer, and if it is new."""
        self._check_views()
        if not id:
            name = check_name(name)
        asked = RequestKey.of(key, name, id, [upload.digest for upload in uploads])
        before = self.known.find(asked, self.snapshot)
        if before is not None:  # whatever has become of its photos and its class meanwhile
            return before, False
        if id:
            self.snapshot.column(id)
        photos = await self._photos(uploads)
        return await self._write(lambda: self._teach(photos, asked, name, id))

    async def label(
        self, uploads: Sequence[Upload], key: str | None, name: str
    ) -> tuple[dict[str, Any], bool]:
        """Photos of a class that may be there or not; those of other classes move to it."""
        self._check_views()
        name = check_name(name)
        asked = RequestKey.of(key, name, "label", [upload.digest for upload in uploads])
        before = self.known.find(asked, self.snapshot)
        if before is not None:
            return before, False
        kept = self.snapshot.kept_rows
        learned = [(u, Photo(u.digest, kept[u.digest], b"")) for u in uploads if u.digest in kept]
        photos = await self._photos([upload for upload in uploads if upload.digest not in kept])
        both = learned + photos
        return await self._write(lambda: self._teach(both, asked, name, "", move=True))

    async def annotate(
        self, uploads: Sequence[Upload], change: Callable[[Sequence[Encoded]], object]
    ) -> None:
        """What another program says of photos: `change` writes it once they are encoded."""
        self._check_views()
        photos = await self._photos(uploads)

        def changed() -> None:
            change(photos)
            self._exchange()

        await self._write(changed)

    def _check_views(self) -> None:
        if self.model.current.encoder.shot_views:
            detail = "this model looks at several views of new photos, which the service does not"
            raise Problem("conflict", detail, "use `cala add`")

    async def _photos(self, uploads: Sequence[Upload]) -> list[Encoded]:
        """All of them; the first that cannot be used is a problem."""
        seconds = max(self.limits.seconds, EACH * len(uploads))
        photos, bad = await self.encoder.photos(uploads, seconds)
        if bad:
            raise bad[0][1]
        return photos

    def _teach(
        self,
        sent: list[Encoded],
        asked: RequestKey | None,
        name: str,
        id: str,
        move: bool = False,
    ) -> tuple[dict[str, Any], bool]:
        before = self.known.find(asked, self.snapshot)
        if before is not None:
            return before, False
        if id:
            name = self._name(id)
        elif move:
            name = self.snapshot.model.former.get(name, name)
        elif (now := self.snapshot.model.former.get(name, name)) in self.snapshot.column_of:
            raise self._taken(now)
        told: dict[str, Any] = {}

        def about(after: ModelVersion, added: Added) -> dict[str, Any]:
            version = self.snapshot.version + 1
            own = self.snapshot.photos.get(self.snapshot.column_of.get(name, -1), [])
            new = [photo.digest for photo in photos if photo.digest not in own]
            entry = {"version": version, "action": "add", "sha256": new}
            present = Present(version, (*self.snapshot.journal, entry), 0, 0)
            taught = Snapshot(after, present, self.snapshot.pictures)
            told.update(_taught(taught, name, added))
            return {} if asked is None else asked.entry(told)

        photos = [photo for _, photo in sent]
        copies = {photo.digest: photo.small for photo in photos if photo.small}
        added = self.model.learn(
            [upload.name for upload, _ in sent],
            [bytes.fromhex(photo.digest) for photo in photos],
            np.stack([photo.features for photo in photos]),
            [name] * len(photos),
            move=move,
            thumbnails=(lambda: put_thumbnails(self.model.path, copies)) if copies else None,
            about=about,
        )
        self._exchange()
        self.metrics.taught.inc(sum(added.photos.values()))
        answer = {**told, "version": added.version}
        self.known.keep(asked, answer)
        return answer, True

    def _taken(self, name: str) -> Problem:
        fix = "choose another name, or add the photos to that class"
        return Problem("class_exists", f"there is already a class '{name}'", fix, field="name")

    async def rename(self, id: str, name: str) -> dict[str, Any]:
        def change() -> dict[str, Any]:
            old, new = self._name(id), check_name(name)
            if new != old and new in self.snapshot.column_of:
                raise self._taken(new)
            if new != old:
                self._changed(lambda: self.model.rename(old, new))
            now = self.snapshot
            return {"version": now.version, "class": now.classes[now.column(id)]}

        return await self._write(change)

    async def forget(self, id: str, photo: str | None = None) -> dict[str, Any]:
        def change() -> object:
            return self.model.forget(self._name(id), photo=photo)

        return await self._write(lambda: self._changed(change))

    async def merge(self, id: str, into: str) -> dict[str, Any]:
        def change() -> object:
            return self.model.merge(self._name(id), self._name(into, "into"))

        return await self._write(lambda: self._changed(change))

    async def reject(self, uploads: Sequence[Upload]) -> dict[str, Any]:
        """Photos that show none of the classes."""
        photos = await self._photos(uploads)
        features = np.stack([photo.features for _, photo in photos])
        return await self._write(lambda: self._changed(lambda: self.model.reject_rows(features)))

    async def refit(self) -> dict[str, Any]:
        return await self._write(lambda: self._changed(self.model.refit))

    async def tune(self, **how: Any) -> dict[str, Any]:
        return await self._write(lambda: self._changed(lambda: self.model.tune(**how)))

    async def step(self, back: bool, version: int | None) -> dict[str, Any]:
        """Undo or redo; `version` is the one that the client believes to be the present one."""

        def change() -> dict[str, Any]:
            if version is not None and version != self.snapshot.version:
                detail = f"the model is at version {self.snapshot.version}, not {version}"
                fix = "look at GET /v1/history, then undo what is to be undone"
                raise Problem("changed_meanwhile", detail, fix, field="version")
            return self._changed(self.model.undo if back else self.model.redo)

        return await self._write(change)

    def _name(self, id: str, field: str = "id") -> str:
        return self.snapshot.names[self.snapshot.column(id, field)]

    def _changed(self, change: Callable[[], object]) -> dict[str, Any]:
        change()
        now = self._exchange()
        return {"version": now.version, "classes": len(now.names), "change": now.journal[-1]}

    def _exchange(self) -> Snapshot:
        """Show readers what was just changed; the store is held, so nobody has written since."""
        store = self.model.store
        with suppress(OSError):
            self._stamp = stamp(self.model.path / CURRENT)
        self.snapshot = Snapshot(self.model.current, store.present(), pictures(store))
        return self.snapshot

    # Other processes

    async def follow(self) -> None:
        """Take over what `cala add` and others do to the model while it is served."""
        while True:
            await asyncio.sleep(POLL)
            await self._run(self._writer, self._refresh)

    def _refresh(self) -> None:
        try:
            found = stamp(self.model.path / CURRENT)
            if found == self._stamp:
                self.fault = None
                return
            fresh = Snapshot.read(self.model.store)
            fresh.model.encoder.check_same(self.snapshot.model.encoder, self.model.path)
            self.model.current = fresh.model
            self._stamp, self.snapshot, self.fault = found, fresh, None
        except (CalaError, OSError) as error:
            if self.fault is None:
                LOG.error("the model on disk cannot be used: %s", error)
            self.fault = str(error)

    # Threads

    async def _run(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads, work)

    async def _write(self, work: Callable[[], T]) -> T:
        """In the writer's thread. A client that goes away does not stop what has begun."""
        changed = asyncio.get_running_loop().run_in_executor(self._writer, self._alone, work)
        return await asyncio.shield(changed)

    def _alone(self, work: Callable[[], T]) -> T:
        """What `work` looks up in the snapshot is what is on the disk, and stays so."""
        try:
            self._check_fault()
            with self.model.store.held():
                self._check_fault()
                return work()
        except CalaError as error:
            if error.code == "not_saved":
                LOG.error("the model cannot be changed: %s", error)
                detail = "the change could not be written, and the model is as it was"
                fix = "see the log of the service: permissions and free space of its disk"
                raise Problem("not_saved", detail, fix) from error
            raise without_path(as_problem(error), self.model.path) from error

    def _check_fault(self) -> None:
        self._refresh()
        if self.fault is not None:
            raise damaged()

    def close(self) -> None:
        """Finish what was accepted."""
        for threads in (self._writer, self._readers, self._judges):
            threads.shutdown()
        self.encoder.close()


def _part(uploads: Iterator[Upload]) -> list[Upload]:
    """The next few, bounded in number and in bytes."""
    part: list[Upload] = []
    held = 0
    for upload in uploads:
        part.append(upload)
        held += len(upload.data or b"")
        if len(part) == PART or held >= PART_BYTES:
            break
    return part


def _taught(after: Snapshot, name: str, added: Added) -> dict[str, Any]:
    """What was learned, and what it is close to."""
    column, classifier = after.column_of[name], after.model.classifier
    return {
        "id": after.ids[column],
        "name": name,
        "kind": after.model.kind_at(column),
        "photos": int(after.model.photos.counts()[classifier.head_.classes[column]]),
        "added": sum(added.photos.values()),
        "again": added.again,
        "beta": float(classifier.beta_[column]),
        "closest": [
            {k: one[k] for k in ("id", "name", "kind", "cosine")} for one in after.relatives(column)
        ],
        "alike": added.alike.get(name),
    }


def _errors(bad: Sequence[tuple[Upload, Problem]]) -> list[PhotoError]:
    return [{"image": upload.name, **problem.body()} for upload, problem in bad]
