"""What a request brings -> uploads in memory. Names of files are for messages, never for a disk."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from cala.app.problems import FORM, Problem, invalid, media_type, wrong_media_type
from cala.app.settings import Limits
from cala.files import shown

IMAGES = "images"
LONGEST_NAME = 200
JSON_MARKS = 100  # commas and brackets for each photo, names with many commas included
FORMS = "send multipart/form-data with files called 'images', or application/json"


def _whole_characters(text: str) -> str:
    text.encode()  # JSON can hold half of a character, which nothing can be written with
    return text


Text = Annotated[str, AfterValidator(_whole_characters)]
Name = Annotated[Text, Field(max_length=LONGEST_NAME)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class PhotoItem(BaseModel, extra="forbid", strict=True):
    """A photo in JSON: its data, or the id of one that was sent before."""

    data: str | None = Field(None, description="The file in base64")
    id: Digest | None = Field(None, description="SHA-256 of a photo that was sent before")
    name: Text = ""
    label: Text = Field("", description="For /v1/evaluate: its class")

    @model_validator(mode="after")
    def _one(self) -> PhotoItem:
        if (self.data is None) == (self.id is None):
            raise ValueError("give either data or id")
        return self


class PhotoBody(BaseModel, extra="forbid", strict=True):
    """The JSON body of a request that brings photos."""

    images: list[PhotoItem] = Field(min_length=1)


class TeachBody(PhotoBody):
    """The JSON body of a request that teaches a new class."""

    name: Name


@dataclass(frozen=True)
class Upload:
    """One photo of a request: its bytes, or the digest of a photo that was sent before.

    field : which part of the request it is; label : its class, where the request says so
    """

    name: str
    field: str
    digest: str
    data: bytes | None
    label: str = ""


@dataclass(frozen=True)
class Sent:
    """A request's photos and the name of their class, or a zip file of labelled photos."""

    photos: tuple[Upload, ...]
    name: str = ""
    archive: BinaryIO | None = None


@asynccontextmanager
async def read_request(
    request: Request, limits: Limits, most: int, body: type[PhotoBody] = PhotoBody
) -> AsyncIterator[Sent]:
    """multipart/form-data with files called `images`, or JSON with photos in base64.

    A zip file is taken where labelled photos are, that is with `most` = `limits.check`, and can be
    read until the block ends.
    """
    kind = media_type(request.headers)
    if kind == "application/json":
        yield await asyncio.to_thread(_from_json, await request.body(), limits, most, body)
        return
    if kind != FORM:
        raise wrong_media_type(kind, FORMS)
    form = await _form(request, most)
    try:
        yield await _from_form(form, limits, most, body)
    finally:
        await form.close()


def _from_json(data: bytes, limits: Limits, most: int, body: type[PhotoBody]) -> Sent:
    marks = sum(data.count(mark) for mark in (b",", b"[", b"{"))
    if marks > JSON_MARKS * most + 1000:  # nothing else can be done while JSON is being read
        raise bad("body", "the JSON holds far too many values", "see /docs for what this takes")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise bad("body", "the request is not JSON", "send a JSON object") from error
    if isinstance(found, dict) and isinstance(found.get(IMAGES), list):
        _check_count(found[IMAGES], most)
    checked = _checked(body, found)
    photos = [_from_item(one, f"{IMAGES}[{n}]", limits) for n, one in enumerate(checked.images)]
    return Sent(tuple(photos), getattr(checked, "name", ""))


def _checked(body: type[PhotoBody], found: Any) -> PhotoBody:
    try:
        return body.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        raise invalid(first, first["loc"]) from error


def _from_item(item: PhotoItem, place: str, limits: Limits) -> Upload:
    if item.id is not None:
        return Upload(_display(item.name, place), place, item.id, None, item.label)
    assert item.data is not None
    if len(item.data) > 4 * (limits.file // 3 + 1):
        raise _file_too_large(place, limits)
    try:
        data = base64.b64decode(item.data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise bad(f"{place}.data", "the data is not base64", "encode the file's bytes") from error
    return upload_of(data, item.name, place, limits, item.label)


class _TooManyParts(MultiPartException):
    pass


class _NotText(MultiPartException):
    pass


class _Parser(MultiPartParser):
    """Starlette's, which says only in words that there are too many parts, and guesses at text
    that is not in the form's character set: a class would get a name that nobody has given.
    """

    def on_part_begin(self) -> None:
        self.parts_left = getattr(self, "parts_left", self.max_files) - 1
        if self.parts_left < 0:
            raise _TooManyParts("too many parts")
        super().on_part_begin()

    def on_part_end(self) -> None:
        part = self._current_part
        if part.file is None:
            try:
                part.data.decode(self._charset)
            except UnicodeDecodeError as error:
                raise _NotText(part.field_name) from error
        super().on_part_end()


async def _form(request: Request, most: int) -> FormData:
    count = 2 * most + 20  # photos, a label for each, other fields
    limits = {"max_files": count, "max_fields": count, "max_part_size": 1 << 16}
    try:
        return await _Parser(request.headers, request.stream(), **limits).parse()
    except _TooManyParts as error:
        raise too_many(most) from error
    except _NotText as error:
        field = shown(error.message)[:100]
        raise bad(field, f"the text of '{field}' is not UTF-8", "send it in UTF-8") from error
    except (MultiPartException, ValueError, LookupError) as error:  # such as an odd character set
        detail = f"the form cannot be read ({shown(error)[:200]})"
        fix = "send multipart/form-data as browsers and curl -F do"
        raise Problem("bad_request", detail, fix, field="body") from error


async def _from_form(form: FormData, limits: Limits, most: int, body: type[PhotoBody]) -> Sent:
    files: list[UploadFile] = []
    labels: list[str] = []
    texts: dict[str, Any] = {}
    archive: BinaryIO | None = None
    for key, value in form.multi_items():
        if isinstance(value, str):
            texts[key] = value
            labels += [value] if key == "labels" else []
        elif key == IMAGES:
            files.append(value)
        elif key == "archive" and most == limits.check:
            archive = value.file
        else:
            key = shown(key)[:100]
            raise bad(key, f"there is a file called '{key}'", f"call photos '{IMAGES}'")
    _check_count(files, most)
    if archive is not None and files:
        raise bad("archive", "there are photos and an archive", "send one or the other")
    texts.pop("labels", None)
    stand_in = [{"id": "0" * 64}] if files or archive is not None else []
    checked = _checked(body, {**texts, IMAGES: stand_in})
    if labels and len(labels) != len(files):
        detail = f"there are {len(labels)} labels for {len(files)} photos"
        raise bad("labels", detail, "send one label for each photo, in the same order")
    photos: list[Upload] = []
    for place, (file, label) in enumerate(zip(files, labels or [""] * len(files), strict=True)):
        data = await file.read(limits.file + 1)
        await file.close()
        name, field = file.filename or "", f"{IMAGES}[{place}]"
        photos.append(await asyncio.to_thread(upload_of, data, name, field, limits, label))
    return Sent(tuple(photos), getattr(checked, "name", ""), archive)


def upload_of(data: bytes, name: str, place: str, limits: Limits, label: str = "") -> Upload:
    """A photo in memory; one that is too large is refused."""
    if len(data) > limits.file:
        raise _file_too_large(place, limits)
    return Upload(_display(name, place), place, hashlib.sha256(data).hexdigest(), data, label)


def _display(name: str, place: str) -> str:
    """A file's own name, without its folders, as one line."""
    return shown(re.split(r"[/\\]", name)[-1])[:LONGEST_NAME] or place


def _check_count(photos: Sequence[object], most: int) -> None:
    if len(photos) > most:
        raise too_many(most)


def too_many(most: int) -> Problem:
    detail = f"there are more than {most} photos"
    return Problem("too_many_files", detail, f"send at most {most} at a time", field=IMAGES)


def _file_too_large(place: str, limits: Limits) -> Problem:
    detail = f"the photo is larger than {limits.file >> 20} MB"
    return Problem("file_too_large", detail, "make it smaller, or leave it out", field=place)


def bad(field: str, detail: str, fix: str) -> Problem:
    return Problem("bad_value", detail, fix, field=field)
