"""Protocols: which classes are base, which arrive when, and which images are their shots."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

import numpy as np

from cala.core.rows import Array
from cala.errors import InputError
from cala.files import counted
from cala.registry import check_choice

MANIFESTS = ("cifar100", "cub200", "mini_imagenet")

Shot = int | str


@dataclass(frozen=True)
class Expected:
    """What a whole copy of a benchmark's image set holds; pairs are (base, novel).

    classes : names in label order
    train, test : number of images
    train_each, test_each : images per class, None where classes differ
    """

    classes: tuple[str, ...]
    train: tuple[int, int]
    test: tuple[int, int]
    train_each: tuple[int | None, int | None]
    test_each: tuple[int | None, int | None]


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
            raise InputError(f"labels go to {int(labels.max())}, {self.name} has {len(arrival)}")
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
    shots = [shot for session in canonical for shot in session]
    for what, entries in (("canonical", shots), ("classes", classes)):
        if _checksum(entries) != manifest[f"{what}_sha256"]:
            raise InputError(
                f"the {what} list of {name} does not match its checksum: reinstall cala"
            )
    counts = manifest["counts"]
    expected = Expected(
        classes=classes,
        train=tuple(counts["train"]),
        test=tuple(counts["test"]),
        train_each=_each(manifest["train_per_class"]),
        test_each=_each(manifest["test_per_class"]),
    )
    fields = ("name", "base", "way", "shot", "sessions")
    numbers = {key: manifest[key] for key in fields}
    return Protocol(**numbers, canonical=canonical, expected=expected)


def base_classes(name: str, classes: int, given: int | None = None) -> int:
    """How many classes are base: as given, the benchmark's, or all of an own set."""
    if given is not None:
        if not 1 <= given <= classes:
            raise InputError(f"{given} base classes of {classes} are not possible")
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
            raise InputError(f"{what} is {value}: it must be 1 or more")
    if classes < 2:
        raise InputError(
            f"a set of {counted(classes, 'class')} is too small: one base and one novel class are "
            "needed"
        )
    if base is None:
        asked = (way or 1) * (sessions or 1)
        base = max(1, min(round(0.6 * classes), classes - asked))
    if base >= classes:
        raise InputError(
            f"base is {base} of {counted(classes, 'class')}: leave at least one to arrive later"
        )
    novel = classes - base
    if way is None:
        way = min(5, novel // sessions if sessions else novel)
    sessions = max(1, novel // max(way, 1)) if sessions is None else sessions
    if way < 1 or base + way * sessions > classes:
        raise InputError(
            f"{base} base + {counted(sessions, 'session')} × {counted(max(way, 1), 'class')} are "
            f"more than the {counted(classes, 'class')} there are: make one of them smaller"
        )
    order: tuple[int, ...] = ()
    if order_seed is not None:
        order = tuple(np.random.default_rng(order_seed).permutation(classes).tolist())
    return Protocol(name=name, base=base, way=way, shot=shot, sessions=sessions, order=order)


def canonical_draw(protocol: Protocol) -> ShotDraw:
    """The published shots."""
    if not protocol.canonical:
        raise InputError(f"{protocol.name} has no published shot list: use random draws")
    if any(isinstance(shot, str) for rows in protocol.canonical for shot in rows):
        raise InputError(
            f"the published shots of {protocol.name} are file names: find their rows in your copy "
            "with cala.data.shots.canonical_rows"
        )
    return ShotDraw("canonical", tuple(np.array(rows, np.int64) for rows in protocol.canonical))


def random_draw(protocol: Protocol, labels: Array, usable: Array, seed: int) -> ShotDraw:
    """`shot` usable rows of every novel class; a class's shots depend on its label and the seed.

    labels : (n,) of the training rows; usable : (n,) bool
    """
    sessions = []
    for session in range(1, protocol.sessions + 1):
        rows = []
        for label in protocol.session_labels(session):
            candidates = np.flatnonzero((labels == label) & usable)
            if len(candidates) < protocol.shot:
                raise InputError(
                    f"class {label} has {len(candidates)} usable training rows, {protocol.shot} "
                    "shots are needed"
                )
            rng = np.random.default_rng([seed, label])
            rows.append(np.sort(rng.choice(candidates, protocol.shot, replace=False)))
        sessions.append(np.concatenate(rows))
    return ShotDraw(f"random:{seed}", tuple(sessions))
