"""The page, its files, and a view of the OpenAPI document: all from this package, no other host."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles

FILES = Path(__file__).parent / "static"


def install(app: FastAPI) -> None:
    fresh = {"cache-control": "no-cache"}

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(FILES / "index.html", headers=fresh)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> FileResponse:
        return FileResponse(FILES / "docs.html", headers=fresh)

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon() -> Response:
        return FileResponse(FILES / "icon.svg", media_type="image/svg+xml")

    app.mount("/static", StaticFiles(directory=FILES))
