"""One protocol, many methods, the same draws for all of them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import asdict
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from cala.benchmark.config import RunConfig
from cala.benchmark.costs import Cost, head_bytes
from cala.benchmark.course_files import Courses
from cala.benchmark.courses import Course
from cala.benchmark.draws import make_draw
from cala.benchmark.sources import Own, Source, source_of
from cala.benchmark.streaming import streamed_answers
from cala.benchmark.threads import one_thread
from cala.core.rows import Array, StoredRows, where
from cala.data.embeddings import Embeddings
from cala.data.protocol import Protocol, ShotDraw
from cala.encoders.leakage import stated_classes
from cala.errors import BaseQueryWarning, InputError
from cala.files import shown
from cala.heads import ADAPTERS, HEADS, BaseData, Head, default_metric, make_head
from cala.heads.factory import split_name
from cala.image_groups import image_groups, kept_groups
from cala.metrics import Answers, SessionMetrics, metrics_of
from cala.records import Cell, Record
from cala.systems.published import published

Fit = Callable[[RunConfig, str, int, Embeddings, Protocol], Head]
Cells = Callable[..., Iterator[list[Record]]]
"""What plays the cells of a run: `run_cells`, or something with the same arguments."""


def fit_method(
    name: str, data: Embeddings, protocol: Protocol, *, seed: int = 0, **options: Any
) -> Head:
    """A head fitted to the base session; the adapter prepares for the protocol's own sessions.

    The encoder's scale belongs to the cosine it was trained with; in another metric, and where
    logits are no cosines, the scale is fitted, unless `scale` is given.
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
        if holdout is None:  # said once for the whole run, see `holdout_note`
            warnings.simplefilter("ignore", BaseQueryWarning)
        features = where(data.x_train, rows)
        return head.fit_base(BaseData(features, data.y_train[rows], fakes=fakes, holdout=holdout))


def _check_base_classes(labels: Array, protocol: Protocol) -> None:
    """Every base class has rows to learn from: only then is a class's label its column."""
    found = np.unique(labels).tolist()
    missing = sorted(set(range(protocol.base)) - set(found))
    if missing:
        some = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
        raise InputError(
            f"{protocol.name}: base class {some} has no training rows: labels are whole numbers "
            f"from 0 on, and 0 to {protocol.base - 1} are the base classes"
        )
    if found[0] < 0:
        raise InputError(f"{protocol.name}: label {found[0]} in y_train: labels start at 0")


def run_draw(
    head: Head,
    data: Embeddings,
    protocol: Protocol,
    draw: ShotDraw,
    *,
    course: Course | None = None,
    added: Callable[[float, Head], None] = lambda seconds, head: None,
) -> list[SessionMetrics]:
    """Metrics of sessions 0..T for one draw; `head` itself is not changed.

    course, added : as for `answers_of_draw`
    """
    answers = answers_of_draw(head, data, protocol, draw, course=course, added=added)
    return [metrics_of(session) for session in answers]


def answers_of_draw(
    head: Head,
    data: Embeddings,
    protocol: Protocol,
    draw: ShotDraw,
    *,
    course: Course | None = None,
    added: Callable[[float, Head], None] = lambda seconds, head: None,
) -> Iterator[Answers]:
    """What is answered in sessions 0..T of one draw; `head` itself is not changed.

    course : of a host that changes its encoder: its logits stand in for those of the base branch
    added : called in every incremental session with the seconds that learning took, and the head
    """
    grown = _grown(head.fork(), data, protocol, draw, added)
    if isinstance(data.x_test, StoredRows):
        yield from streamed_answers(list(grown), data, protocol.base)
        return
    unit = head.embed(data.x_test)
    for session, now in enumerate(grown):
        seen = data.y_test < len(now.classes)
        if course is None:
            logits = now.unit_logits(unit[seen])
        else:
            logits = course.logits[session] + now.shift
        yield Answers.of(logits, data.y_test[seen], protocol.base)


def _grown(
    head: Head,
    data: Embeddings,
    protocol: Protocol,
    draw: ShotDraw,
    added: Callable[[float, Head], None],
) -> Iterator[Head]:
    """A copy of the head as it is after each of the sessions 0..T; they share their arrays."""
    yield head.fork()
    for session in range(protocol.sessions):
        rows = draw.rows[session]
        features, labels = data.x_train[rows], data.y_train[rows]
        start = perf_counter()
        head.add(features, labels)
        added(perf_counter() - start, head)
        yield head.fork()


def run_cells(
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
    """The records of each cell as it finishes; cells in `done` are passed over.

    An adapter is trained once per method and seed, never per draw.

    usual : embeddings for every method whose host has none of its own
    own : embeddings of the same rows for the methods of single hosts
    courses : of hosts that change their encoder, shared by all methods of a host
    fit : makes the head of a method and seed; `fit_configured` by default
    fitted : called with every head that was fitted to the base session
    costs : called with what a cell took, before its records are handed out
    """
    own = own or {}
    courses = courses or Courses(None, config.full_sessions)
    for note in holdout_notes(config, done, usual, own):
        progress(note)
    for method, seed, left in unfinished(config, usual.data, protocol, done):
        progress(f"{method}, seed {seed}: fitting")
        mine = source_of(method, usual, own)
        start = perf_counter()
        with one_thread():
            head = (fit or fit_configured)(config, method, seed, mine.data, protocol)
        took = perf_counter() - start
        fitted(method, seed, head)
        for draw in left:
            progress(f"{method}, seed {seed}: {draw.name}")
            said = partial(say_session, progress, f"{method}, seed {seed}: {draw.name}")
            with one_thread():
                course = courses.of(method, head, mine, protocol, draw, seed, said)
            cost, records = play_cell(method, seed, head, took, mine.data, protocol, draw, course)
            costs(cost)
            yield records


def unfinished(
    config: RunConfig, data: Embeddings, protocol: Protocol, done: Set[Cell]
) -> list[tuple[str, int, list[ShotDraw]]]:
    """Methods and seeds with draws that are still to be played, in order."""
    draws = [make_draw(name, protocol, data.y_train, data.learnable()) for name in config.draws]
    found = []
    for method in config.methods:
        wanted = config.draws_of(method)
        for seed in config.seeds:
            left = [d for d in draws if d.name in wanted and (method, d.name, seed) not in done]
            if left:
                found.append((method, seed, left))
    return found


def play_cell(
    method: str,
    seed: int,
    head: Head,
    took: float,
    data: Embeddings,
    protocol: Protocol,
    draw: ShotDraw,
    course: Course | None,
) -> tuple[Cost, list[Record]]:
    """One draw for a fitted head; took : seconds of fitting it"""
    clock = _Clock()
    with one_thread():
        answers = answers_of_draw(head, data, protocol, draw, course=course, added=clock)
        records = cell_records(method, draw.name, seed, answers, data, protocol)
    return _cost(method, draw.name, seed, took, clock, course), records


def _cost(
    method: str, draw: str, seed: int, took: float, clock: _Clock, course: Course | None
) -> Cost:
    if course is None:
        return Cost(method, draw, seed, took, clock.seconds, clock.bytes)
    seconds = [a + b for a, b in zip(clock.seconds, course.seconds, strict=True)]
    held = course.bytes + clock.adapter_bytes
    return Cost(method, draw, seed, took, seconds, held, course.encoded, course.encoding)


def say_session(progress: Callable[[str], None], where: str, session: int) -> None:
    """Say which session of a course is being played."""
    progress(f"{where}, session {session}")


class _Clock:
    """The seconds of each session, and the size of the head after the last."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._head: Head | None = None

    def __call__(self, seconds: float, head: Head) -> None:
        self.seconds.append(seconds)
        self._head = head

    @property
    def bytes(self) -> int:
        return 0 if self._head is None else head_bytes(self._head)

    @property
    def adapter_bytes(self) -> int:
        """What an adapter holds beside its host."""
        return 0 if self._head is None else self.bytes - head_bytes(self._head.host)


def holdout_notes(config: RunConfig, done: Set[Cell], usual: Source, own: Own) -> list[str]:
    """One note per embeddings that methods with unfinished cells use."""
    left = [
        method
        for method in config.methods
        if any((method, d, s) not in done for d in config.draws_of(method) for s in config.seeds)
    ]
    notes = [holdout_note(s.data, s.name) for s in (source_of(m, usual, own) for m in left)]
    return [note for note in dict.fromkeys(notes) if note]


def fit_configured(
    config: RunConfig, method: str, seed: int, data: Embeddings, protocol: Protocol
) -> Head:
    """`fit_method` with a run's options, and γ set for inference where the run says so."""
    options: dict[str, Any] = {"adapter": config.adapter}
    if config.metric is not None:
        options["metric"] = config.metric
    if config.scale is not None:
        options["scale"] = config.scale
    numbers = published(split_name(method)[0], protocol.name)
    options.update(numbers.head)
    if config.full_sessions and not HEADS[split_name(method)[0]].traits.changes_encoder:
        options.update(numbers.session)
    return at_gamma(fit_method(method, data, protocol, seed=seed, **options), config.gamma)


def at_gamma(head: Head, gamma: float | None) -> Head:
    """A head that is the same but for γ at inference; None leaves it as it was trained.

    γ counts from the method's own: an adapter that fell back to LA, which has another γ, keeps LA's
    shift at the γ that the method is usually trained with.
    """
    if gamma is None or not head.adapted:
        return head
    changed: Any = head.fork()
    usual, trained = changed.recipe.gamma, changed.trained_as.gamma
    changed.gamma = gamma if trained == usual else gamma * trained / usual
    return changed


def cell_records(
    method: str,
    draw: str,
    seed: int,
    sessions: Iterable[Answers],
    data: Embeddings,
    protocol: Protocol,
) -> list[Record]:
    """A finished cell as records.

    Tables show AUSUC and NCR of the last session, so only this one keeps them by group.
    """
    groups = image_groups(data.y_test)
    n_groups = int(groups.max(initial=-1)) + 1
    records = []
    for session, answers in enumerate(sessions):
        n_classes = protocol.base + protocol.way * session
        seen, metrics = data.y_test < n_classes, asdict(metrics_of(answers))
        values = {k: None if math.isnan(v) else v for k, v in metrics.items()}
        kept = kept_groups(answers, groups[seen], n_groups, curve=session == protocol.sessions)
        cell = (method, draw, seed, session, n_classes, int(seen.sum()), values)
        records.append(Record(*cell, groups=kept))
    return records


def holdout_note(data: Embeddings, source: str = "") -> str:
    """What a user should know where base queries are rows that trained the encoder."""
    trained = data.scale is not None or bool(stated_classes(data.provenance))
    if data.holdout is not None or not trained:
        return ""
    return (
        f"note: {shown(source) or 'the embeddings file'} marks no held-out rows, so the adapters' "
        "base queries are rows that the encoder was trained on"
    )
