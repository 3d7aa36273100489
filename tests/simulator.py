"""Clients of one model's folder, drawn by a seed, beside a model in plain Python that is the truth.

Two programs and a service share a folder. At each step one of them adds, moves, renames, merges,
forgets, rejects, tunes, refits, undoes, redoes, predicts or evaluates; a program may die at any
call to the disk, a call may fail, and the service may be started again. After each step the folder
must hold what `Truth` says, and what was answered must fit the version that the answer names.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import cala
from app.clients import client_of
from cala.errors import CacheWarning, CalaError
from cala.model.version import ModelVersion
from cala.store import Store
from cala.store.files import read_document
from cala.store.store import UNDO_STEPS
from faults import ERRORS, SHORT, Faults
from model.photos import ENCODER, write_photos
from store.test_crash_points import Crash, Crashing

LABELS, EACH = 14, 8  # classes of photos to draw from, and photos of each
KNOWN = 5  # classes at the start
NOBODY = "9-000000000000"  # an id that no class has
NAMES = [f"bird {n}" for n in range(LABELS)]


class Refused(Exception):
    """What the truth says of a request that changes nothing and is an error."""


@dataclass(frozen=True)
class State:
    """What a model knows; `id` tells contents apart that are made at different times."""

    id: int
    classes: dict[str, frozenset[str]]  # in order of arrival -> SHA-256 of photos
    n_known: int
    rejected: frozenset[str] = frozenset()
    former: dict[str, str] = field(default_factory=dict)
    reject: float = 0.05

    def owner(self, photo: str) -> str | None:
        return next((name for name, own in self.classes.items() if photo in own), None)

    def check(self, name: str) -> None:
        if name not in self.classes:
            raise Refused

    def added(self, name: str, photos: list[str]) -> State:
        name = self.former.get(name, name)
        if any(self.owner(photo) not in (None, name) for photo in photos):
            raise Refused
        new = {photo for photo in photos if self.owner(photo) is None}
        if not new:
            return self
        classes = {**self.classes, name: self.classes.get(name, frozenset()) | new}
        return replace(self, classes=classes, rejected=self.rejected - new)

    def without(self, name: str) -> State:
        self.check(name)
        known = list(self.classes).index(name) < self.n_known
        classes = {other: own for other, own in self.classes.items() if other != name}
        former = {old: now for old, now in self.former.items() if now != name}
        return replace(self, classes=classes, n_known=self.n_known - known, former=former)

    def without_photo(self, name: str, photo: str) -> State:
        self.check(name)
        if photo not in self.classes[name] or len(self.classes[name]) == 1:
            raise Refused
        return replace(self, classes={**self.classes, name: self.classes[name] - {photo}})

    def renamed(self, old: str, new: str) -> State:
        self.check(old)
        if new in self.classes:
            raise Refused
        classes = {new if name == old else name: own for name, own in self.classes.items()}
        former = {o: new if n == old else n for o, n in self.former.items() if o != new}
        return replace(self, classes=classes, former={**former, old: new})

    def merged(self, old: str, into: str) -> State:
        self.check(old)
        self.check(into)
        if old == into:
            raise Refused
        smaller = self.without(old)
        classes = {**smaller.classes, into: self.classes[into] | self.classes[old]}
        former = {o: into if n == old else n for o, n in self.former.items()}
        return replace(smaller, classes=classes, former={**former, old: into})

    def with_rejected(self, photos: list[str]) -> State:
        if any(self.owner(photo) for photo in photos):
            raise Refused
        return replace(self, rejected=self.rejected | set(photos))

    def refitted(self) -> State:
        return replace(self, classes=dict(sorted(self.classes.items())), n_known=len(self.classes))


class Truth:
    """Versions by number, and what undo and redo lead to."""

    def __init__(self, first: State) -> None:
        self.versions, self.version, self.contents = {1: first}, 1, 1
        self.undo: list[State] = []
        self.redo: list[State] = []

    @property
    def now(self) -> State:
        return self.versions[self.version]

    def after(self, change: str, *given: Any) -> tuple[State, list[State], list[State]]:
        """The state after a change, and what can be undone and redone then."""
        if change == "undo":
            if not self.undo:
                raise Refused
            return self.undo[-1], self.undo[:-1], [*self.redo, self.now]
        if change == "redo":
            if not self.redo:
                raise Refused
            return self.redo[-1], [*self.undo, self.now], self.redo[:-1]
        if change == "tune":
            found = replace(self.now, reject=given[0])
        else:
            found = getattr(self.now, change)(*given)
            if found == self.now and change != "refitted":
                return self.now, self.undo, self.redo
        self.contents += 1
        found = replace(found, id=self.contents)
        return found, [*self.undo, self.now][-UNDO_STEPS:], []

    def take(self, found: tuple[State, list[State], list[State]], version: int) -> None:
        state, self.undo, self.redo = found
        self.version = version
        self.versions[version] = state


class Simulator:
    """One run; `log` holds the last steps, to tell what led to a difference."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.draw, self.folder, self.path = random.Random(seed), folder, folder / "model"
        self.log: deque[str] = deque(maxlen=12)
        self.around = ExitStack()
        self.answers: dict[tuple[int, str], Any] = {}
        self.key = 0
        self.sent: tuple[str, list[str], str] | None = None
        self.counts: dict[str, int] = {}

    def __enter__(self) -> Simulator:
        patch = self.around.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("CALA_CACHE", str(self.folder / "cache"))
        patch.setattr("cala.app.service.POLL", 1e9)  # it looks at the folder when it is asked
        self.around.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", CacheWarning)
        pool = write_photos(self.folder / "pool", range(LABELS), range(EACH))
        self.files = {
            hashlib.sha256(path.read_bytes()).hexdigest(): path
            for path in sorted(pool.rglob("*.png"))
        }
        self.pool: dict[int, list[str]] = {n: [] for n in range(LABELS)}
        for photo, path in self.files.items():
            self.pool[int(path.parent.name.split()[1])].append(photo)
        start = self.folder / "start"
        classes = {}
        for label in range(KNOWN):
            classes[NAMES[label]] = frozenset(self.pool[label][:3])
            for photo in self.pool[label][:3]:
                target = start / NAMES[label] / self.files[photo].name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.files[photo], target)
        cala.fit(start, self.path, encoder=ENCODER, method="nearest-mean", fakes="feature")
        self.truth = Truth(State(1, classes, KNOWN, reject=cala.load(self.path).current.reject))
        self.programs = [cala.load(self.path) for _ in range(2)]
        self.start_service()
        return self

    def __exit__(self, *_: object) -> None:
        self.service.close()
        self.around.close()

    def start_service(self) -> None:
        self.service = ExitStack()
        self.client = self.service.enter_context(client_of(self.path))

    # What may happen

    def step(self) -> None:
        weights = {
            self.program_changes: 8, self.service_changes: 8, self.predict: 4, self.evaluate: 1,
            self.crash: 3, self.fail: 3, self.restart: 0.3, self.repeat: 1,
        }  # fmt: skip
        act = self.draw.choices(list(weights), list(weights.values()))[0]
        name = act.__name__
        self.counts[name] = self.counts.get(name, 0) + 1
        act()
        self.check()

    def change(self) -> tuple[Any, ...]:
        """A change that may be possible or not: its name and what it is given."""
        draw, now = self.draw, self.truth.now
        names, label = list(now.classes), self.draw.randrange(LABELS)
        some = draw.sample(self.pool[label], draw.randint(1, 3))
        one = draw.choice([*names, NAMES[label]])
        kinds = ["added"] * 6 + ["undo"] * 4 + ["redo"] * 3 + ["renamed"] * 2
        kinds += ["without_photo", "merged", "with_rejected", "tune"]
        kinds += ["without"] * (1 + (len(names) > 8))
        kinds += ["refitted"] if draw.random() < 0.1 and len(names) > 3 else []
        kind = draw.choice(kinds)
        given: dict[str, tuple[Any, ...]] = {
            "added": (draw.choice([NAMES[label], one, f"kind {draw.randrange(6)}"]), some),
            "renamed": (one, draw.choice([*NAMES, f"kind {draw.randrange(6)}"])),
            "merged": (one, draw.choice([*names, NAMES[label]])),
            "without": (one,),
            "without_photo": (one, draw.choice([*sorted(now.classes.get(one, ())), some[0]])),
            "with_rejected": (some,),
            "tune": (draw.randrange(1, 30) / 100,),
        }
        known = names[: now.n_known]
        if kind in ("without", "merged") and one in known and now.n_known < 4:
            kind = "undo"  # a model needs some known classes
        return kind, *given.get(kind, ())

    def by_program(self, model: cala.Model, kind: str, *given: Any) -> None:
        learns = kind in ("added", "with_rejected")
        paths = [self.files[photo] for photo in given[-1]] if learns else []
        calls: dict[str, Callable[[], object]] = {
            "added": lambda: model.add(paths, given[0]),
            "renamed": lambda: model.rename(*given),
            "merged": lambda: model.merge(*given),
            "without": lambda: model.forget(*given),
            "without_photo": lambda: model.forget(given[0], photo=given[1]),
            "with_rejected": lambda: model.reject(paths),
            "tune": lambda: model.tune(reject=given[0]),
            "refitted": model.refit,
            "undo": model.undo,
            "redo": model.redo,
        }
        calls[kind]()

    def program_changes(self) -> None:
        change = self.change()
        self.log.append(f"program {change}")
        try:
            wanted = self.truth.after(*change)
        except Refused:
            with pytest.raises(CalaError):
                self.by_program(self.draw.choice(self.programs), *change)
            return
        model = self.draw.choice(self.programs)
        self.by_program(model, *change)
        changed = wanted[0] is not self.truth.now
        self.truth.take(wanted, self.truth.version + changed)

    def crash(self) -> None:
        """A program dies at some call to the disk; another takes its place."""
        change, last = self.change(), self.draw.randrange(50)
        self.log.append(f"crash at call {last} in {change}")
        dying = Crashing(last, self.draw.random() < 0.5)
        place = self.draw.randrange(len(self.programs))

        def act() -> None:
            with pytest.MonkeyPatch.context() as patch:
                dying.install(patch)
                self.by_program(self.programs[place], *change)

        self.either(change, act)
        self.programs[place] = cala.load(self.path)

    def fail(self) -> None:
        """A call to the disk fails once."""
        change, error = self.change(), self.draw.choice([*ERRORS, SHORT])
        last = self.draw.randrange(60)
        self.log.append(f"{error} at call {last} in {change}")
        place = self.draw.randrange(len(self.programs))

        def act() -> None:
            with Faults(self.path, last, error):
                self.by_program(self.programs[place], *change)

        self.either(change, act)
        self.programs[place].reload()

    def either(self, change: tuple[Any, ...], act: Callable[[], None]) -> None:
        """The state before or after; after, if nothing was raised."""
        done = False
        try:
            act()
            done = True
        except (CalaError, Crash):
            pass
        found = Store(self.path).version()
        try:
            wanted = self.truth.after(*change)
        except Refused:
            assert not done
            assert found == self.truth.version
            return
        changed = wanted[0] is not self.truth.now
        allowed = {self.truth.version + changed} | ({self.truth.version} if not done else set())
        assert found in allowed
        if changed and found == self.truth.version + 1:
            self.truth.take(wanted, found)

    def service_changes(self) -> None:
        kind, *given = self.change()
        now, ids = self.truth.now, self.ids()
        self.log.append(f"service {(kind, *given)}")
        try:
            wanted = self.truth.after(kind, *given)
        except Refused:
            wanted = None
        if kind == "renamed" and given[0] == given[1] in now.classes:
            wanted = (now, self.truth.undo, self.truth.redo)  # a request may be sent twice
        if kind == "added":
            name, photos = given
            exists = now.former.get(name, name) in now.classes
            if exists and self.draw.random() < 0.5:  # a new class of a name that is there
                assert self.teach("/v1/classes", photos, name).status_code == 409
                return
            if exists:
                place = f"/v1/classes/{ids[now.former.get(name, name)]}/shots"
                answer = self.teach(place, photos)
            else:
                self.key += 1
                self.sent = (name, photos, f"key {self.key}")
                answer = self.teach("/v1/classes", photos, name, self.sent[2])
        else:
            answer = self.ask(kind, given, ids)
        if wanted is None:
            assert 400 <= answer.status_code < 500, answer.text
            return
        assert answer.status_code in (200, 201), answer.text
        changed = wanted[0] is not self.truth.now
        assert answer.json()["version"] == self.truth.version + changed, answer.text
        self.truth.take(wanted, self.truth.version + changed)

    def ask(self, kind: str, given: list[Any], ids: dict[str, str]) -> Any:
        client = self.client
        one = ids.get(str(given[0]), NOBODY) if given else NOBODY
        if kind in ("undo", "redo"):
            return client.post(f"/v1/{kind}")
        if kind == "refitted":
            return client.post("/v1/refit")
        if kind == "tune":
            return client.patch("/v1/model", json={"reject": given[0]})
        if kind == "with_rejected":
            return self.teach("/v1/reject", given[0])
        if kind == "renamed":
            return client.patch(f"/v1/classes/{one}", json={"name": given[1]})
        if kind == "merged":
            return client.post(f"/v1/classes/{one}/merge", json={"into": ids.get(given[1], NOBODY)})
        if kind == "without_photo":
            return client.delete(f"/v1/classes/{one}/photos/{given[1]}")
        return client.delete(f"/v1/classes/{one}")

    def ids(self) -> dict[str, str]:
        """The service's names for classes; a change that changes nothing brings it up to date."""
        listed = self.client.get("/v1/classes?limit=100").json()
        if listed["version"] != self.truth.version:
            self.service.close()
            self.start_service()
            listed = self.client.get("/v1/classes?limit=100").json()
        return {one["name"]: one["id"] for one in listed["classes"]}

    def teach(self, place: str, photos: list[str], name: str = "", key: str = "") -> Any:
        files = [("images", (f"{p[:8]}.png", self.files[p].read_bytes())) for p in photos]
        headers = {"Idempotency-Key": key} if key else {}
        return self.client.post(place, data={"name": name} if name else {}, files=files,
                                headers=headers)  # fmt: skip

    def repeat(self) -> None:
        """The last class is taught once more with the same key, which changes nothing."""
        if self.sent is None or not self.answered(self.sent[2]):
            return
        name, photos, key = self.sent
        self.log.append(f"repeat {self.sent}")
        answer = self.teach("/v1/classes", photos, name, key)
        assert (answer.status_code, answer.headers["idempotency-replayed"]) == (201, "true")

    def answered(self, key: str) -> bool:
        digest = hashlib.sha256(key.encode()).hexdigest()[:32]
        journal = Store(self.path).journal()
        return any(line.get("request", {}).get("key") == digest for line in journal)

    def predict(self) -> None:
        """Equal contents give equal answers, whoever is asked and whatever was between."""
        photos = self.draw.sample(sorted(self.files), 3)
        self.log.append("predict")
        if self.draw.random() < 0.5:
            answer = self.teach("/v1/predict", photos)
            version = answer.json()["version"]
            labels = [one["label"] for one in answer.json()["predictions"]]
        else:
            model = self.draw.choice(self.programs).reload()
            version = model.version
            labels = model.predict([self.files[photo] for photo in photos])
        state = self.truth.versions[version]
        for photo, label in zip(photos, labels, strict=True):
            assert label in state.classes or label == "unknown"
            assert self.answers.setdefault((state.id, photo), label) == label

    def evaluate(self) -> None:
        """A program and the service agree on how many photos are right."""
        photos = self.draw.sample(sorted(self.files), 6)
        labels = [self.truth.now.owner(photo) or "something else" for photo in photos]
        self.log.append("evaluate")
        self.ids()
        model = self.draw.choice(self.programs).reload()
        try:
            own = model.evaluate([self.files[photo] for photo in photos], labels).to_json()
        except CalaError:
            return
        files = [("images", (f"{p[:8]}.png", self.files[p].read_bytes())) for p in photos]
        told = self.client.post("/v1/evaluate", data={"labels": labels}, files=files).json()
        assert told["version"] == self.truth.version
        assert told["accuracy"] == own["accuracy"]

    def restart(self) -> None:
        self.log.append("restart")
        self.service.close()
        self.start_service()
        place = self.draw.randrange(len(self.programs))
        self.programs[place] = cala.load(self.path)

    # What must hold

    def check(self) -> None:
        document, truth = read_document(self.path / "model.json"), self.truth
        assert document["version"] == truth.version
        assert (len(document["undo"]), len(document["redo"])) == (len(truth.undo), len(truth.redo))
        listed = {one["name"]: one["photos"] for one in document["meta"]["classes"]}
        wanted = {name: len(photos) for name, photos in truth.now.classes.items()}
        assert list(listed.items()) == list(wanted.items())
        if self.draw.random() < 0.1:
            self.check_all()

    def check_all(self) -> None:
        """Every byte, and every photo."""
        found, now = ModelVersion.from_content(Store(self.path).read()), self.truth.now
        ids = dict(zip(found.classifier.head_.classes, found.names, strict=True))
        photos: dict[str, set[str]] = {name: set() for name in found.names}
        for digest, owner in found.photos.owners().items():
            photos[ids[owner]].add(digest.hex())
        assert photos == {name: set(own) for name, own in now.classes.items()}
        assert (found.n_known, found.former, found.reject) == (now.n_known, now.former, now.reject)
        assert len(found.classifier.rejection_.rejected) == len(now.rejected)
        kept = {digest.hex() for digest in found.kept.digests()}
        assert kept == set().union(*photos.values())
        journal = Store(self.path).journal()
        assert [line["version"] for line in journal] == list(range(1, self.truth.version + 1))
