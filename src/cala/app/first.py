"""The service before there is a model: it takes photos of the first classes, then steps aside."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from cala import __version__
from cala.app import page, problems
from cala.app.beginning import Beginning
from cala.app.factory import create_app
from cala.app.guard import Guard
from cala.app.limits import BodyLimit
from cala.app.problems import Problem
from cala.app.schemas import Collected, Health, Start, photo_body
from cala.app.settings import Settings
from cala.app.uploads import check_fields, labelled, read_request, some
from cala.model import Model

START = "/v1/start"  # goes on to say that the model is ready


class FirstTime:
    """An ASGI application: that of a model once there is one, until then one that asks for it."""

    def __init__(
        self, path: Path, settings: Settings, encoder: str | None = None, device: str = "cpu"
    ) -> None:
        self.settings = settings
        self.beginning = Beginning(path, settings, self._ready, encoder, device)
        self._model_app: FastAPI | None = None
        self._open = AsyncExitStack()
        self._first = self._first_app()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app: ASGIApp = self._first
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
            await self.beginning.close()
            await self._open.aclose()

    def _first_app(self) -> FastAPI:
        app = FastAPI(
            title="cala",
            version=__version__,
            description="There is no model yet: it is made from photos of its first classes.",
            docs_url=None,
            redoc_url=None,
            lifespan=self._lifespan,
        )
        problems.install(app)
        page.install(app)
        self._routes(app)
        app.add_middleware(BodyLimit, limits=self.settings.limits)
        app.add_middleware(Guard, settings=self.settings)
        return app

    def _routes(self, app: FastAPI) -> None:
        beginning, limits = self.beginning, self.settings.limits

        @app.get("/healthz", response_model=Health)
        async def alive() -> dict[str, str]:
            """The process answers."""
            return {"status": "ok"}

        @app.get(START, response_model=Start)
        async def start(request: Request) -> Any:
            """The photos that have arrived, and how far the model is."""
            right = request.scope.get("cala.right", "teach")
            return {**beginning.said(), "right": right}

        body = photo_body(labelled=True)

        @app.post("/v1/start/photos", response_model=Collected, openapi_extra=body)
        async def photos(request: Request) -> Any:
            """Photos of the first classes, with one `labels` each, or a zip file `archive`."""
            sent = await read_request(request, limits, limits.check)
            try:
                check_fields(sent, (), archive=True)
                if sent.archive is None:
                    for upload in some(sent.photos):
                        labelled(upload)
                return await beginning.collect(sent)
            finally:
                await request.close()

        @app.delete("/v1/start/photos", response_model=Start)
        async def restart() -> Any:
            """Leave out all photos that have arrived."""
            return await beginning.restart()

        @app.post(START, response_model=Start, status_code=202)
        async def learn() -> Any:
            """Make the model from the photos that have arrived; takes minutes."""
            return beginning.learn()

        @app.get("/readyz", include_in_schema=False)
        @app.get("/metrics", include_in_schema=False)
        @app.api_route(
            "/v1/{rest:path}", methods=["GET", "POST", "PATCH", "DELETE"], include_in_schema=False
        )
        async def nothing_yet(rest: str = "") -> Any:
            raise Problem(
                503,
                "no_model",
                "there is no model yet",
                fix="send photos of its first classes to /v1/start/photos, or use the page",
            )
