"""One protocol, many methods, the same draws for all of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cala.data.embeddings import Embeddings
from cala.data.protocol import Protocol, ShotDraw
from cala.errors import BaseQueryWarning
from cala.heads import Head, default_metric, make_head
from cala.metrics import SessionMetrics, session_metrics

Results = dict[str, dict[str, list[SessionMetrics]]]


def fit_method(
    name: str, data: Embeddings, protocol: Protocol, *, seed: int = 0, **options: Any
) -> Head:
    """A head fitted to the base session; the adapter prepares for the protocol's own sessions.

    The encoder's scale belongs to the cosine it was trained with; in another metric the scale is
    fitted, unless `scale` is given.
    """
    recipe: dict[str, Any] = {"novel": protocol.way * protocol.sessions, "way": protocol.way}
    if not name.endswith("cala-plus"):
        recipe["shots"] = (protocol.shot,)  # cala-plus learns what the number of shots means
    recipe.update(options.pop("adapter", {}))
    metric = options.get("metric") or default_metric(name)
    own = data.scale if metric == "cosine" and data.scale is not None else "auto"
    options.setdefault("scale", own)
    head = make_head(name, seed=seed, adapter=recipe, **options)
    rows = (data.y_train < protocol.base) & data.learnable()
    holdout = None if data.holdout is None else data.holdout[rows]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BaseQueryWarning)  # said once for the whole run
        return head.fit_base(
            data.x_train[rows], data.y_train[rows], fakes=data.fakes, holdout=holdout
        )


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


def compare(
    methods: Mapping[str, Mapping[str, Any]],
    data: Embeddings,
    protocol: Protocol,
    draws: Sequence[ShotDraw],
    *,
    seed: int = 0,
    progress: Callable[[str], None] = lambda line: None,
) -> Results:
    """Every method over every draw: {title: {draw: sessions}}.

    methods : title -> {"name": method, ...options of `fit_method`}
    """
    if data.holdout is None and data.scale is not None:
        progress(
            "the file marks no held-out rows: base queries of the adapters are rows that the "
            "encoder was trained on"
        )
    results: Results = {}
    for title, given in methods.items():
        progress(title)
        options = dict(given)
        head = fit_method(options.pop("name"), data, protocol, seed=seed, **options)
        results[title] = {draw.name: run_draw(head, data, protocol, draw) for draw in draws}
    return results
