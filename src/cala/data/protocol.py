"""Protocols: which classes are base, which arrive when, and which images are their shots."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import PurePosixPath

import numpy as np

from cala.core.rows import Array
from cala.errors import InputError
from cala.files import counted, preview, shown
from cala.registry import check_choice

MANIFESTS = ("cifar100", "cub200", "mini_imagenet")

Shot = int | str


@dataclass(frozen=True)
class Expected:
    """What a whole copy of a benchmark's image set holds.

    classes : names in label order
    images : number of images of base and of novel classes, by part (`train`, `test`)
    per_class : images of each base and of each novel class, by part; None where classes differ
    """

    classes: tuple[str, ...]
    images: dict[str, tuple[int, int]]
    per_class: dict[str, tuple[int | None, int | None]]


@dataclass(frozen=True)
class Protocol:
    """Base labels first, then `way` labels per session, in label order.

    canonical : one list of training rows per session, the published shots, as row numbers or as
        file names; empty if there are none
    order : the set's own labels in the order in which they arrive; empty if that is label order
    expected : what the image set of a benchmark holds
    """

    name: str
    base: int
    way: int
    shot: int
    sessions: int
    canonical: tuple[tuple[Shot, ...], ...] = ()
    order: tuple[int, ...] = ()
    expected: Expected | None = None

    @property
    def n_classes(self) -> int:
        return self.base + self.way * self.sessions

    @property
    def shots(self) -> tuple[Shot, ...]:
        """The published shots of all sessions."""
        return tuple(shot for session in self.canonical for shot in session)

    def session_labels(self, session: int) -> range:
        """Labels that arrive in a session; session 0 is the base session."""
        if session == 0:
            return range(self.base)
        start = self.base + self.way * (session - 1)
        return range(start, start + self.way)

    def relabel(self, labels: Array) -> Array:
        """Labels of the set -> labels in order of arrival, which sessions count in."""
        if not self.order:
            return labels
        arrival = np.argsort(self.order)
        if labels.size and not 0 <= int(labels.min()) <= int(labels.max()) < len(arrival):
            raise InputError(
                f"label {int(labels.max())} is not one of {len(arrival)} in {self.name}",
                "give labels from 0 on",
                field="y",
            )
        return arrival[labels]


@dataclass(frozen=True)
class ShotDraw:
    """Which training rows are the shots: int64 row numbers per incremental session."""

    name: str
    rows: tuple[Array, ...]


def load_protocol(name: str) -> Protocol:
    """A benchmark's protocol from its manifest, checked against its checksum."""
    check_choice("protocol", name, MANIFESTS)
    text = resources.files("cala.data").joinpath(f"manifests/{name}.json").read_text("utf-8")
    manifest = json.loads(text)
    canonical = tuple(tuple(rows) for rows in manifest["canonical"])
    classes = tuple(manifest["classes"])
    images = {part: tuple(counts) for part, counts in manifest["counts"].items()}
    per_class = {part: _each(manifest[f"{part}_per_class"]) for part in images}
    expected = Expected(classes, images, per_class)
    numbers = {key: manifest[key] for key in ("name", "base", "way", "shot", "sessions")}
    protocol = Protocol(**numbers, canonical=canonical, expected=expected)
    for what, entries in (("canonical", protocol.shots), ("classes", classes)):
        if _checksum(entries) != manifest[f"{what}_sha256"]:
            detail = f"the {what} list of {name} does not match its checksum"
            raise InputError(detail, "reinstall cala", code="damaged_file")
    return protocol


def base_classes(name: str, classes: int, given: int | None = None) -> int:
    """How many classes are base: as given, the benchmark's, or all of an own set."""
    if given is not None:
        if not 1 <= given <= classes:
            raise InputError(f"base is {given}", f"use 1 to {classes}", field="base")
        return given
    return load_protocol(name).base if name in MANIFESTS else classes


def _checksum(entries: Iterable[Shot]) -> str:
    return hashlib.sha256(",".join(str(entry) for entry in entries).encode()).hexdigest()


def _each(given: int | list[int | None] | None) -> tuple[int | None, int | None]:
    return (given[0], given[1]) if isinstance(given, list) else (given, given)


def make_protocol(
    classes: int,
    base: int | None = None,
    way: int | None = None,
    shot: int = 5,
    sessions: int | None = None,
    order_seed: int | None = None,
    name: str = "custom",
) -> Protocol:
    """A protocol for any set, from numbers.

    By default 60 % of the classes are base, 5 arrive per session, until none is left.
    order_seed : shuffles which classes are base and when the others arrive

    >>> p = make_protocol(100, order_seed=0)
    >>> (p.base, p.way, p.shot, p.sessions)
    (60, 5, 5, 8)
    """
    given = {"base": base, "way": way, "shot": shot, "sessions": sessions}
    for what, value in given.items():
        if value is not None and value < 1:
            raise InputError(f"{what} is {value}", "use 1 or more", field=what)
    if classes < 2:
        detail = f"there is only {counted(classes, 'class')}"
        raise InputError(detail, "one base and one novel class are needed", field="classes")
    if base is None:
        asked = (way or 1) * (sessions or 1)
        base = max(1, min(round(0.6 * classes), classes - asked))
    if base >= classes:
        detail = f"base is {base} of {counted(classes, 'class')}"
        raise InputError(detail, "leave at least one to arrive later", field="base")
    novel = classes - base
    if way is None:
        way = min(5, novel // sessions if sessions else novel)
    sessions = max(1, novel // max(way, 1)) if sessions is None else sessions
    if way < 1 or base + way * sessions > classes:
        raise InputError(
            f"{base} base + {counted(sessions, 'session')} × {counted(max(way, 1), 'class')} are "
            f"more than {counted(classes, 'class')}",
            "lower one of them",
            field="sessions",
        )
    order: tuple[int, ...] = ()
    if order_seed is not None:
        order = tuple(np.random.default_rng(order_seed).permutation(classes).tolist())
    return Protocol(name=name, base=base, way=way, shot=shot, sessions=sessions, order=order)


def canonical_draw(protocol: Protocol) -> ShotDraw:
    """Return the published shots, which must be row numbers."""
    if not protocol.canonical:
        detail = f"{protocol.name} has no published shots"
        raise InputError(detail, "use random draws", field="shots", code="no_shots")
    if any(isinstance(shot, str) for shot in protocol.shots):
        detail = f"the published shots of {protocol.name} are file names"
        raise InputError(detail, "find their rows in your copy with `with_rows`", code="named")
    return ShotDraw("canonical", tuple(np.array(rows, np.int64) for rows in protocol.canonical))


def with_rows(
    protocol: Protocol, names: Sequence[str] | None, labels: Array, source: object
) -> Protocol:
    """Replace the published shots by row numbers; missing ones are an error.

    names, labels : of the training rows, as for `find_shots`; source : where they come from
    """
    if names is None and any(isinstance(shot, str) for shot in protocol.shots):
        raise InputError(
            f"the published shots of {protocol.name} are file names, and {shown(source)} has no "
            "names_train",
            "add the file names of its training rows, or use random draws",
            code="no_names",
        )
    rows = find_shots(names, len(labels), protocol.shots)
    lost = [str(shot) for shot in protocol.shots if shot not in rows]
    if lost:
        raise InputError(
            f"{len(lost)} of {len(protocol.shots)} published shots of {protocol.name} are not in "
            f"{shown(source)}: {preview(lost)}",
            "complete the set, or use random draws",
            code="missing_shots",
        )
    for session, shots in enumerate(protocol.canonical, start=1):
        allowed = protocol.session_labels(session)
        wrong = [shot for shot in shots if int(labels[rows[shot]]) not in allowed]
        if wrong:
            raise InputError(
                f"shot {shown(wrong[0])} of session {session} has another class in {shown(source)}",
                f"its rows or labels are not those of {protocol.name}",
                code="wrong_class",
            )
    found = tuple(tuple(rows[shot] for shot in shots) for shots in protocol.canonical)
    return replace(protocol, canonical=found)


def find_shots(names: Sequence[str] | None, rows: int, shots: Iterable[Shot]) -> dict[Shot, int]:
    """Return the rows of those shots that are there.

    names : of the training rows, compared from the end of the path; None if not known
    rows : their number; a shot that is a number is a row of the whole set, and names that are
        numbers tell which rows of the whole set these are
    """
    wanted = list(shots)
    depth = max((len(PurePosixPath(s).parts) for s in wanted if isinstance(s, str)), default=0)
    found: dict[Shot, int] = {}
    if depth and names is not None:
        ends = {"/".join(PurePosixPath(n).parts[-depth:]): row for row, n in enumerate(names)}
        found = {s: ends[s] for s in wanted if isinstance(s, str) and s in ends}
    place = _numbered(names) or range(rows)
    found.update({s: place[s] for s in wanted if isinstance(s, int) and s in place})
    return found


def _numbered(names: Sequence[str] | None) -> dict[int, int]:
    """Number -> row, if the names of all rows are numbers, such as `train/123`."""
    ends = [PurePosixPath(name).name for name in names or ()]
    if not all(end.isascii() and end.isdigit() for end in ends):
        return {}
    return {int(end): row for row, end in enumerate(ends)}


def random_draw(protocol: Protocol, labels: Array, usable: Array, seed: int) -> ShotDraw:
    """Draw `shot` usable rows of every novel class; they depend on its label and the seed.

    labels : (n,) of the training rows; usable : (n,) bool
    """
    sessions = []
    for session in range(1, protocol.sessions + 1):
        rows = []
        for label in protocol.session_labels(session):
            candidates = np.flatnonzero((labels == label) & usable)
            if len(candidates) < protocol.shot:
                detail = f"class {label} has {len(candidates)} usable training rows"
                raise InputError(detail, f"{protocol.shot} shots are needed", field="shot")
            rng = np.random.default_rng([seed, label])
            rows.append(np.sort(rng.choice(candidates, protocol.shot, replace=False)))
        sessions.append(np.concatenate(rows))
    return ShotDraw(f"random:{seed}", tuple(sessions))
