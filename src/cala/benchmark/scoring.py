"""Score a fitted head over the sessions of one draw."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from time import perf_counter

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from cala.benchmark.encoder_sessions import SessionLogits, torch_threads
from cala.core.rows import StoredRows
from cala.data.embeddings import Embeddings
from cala.data.protocol import Protocol, ShotDraw
from cala.heads import Head
from cala.image_groups import image_groups, kept_groups
from cala.metrics import Answers, SessionMetrics, metrics_of
from cala.records import Record

_SCORES = 2**23  # numbers at a time: 32 MB of rows or of logits
FIGURE_SCORES = 2**25  # rows × classes of the sample that figures are drawn from


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread: the arrays are small, and threads change the order of sums."""
    with threadpool_limits(1), torch_threads(1):
        yield


def run_draw(
    head: Head,
    data: Embeddings,
    protocol: Protocol,
    draw: ShotDraw,
    *,
    sessions: SessionLogits | None = None,
    seconds: list[float] | None = None,
) -> list[SessionMetrics]:
    """Metrics of sessions 0..T of one draw; `head` itself is not changed.

    sessions, seconds : as for `grow_and_answer`
    """
    spent = [] if seconds is None else seconds
    answers = grow_and_answer(head.fork(), data, protocol, draw, spent, sessions)
    return [metrics_of(session) for session in answers]


def grow_and_answer(
    head: Head,
    data: Embeddings,
    protocol: Protocol,
    draw: ShotDraw,
    seconds: list[float],
    sessions: SessionLogits | None,
) -> Iterator[Answers]:
    """The answers in sessions 0..T of one draw, whose classes `head` learns.

    seconds : takes up how long learning took in each incremental session
    sessions : logits of a host that changes its encoder, in place of those of its base branch
    """
    grown = _grown(head, data, draw, seconds)
    if isinstance(data.x_test, StoredRows):
        yield from streamed_answers(list(grown), data, protocol.base)
        return
    unit = head.embed(data.x_test)
    for session, now in enumerate(grown):
        seen = data.y_test < len(now.classes)
        if sessions is None:
            logits = now.unit_logits(unit[seen])
        else:
            logits = sessions.logits[session] + now.shift
        yield Answers.of(logits, data.y_test[seen], protocol.base)


def _grown(head: Head, data: Embeddings, draw: ShotDraw, seconds: list[float]) -> Iterator[Head]:
    """A copy of the head after each of the sessions 0..T; the copies share their arrays."""
    data = as_learned(head, data)
    yield head.fork()
    for rows in draw.rows:
        features, labels = data.shots(rows), data.y_train[rows]
        start = perf_counter()
        head.add(features, labels)
        seconds.append(perf_counter() - start)
        yield head.fork()


def as_learned(head: Head, data: Embeddings) -> Embeddings:
    """Without shot views if the head's fake classes, mixed from embeddings, had none."""
    return data if head.traits.mixed_images_are_new else replace(data, x_shot=None)


def streamed_answers(heads: Sequence[Head], data: Embeddings, n_base: int) -> list[Answers]:
    """Answers of each session for test rows that do not fit into memory, read and embedded once.

    heads : as they were after each session; a row counts from the session that knows its class on
    """
    parts: list[list[Answers]] = [[] for _ in heads]
    last = heads[-1]
    stay = last.host.traits.old_columns_stay
    size = max(1, _SCORES // max(len(last.classes), last.dim))
    for start in range(0, len(data.y_test), size):
        labels = data.y_test[start : start + size]
        unit = last.embed(data.x_test[start : start + size])
        logits = last.unit_logits(unit) if stay else None
        for found, head in zip(parts, heads, strict=True):
            seen, known = labels < len(head.classes), len(head.classes)
            # Columns that stay are the same in every session: earlier ones see fewer of them.
            scores = head.unit_logits(unit[seen]) if logits is None else logits[seen, :known]
            found.append(Answers.of(scores, labels[seen], n_base))
    return [Answers.joined(found) for found in parts]


def for_figures(data: Embeddings, n_classes: int) -> Embeddings:
    """The embeddings with all test rows in memory; of a set beyond memory a seeded sample."""
    if not isinstance(data.x_test, StoredRows):
        return data
    most = max(1, FIGURE_SCORES // n_classes)
    rows = np.arange(len(data.y_test))
    if len(rows) > most:
        rows = np.sort(np.random.default_rng(0).permutation(len(rows))[:most])
    return replace(
        data, x_test=data.x_test[rows], y_test=data.y_test[rows], names_test=None, image_test=None
    )


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
