"""Cells on a Ray cluster: the same records as in one process, written by this one alone.

Three kinds of tasks: a method and seed is fitted once, the sessions of a host that trains its
encoder run once per draw and seed, and a cell is a draw scored with the fitted head.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from cala.benchmark.config import RunConfig, changes_encoder
from cala.benchmark.encoder_sessions import SessionLogits, SessionPlayer, session_threads
from cala.benchmark.notes import SILENT, RunNote, Watch
from cala.benchmark.runner import CellPlan, Fit, Fitted, PlayedCell, fit_timed, play_cell
from cala.benchmark.scoring import one_thread
from cala.benchmark.sources import Source, host_of
from cala.cluster.ray_cluster import RayCluster, Ref
from cala.data.embeddings import Embeddings
from cala.data.protocol import Protocol, ShotDraw
from cala.heads import Head


@dataclass(frozen=True)
class RayCells:
    """Runs the cells of a plan as `run_cells` does, on a cluster."""

    cluster: RayCluster

    def __call__(self, plan: CellPlan, watch: Watch = SILENT) -> Iterator[Fitted | PlayedCell]:
        for note in plan.notes():
            watch.note(note)
        job = _Job(self.cluster, plan)
        for method, seed, draws in plan.unfinished():
            watch.status(f"{method}, seed {seed}: fitting")
            job.fit(method, seed, draws)
        for key, value in self.cluster.results():
            assert isinstance(key, _Key)
            name = f"{key.name}, seed {key.seed}: {key.draw}"
            if key.kind == "fit":
                fitted, notes = value
                for note in notes:
                    watch.note(note)
                yield from job.fitted(fitted)
            elif key.kind == "sessions":
                watch.status(f"{name}, all sessions")
                yield from job.played(key.name, key.draw, key.seed, value)
            else:
                watch.status(name)
                yield value


class _Key(NamedTuple):
    """A task. kind : fit, sessions or cell; name : of a method, or of the sessions' host"""

    kind: str
    name: str
    seed: int
    draw: str = ""


@dataclass
class _Held:
    """A fitted method whose draws wait for their sessions."""

    fitted: Fitted
    kept: Ref
    draws: list[ShotDraw]
    announced: bool = False


class _Job:
    """What of a run is where: heads and session logits in the cluster, draws that wait for one."""

    def __init__(self, cluster: RayCluster, plan: CellPlan) -> None:
        self.cluster, self.plan = cluster, plan
        self.name = secrets.token_hex(8)  # tells workers that served another run apart
        self._data: dict[int, Ref] = {}
        self._sources: dict[str, Ref] = {}
        self._draws: dict[tuple[str, int], list[ShotDraw]] = {}
        self._sessions: dict[tuple[str, str, int], Ref | None] = {}  # None while they run
        self._held: dict[tuple[str, int], _Held] = {}

    def data(self, method: str) -> Ref:
        """The embeddings of a method, put into the cluster once."""
        source = self.plan.task.source_of(method)
        if id(source) not in self._data:
            self._data[id(source)] = self.cluster.put(source.data)
        return self._data[id(source)]

    def fit(self, method: str, seed: int, draws: list[ShotDraw]) -> None:
        plan = self.plan
        self._draws[method, seed] = draws
        task = (plan.fit, plan.config, method, seed, self.data(method), plan.task.protocol)
        self.cluster.submit(_Key("fit", method, seed), fit_task, *task)

    def fitted(self, fitted: Fitted) -> Iterator[Fitted]:
        method, seed = fitted.method, fitted.seed
        kept, draws = self.cluster.put(fitted), self._draws.pop((method, seed))
        if not changes_encoder(method):
            yield fitted
            for draw in draws:
                self._cell(fitted, kept, draw, None)
            return
        self._held[method, seed] = _Held(fitted, kept, draws)
        # The draw that figures show comes first: they are made before the cells.
        shown = self.plan.task.draw(self.plan.config.shown_draw(method))
        for draw in (shown, *(d for d in draws if d.name != shown.name)):
            self._play(host_of(method), draw, seed, fitted.head)
        yield from self._release()

    def _play(self, host: str, draw: ShotDraw, seed: int, head: Head) -> None:
        """Run the sessions of a draw, unless another method has or does."""
        key, sessions = (host, draw.name, seed), self.plan.sessions
        if key in self._sessions:
            return
        found = sessions.find(*key)
        self._sessions[key] = None if found is None else self.cluster.put(found)
        if found is not None:
            return
        if host not in self._sources:
            source = self.plan.task.source_of(host)
            self._sources[host] = self.cluster.put(_travelling(source))
        # The same number of threads as here: another order of sums gives other sums.
        threads = session_threads()
        task = (head, self._sources[host], self.plan.task.protocol, draw, seed, sessions.full)
        self.cluster.submit(
            _Key("sessions", host, seed, draw.name),
            sessions_task,
            f"{self.name}/{host}",
            host,
            *task,
            threads,
            cpus=min(threads, self.cluster.widest),
        )

    def played(self, host: str, draw: str, seed: int, sessions: SessionLogits) -> Iterator[Fitted]:
        self.plan.sessions.keep(host, draw, seed, sessions)
        self._sessions[host, draw, seed] = self.cluster.put(sessions)
        yield from self._release()

    def _release(self) -> Iterator[Fitted]:
        """Start cells whose sessions are there, after the figures of the method were made.

        A run that is stopped in between would find all cells finished, and make no figures.
        """
        for (method, seed), held in list(self._held.items()):
            host = host_of(method)
            if self._sessions[host, self.plan.config.shown_draw(method), seed] is None:
                continue
            if not held.announced:
                yield held.fitted
                held.announced = True
            waiting = []
            for draw in held.draws:
                sessions = self._sessions[host, draw.name, seed]
                if sessions is None:
                    waiting.append(draw)
                else:
                    self._cell(held.fitted, held.kept, draw, sessions)
            held.draws = waiting
            if not waiting:
                del self._held[method, seed]

    def _cell(self, fitted: Fitted, kept: Ref, draw: ShotDraw, sessions: Ref | None) -> None:
        key = _Key("cell", fitted.method, fitted.seed, draw.name)
        data, protocol = self.data(fitted.method), self.plan.task.protocol
        self.cluster.submit(key, play_cell, kept, data, protocol, draw, sessions)


def _travelling(source: Source) -> Source:
    """Embeddings, encoder and images for another process; image files stay where they are."""
    images = source.images
    if images is not None:
        train, test, content = images.train.located(), images.test.located(), images.fingerprint
        images = replace(images, train=train, test=test, identify=partial(str, content))
    return replace(source, images=images)


def fit_task(
    fit: Fit, config: RunConfig, method: str, seed: int, data: Embeddings, protocol: Protocol
) -> tuple[Fitted, list[RunNote]]:
    """On a node: a fitted method, and what a user should know."""
    notes: list[RunNote] = []
    return fit_timed(fit, config, method, seed, data, protocol, notes.append), notes


def sessions_task(
    key: str,
    host: str,
    head: Head,
    source: Source,
    protocol: Protocol,
    draw: ShotDraw,
    seed: int,
    full: bool,
    threads: int,
) -> SessionLogits:
    """On a node: the sessions of one draw. The player stays for the next draw.

    key : of the run and host; threads : that sessions train with
    """
    os.environ["OMP_NUM_THREADS"] = str(threads)  # what `session_threads` reads
    with one_thread():
        if _PLAYER.get("key") != (key, seed):
            _PLAYER.clear()  # before the next is made: they are large
            player = SessionPlayer(host, head, source, protocol, seed, full)
            _PLAYER.update(key=(key, seed), play=player.play)
        play: Callable[[ShotDraw], SessionLogits] = _PLAYER["play"]
        return play(draw)


_PLAYER: dict[str, Any] = {}
