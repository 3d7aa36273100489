"""Everything together: service, routes, page and the layers around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, Response

from cala import __version__
from cala.app import page, problems, routes
from cala.app.guard import Guard
from cala.app.limits import BodyLimit
from cala.app.metrics import Watching
from cala.app.problems import damaged
from cala.app.schemas import Health
from cala.app.service import Service
from cala.app.settings import Settings
from cala.model import Model


def create_app(model: Model, settings: Settings | None = None) -> FastAPI:
    """The service of one model, for any ASGI server. One process only: it is the one writer."""
    settings = settings or Settings()
    service = Service(model, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        following = asyncio.create_task(service.follow())
        try:
            yield
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
            await asyncio.to_thread(service.close)

    app = FastAPI(
        title="cala",
        version=__version__,
        description="Teach a frozen vision model new classes from a handful of photos.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    problems.install(app)
    app.include_router(routes.router(service))
    page.install(app)
    _watched(app, service)
    app.add_middleware(BodyLimit, limits=settings.limits)
    app.add_middleware(Guard, settings=settings)
    app.add_middleware(Watching, metrics=service.metrics)
    return app


def _watched(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", response_model=Health)
    async def alive() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @app.get("/readyz", response_model=Health)
    async def ready() -> dict[str, str]:
        """The model can be asked and taught."""
        if service.fault is not None:
            raise damaged()
        return {"status": "ready"}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Prometheus' text format."""
        now = service.metrics
        now.waiting.set(service.looker.waiting)
        now.classes.set(len(service.snapshot.names))
        now.version.set(service.snapshot.version)
        return Response(now.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
