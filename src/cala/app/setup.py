"""The service before there is a model: it collects photos of the first classes and makes one."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Query, Request
from filelock import FileLock, Timeout
from starlette.types import ASGIApp, Receive, Scope, Send

from cala.app.archive import labelled_photos
from cala.app.decoders import DECODER_PROCESSES
from cala.app.factory import bare_app, create_app
from cala.app.problems import Problem, as_problem, unexpected
from cala.app.routes import shared_at
from cala.app.sample import pictures
from cala.app.schemas import Collected, Start, photo_body
from cala.app.settings import Limits, Settings
from cala.app.uploads import LONGEST_NAME, Sent, Upload, bad, read_request, too_many
from cala.data.decoding import ImageError
from cala.data.images import FilePixels, ImageSet, ImageSplit
from cala.errors import CalaError
from cala.files import counted, shown
from cala.model import Model
from cala.model.fitting import DEFAULT_ENCODER, fit
from cala.model.version import check_name

LONGEST_PLACE = 300
START = "/v1/start"  # goes on to say that the model is ready
PREFIX, LOCK = "cala-photos-", ".lock"  # of the temporary folder, and of the file in it
COLLECTING, LEARNING, READY = "collecting", "learning", "ready"

Make = Callable[..., Model]


class SetupJob:
    """Photos wait under numbers in a temporary folder; none of their own names is used there.

    make : makes the model `name` from photos, as `cala.fit` does; ready : is called with it
    """

    def __init__(
        self, name: str, limits: Limits, make: Make, ready: Callable[[Model], Awaitable[None]]
    ) -> None:
        self.name, self.limits, self._make, self._ready = name, limits, make, ready
        self._worker = ThreadPoolExecutor(1, "cala-setup")
        self._task: asyncio.Task[None] | None = None
        self.state = COLLECTING
        self._progress = (0, 0)
        _drop_abandoned()
        self._clear()

    def _clear(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
        self._lock = FileLock(Path(self._folder.name, LOCK))  # as long as this process lives
        self._lock.acquire()
        self._photos: list[tuple[Path, str, str]] = []  # path, name, label
        self._bytes = self._number = 0
        self.error: dict[str, Any] | None = None

    def status(self) -> dict[str, Any]:
        """How far it is."""
        photos = list(self._photos)
        return {
            "name": shown(self.name),
            "state": self.state,
            "photos": len(photos),
            "classes": dict(Counter(label for _, _, label in photos)),
            "done": self._progress[0],
            "total": self._progress[1],
            "error": self.error,
        }

    async def collect(self, sent: Sent) -> dict[str, Any]:
        """Take more photos of known classes: of the request itself, or of an archive in it."""
        self._check_collecting()
        self.error = None
        errors = await self._work(lambda: self._keep(labelled_photos(sent, self.limits)))
        return {**self.status(), "errors": errors}

    async def restart(self, label: str | None = None) -> dict[str, Any]:
        """Drop the photos that have arrived, or those of one class."""
        self._check_collecting()

        def clear() -> None:  # in the worker, before a start that is asked for meanwhile
            if label is not None:
                self._photos = [photo for photo in self._photos if photo[2] != label]
                return
            self._drop()
            self._clear()

        await self._work(clear)
        return self.status()

    async def sample(self) -> dict[str, Any]:
        """Make a model from drawn pictures; photos that have arrived are not thrown away."""
        self._check_collecting()
        if self._photos:
            detail = f"there are {counted(len(self._photos), 'photo')} of your own"
            fix = "learn from them with POST /v1/start, or DELETE /v1/start/photos first"
            raise Problem("conflict", detail, fix, field="photos")
        drawn = await self._work(pictures)
        uploads = [
            Upload(name, "sample", hashlib.sha256(data).hexdigest(), data, label)
            for label, name, data in drawn
        ]
        await self._work(lambda: self._keep(uploads))
        return self.learn()

    def learn(self) -> dict[str, Any]:
        """Make the model, in the background."""
        self._check_collecting()
        self._check_classes()
        self.state, self.error = LEARNING, None
        self._task = asyncio.create_task(self._learn())
        return self.status()

    def _check_classes(self) -> None:
        count = len({label for _, _, label in self._photos})
        if count < 2:
            detail = f"there are photos of {counted(count, 'class')}"
            fix = "send photos of at least two classes to /v1/start/photos"
            raise Problem("too_few_classes", detail, fix, field="photos")

    async def _learn(self) -> None:
        try:
            await self._ready(await self._work(self._fit))
            self.state = READY
            self._drop()
        except Exception as error:
            problem = as_problem(error) if isinstance(error, CalaError) else unexpected(error)
            self.state, self.error = COLLECTING, problem.body()

    def _fit(self) -> Model:
        self._check_classes()  # they may have been dropped since it was asked for
        paths, names, labels = zip(*self._photos, strict=True)
        classes, numbers = np.unique(labels, return_inverse=True)
        pixels = FilePixels(paths, self.limits.pixels)
        photos = ImageSet(
            "folder",
            tuple(classes.tolist()),
            ImageSplit(numbers.astype(np.int64), names, pixels),
            ImageSplit(np.zeros(0, np.int64), (), FilePixels(())),
            Path("this set"),
            lambda: "",
        )
        return self._make(photos, advance=self._advance)

    def _advance(self, done: int, total: int) -> None:
        self._progress = (done, total)

    def _keep(self, uploads: Iterable[Upload]) -> list[dict[str, Any]]:
        """Keep the photos that can be used; return what is wrong with the others."""
        errors = []
        for upload in uploads:
            try:
                if upload.data is None:
                    raise Problem("photo_gone", "this photo was not sent", field=upload.field)
                if len(upload.label) > LONGEST_NAME:
                    raise bad("labels", "the label is too long", f"{LONGEST_NAME} at most")
                label = check_name(upload.label)
                DECODER_PROCESSES.decode(upload.data, _place(upload), self.limits.pixels)
            except CalaError as error:
                field = upload.field if isinstance(error, ImageError) else "labels"
                errors.append({"image": _place(upload), **as_problem(error, field).body()})
                continue
            if len(self._photos) == self.limits.check or self._bytes > self.limits.unpacked:
                raise too_many(self.limits.check)
            self._number += 1
            path = Path(self._folder.name, f"{self._number:06d}")
            path.write_bytes(upload.data)
            self._photos.append((path, upload.name, label))
            self._bytes += len(upload.data)
        return errors

    def _check_collecting(self) -> None:
        if self.state != COLLECTING:
            fix = "GET /v1/start says how far it is"
            raise Problem("learning", "the model is being made", fix)

    async def _work(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    async def close(self) -> None:
        """Finish the model, where one was asked for."""
        if self._task is not None:
            await asyncio.wait([self._task])
        await asyncio.to_thread(self._worker.shutdown)
        self._drop()

    def _drop(self) -> None:
        self._lock.release()
        self._folder.cleanup()


def _drop_abandoned() -> None:
    """Delete the photos of services that were killed before they had a model."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        lock = FileLock(folder / LOCK, timeout=0)
        with suppress(OSError, Timeout):  # other users' folders, and those in use
            if folder.is_symlink() or not (folder / LOCK).is_file():
                continue
            lock.acquire()
            lock.release()
            shutil.rmtree(folder)


def _place(upload: Upload) -> str:
    """Cameras number their photos anew in every folder, so the folder belongs to the name."""
    label = shown(upload.label)
    whole = upload.name if upload.name.startswith(f"{label}/") else f"{label}/{upload.name}"
    return whole[-LONGEST_PLACE:]


class SetupApp:
    """An ASGI application: that of a model once there is one, until then one that asks for it."""

    def __init__(
        self,
        path: Path,
        settings: Settings,
        encoder: str = DEFAULT_ENCODER,
        device: str = "cpu",
        engine: str = "auto",
    ) -> None:
        self.settings = settings
        keep = settings.thumbnails
        how: dict[str, Any] = {"encoder": encoder, "device": device, "engine": engine}
        make = partial(fit, out=path, keep_thumbnails=keep, **how)
        self.job = SetupJob(path.name, settings.limits, make, self._ready)
        self._model_app: FastAPI | None = None
        self._open = AsyncExitStack()
        about = "There is no model yet: it is made from photos of its first classes."
        self._setup = bare_app(about, settings, self._lifespan)
        _routes(self._setup, self.job, settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app: ASGIApp = self._setup
        if self._model_app is not None and scope["type"] == "http" and scope["path"] != START:
            app = self._model_app
        await app(scope, receive, send)

    async def _ready(self, model: Model) -> None:
        app = create_app(model, self.settings)
        await self._open.enter_async_context(app.router.lifespan_context(app))
        self._model_app = app

    @asynccontextmanager
    async def _lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await self.job.close()
            await self._open.aclose()


def _routes(app: FastAPI, job: SetupJob, settings: Settings) -> None:
    @app.get(START, response_model=Start)
    async def start(request: Request) -> Any:
        """The photos that have arrived, and how far the model is."""
        share = shared_at(request, settings)
        return {**job.status(), "right": request.scope["cala.right"], "share": share}

    body = photo_body(labelled=True)

    @app.post("/v1/start/photos", response_model=Collected, openapi_extra=body)
    async def photos(request: Request) -> Any:
        """Photos of the first classes, with one `labels` each, or a zip file `archive`."""
        async with read_request(request, job.limits, job.limits.check) as sent:
            return await job.collect(sent)

    @app.delete("/v1/start/photos", response_model=Start)
    async def restart(
        label: Annotated[str | None, Query(max_length=LONGEST_NAME)] = None,
    ) -> Any:
        """Remove all photos that have arrived, or those of one class."""
        return await job.restart(label)

    @app.post("/v1/start/sample", response_model=Start, status_code=202)
    async def sample() -> Any:
        """Make the model from drawn pictures, to try the page with."""
        return await job.sample()

    @app.post(START, response_model=Start, status_code=202)
    async def learn() -> Any:
        """Make the model from the photos that have arrived; takes minutes."""
        return job.learn()

    @app.get("/readyz", include_in_schema=False)
    @app.get("/metrics", include_in_schema=False)
    @app.api_route(
        "/v1/{rest:path}", methods=["GET", "POST", "PATCH", "DELETE"], include_in_schema=False
    )
    async def nothing_yet(rest: str = "") -> Any:
        fix = "send photos of its first classes to /v1/start/photos, or use the page"
        raise Problem("no_model", "there is no model yet", fix)
