"""The shapes of requests and answers, for the OpenAPI document and for those who read it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from cala.app.problems import MEDIA_TYPE
from cala.app.uploads import Name, PhotoItem

Kind = Literal["known", "new"]
Sha = Field(description="SHA-256 of the photo's file")


class Versioned(BaseModel):
    """An answer that says which version of the model it is about."""

    version: int


class ClassId(BaseModel):
    """Which class something is about."""

    id: str
    name: str
    kind: Kind


class ProblemBody(BaseModel):
    """RFC 9457 problem details."""

    type: str
    title: str
    status: int
    detail: str
    code: str = Field(description="Stable, for programs")
    field: str | None = Field(None, description="The part of the request that is wrong")
    fix: str | None = Field(None, description="What to do about it")


#: How every refusal is described.
REFUSED: dict[str, Any] = {
    "model": ProblemBody,
    "content": {MEDIA_TYPE: {}},
    "description": "Refused",
}


class PhotoError(ProblemBody):
    image: str


class Likely(BaseModel):
    label: str
    class_id: str
    probability: float
    thumbnail: str | None = Sha


class Close(BaseModel):
    label: str
    class_id: str
    kind: Kind
    cosine: float
    logit: float
    shift: float = Field(description="What β and the operating point add to the logit")
    thumbnail: str | None


class Similar(BaseModel):
    id: str = Sha
    label: str


class Answer(BaseModel):
    id: str = Sha
    image: str
    label: str = Field(description="The best class, or 'unknown'")
    best: str
    class_id: str
    kind: Kind
    probability: float
    familiarity: float | None = Field(
        description="Fraction of photos of that class that look no more familiar; null if unknown"
    )
    unknown: bool
    top: list[Likely]
    closest: list[Close]
    without_adapter: str
    changed: bool = Field(description="Whether the adapter decided")
    similar: list[Similar] = Field(description="Learned photos that look most like it")


class Predictions(Versioned):
    predictions: list[Answer]
    errors: list[PhotoError]


class Near(ClassId):
    cosine: float
    thumbnail: str | None = None


class ClassRow(ClassId):
    order: int = Field(description="Place in order of arrival")
    photos: int
    beta: float
    shift: float
    closest: Near
    thumbnails: list[str]


class ClassList(Versioned):
    total: int
    found: int
    classes: list[ClassRow]


class ClassDetail(ClassRow, Versioned):
    digests: list[str]
    relatives: list[Near]


class Taught(ClassId, Versioned):
    photos: int
    added: int
    again: int = Field(description="Photos that it had learned from already")
    beta: float
    closest: list[Near]
    alike: str | None = Field(description="A class with almost the same name")


class Rename(BaseModel, extra="forbid"):
    name: Name


class Renamed(Versioned, populate_by_name=True):
    class_: ClassRow = Field(alias="class")


class Changed(Versioned):
    classes: int
    change: dict[str, Any]


class Merge(BaseModel, extra="forbid"):
    into: Name = Field(description="The id of the class that gets the photos")


class Right(BaseModel, extra="allow"):
    right: int
    photos: int
    accuracy: float | None
    low: float
    high: float
    enough: bool = Field(description="Whether there are photos enough to tell")


class Doubtful(BaseModel, extra="allow"):
    name: str
    sha256: str
    label: str
    answer: str = Field(description="What it would be taken for")
    doubt: str


class EstimateBody(Versioned, extra="allow"):
    """What to expect on new photos: each learned photo is judged as if it were new."""

    photos: int
    judged: int
    all: Right
    known: Right
    new: Right
    confused: list[dict[str, Any]]
    doubtful: list[Doubtful]


class Tune(BaseModel, extra="forbid"):
    """One of the first three, and the rate at which photos are called unknown."""

    objective: Literal["accuracy", "harmonic"] | None = None
    max_base_loss: float | None = None
    delta: float | None = None
    reject: float | None = None


class History(Versioned):
    total: int
    changes: list[dict[str, Any]]


class ModelInfo(Versioned):
    name: str
    classes: int
    known: int
    new: int
    right: Literal["teach", "read"] = Field(description="What this token may do")
    keeps_thumbnails: bool
    share: str | None = Field(description="Where other devices reach it, if it is shared")
    refit_pays: bool = Field(description="Whether more was added than it was made from")
    sample: bool = Field(description="Whether it knows the drawn pictures of /v1/samples")
    can_undo: bool
    can_redo: bool
    encoder: dict[str, Any]
    settings: dict[str, Any]
    notes: list[str]
    limits: dict[str, int | float]
    cala: str


class Sample(BaseModel):
    label: str
    url: str


class Samples(BaseModel):
    samples: list[Sample]


class Health(BaseModel):
    status: str


class Start(BaseModel):
    """How far a model is that is not there yet."""

    name: str = ""
    right: Literal["teach", "read"] = "teach"
    share: str | None = Field(None, description="Where other devices reach it, if it is shared")
    state: Literal["collecting", "learning", "ready"]
    photos: int
    classes: dict[str, int] = Field(description="Photos of each class")
    done: int = Field(description="Photos and mixed images that have been looked at")
    total: int
    error: dict[str, Any] | None = Field(description="Why no model could be made from them")


class Collected(Start):
    errors: list[PhotoError]


class Evaluated(Versioned, extra="allow"):
    """See docs/serve.md; `trade_off` says what every operating point would answer."""

    photos: int
    accuracy: float | None
    hm: float | None
    errors: list[PhotoError]


def photo_body(*texts: str, labelled: bool = False) -> dict[str, Any]:
    """The request body of an endpoint that takes photos and some texts."""
    fields: dict[str, Any] = {text: {"type": "string"} for text in texts}
    files = {"type": "array", "items": {"type": "string", "format": "binary"}}
    form = {**fields, "images": files}
    if labelled:
        form["labels"] = {"type": "array", "items": {"type": "string"}}
        form["archive"] = {"type": "string", "format": "binary", "description": "A zip file"}
    content = {
        "multipart/form-data": {
            "schema": {"type": "object", "properties": form, "required": list(texts)}
        },
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {
                    **fields,
                    "images": {"type": "array", "items": PhotoItem.model_json_schema()},
                },
                "required": [*texts, "images"],
            }
        },
    }
    return {"requestBody": {"required": True, "content": content}}
