"""What a request brings -> uploads in memory. Names of files are for messages, never for a disk."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from cala.app.problems import Problem
from cala.app.settings import Limits
from cala.files import shown
from cala.model.knowledge import plain_name

IMAGES = "images"
LONGEST_NAME = 200
DIGEST = re.compile(r"[0-9a-f]{64}")
JSON_MARKS = 100  # commas and brackets for each photo, names with many commas included
JSON_KEYS = {"id", "data", "name", "label"}


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
    """A request's photos and its other fields; `archive` is a zip file of labelled photos."""

    photos: tuple[Upload, ...]
    fields: dict[str, str]
    archive: Any = None


async def read_request(request: Request, limits: Limits, most: int) -> Sent:
    """multipart/form-data with files called `images`, or JSON with photos in base64."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        body = await _json_body(request, limits)
        return await asyncio.to_thread(_from_json, body, limits, most)
    if kind == "multipart/form-data":
        try:
            return await _from_form(await _form(request, most), limits, most)
        except BaseException:
            await request.close()
            raise
    raise Problem(
        415,
        "wrong_media_type",
        f"the request is '{shown(kind)[:100]}'",
        field="Content-Type",
        fix="send multipart/form-data with files called 'images', or application/json",
    )


async def _json_body(request: Request, limits: Limits) -> bytes:
    """Base64 needs all of it in memory at once, so it is never as large as an archive may be."""
    if int(request.headers.get("content-length", "0")) > limits.body:
        raise _json_too_large(limits)
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > limits.body:
            raise _json_too_large(limits)
    return b"".join(parts)


def _json_too_large(limits: Limits) -> Problem:
    return Problem(
        413,
        "too_large",
        f"the JSON is larger than {limits.body >> 20} MB",
        field="body",
        fix="send fewer photos at a time, or multipart/form-data",
    )


async def _form(request: Request, most: int) -> FormData:
    try:
        return await request.form(max_files=most + 1, max_fields=most + 20, max_part_size=1 << 16)
    except Problem:
        raise
    except HTTPException as error:
        if "Too many" in str(error.detail):
            raise too_many(most) from error
        raise Problem(
            400,
            "bad_request",
            f"the form cannot be read ({shown(error.detail)[:200]})",
            field="body",
            fix="send multipart/form-data as browsers and curl -F do",
        ) from error
    except (ValueError, LookupError) as error:  # such as a character set that does not exist
        raise Problem(
            400,
            "bad_request",
            "the form cannot be read",
            field="body",
            fix="send multipart/form-data as browsers and curl -F do",
        ) from error


async def _from_form(form: FormData, limits: Limits, most: int) -> Sent:
    photos: list[Upload] = []
    labels: list[str] = []
    fields: dict[str, str] = {}
    archive = None
    for key, value in form.multi_items():
        if isinstance(value, UploadFile) and key == IMAGES:
            place = f"{IMAGES}[{len(photos)}]"
            if len(photos) == most:
                raise too_many(most)
            data = await value.read(limits.file + 1)
            await value.close()
            name = value.filename or ""
            photos.append(await asyncio.to_thread(_upload, data, name, place, limits))
        elif isinstance(value, UploadFile) and key == "archive" and archive is None:
            archive = value.file
        elif isinstance(value, UploadFile):
            raise Problem(
                422,
                "bad_value",
                f"there is a file called '{shown(key)[:100]}'",
                field=shown(key)[:100],
                fix=f"call photos '{IMAGES}'",
            )
        elif key == "labels":
            labels.append(value)
        else:
            fields[key] = value
    if labels and len(labels) != len(photos):
        raise Problem(
            422,
            "bad_value",
            f"there are {len(labels)} labels for {len(photos)} photos",
            field="labels",
            fix="send one label for each photo, in the same order",
        )
    if labels:
        photos = [_labelled(one, label) for one, label in zip(photos, labels, strict=True)]
    return Sent(tuple(photos), fields, archive)


def _from_json(body: bytes, limits: Limits, most: int) -> Sent:
    marks = sum(body.count(mark) for mark in (b",", b"[", b"{"))
    if marks > JSON_MARKS * most + 1000:  # nothing else can be done while JSON is being read
        raise _bad("body", "the JSON holds far too many values", "see /docs for what this takes")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _bad("body", "the request is no JSON", "send a JSON object") from error
    if not isinstance(found, dict):
        raise _bad("body", "the request is no JSON object", 'send {"images": [{"data": "…"}]}')
    given = found.pop(IMAGES, [])
    if not isinstance(given, list):
        raise _bad(IMAGES, "images is no list", 'send [{"data": "…"}]')
    if len(given) > most:
        raise too_many(most)
    photos = tuple(_one(item, f"{IMAGES}[{place}]", limits) for place, item in enumerate(given))
    wrong = next((key for key, value in found.items() if not isinstance(value, str)), None)
    if wrong is not None:
        raise _bad(shown(wrong)[:100], f"{shown(wrong)[:100]} is no text", "send a string")
    return Sent(photos, found)


def _one(item: object, place: str, limits: Limits) -> Upload:
    how = 'send {"data": BASE64} or {"id": SHA-256 OF A PHOTO SENT BEFORE}'
    if not isinstance(item, dict) or not all(isinstance(v, str) for v in item.values()):
        raise _bad(place, "a photo is no object of strings", how)
    if ("data" in item) == ("id" in item) or not set(item) <= JSON_KEYS:
        raise _bad(place, f"a photo has {shown(sorted(item))[:200]}", how)
    name, label = item.get("name", ""), item.get("label", "")
    if "id" in item:
        if not DIGEST.fullmatch(item["id"]):
            raise _bad(f"{place}.id", "the id is no SHA-256", "send the id that an answer gave")
        return Upload(_display(name, place), place, item["id"], None, label)
    if len(item["data"]) > 4 * (limits.file // 3 + 1):
        raise _file_too_large(place, limits)
    try:
        data = base64.b64decode(item["data"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise _bad(f"{place}.data", "the data is no base64", "encode the file's bytes") from error
    return _labelled(_upload(data, name, place, limits), label)


def _upload(data: bytes, name: str, place: str, limits: Limits) -> Upload:
    if len(data) > limits.file:
        raise _file_too_large(place, limits)
    return Upload(_display(name, place), place, hashlib.sha256(data).hexdigest(), data)


def _labelled(upload: Upload, label: str) -> Upload:
    return Upload(upload.name, upload.field, upload.digest, upload.data, label)


def _display(name: str, place: str) -> str:
    """A file's own name, without its folders, as one line."""
    return shown(re.split(r"[/\\]", name)[-1])[:LONGEST_NAME] or place


def some(photos: Sequence[Upload]) -> Sequence[Upload]:
    """At least one photo, or a problem."""
    if not photos:
        raise _bad(IMAGES, "there is no photo", f"send at least one file called '{IMAGES}'")
    return photos


def check_fields(sent: Sent, texts: Sequence[str], *, archive: bool) -> None:
    """A request brings the texts that it should, and no others."""
    strange = sorted(set(sent.fields) - set(texts))
    lacking = sorted(set(texts) - set(sent.fields))
    if strange or (sent.archive is not None and not archive):
        what = shown(strange[0])[:100] if strange else "archive"
        raise _bad(what, f"there is no field '{what}'", "see /docs for what this takes")
    if lacking:
        raise _bad(lacking[0], f"{lacking[0]} is missing", f"send '{lacking[0]}' too")
    if sent.archive is not None and sent.photos:
        raise _bad("archive", "there are photos and an archive", "send one or the other")


def named(name: str, field: str = "name") -> str:
    """A name of a class that can be shown and written."""
    if len(name) > LONGEST_NAME:
        raise _bad(field, f"the name has {len(name)} characters", f"{LONGEST_NAME} at the most")
    if any(0xD800 <= ord(c) < 0xE000 for c in name):
        raise _bad(field, "the name holds half a character", "send it in UTF-8")
    return name


def labelled(upload: Upload) -> Upload:
    """An upload that says what it shows, or a problem."""
    if not plain_name(upload.label):
        raise _bad(
            upload.field,
            f"{upload.name} has no label",
            "send one 'labels' for each photo, or a label in each JSON object",
        )
    return upload


def too_many(most: int) -> Problem:
    return Problem(
        413,
        "too_many_files",
        f"there are more than {most} photos",
        field=IMAGES,
        fix=f"send at most {most} at a time",
    )


def _file_too_large(place: str, limits: Limits) -> Problem:
    return Problem(
        413,
        "file_too_large",
        f"the photo is larger than {limits.file >> 20} MB",
        field=place,
        fix="make it smaller, or leave it out",
    )


def _bad(field: str, detail: str, fix: str) -> Problem:
    return Problem(422, "bad_value", detail, field=field, fix=fix)
