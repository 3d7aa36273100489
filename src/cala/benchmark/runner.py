"""One protocol, many methods, the same draws for all of them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Set
from dataclasses import asdict
from typing import Any

from torch import Tensor

from cala.benchmark.config import RunConfig
from cala.benchmark.draws import make_draw
from cala.data.embeddings import Embeddings
from cala.data.protocol import Protocol, ShotDraw
from cala.errors import BaseQueryWarning, InputError
from cala.heads import HEADS, AdaptedHead, Head, default_metric, make_head
from cala.heads.factory import split_name
from cala.metrics import SessionMetrics, session_metrics
from cala.records import Cell, Record

Fit = Callable[[RunConfig, str, int, Embeddings, Protocol], Head]


def fit_method(
    name: str, data: Embeddings, protocol: Protocol, *, seed: int = 0, **options: Any
) -> Head:
    """A head fitted to the base session; the adapter prepares for the protocol's own sessions.

    The encoder's scale belongs to the cosine it was trained with; in another metric, and where
    logits are no cosines, the scale is fitted, unless `scale` is given.
    """
    recipe: dict[str, Any] = {"novel": protocol.way * protocol.sessions, "way": protocol.way}
    if not name.endswith("cala-plus"):
        recipe["shots"] = (protocol.shot,)  # cala-plus learns what the number of shots means
    recipe.update(options.pop("adapter", {}))
    metric = default_metric(name) if options.get("metric") is None else options["metric"]
    fits = HEADS[split_name(name)[0]].takes_encoder_scale
    if metric == "cosine" and fits and data.scale is not None:
        options.setdefault("scale", data.scale)
    head = make_head(name, seed=seed, adapter=recipe, parts=data.parts, **options)
    rows = (data.y_train < protocol.base) & data.learnable()
    _check_base_classes(data.y_train[rows], protocol)
    holdout = None if data.holdout is None else data.holdout[rows]
    with warnings.catch_warnings():
        if holdout is None:  # said once for the whole run, see `holdout_note`
            warnings.simplefilter("ignore", BaseQueryWarning)
        return head.fit_base(
            data.x_train[rows], data.y_train[rows], fakes=data.fakes, holdout=holdout
        )


def _check_base_classes(labels: Tensor, protocol: Protocol) -> None:
    """Every base class has rows to learn from: only then is a class's label its column."""
    found = labels.unique().tolist()
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
    head: Head, data: Embeddings, protocol: Protocol, draw: ShotDraw
) -> list[SessionMetrics]:
    """Metrics of sessions 0..T for one draw; `head` itself is not changed."""
    head = head.fork()
    unit = head.embed(data.x_test)
    sessions = []
    for session in range(protocol.sessions + 1):
        if session:
            rows = draw.rows[session - 1]
            head.add(data.x_train[rows], data.y_train[rows])
        seen = data.y_test < len(head.classes)
        logits = head.unit_logits(unit[seen])
        sessions.append(session_metrics(logits.numpy(), data.y_test[seen].numpy(), protocol.base))
    return sessions


def run_cells(
    config: RunConfig,
    data: Embeddings,
    protocol: Protocol,
    *,
    done: Set[Cell] = frozenset(),
    fit: Fit | None = None,
    fitted: Callable[[str, int, Head], None] = lambda method, seed, head: None,
    progress: Callable[[str], None] = lambda line: None,
) -> Iterator[list[Record]]:
    """The records of each cell as it finishes; cells in `done` are passed over.

    An adapter is trained once per method and seed, never per draw.

    fit : makes the head of a method and seed; `fit_configured` by default
    fitted : called with every head that was fitted to the base session
    """
    draws = [make_draw(name, protocol, data.y_train, data.learnable()) for name in config.draws]
    if any(
        (m, d, s) not in done for m in config.methods for d in config.draws for s in config.seeds
    ):
        note = holdout_note(data)
        if note:
            progress(note)
    for method in config.methods:
        for seed in config.seeds:
            left = [draw for draw in draws if (method, draw.name, seed) not in done]
            if not left:
                continue
            progress(f"{method}, seed {seed}: fitting")
            head = (fit or fit_configured)(config, method, seed, data, protocol)
            fitted(method, seed, head)
            for draw in left:
                progress(f"{method}, seed {seed}: {draw.name}")
                sessions = run_draw(head, data, protocol, draw)
                yield cell_records(method, draw.name, seed, sessions, data, protocol)


def fit_configured(
    config: RunConfig, method: str, seed: int, data: Embeddings, protocol: Protocol
) -> Head:
    """`fit_method` with a run's options, and γ set for inference where the run says so."""
    options: dict[str, Any] = {"adapter": config.adapter}
    if config.metric is not None:
        options["metric"] = config.metric
    if config.scale is not None:
        options["scale"] = config.scale
    return at_gamma(fit_method(method, data, protocol, seed=seed, **options), config.gamma)


def at_gamma(head: Head, gamma: float | None) -> Head:
    """A head that is the same but for γ at inference; None leaves it as it was trained.

    γ counts from the method's own: an adapter that fell back to LA, which has another γ, keeps LA's
    shift at the γ that the method is usually trained with.
    """
    if gamma is None or not isinstance(head, AdaptedHead):
        return head
    head = head.fork()
    fell_back = head.trained_as.gamma != head.recipe.gamma
    head.gamma = gamma * head.trained_as.gamma / head.recipe.gamma if fell_back else gamma
    return head


def cell_records(
    method: str,
    draw: str,
    seed: int,
    sessions: list[SessionMetrics],
    data: Embeddings,
    protocol: Protocol,
) -> list[Record]:
    """A finished cell as records."""
    records = []
    for session, metrics in enumerate(sessions):
        n_classes = protocol.base + protocol.way * session
        values = {k: None if math.isnan(v) else v for k, v in asdict(metrics).items()}
        n_images = int((data.y_test < n_classes).sum())
        records.append(Record(method, draw, seed, session, n_classes, n_images, values))
    return records


def holdout_note(data: Embeddings) -> str:
    """What a user should know where base queries are rows that trained the encoder."""
    if data.holdout is not None or data.scale is None:
        return ""
    return (
        "note: the embeddings mark no held-out rows, so the adapters' base queries are rows that "
        "the encoder was trained on"
    )
