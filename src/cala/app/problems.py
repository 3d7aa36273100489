"""Errors as the service answers them: RFC 9457 problem details with a code, a field and the fix."""

from __future__ import annotations

import errno
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic_core import ErrorDetails
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from cala.data.decoding import ImageError
from cala.data.formats import FORMATS
from cala.errors import CalaError, InputError, StateError
from cala.files import shown

LOG = logging.getLogger("cala.serve")
MEDIA_TYPE, FORM = "application/problem+json", "multipart/form-data"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
CODES = {
    400: ("bad_request",),
    401: ("token_needed",),
    403: ("forbidden", "read_only", "cross_origin"),
    404: ("not_found", "no_such_class", "no_thumbnail"),
    405: ("method_not_allowed",),
    408: ("too_slow",),
    409: (
        *("conflict", "not_possible_now", "class_exists", "key_reused", "changed_meanwhile"),
        "learning",
    ),
    410: ("photo_gone",),
    413: ("too_large", "file_too_large", "too_many_files"),
    415: ("wrong_media_type",),
    421: ("wrong_host",),
    422: ("bad_value", "bad_image", "bad_archive", "too_few_classes", "not_fetched"),
    500: ("internal",),
    503: ("busy", "no_model", "model_damaged", "not_saved", "no_space"),
}
STATUS = {code: status for status, codes in CODES.items() for code in codes}


class Problem(CalaError):
    """A request that is refused; its status follows from `code`, which is stable for programs."""

    def __init__(
        self,
        code: str,
        detail: str,
        fix: str | None = None,
        *,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail, fix, field=field, code=code)
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        told = {
            "type": "about:blank",
            "title": self.code.replace("_", " "),
            "status": STATUS[self.code],
            "detail": self.detail,
            "code": self.code,
            "field": self.field,
            "fix": self.fix,
        }
        return {name: value for name, value in told.items() if value is not None}

    def response(self) -> JSONResponse:
        status = STATUS[self.code]
        return JSONResponse(self.body(), status, headers=self.headers, media_type=MEDIA_TYPE)


def busy(detail: str) -> Problem:
    return Problem("busy", detail, "try again in a moment", headers={"retry-after": "1"})


def damaged() -> Problem:
    fix = "see the log of the service; `cala undo` on its machine may repair it"
    return Problem("model_damaged", "the model on the disk is damaged or gone", fix)


def unexpected(error: Exception) -> Problem:
    """An error of ours: the log has the details, the client does not."""
    LOG.error("an error of the service itself", exc_info=error)
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        detail = "the service is out of disk space, memory or open files"
        return Problem("no_space", detail, "see the log of the service")
    return Problem(
        "internal", "internal error", "see the log of the service, and report what it says"
    )


def as_problem(error: CalaError, field: str | None = None) -> Problem:
    """An error of the model as a problem."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, ImageError):
        return Problem("bad_image", error.detail, f"send a {', '.join(FORMATS)}", field=field)
    code = "bad_value" if isinstance(error, InputError) else "internal"
    if isinstance(error, StateError):
        code = "not_possible_now"
    if error.code == "two_labels":
        field = "images"
    return Problem(code, error.detail, error.fix, field=field or error.field)


def without_path(problem: Problem, path: Path) -> Problem:
    """Strip the model's path on its machine from a problem."""
    for place in (str(path.resolve()), str(path)):
        problem.detail = problem.detail.replace(place, path.resolve().name)
        if problem.fix:
            problem.fix = problem.fix.replace(place, path.resolve().name)
    return problem


def invalid(first: ErrorDetails, loc: tuple[int | str, ...]) -> Problem:
    """What pydantic says of a value at `loc`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    where = shown("".join(parts).removeprefix("."))[:100] or "body"
    fix = "see /docs for what this request takes"
    return Problem("bad_value", f"{where}: {first['msg']}", fix, field=where)


def wrong_media_type(kind: str, fix: str) -> Problem:
    detail = f"the request is '{shown(kind)[:100]}'"
    return Problem("wrong_media_type", detail, fix, field="Content-Type")


def media_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def install_handlers(app: FastAPI) -> None:
    """Every error leaves as a problem, those of the framework too."""

    @app.exception_handler(CalaError)
    async def _cala(request: Request, error: CalaError) -> JSONResponse:
        return as_problem(error).response()

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        if isinstance(error.__cause__, CalaError):  # raised while the framework read the body
            return as_problem(error.__cause__).response()
        code = CODES.get(error.status_code, ("bad_request",))[0]
        return Problem(code, str(error.detail), headers=error.headers).response()

    @app.exception_handler(ClientDisconnect)
    async def _gone(request: Request, error: ClientDisconnect) -> JSONResponse:
        return Problem("bad_request", "the request body is incomplete", field="body").response()

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        kind = media_type(request.headers)
        if first["loc"] == ("body",) and kind != "application/json":
            fix = "send JSON, with the header 'Content-Type: application/json'"
            return wrong_media_type(kind, fix).response()
        return invalid(first, first["loc"][1:] or first["loc"]).response()
