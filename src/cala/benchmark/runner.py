"""One protocol, many methods, the same draws for all of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from cala.benchmark.config import RunConfig, changes_encoder
from cala.benchmark.costs import Cost, head_bytes
from cala.benchmark.encoder_sessions import SessionCache, SessionLogits, SessionPlayer
from cala.benchmark.notes import SILENT, RunNote, Watch, report_fallbacks
from cala.benchmark.scoring import cell_records, grow_and_answer, one_thread
from cala.benchmark.sources import Source, host_of
from cala.benchmark.task import BenchTask
from cala.core.rows import Array, where
from cala.data.embeddings import Embeddings
from cala.data.protocol import Protocol, ShotDraw
from cala.encoders.leakage import stated_classes
from cala.errors import BaseQueryWarning, InputError
from cala.files import preview, shown
from cala.heads import ADAPTERS, HEADS, BaseData, Head, default_metric, make_head
from cala.heads.factory import split_name
from cala.records import Cell, Record
from cala.systems.published import published

Fit = Callable[[RunConfig, str, int, Embeddings, Protocol], Head]


def fit_method(
    name: str, data: Embeddings, protocol: Protocol, *, seed: int = 0, **options: Any
) -> Head:
    """A head fitted to the base session; the adapter prepares for the protocol's own sessions.

    The encoder's scale belongs to the cosine it was trained with. In another metric, and where
    logits are not cosines, the scale is fitted, unless `scale` is given.
    """
    recipe: dict[str, Any] = {"novel": protocol.way * protocol.sessions, "way": protocol.way}
    host, adapter = split_name(name)
    traits = HEADS[host].traits
    counts_shots = adapter is not None and len(ADAPTERS[adapter].shots) > 1
    if not (counts_shots and traits.old_columns_stay):
        # Where shots move all columns, what one number of them teaches does not carry over to
        # another.
        recipe["shots"] = (protocol.shot,)
    recipe.update(options.pop("adapter", {}))
    metric = default_metric(name) if options.get("metric") is None else options["metric"]
    if metric == "cosine" and traits.takes_encoder_scale and data.scale is not None:
        options.setdefault("scale", data.scale)
    head = make_head(name, seed=seed, adapter=recipe, parts=data.parts, **options)
    rows = (data.y_train < protocol.base) & data.learnable()
    _check_base_classes(data.y_train[rows], protocol)
    holdout = None if data.holdout is None else data.holdout[rows]
    fakes = data.fakes if traits.mixed_images_are_new else None  # else mixed from embeddings
    with warnings.catch_warnings():
        if holdout is None:  # noted once for the whole run, see `holdout_note`
            warnings.simplefilter("ignore", BaseQueryWarning)
        features = where(data.x_train, rows)
        return head.fit_base(BaseData(features, data.y_train[rows], fakes=fakes, holdout=holdout))


def _check_base_classes(labels: Array, protocol: Protocol) -> None:
    """Every base class has rows to learn from: only then is a class's label its column."""
    found = np.unique(labels).tolist()
    missing = sorted(set(range(protocol.base)) - set(found))
    if missing:
        raise InputError(
            f"{protocol.name}: base class {preview(map(str, missing), 5)} has no training rows",
            f"label classes from 0 on, with 0 to {protocol.base - 1} as the base classes",
            field="y_train",
            code="empty_base_class",
        )
    if found[0] < 0:
        raise InputError(
            f"{protocol.name}: label {found[0]} in y_train", "start at 0", field="y_train"
        )


def fit_configured(
    config: RunConfig, method: str, seed: int, data: Embeddings, protocol: Protocol
) -> Head:
    """`fit_method` with a run's options, and γ set for inference where the run says so."""
    options: dict[str, Any] = {"adapter": config.adapter, "metric": config.metric}
    if config.scale is not None:
        options["scale"] = config.scale
    numbers = published(host_of(method), protocol.name)
    options.update(numbers.head)
    if config.full_sessions and not changes_encoder(method):
        options.update(numbers.session)
    return at_gamma(fit_method(method, data, protocol, seed=seed, **options), config.gamma)


def at_gamma(head: Head, gamma: float | None) -> Head:
    """The same head with another γ at inference; None leaves it as it was trained.

    γ counts from the method's own: an adapter that fell back to LA, which has another γ, keeps LA's
    shift at the γ that the method is usually trained with.
    """
    if gamma is None or not head.adapted:
        return head
    changed: Any = head.fork()
    usual, trained = changed.recipe.gamma, changed.trained_as.gamma
    changed.gamma = gamma if trained == usual else gamma * trained / usual
    return changed


@dataclass(frozen=True)
class Fitted:
    """A method fitted to the base session with one seed.

    seconds : that this took; notes : what a user should know of it
    """

    method: str
    seed: int
    head: Head
    seconds: float
    notes: list[RunNote]


@dataclass(frozen=True)
class PlayedCell:
    """A finished cell."""

    cost: Cost
    records: list[Record]


@dataclass(frozen=True)
class CellPlan:
    """Which cells to run, and with what.

    sessions : shared by all methods of a host that changes its encoder
    done : cells to skip
    fit : makes the head of a method and seed
    """

    config: RunConfig
    task: BenchTask
    sessions: SessionCache = field(default_factory=lambda: SessionCache(None, False))
    done: Set[Cell] = frozenset()
    fit: Fit = fit_configured

    def unfinished(self) -> list[tuple[str, int, list[ShotDraw]]]:
        """Methods and seeds with draws that are still to be run, in order."""
        found = []
        for method in self.config.methods:
            for seed in self.config.seeds:
                wanted = self.config.draws_of(method)
                names = [n for n in self.config.draws if n in wanted]
                left = [self.task.draw(n) for n in names if (method, n, seed) not in self.done]
                if left:
                    found.append((method, seed, left))
        return found

    def notes(self) -> list[RunNote]:
        """A note for each embeddings that unfinished methods use without held-out rows."""
        methods = dict.fromkeys(method for method, _, _ in self.unfinished())
        notes = [holdout_note(self.task.source_of(method)) for method in methods]
        return [note for note in dict.fromkeys(notes) if note is not None]

    def session_logits(
        self, fitted: Fitted, draw: ShotDraw, status: Callable[[str], None]
    ) -> SessionLogits | None:
        """The logits of a host that changes its encoder; None for any other."""
        if not changes_encoder(fitted.method):
            return None
        host, seed, task = host_of(fitted.method), fitted.seed, self.task

        def player() -> SessionPlayer:
            source, full = task.source_of(host), self.sessions.full
            return SessionPlayer(host, fitted.head, source, task.protocol, seed, full)

        where = f"{fitted.method}, seed {seed}: {draw.name}"
        return self.sessions.of(
            host, draw, seed, player, lambda session: status(f"{where}, session {session}")
        )


Cells = Callable[[CellPlan, Watch], Iterator[Fitted | PlayedCell]]
"""Runs the cells of a plan: in this process (`run_cells`) or elsewhere."""


def run_cells(plan: CellPlan, watch: Watch = SILENT) -> Iterator[Fitted | PlayedCell]:
    """Yield every method as it is fitted, and every cell as it finishes.

    An adapter is trained once per method and seed, never per draw.
    """
    for note in plan.notes():
        watch.note(note)
    for method, seed, draws in plan.unfinished():
        watch.status(f"{method}, seed {seed}: fitting")
        data, protocol = plan.task.source_of(method).data, plan.task.protocol
        fitted = fit_timed(plan.fit, plan.config, method, seed, data, protocol)
        for note in fitted.notes:
            watch.note(note)
        yield fitted
        for draw in draws:
            watch.status(f"{method}, seed {seed}: {draw.name}")
            with one_thread():
                sessions = plan.session_logits(fitted, draw, watch.status)
            yield play_cell(fitted, data, protocol, draw, sessions)


def run_records(config: RunConfig, task: BenchTask, watch: Watch = SILENT) -> list[Record]:
    """The records of all cells of a run that writes nothing."""
    found = run_cells(CellPlan(config, task), watch)
    return [r for cell in found if isinstance(cell, PlayedCell) for r in cell.records]


def fit_timed(
    fit: Fit, config: RunConfig, method: str, seed: int, data: Embeddings, protocol: Protocol
) -> Fitted:
    """Fit on one thread; fallbacks become notes."""
    start, notes = perf_counter(), list[RunNote]()
    with one_thread():
        call = partial(fit, config, method, seed, data, protocol)
        head = report_fallbacks(call, method, notes.append)
    return Fitted(method, seed, head, perf_counter() - start, notes)


def play_cell(
    fitted: Fitted,
    data: Embeddings,
    protocol: Protocol,
    draw: ShotDraw,
    sessions: SessionLogits | None,
) -> PlayedCell:
    """One draw for a fitted method."""
    method, seed, seconds = fitted.method, fitted.seed, list[float]()
    head = fitted.head.fork()
    with one_thread():
        answers = grow_and_answer(head, data, protocol, draw, seconds, sessions)
        records = cell_records(method, draw.name, seed, answers, data, protocol)
    held = head_bytes(head) if seconds else 0
    if sessions is None:
        cost = Cost(method, draw.name, seed, fitted.seconds, seconds, held)
    else:
        both = [a + b for a, b in zip(seconds, sessions.seconds, strict=True)]
        adapter = held - head_bytes(head.host) if seconds else 0  # beside its host
        size, again = sessions.bytes + adapter, (sessions.encoded, sessions.encoding)
        cost = Cost(method, draw.name, seed, fitted.seconds, both, size, *again)
    return PlayedCell(cost, records)


def holdout_note(source: Source) -> RunNote | None:
    """What a user should know where base queries are rows that trained the encoder."""
    data = source.data
    trained = data.scale is not None or bool(stated_classes(data.provenance))
    if data.holdout is not None or not trained:
        return None
    text = (
        f"{shown(source.name) or 'the embeddings file'} marks no held-out rows, so the adapters' "
        "base queries are rows that the encoder was trained on"
    )
    return RunNote("no_holdout", text)
