"""Cells on a Ray cluster: the same records as in one process, written by this one alone.

Three kinds of tasks: a method and seed is fitted once, the sessions of a host that trains its
encoder run once per draw and seed, and a cell is a draw scored with the fitted head.
"""

from __future__ import annotations

import os
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from cala.benchmark.config import changes_encoder
from cala.benchmark.encoder_sessions import SessionLogits, SessionPlayer, session_threads
from cala.benchmark.notes import SILENT, Watch
from cala.benchmark.runner import CellPlan, Fitted, PlayedCell, fit_timed, play_cell
from cala.benchmark.scoring import one_thread
from cala.benchmark.sources import Source, host_of
from cala.cluster.ray_cluster import RayCluster, Ref
from cala.data.protocol import Protocol, ShotDraw


class _Key(NamedTuple):
    """A task. kind : fit, sessions or cell; name : of a method, or of the sessions' host"""

    kind: str
    name: str
    seed: int
    draw: str = ""


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
            job.submit(method, seed, draws)
        fitted: set[tuple[str, int]] = set()
        held: dict[tuple[str, int], list[Fitted | PlayedCell]] = defaultdict(list)
        for key, value in self.cluster.results():
            assert isinstance(key, _Key)
            name = f"{key.name}, seed {key.seed}: {key.draw}"
            if key.kind == "fit":
                for note in value.notes:
                    watch.note(note)
                fitted.add((key.name, key.seed))
                held[key.name, key.seed].insert(0, value)
            elif key.kind == "sessions":
                watch.status(f"{name}, all sessions")
                plan.sessions.keep(key.name, key.draw, key.seed, value)
                job.playing.remove(key)
            else:
                watch.status(name)
                held[key.name, key.seed].append(value)
            # A method comes before its cells, and after the sessions that its figures show: a run
            # that is stopped in between would find all cells finished, and make no figures.
            for own, ready in held.items():
                if own in fitted and job.shown(*own) not in job.playing:
                    yield from ready
                    ready.clear()


class _Job:
    """The tasks of a run; Ray starts one when those that it depends on are done.

    playing : sessions that are not finished
    """

    def __init__(self, cluster: RayCluster, plan: CellPlan) -> None:
        self.cluster, self.plan = cluster, plan
        self.playing: set[_Key] = set()
        self._name = secrets.token_hex(8)  # tells workers that served another run apart
        self._data: dict[int, Ref] = {}
        self._sources: dict[str, Ref] = {}
        self._sessions: dict[_Key, Ref] = {}

    def submit(self, method: str, seed: int, draws: list[ShotDraw]) -> None:
        """Fit a method, play the sessions of its host, run its cells."""
        plan, source = self.plan, self.plan.task.source_of(method)
        if id(source) not in self._data:
            self._data[id(source)] = self.cluster.put(source.data)
        data, protocol = self._data[id(source)], plan.task.protocol
        task = (plan.fit, plan.config, method, seed, data, protocol)
        fitted = self.cluster.submit(_Key("fit", method, seed), fit_timed, *task)
        if changes_encoder(method):
            # The draw that figures show comes first: they are made before the cells.
            shown = plan.task.draw(plan.config.shown_draw(method))
            for draw in (shown, *draws):
                self._play(_session_key(method, seed, draw.name), fitted, draw)
        for draw in draws:
            sessions = self._sessions.get(_session_key(method, seed, draw.name))
            key = _Key("cell", method, seed, draw.name)
            self.cluster.submit(key, play_cell, fitted, data, protocol, draw, sessions)

    def shown(self, method: str, seed: int) -> _Key:
        """The sessions that a method's figures show."""
        return _session_key(method, seed, self.plan.config.shown_draw(method))

    def _play(self, key: _Key, fitted: Ref, draw: ShotDraw) -> None:
        """Play the sessions of a draw, unless another method has or does."""
        if key in self._sessions:
            return
        host, sessions = key.name, self.plan.sessions
        found = sessions.find(host, draw.name, key.seed)
        if found is not None:
            self._sessions[key] = self.cluster.put(found)
            return
        if host not in self._sources:
            source = self.plan.task.source_of(host)
            self._sources[host] = self.cluster.put(_travelling(source))
        # The same number of threads as here: another order of sums gives other sums.
        threads = session_threads()
        task = (fitted, self._sources[host], self.plan.task.protocol, draw, sessions.full, threads)
        cpus = min(threads, self.cluster.widest)
        self._sessions[key] = self.cluster.submit(key, play_task, self._name, *task, cpus=cpus)
        self.playing.add(key)


def _session_key(method: str, seed: int, draw: str) -> _Key:
    return _Key("sessions", host_of(method), seed, draw)


def _travelling(source: Source) -> Source:
    """Embeddings, encoder and images for another process; image files stay where they are."""
    images = source.images
    if images is not None:
        train, test, content = images.train.located(), images.test.located(), images.fingerprint
        images = replace(images, train=train, test=test, identify=partial(str, content))
    return replace(source, images=images)


def play_task(
    run: str,
    fitted: Fitted,
    source: Source,
    protocol: Protocol,
    draw: ShotDraw,
    full: bool,
    threads: int,
) -> SessionLogits:
    """On a node: the sessions of one draw. The player stays for the next draw.

    run : tells runs apart; threads : that sessions train with
    """
    os.environ["OMP_NUM_THREADS"] = str(threads)  # what `session_threads` reads
    host, seed = host_of(fitted.method), fitted.seed
    with one_thread():
        if _PLAYER.get("key") != (run, host, seed):
            _PLAYER.clear()  # before the next is made: they are large
            player = SessionPlayer(host, fitted.head, source, protocol, seed, full)
            _PLAYER.update(key=(run, host, seed), play=player.play)
        play: Callable[[ShotDraw], SessionLogits] = _PLAYER["play"]
        return play(draw)


_PLAYER: dict[str, Any] = {}
