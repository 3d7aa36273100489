"""Everything together: service, routes, page and the layers around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import FileResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from prometheus_client import generate_latest

from cala import __version__
from cala.app import problems, routes
from cala.app.label_studio import label_studio_router
from cala.app.middleware import BodyLimit, Guard, RequestMetrics
from cala.app.sample import TRIED, picture
from cala.app.schemas import REFUSED, Health, Samples
from cala.app.service import Service
from cala.app.settings import Settings
from cala.model import Model

FILES = Path(__file__).parent / "static"
ABOUT = "Teach a frozen vision model new classes from a handful of photos."


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

    app = bare_app(ABOUT, settings, lifespan)
    app.state.service = service
    app.include_router(routes.router(service))
    if settings.label_studio is not None:
        app.include_router(label_studio_router(service, settings.label_studio))

    @app.get("/readyz", response_model=Health)
    async def ready() -> dict[str, str]:
        """The model can be asked and taught."""
        if service.fault is not None:
            raise problems.damaged()
        return {"status": "ready"}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Prometheus' text format."""
        now = service.metrics
        now.waiting.set(service.encoder.waiting)
        now.classes.set(len(service.snapshot.names))
        now.version.set(service.snapshot.version)
        text = generate_latest(now.registry)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    app.add_middleware(RequestMetrics, metrics=service.metrics)
    return app


def bare_app(
    about: str,
    settings: Settings,
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]],
) -> FastAPI:
    """The page, its files, the layers around them and a sign of life: no other host is asked."""
    app = FastAPI(
        title="cala",
        version=__version__,
        description=about,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    problems.install_handlers(app)

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(FILES / "index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> FileResponse:
        return FileResponse(FILES / "docs.html")

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon() -> Response:
        return FileResponse(FILES / "icon.svg", media_type="image/svg+xml")

    @app.get("/healthz", response_model=Health)
    async def alive() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @app.get("/v1/samples", response_model=Samples)
    async def samples() -> dict[str, Any]:
        """Drawn pictures to try the service with."""
        return {"samples": [{"label": s[0], "url": f"/v1/samples/{s[0]}/{s[1]}"} for s in TRIED]}

    @app.get(
        "/v1/samples/{label}/{number}",
        response_class=Response,
        responses={200: {"content": {"image/jpeg": {}}}, "4XX": REFUSED},
    )
    async def drawn(label: str, number: int) -> Response:
        """A drawn picture."""
        if (label, number) not in TRIED:
            raise problems.Problem("not_found", "there is no such picture", "GET /v1/samples")
        return Response(picture(label, number), media_type="image/jpeg")

    app.mount("/static", StaticFiles(directory=FILES))
    app.add_middleware(BodyLimit, limits=settings.limits)
    app.add_middleware(Guard, settings=settings)
    return app
