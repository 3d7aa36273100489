"""Errors as the service tells them: RFC 9457 problem details with a code, a field and the fix."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from cala.data.decoding import ImageError
from cala.errors import CalaError, InputError, StateError
from cala.files import shown

LOG = logging.getLogger("cala.serve")
MEDIA_TYPE = "application/problem+json"
CODES = {
    400: "bad_request",
    401: "token_needed",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "too_slow",
    409: "conflict",
    413: "too_large",
    415: "wrong_media_type",
    422: "bad_value",
    503: "busy",
}


class Problem(HTTPException):
    """A request that is not granted.

    code : stable, for programs; field : which part of the request; fix : what to do about it
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        field: str | None = None,
        fix: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.code, self.field, self.fix = code, field, fix

    def body(self) -> dict[str, Any]:
        told = {
            "type": "about:blank",
            "title": self.code.replace("_", " "),
            "status": self.status_code,
            "detail": self.detail,
            "code": self.code,
            "field": self.field,
            "fix": self.fix,
        }
        return {name: value for name, value in told.items() if value is not None}

    def response(self) -> JSONResponse:
        return JSONResponse(
            self.body(), self.status_code, headers=self.headers, media_type=MEDIA_TYPE
        )


def busy(detail: str) -> Problem:
    return Problem(503, "busy", detail, fix="try again in a moment", headers={"retry-after": "1"})


def damaged() -> Problem:
    return Problem(
        503,
        "model_damaged",
        "the model on the disk is damaged or gone",
        fix="see the log of the service; `cala undo` on its machine may mend it",
    )


def unsaved() -> Problem:
    return Problem(
        503,
        "not_saved",
        "the change could not be written, and the model is as it was",
        fix="see the log of the service: rights and free space of its disk",
    )


def without_path(problem: Problem, path: Path) -> Problem:
    """Where the model lies on its machine is nobody's business."""
    for place in (str(path.resolve()), str(path)):
        problem.detail = problem.detail.replace(place, path.resolve().name)
        if problem.fix:
            problem.fix = problem.fix.replace(place, path.resolve().name)
    return problem


def from_error(error: CalaError, field: str | None = None) -> Problem:
    """An error of the model's as a problem; its message ends with the fix, after a colon."""
    detail, colon, fix = str(error).rpartition(": ")
    if not colon:
        detail, fix = str(error), ""
    status, code = 422, "bad_value"
    if isinstance(error, ImageError):
        code, detail, fix = "bad_image", str(error), "send a JPEG, PNG, WebP, BMP, GIF or TIFF"
    elif isinstance(error, StateError):
        status, code = 409, "not_possible_now"
    elif not isinstance(error, InputError):
        status, code = 500, "internal"
    return Problem(status, code, detail, field=field, fix=fix or None)


def install(app: FastAPI) -> None:
    """Every error leaves as a problem, those of the framework too."""

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        if isinstance(error, Problem):
            return error.response()
        code = CODES.get(error.status_code, "error")
        return Problem(error.status_code, code, str(error.detail), headers=error.headers).response()

    @app.exception_handler(ClientDisconnect)
    async def _gone(request: Request, error: ClientDisconnect) -> JSONResponse:
        return Problem(400, "bad_request", "the request has no end", field="body").response()

    @app.exception_handler(CalaError)
    async def _cala(request: Request, error: CalaError) -> JSONResponse:
        return from_error(error).response()

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if first["loc"] == ("body",) and kind != "application/json":
            return Problem(
                415,
                "wrong_media_type",
                f"the request is '{shown(kind)[:100]}'",
                field="Content-Type",
                fix="send JSON, with the header 'Content-Type: application/json'",
            ).response()
        where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
        return Problem(
            422,
            "bad_value",
            f"{where}: {first['msg']}",
            field=where,
            fix="see /docs for what this request takes",
        ).response()

    @app.exception_handler(Exception)
    async def _unexpected(request: Request, error: Exception) -> JSONResponse:
        return unexpected(error).response()


def unexpected(error: Exception) -> Problem:
    """An error of ours: the log has the details, the client does not."""
    LOG.error("an error of the service itself", exc_info=error)
    return Problem(
        500, "internal", "the service made a mistake", fix="see its log, and report what it says"
    )
