"""`/v1`: what programs, and the page, can ask for."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import FileResponse, JSONResponse, Response

from cala import __version__
from cala.app import sample, schemas
from cala.app.problems import Problem
from cala.app.schemas import photo_body
from cala.app.service import Service
from cala.app.settings import Settings, outward
from cala.app.uploads import LONGEST_NAME, TeachBody, read_request
from cala.files import shown
from cala.model.overview import described, settings_of
from cala.model.thumbnails import thumbnail

PAGE = 1000

Key = Annotated[str | None, Header(alias="Idempotency-Key")]
Offset = Annotated[int, Query(ge=0)]
Limit = Annotated[int, Query(ge=1, le=PAGE)]
Version = Annotated[int | None, Query(ge=1)]
Rate = Annotated[float | None, Query(description="Fraction of known photos to call unknown")]


def router(service: Service) -> APIRouter:
    refused: dict[int | str, Any] = {"4XX": schemas.REFUSED, "503": schemas.REFUSED}
    api = APIRouter(prefix="/v1", responses=refused)
    limits, label_body = service.limits, photo_body("name")

    @api.post("/predict", response_model=schemas.Predictions, openapi_extra=photo_body())
    async def predict(
        request: Request,
        top: Annotated[int, Query(ge=1, le=100)] = 5,
        unknown: Literal["on", "report", "off"] = "on",
        reject: Rate = None,
        similar: Annotated[int, Query(ge=0, le=12)] = 0,
    ) -> Any:
        """What photos show. Photos that cannot be read are under `errors`; the others are
        answered."""
        async with read_request(request, limits, limits.predict) as sent:
            how: dict[str, Any] = {"top": top, "unknown": unknown, "reject": reject}
            return await service.predict(sent.photos, **how, similar=similar)

    @api.post(
        "/evaluate", response_model=schemas.Evaluated, openapi_extra=photo_body(labelled=True)
    )
    async def evaluate(request: Request, reject: Rate = None) -> Any:
        """How well it does on labelled photos: files with one `labels` each, or a zip file
        `archive` with a folder for each class."""
        async with read_request(request, limits, limits.check) as sent:
            return await service.evaluate(sent, reject)

    @api.get("/classes", response_model=schemas.ClassList)
    async def classes(
        search: Annotated[str, Query(max_length=LONGEST_NAME)] = "",
        kind: Literal["known", "new"] | None = None,
        newest: bool = False,
        offset: Offset = 0,
        limit: Limit = 100,
    ) -> Any:
        """Classes in order of arrival, or the newest first."""
        snapshot = service.snapshot
        rows = [row for row in snapshot.found(search) if kind in (None, row["kind"])]
        if newest:
            rows.reverse()
        return {
            "version": snapshot.version,
            "total": len(snapshot.names),
            "found": len(rows),
            "classes": rows[offset : offset + limit],
        }

    @api.post(
        "/classes", response_model=schemas.Taught, status_code=201, openapi_extra=photo_body("name")
    )
    async def teach(request: Request, key: Key = None) -> Any:
        """A new class from a few photos: all of them are learned, or none."""
        async with read_request(request, limits, limits.teach, TeachBody) as sent:
            return _taught(*await service.teach(sent.photos, key, name=sent.name))

    @api.get("/classes/{id}", response_model=schemas.ClassDetail)
    async def one(id: str) -> Any:
        snapshot = service.snapshot
        column = snapshot.column(id)
        return {
            **snapshot.classes[column],
            "version": snapshot.version,
            "digests": snapshot.photos[column],
            "relatives": snapshot.relatives(column),
        }

    @api.post(
        "/classes/{id}/shots",
        response_model=schemas.Taught,
        status_code=201,
        openapi_extra=photo_body(),
    )
    async def more(id: str, request: Request, key: Key = None) -> Any:
        """More photos of a class."""
        async with read_request(request, limits, limits.teach) as sent:
            return _taught(*await service.teach(sent.photos, key, id=id))

    @api.post("/photos", response_model=schemas.Taught, status_code=201, openapi_extra=label_body)
    async def label(request: Request, key: Key = None) -> Any:
        """Photos of the class `name`, whether it exists or not. Photos that another class has
        learned move to it; a class that loses all of its photos is forgotten."""
        async with read_request(request, limits, limits.teach, TeachBody) as sent:
            return _taught(*await service.label(sent.photos, key, sent.name))

    @api.post("/reject", response_model=schemas.Changed, openapi_extra=photo_body())
    async def reject_photos(request: Request) -> Any:
        """Photos that show none of the classes, so that such photos are called unknown."""
        async with read_request(request, limits, limits.teach) as sent:
            return await service.reject(sent.photos)

    @api.delete("/classes/{id}/photos/{photo}", response_model=schemas.Changed)
    async def remove(id: str, photo: str) -> Any:
        """Remove one photo, given by its SHA-256, from a class."""
        return await service.forget(id, photo)

    @api.post("/classes/{id}/merge", response_model=schemas.Changed)
    async def merge(id: str, body: schemas.Merge) -> Any:
        """Move all photos of a class to another one."""
        return await service.merge(id, body.into)

    @api.get("/estimate", response_model=schemas.EstimateBody)
    async def estimate() -> Any:
        """What to expect on new photos, and which learned photos are doubtful."""
        return await service.estimate()

    @api.patch("/classes/{id}", response_model=schemas.Renamed)
    async def rename(id: str, body: schemas.Rename) -> Any:
        return await service.rename(id, body.name)

    @api.delete("/classes/{id}", response_model=schemas.Changed)
    async def forget(id: str) -> Any:
        return await service.forget(id)

    @api.post("/undo", response_model=schemas.Changed)
    async def undo(version: Version = None) -> Any:
        """Go back by one change; with `version` only if that is the present one."""
        return await service.step(True, version)

    @api.post("/redo", response_model=schemas.Changed)
    async def redo(version: Version = None) -> Any:
        """Take an undo back."""
        return await service.step(False, version)

    @api.get("/history", response_model=schemas.History)
    async def history(offset: Offset = 0, limit: Limit = 100) -> Any:
        """Changes, the newest first."""
        snapshot = service.snapshot
        lines = {e["version"]: _line(e, text) for e, text in described(list(snapshot.journal))}
        for line in lines.values():
            if line.get("of") in lines:  # what an undo or redo is about
                line["about"] = lines[line["of"]]
        part = [*reversed(lines.values())][offset : offset + limit]
        return {"version": snapshot.version, "total": len(lines), "changes": part}

    @api.get("/model", response_model=schemas.ModelInfo)
    async def model(request: Request) -> Any:
        snapshot = service.snapshot
        current = snapshot.model
        card = asdict(current.encoder)
        card["uri"] = re.split(r"[/\\]", card["uri"])[-1]  # paths of this machine are its own
        return {
            "name": shown(service.model.path.resolve().name),
            "version": snapshot.version,
            "classes": len(snapshot.names),
            "known": current.n_known,
            "new": len(snapshot.names) - current.n_known,
            "right": request.scope["cala.right"],
            "keeps_thumbnails": service.settings.thumbnails,
            "share": shared_at(request, service.settings),
            "refit_pays": current.refit_pays(),
            "sample": set(sample.CLASSES) <= set(snapshot.names),
            "can_undo": snapshot.present.undo > 0,
            "can_redo": snapshot.present.redo > 0,
            "encoder": card,
            "settings": settings_of(current),
            "notes": [note.text for note in current.notes],
            "limits": asdict(limits),
            "cala": __version__,
        }

    @api.patch("/model", response_model=schemas.Changed)
    async def tune(body: schemas.Tune) -> Any:
        """Move the operating point, or the rate at which photos are called unknown."""
        return await service.tune(**body.model_dump())

    @api.post("/refit", response_model=schemas.Changed)
    async def refit() -> Any:
        """Learn again from all photos, as if all classes had been there from the start."""
        return await service.refit()

    @api.get(
        "/thumbnails/{digest}",
        response_class=FileResponse,
        responses={200: {"content": {"image/jpeg": {}}}},
    )
    async def small(digest: str) -> Any:
        """The small copy of a photo that was learned, or sent a moment ago."""
        path = thumbnail(service.model.path, digest)
        cached = {"cache-control": "private, max-age=31536000, immutable"}
        # Copies of forgotten photos stay for undo, and are nobody's business until then.
        if digest not in service.snapshot.digests or not path.is_file():
            sent = service.encoder.recent.get(digest)
            if sent is not None and sent.small:
                return Response(sent.small, media_type="image/jpeg", headers=cached)
            detail, fix = "this photo has no small copy", "GET /v1/classes lists those that have"
            raise Problem("no_thumbnail", detail, fix, field="digest")
        return FileResponse(path, media_type="image/jpeg", headers=cached)

    return api


def shared_at(request: Request, settings: Settings) -> str | None:
    """Where other devices reach the service, for those who may teach and where it is shared."""
    if not settings.share or request.scope["cala.right"] != "teach":
        return None
    return f"http://{outward()}:{request.url.port or 80}"


def _taught(answer: dict[str, Any], fresh: bool) -> JSONResponse:
    replayed = {} if fresh else {"idempotency-replayed": "true"}
    return JSONResponse(answer, 201, headers=replayed)


def _line(entry: dict[str, Any], text: str) -> dict[str, Any]:
    """A change for people; digests and keys of requests stay in the journal."""
    left = {k: v for k, v in entry.items() if k not in ("sha256", "request", "annotation")}
    return {**left, "text": text}
