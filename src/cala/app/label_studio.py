"""Label Studio's ML backend: predictions for its tasks, and classes that follow its annotations.

Label Studio asks /health, /setup and /predict, and tells /webhook of every annotation. What an
annotation said is written to the model's journal in one step with what it changed: a repeat
changes nothing, a deletion finds what to take back, and a service that is killed loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import Any
from xml.etree import ElementTree

from fastapi import APIRouter
from pydantic import BaseModel, Field

from cala.app.label_studio_photos import TaskPhotos
from cala.app.photo_encoder import Encoded
from cala.app.problems import LOG, Problem
from cala.app.schemas import Health
from cala.app.service import Service
from cala.app.settings import LabelStudioAccess
from cala.app.uploads import LONGEST_NAME, Upload, bad, too_many
from cala.errors import CalaError
from cala.files import shown
from cala.model.thumbnails import put_thumbnails
from cala.model.version import UNKNOWN, ModelVersion, check_name, plain_name
from cala.store.store import Content, JournalEntry

LONGEST_CONFIG = 1 << 20
PART = 16  # photos that are fetched and held at a time
TAUGHT = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_CREATED")
DELETED = ("ANNOTATION_DELETED", "ANNOTATIONS_DELETED")
LONG_AGO = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Task(BaseModel):
    id: int
    data: dict[str, Any]


class PredictTasks(BaseModel):
    tasks: list[Task]
    label_config: str


class SetupProject(BaseModel):
    config: str = Field(alias="schema")


class Result(BaseModel):
    from_name: str = ""
    value: dict[str, Any] = {}


class AnnotationBody(BaseModel):
    id: int
    task: int = 0
    result: list[Result] | None = None
    was_cancelled: bool = False
    updated_at: datetime = LONG_AGO


class Project(BaseModel):
    created_at: str = Field(max_length=LONGEST_NAME)
    label_config: str


class Webhook(BaseModel):
    """What Label Studio tells; other actions have other fields, which are passed over."""

    action: str
    project: Project | None = None
    annotation: AnnotationBody | list[AnnotationBody] = []
    annotations: list[AnnotationBody] = []
    task: Task | list[Task] = []


@dataclass(frozen=True)
class ChoicesTag:
    """What a project asks: `Choices` called `name` about the `Image` called `image`.

    field : where tasks have the photo; choices : the answers, none if tasks bring their own
    """

    name: str
    image: str
    field: str
    choices: frozenset[str]

    @classmethod
    def read(cls, config: str) -> ChoicesTag:
        """From a labeling configuration, which is XML."""
        if len(config) > LONGEST_CONFIG or "<!DOCTYPE" in config:
            raise bad("label_config", "the labeling configuration is no plain XML", "shorten it")
        try:
            root = ElementTree.fromstring(config)
        except (ElementTree.ParseError, ValueError) as error:
            detail = f"the labeling configuration cannot be read ({shown(error)})"
            raise bad("label_config", detail, "correct it in Label Studio") from error
        images = {tag.get("name"): tag.get("value", "") for tag in root.iter("Image")}
        for tag in root.iter("Choices"):
            name, image = tag.get("name"), tag.get("toName")
            if name and image and images.get(image, "").startswith("$"):
                own = (c.get("alias") or c.get("value") or "" for c in tag.iter("Choice"))
                return cls(name, image, images[image][1:], frozenset(own))
        fix = 'use <Image name="photo" value="$image"/> and <Choices toName="photo">'
        raise bad("label_config", "the labeling configuration has no choices about an image", fix)

    def label(self, annotation: AnnotationBody) -> str | None:
        """The class that an annotation names; None if it was skipped or does not name just one."""
        own = (one.value for one in annotation.result or () if one.from_name == self.name)
        chosen = [choice for value in own for choice in value.get("choices", ())]
        if annotation.was_cancelled or len(chosen) != 1 or not isinstance(chosen[0], str):
            return None
        return None if plain_name(chosen[0]).casefold() == UNKNOWN else check_name(chosen[0])


@dataclass(frozen=True)
class Said:
    """What an annotation says: `photo` (SHA-256) shows `label`, None if it names no class.

    at : when, in seconds; None once it is deleted
    was : the class that the photo was in before any annotation
    """

    photo: str
    label: str | None
    at: float | None
    was: str | None = None


def journalled(journal: Iterable[dict[str, Any]]) -> dict[str, Said]:
    """What each annotation said last, the newest one last."""
    found: dict[str, Said] = {}
    for entry in journal:
        if isinstance(said := entry.get("annotation"), dict):
            found.pop(said["key"], None)
            found[said["key"]] = Said(**{k: v for k, v in said.items() if k != "key"})
    return found


class LabelStudio:
    """One model for the projects of one Label Studio."""

    def __init__(self, service: Service, access: LabelStudioAccess) -> None:
        self.service, self.photos = service, TaskPhotos(access, service.limits)
        self._deleted: set[str] = set()  # before they were learned

    @property
    def version(self) -> str:
        return f"{shown(self.service.model.path.resolve().name)} {self.service.snapshot.version}"

    async def predict(self, tasks: Sequence[Task], tag: ChoicesTag) -> list[Any]:
        """A prediction for each task; none for a photo that cannot be read."""
        if len(tasks) > self.service.limits.check:
            raise too_many(self.service.limits.check)
        answers: list[Any] = []
        for start in range(0, len(tasks), PART):
            part = tasks[start : start + PART]
            uploads = await self._fetched(part, tag)
            told = await self._predictions(list(uploads.values()), tag)
            known = {id: told.get(upload.digest, []) for id, upload in uploads.items()}
            answers += [known.get(task.id, []) for task in part]
        return answers

    async def _fetched(self, tasks: Sequence[Task], tag: ChoicesTag) -> dict[int, Upload]:
        """By task; a problem if there is none."""

        async def fetch(task: Task) -> Upload | Problem:
            try:
                return await asyncio.to_thread(self.photos.read, task.id, task.data, tag.field)
            except Problem as problem:  # Label Studio does not show it
                LOG.warning("task %d of Label Studio: %s", task.id, problem)
                return problem

        found = await asyncio.gather(*map(fetch, tasks))
        good = {t.id: one for t, one in zip(tasks, found, strict=True) if isinstance(one, Upload)}
        if not good and isinstance(found[0], Problem):
            raise found[0]
        return good

    async def _predictions(self, uploads: Sequence[Upload], tag: ChoicesTag) -> dict[str, Any]:
        """By digest; one that names no class is as unsure as can be."""
        how: dict[str, Any] = {"top": 1, "unknown": "on", "reject": None}
        try:
            told = (await self.service.predict(uploads, **how))["predictions"]
        except Problem as problem:
            if problem.code != "bad_image":
                raise
            told = []
        former = self.service.snapshot.model.former
        plain = {plain_name(choice): choice for choice in tag.choices}
        choices = {former.get(name, name): choice for name, choice in plain.items()}
        answers = {}
        for one in told:
            choice = choices.get(one["best"]) if choices else one["best"]
            sure = choice is not None and not one["unknown"]
            score = one["probability"] if sure else 0.0
            value = {"type": "choices", "value": {"choices": [choice]}, "score": score}
            result = [{"from_name": tag.name, "to_name": tag.image, **value}] if sure else []
            version = self.version
            answers[one["id"]] = {"result": result, "score": score, "model_version": version}
        return answers

    async def hear(self, told: Webhook) -> str:
        """Learn what annotations say; what became of it."""
        project, tasks = told.project, {task.id: task for task in _listed(told.task)}
        if project is None or told.action not in (*TAUGHT, *DELETED):
            return "ignored"
        tag = ChoicesTag.read(project.label_config) if told.action in TAUGHT else None
        given = (*told.annotations, *_listed(told.annotation))
        keys = [f"{project.created_at}/{one.id}" for one in given]
        pairs = zip(keys, given, strict=True)
        found = [await self._follow(key, one, tasks.get(one.task), tag) for key, one in pairs]
        for error in found:
            if error is not None:
                raise error
        return "ok"

    async def _follow(
        self, key: str, one: AnnotationBody, task: Task | None, tag: ChoicesTag | None
    ) -> CalaError | None:
        """One annotation, without a tag one that was deleted; why it was not learned."""
        try:
            said, uploads = Said("", None, None), []
            if tag is not None:
                said = replace(said, label=tag.label(one), at=one.updated_at.timestamp())
            if tag is not None and said.label is not None:
                task = task or Task(id=one.task, data={})
                uploads = [await asyncio.to_thread(self.photos.read, task.id, task.data, tag.field)]
                said = replace(said, photo=uploads[0].digest)
            await self.service.annotate(uploads, lambda sent: self._write(key, said, sent))
        except CalaError as error:  # Label Studio does not show it
            LOG.warning("annotation %d of Label Studio was not learned: %s", one.id, error)
            return error
        return None

    def _write(self, key: str, said: Said, sent: Sequence[Encoded]) -> None:
        """In the writer's thread: what an annotation says, and its photo where it is to be."""
        model, snapshot = self.service.model, self.service.snapshot
        known = journalled(snapshot.journal)
        before = known.pop(key, None)
        if before is None and said.at is None:
            self._deleted.add(key)  # perhaps it is still on its way
        if key in self._deleted or (said.label is None if before is None else _old(said, before)):
            return
        photo = said.photo or (before.photo if before else "")
        own = next((snapshot.names[c] for c, ds in snapshot.photos.items() if photo in ds), None)
        others = [one for one in known.values() if one.photo == photo and one.label]
        target, former = own, snapshot.model.former
        if before and before.photo == photo and before.label and own == _now(before.label, former):
            target = others[-1].label if others else before.was  # it takes back what it said
        said = replace(said, photo=photo, was=others[-1].was if others else target)
        target = _now(said.label or target, former)
        about = {"annotation": {"key": key, **asdict(said)}}
        digest, kept = bytes.fromhex(photo), snapshot.model.kept
        triples = zip(kept.digests(), kept.names, kept.rows, strict=True)
        rows = {key: (name, row) for key, name, row in triples}
        rows |= {bytes.fromhex(one.digest): (upload.name, one.features) for upload, one in sent}
        if target == own:
            model.store.change(lambda content: (content, JournalEntry("annotate", about)))
        elif target is not None and digest in rows:
            name, row = rows[digest]
            small = {one.digest: one.small for _, one in sent if one.small}
            how: dict[str, Any] = {"move": True, "about": lambda after, added: about}
            how["thumbnails"] = (lambda: put_thumbnails(model.path, small)) if small else None
            model.learn([name], [digest], row[None], [target], **how)
        else:

            def without(content: Content) -> tuple[Content, JournalEntry]:
                after = ModelVersion.from_content(content).without_photos([digest])
                details = {"class": own, "photo": rows[digest][0], "sha256": [photo]}
                return after.to_content(), JournalEntry("forget", {**details, **about})

            model.store.change(without)
            model.cleared()


def _old(said: Said, before: Said) -> bool:
    return before.at is None or (said.at is not None and said.at <= before.at)


def _now(name: str | None, former: Mapping[str, str]) -> str | None:
    return None if name is None else former.get(name, name)


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def label_studio_router(service: Service, access: LabelStudioAccess) -> APIRouter:
    """What Label Studio 1.x asks of an ML backend."""
    api, backend = APIRouter(tags=["Label Studio"]), LabelStudio(service, access)

    @api.get("/health", response_model=Health)
    async def health() -> Any:
        return {"status": "UP"}

    @api.post("/setup")
    async def setup(body: SetupProject) -> dict[str, Any]:
        """Whether the project asks for the class of a photo."""
        ChoicesTag.read(body.config)
        return {"model_version": backend.version}

    @api.get("/versions")
    async def versions() -> dict[str, Any]:
        return {"versions": [backend.version]}

    @api.post("/predict")
    async def predict(body: PredictTasks) -> dict[str, Any]:
        """The class of each task's photo."""
        tag = ChoicesTag.read(body.label_config)
        return {"results": await backend.predict(body.tasks, tag)}

    @api.post("/webhook")
    async def webhook(body: Webhook) -> dict[str, Any]:
        """Learn what annotations say; take back what deleted ones said."""
        return {"status": await backend.hear(body), "model_version": backend.version}

    return api
