"""A model that is not there yet: photos of its first classes arrive, then it is made from them."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from cala.app.archive import labelled_members
from cala.app.problems import Problem, from_error, unexpected
from cala.app.settings import Settings
from cala.app.uploads import Sent, Upload, named, too_many
from cala.data.decoding import ImageError, decode_bytes
from cala.data.images import FilePixels, ImageSet, ImageSplit
from cala.errors import CalaError
from cala.files import counted, shown
from cala.model import Model
from cala.model.fitting import DEFAULT_ENCODER, fit
from cala.model.knowledge import check_name

LOG = logging.getLogger("cala.serve")
LONGEST_PLACE = 300
COLLECTING, LEARNING, READY = "collecting", "learning", "ready"


class Beginning:
    """Photos wait under numbers in a temporary folder; none of their own names is used there.

    ready : called with the model once it is made
    """

    def __init__(
        self,
        path: Path,
        settings: Settings,
        ready: Callable[[Model], Any],
        encoder: str | None = None,
        device: str = "cpu",
    ) -> None:
        self.path, self.settings, self.limits = path, settings, settings.limits
        self._ready, self._encoder, self._device = ready, encoder or DEFAULT_ENCODER, device
        self._worker = ThreadPoolExecutor(1, "cala-first")
        self._lock = threading.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.state = COLLECTING
        self.error: dict[str, Any] | None = None
        self._done = self._total = 0
        self._clear()

    def _clear(self) -> None:
        self._folder = tempfile.TemporaryDirectory(
            prefix="cala-photos-", ignore_cleanup_errors=True
        )
        self._paths: list[Path] = []
        self._names: list[str] = []
        self._labels: list[str] = []
        self._bytes = 0

    def said(self) -> dict[str, Any]:
        """How far it is."""
        with self._lock:
            return {
                "name": shown(self.path.name),
                "state": self.state,
                "photos": len(self._paths),
                "classes": dict(Counter(self._labels)),
                "done": self._done,
                "total": self._total,
                "error": self.error,
            }

    async def collect(self, sent: Sent) -> dict[str, Any]:
        """More photos of known classes: of the request itself, or of an archive in it."""
        self._check_collecting()
        self.error = None
        if sent.archive is not None:
            uploads: Iterable[Upload] = labelled_members(sent.archive, self.limits)
        else:
            uploads = sent.photos
        errors = await self._work(lambda: self._keep(uploads))
        return {**self.said(), "errors": errors}

    async def restart(self) -> dict[str, Any]:
        """Without the photos that have arrived."""
        self._check_collecting()

        def clear() -> None:
            with self._lock:
                self._folder.cleanup()
                self._clear()
                self.error = None

        await self._work(clear)
        return self.said()

    def learn(self) -> dict[str, Any]:
        """Make the model, in the background."""
        self._check_collecting()
        if len(set(self._labels)) < 2:
            raise Problem(
                422,
                "too_few_classes",
                f"there are photos of {counted(len(set(self._labels)), 'class')}",
                field="photos",
                fix="send photos of at least two classes to /v1/start/photos",
            )
        self.state, self.error = LEARNING, None
        task = asyncio.get_running_loop().create_task(self._learn())
        self._tasks.add(task)
        return self.said()

    async def _learn(self) -> None:
        try:
            model = await self._work(self._fit)
            await self._ready(model)
            self.state = READY
            self._folder.cleanup()
        except CalaError as error:
            self.state, self.error = COLLECTING, from_error(error).body()
        except Exception as error:
            self.state, self.error = COLLECTING, unexpected(error).body()

    def _fit(self) -> Model:
        classes = sorted(set(self._labels))
        place = {name: number for number, name in enumerate(classes)}
        labels = np.array([place[label] for label in self._labels], dtype=np.int64)
        pixels = FilePixels(tuple(self._paths), self.limits.pixels)
        nothing = ImageSplit(np.zeros(0, np.int64), (), FilePixels(()))
        photos = ImageSet(
            "folder",
            tuple(classes),
            ImageSplit(labels, tuple(self._names), pixels),
            nothing,
            Path("this set"),
            lambda: "",
        )
        return fit(
            photos,
            self.path,
            encoder=self._encoder,
            device=self._device,
            keep_thumbnails=self.settings.thumbnails,
            advance=self._advance,
        )

    def _advance(self, done: int, total: int) -> None:
        self._done, self._total = done, total

    def _keep(self, uploads: Iterable[Upload]) -> list[dict[str, Any]]:
        """What is wrong with photos that cannot be used; the others are kept."""
        errors = []
        for upload in uploads:
            try:
                if upload.data is None:
                    raise Problem(410, "photo_gone", "this photo was not sent", field=upload.field)
                label = check_name(named(upload.label, "labels"))
                decode_bytes(upload.data, _place(upload), self.limits.pixels)
            except Problem as problem:
                errors.append({"image": _place(upload), **problem.body()})
                continue
            except CalaError as error:
                field = upload.field if isinstance(error, ImageError) else "labels"
                errors.append({"image": _place(upload), **from_error(error, field).body()})
                continue
            if len(self._paths) == self.limits.check or self._bytes > self.limits.unpacked:
                raise too_many(self.limits.check)
            path = Path(self._folder.name, f"{len(self._paths):06d}")
            path.write_bytes(upload.data)
            with self._lock:
                self._paths.append(path)
                self._names.append(upload.name)
                self._labels.append(label)
                self._bytes += len(upload.data)
        return errors

    def _check_collecting(self) -> None:
        if self.state != COLLECTING:
            raise Problem(
                409, "learning", "the model is being made", fix="GET /v1/start says how far it is"
            )

    async def _work(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    async def close(self) -> None:
        """Finish the model, where one was asked for."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.to_thread(self._worker.shutdown)
        self._folder.cleanup()


def _place(upload: Upload) -> str:
    """Cameras number their photos anew in every folder, so the folder belongs to the name."""
    label = shown(upload.label)
    whole = upload.name if upload.name.startswith(f"{label}/") else f"{label}/{upload.name}"
    return whole[-LONGEST_PLACE:]
