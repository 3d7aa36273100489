"""Cells on a Ray cluster: the same records as in one process, written by this one alone.

Three kinds of tasks: a method and seed is fitted once, a course (of a host that trains its encoder
in sessions) is played once per host, draw and seed, and a cell is a draw scored with the head.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

from cala.benchmark.config import RunConfig
from cala.benchmark.costs import Cost
from cala.benchmark.course_files import Courses
from cala.benchmark.courses import Classroom, Course, session_threads
from cala.benchmark.draws import make_draw
from cala.benchmark.noting import noting
from cala.benchmark.runner import Fit, fit_configured, holdout_notes, play_cell, unfinished
from cala.benchmark.sources import Own, Source, host_of, source_of
from cala.benchmark.threads import one_thread
from cala.cluster.ray_engine import RayCluster, Ref
from cala.data.embeddings import Embeddings
from cala.data.protocol import Protocol, ShotDraw
from cala.heads import HEADS, Head
from cala.records import Cell, Record


@dataclass(frozen=True)
class RayCells:
    """Plays cells as `run_cells` does, with the same arguments, on a cluster."""

    cluster: RayCluster

    def __call__(
        self,
        config: RunConfig,
        usual: Source,
        protocol: Protocol,
        *,
        own: Own | None = None,
        courses: Courses | None = None,
        done: Set[Cell] = frozenset(),
        fit: Fit | None = None,
        fitted: Callable[[str, int, Head], None] = lambda method, seed, head: None,
        costs: Callable[[Cost], None] = lambda cost: None,
        progress: Callable[[str], None] = lambda line: None,
    ) -> Iterator[list[Record]]:
        for note in holdout_notes(config, done, usual, own or {}):
            progress(note)
        left = unfinished(config, usual.data, protocol, done)
        courses = courses or Courses(None, config.full_sessions)
        job = _Job(self.cluster, config, protocol, usual, own or {}, courses, fitted)
        for method, seed, draws in left:
            progress(f"{method}, seed {seed}: fitting")
            job.fit(method, seed, draws, fit or fit_configured)
        for key, value in self.cluster.results():
            assert isinstance(key, _Key)
            where = f"{key.name}, seed {key.seed}: {key.draw}"
            if key.kind == "fit":
                head, took, notes = value
                for note in notes:
                    progress(note)
                job.was_fitted(key.name, key.seed, head, took)
            elif key.kind == "course":
                progress(f"{where}, all sessions")
                job.was_played(key.name, key.draw, key.seed, value)
            else:
                progress(where)
                cost, records = value
                costs(cost)
                yield records


class _Key(NamedTuple):
    """A task. kind : fit, course or cell; name : of a method, or of a course's host"""

    kind: str
    name: str
    seed: int
    draw: str = ""


@dataclass
class _Held:
    """A fitted method whose cells wait for courses."""

    head: Head
    kept: Ref
    took: float
    announced: bool = False


class _Job:
    """What of a run is where: heads and courses in the cluster, cells that wait for a course."""

    def __init__(
        self,
        cluster: RayCluster,
        config: RunConfig,
        protocol: Protocol,
        usual: Source,
        own: Own,
        courses: Courses,
        fitted: Callable[[str, int, Head], None],
    ) -> None:
        self.cluster, self.config, self.protocol = cluster, config, protocol
        self.usual, self.own, self.courses, self.fitted = usual, own, courses, fitted
        self.name = secrets.token_hex(8)  # workers that served another run know it from this one
        self._data: dict[int, Ref] = {}
        self._rooms: dict[str, Ref] = {}
        self._draws: dict[tuple[str, int], list[ShotDraw]] = {}
        self._course: dict[tuple[str, str, int], Ref | None] = {}  # None while it is played
        self._held: dict[tuple[str, int], _Held] = {}

    def data(self, method: str) -> Ref:
        """The embeddings of a method, laid into the cluster once."""
        source = source_of(method, self.usual, self.own)
        if id(source) not in self._data:
            self._data[id(source)] = self.cluster.put(source.data)
        return self._data[id(source)]

    def fit(self, method: str, seed: int, draws: list[ShotDraw], fit: Fit) -> None:
        self._draws[method, seed] = draws
        task = (fit, self.config, method, seed, self.data(method), self.protocol)
        self.cluster.submit(_Key("fit", method, seed), fit_task, *task)

    def was_fitted(self, method: str, seed: int, head: Head, took: float) -> None:
        host, kept = host_of(method), self.cluster.put(head)
        if not HEADS[host].traits.changes_encoder:
            self.fitted(method, seed, head)
            for draw in self._draws[method, seed]:
                self._cell(method, seed, kept, took, draw, None)
            return
        self._held[method, seed] = _Held(head, kept, took)
        for draw in self._needed(method, seed):
            self._play(host, draw, seed, kept)
        self._release()

    def _needed(self, method: str, seed: int) -> list[ShotDraw]:
        """Draws whose courses a method wants, the one that figures show first."""
        shown = self.config.shown_draw(method)
        data = self.usual.data
        first = make_draw(shown, self.protocol, data.y_train, data.learnable())
        return [first, *(d for d in self._draws[method, seed] if d.name != shown)]

    def _play(self, host: str, draw: ShotDraw, seed: int, head: Ref) -> None:
        """Have a course played, unless it was or is being played for another method."""
        key = (host, draw.name, seed)
        if key in self._course:
            return
        found = self.courses.find(*key)
        self._course[key] = None if found is None else self.cluster.put(found)
        if found is not None:
            return
        if host not in self._rooms:
            source = source_of(host, self.usual, self.own)
            self._rooms[host] = self.cluster.put(_travelling(source))
        threads = session_threads()
        # The same number of threads as here: sums in another order are other sums.
        room = f"{self.name}/{host}"
        task = (room, host, head, self._rooms[host], self.protocol, draw, seed)
        self.cluster.submit(
            _Key("course", host, seed, draw.name),
            course_task,
            *task,
            self.courses.full,
            threads,
            cpus=min(threads, self.cluster.widest),
        )

    def was_played(self, host: str, draw: str, seed: int, course: Course) -> None:
        self.courses.keep(host, draw, seed, course)
        self._course[host, draw, seed] = self.cluster.put(course)
        self._release()

    def _release(self) -> None:
        """Start cells whose courses are there, after the figures of the method were made.

        A run that is stopped in between would find all cells finished, and make no figures.
        """
        for (method, seed), held in list(self._held.items()):
            host = host_of(method)
            if self._course[host, self.config.shown_draw(method), seed] is None:
                continue
            if not held.announced:
                self.fitted(method, seed, held.head)
                held.announced = True
            waiting = []
            for draw in self._draws[method, seed]:
                course = self._course[host, draw.name, seed]
                if course is None:
                    waiting.append(draw)
                else:
                    self._cell(method, seed, held.kept, held.took, draw, course)
            self._draws[method, seed] = waiting
            if not waiting:
                del self._held[method, seed]

    def _cell(
        self, method: str, seed: int, head: Ref, took: float, draw: ShotDraw, course: Ref | None
    ) -> None:
        task = (method, seed, head, took, self.data(method), self.protocol, draw, course)
        self.cluster.submit(_Key("cell", method, seed, draw.name), cell_task, *task)


def _travelling(source: Source) -> Source:
    """Embeddings, encoder and images for another process; files of images stay where they are."""
    images = source.images
    if images is not None:
        train, test, content = images.train.located(), images.test.located(), images.fingerprint
        images = replace(images, train=train, test=test, identify=partial(str, content))
    return replace(source, images=images)


def fit_task(
    fit: Fit,
    config: RunConfig,
    method: str,
    seed: int,
    data: Embeddings,
    protocol: Protocol,
) -> tuple[Head, float, list[str]]:
    """On a node: a fitted head, the seconds it took, and what a user should know."""
    notes: list[str] = []
    start = perf_counter()
    with one_thread():
        head = noting(fit, notes.append)(config, method, seed, data, protocol)
    return head, perf_counter() - start, notes


def cell_task(
    method: str,
    seed: int,
    head: Head,
    took: float,
    data: Embeddings,
    protocol: Protocol,
    draw: ShotDraw,
    course: Course | None,
) -> tuple[Cost, list[Record]]:
    """On a node: one cell."""
    return play_cell(method, seed, head, took, data, protocol, draw, course)


def course_task(
    room: str,
    host: str,
    head: Head,
    source: Source,
    protocol: Protocol,
    draw: ShotDraw,
    seed: int,
    full: bool,
    threads: int,
) -> Course:
    """On a node: one course. The room stays: its test images serve the next draw as well.

    threads : of its sessions
    """
    os.environ["OMP_NUM_THREADS"] = str(threads)  # what `Classroom` goes by
    key = (room, seed)
    with one_thread():
        if _ROOM.get("key") != key:
            _ROOM.clear()  # before the next is made: they are large
            _ROOM.update(key=key, room=Classroom(host, head, source, protocol, seed, full))
        played: Course = _ROOM["room"].play(draw)
    return played


_ROOM: dict[str, Any] = {}
