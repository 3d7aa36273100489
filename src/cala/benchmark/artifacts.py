"""What figures need, kept for one cell per method, so that a report never has to load a model.

One storage file per method: the canonical draw (or the first) and the first seed, after the
last session. C classes in order of arrival, B of them base, n test images.

Schema 1:

    confusion        (C, C) int32     rows are true classes, columns predictions
    softmax_before   (C,)             mean probability per class without the adapter
    softmax_after    (C,)             the same with it
    beta, shift      (C,)             balance factors; what is added to each logit
    shots            (C,) int64       images that made each prototype
    tightness        (C,)             mean pairwise cosine of these; NaN for one
    similarity       (C - B, B)       of novel to base prototypes
    labels           (n,) int64       true class of each test image
    switch           (n,)             best base logit minus best novel logit
    base_right, novel_right (n,) bool the best base (novel) class is the true one
    prototypes       (C, d)           in the head's metric
    sample, sample_labels (m, d), (m,) some test images in the head's metric

Schema 2 adds:

    predicted_before, predicted_after   (n,) int32   the class that each test image is given
    confidence_before, confidence_after (n,)         the probability of that class
    sample_logits    (m, C) float16   of the sample, without the adapter
    gamma            (G,)             values of γ at inference
    gamma_accuracy   (G, T + 1)       accuracy in every session with each of them
    beta_draws       (D, C - B)       β of the novel classes in each draw of the run
    similarity_draws (D, C - B)       their mean similarity to the base classes
    meta: class_names (in order of arrival, where known), host, adapter, metric, gamma, draws,
        fallback (`la` where the data allowed no more than LA's one shift)

Version 3 is the same in a storage file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from cala import storage
from cala.benchmark.encoder_sessions import SessionLogits
from cala.benchmark.notes import Watch
from cala.benchmark.runner import CellPlan, Fitted
from cala.benchmark.scoring import as_learned, for_figures, one_thread
from cala.core.cala import similarity
from cala.core.rows import Array, ClassRows, loaded
from cala.data.embeddings import Embeddings
from cala.data.protocol import Protocol, ShotDraw
from cala.heads import Head
from cala.heads.factory import split_name

SAMPLE_PER_CLASS = 20
#: γ at inference that artifacts look at, in multiples of the γ trained with.
GAMMAS = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def make_artifact(
    head: Head,
    data: Embeddings,
    protocol: Protocol,
    draw: ShotDraw,
    draws: Sequence[ShotDraw],
    sessions: SessionLogits | None,
) -> dict[str, Array]:
    """Arrays as listed above, for a head fitted to the base session (which is not changed).

    draws : those in which β is looked at; only prototypes are made in them, nothing is scored
    sessions : logits of a host that changes its encoder, in `draw`; prototypes are those of its
        base branch
    """
    fitted, head = head, head.fork()
    data = as_learned(head, for_figures(data, protocol.n_classes))
    unit = head.embed(loaded(data.x_test))
    known: Any = head
    trained = float(known.trained_as.gamma) if head.adapted else 1.0
    gammas = trained * np.array(GAMMAS, np.float32)

    def scored() -> tuple[Array, Array]:
        """Labels of the test rows whose classes are known by now, and their plain logits."""
        seen = data.y_test < len(head.classes)
        if sessions is None:
            return data.y_test[seen], head.host.unit_logits(unit[seen])
        session = (len(head.classes) - protocol.base) // protocol.way
        return data.y_test[seen], sessions.logits[session]

    sweep = [_gamma_accuracy(head, *scored(), gammas)]
    for rows in draw.rows:
        head.add(data.shots(rows), data.y_train[rows])
        sweep.append(_gamma_accuracy(head, *scored(), gammas))
    n_base, n_classes = protocol.base, len(head.classes)
    seen = data.y_test < n_classes
    unit = unit[seen]
    labels, before = scored()
    after = before + head.shift
    base, novel = after[:, :n_base], after[:, n_base:]
    confusion = np.bincount(labels * n_classes + after.argmax(1), minlength=n_classes**2)
    sure_before, sure_after = softmax(before, axis=1), softmax(after, axis=1)
    picked = _sample(labels)
    prototypes = head.prototypes
    beta_draws, similarity_draws = _over_draws(fitted, data, draws)
    return {
        "confusion": confusion.reshape(n_classes, n_classes).astype(np.int32),
        "softmax_before": sure_before.mean(0),
        "softmax_after": sure_after.mean(0),
        "beta": head.beta,
        "shift": head.shift,
        "shots": head.table.counts,
        "tightness": head.table.tightness.astype(np.float32),
        "similarity": similarity(prototypes[n_base:], prototypes[:n_base]),
        "labels": labels,
        "switch": base.max(1) - novel.max(1),
        "base_right": base.argmax(1) == labels,
        "novel_right": novel.argmax(1) + n_base == labels,
        "prototypes": prototypes,
        "sample": unit[picked, : head.dim],
        "sample_labels": labels[picked],
        "predicted_before": before.argmax(1).astype(np.int32),
        "predicted_after": after.argmax(1).astype(np.int32),
        "confidence_before": sure_before.max(1),
        "confidence_after": sure_after.max(1),
        "sample_logits": before[picked].astype(np.float16),
        "gamma": gammas,
        "gamma_accuracy": np.stack(sweep, 1),
        "beta_draws": beta_draws,
        "similarity_draws": similarity_draws,
    }


def keep_artifact(folder: Path, plan: CellPlan, fitted: Fitted, watch: Watch) -> None:
    """Write what figures need of a method, for the first seed and the draw that they show."""
    config, task, method, head = plan.config, plan.task, fitted.method, fitted.head
    path = folder / f"{method}.safetensors"
    if fitted.seed != config.seeds[0] or path.exists():
        return
    data, protocol = task.source_of(method).data, task.protocol
    draws = [task.draw(name) for name in config.draws_of(method)]
    shown = task.draw(config.shown_draw(method))
    with one_thread():
        sessions = plan.session_logits(fitted, shown, watch.status)
        arrays = make_artifact(head, data, protocol, shown, draws, sessions)
    host, adapter = split_name(method)
    known: Any = head
    chosen = head.adapted and known.recipe.guarded  # `auto` chooses, which is not a fallback
    fallen = head.adapted and not chosen and known.trained_as.adapter != known.recipe.adapter
    named = data.class_names
    if named is None and protocol.expected is not None and not protocol.order:
        named = protocol.expected.classes
    meta = {
        "host": host,
        "adapter": adapter,
        "metric": getattr(head.host, "metric_name", None),
        "gamma": float(known.gamma) if head.adapted else None,
        "fallback": "la" if fallen else None,
        "draws": [draw.name for draw in draws],
        "class_names": None if named is None else list(named)[: protocol.n_classes],
        "method": method,
        "draw": shown.name,
        "seed": fitted.seed,
        "split": config.split,
        "n_base": protocol.base,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    storage.write(path, "artifact", meta, arrays)


def _gamma_accuracy(head: Head, labels: Array, logits: Array, gammas: Array) -> Array:
    """Accuracy over the classes seen so far with every γ: (G,)."""
    differ = gammas if head.beta.any() else gammas[:1]
    right = [((logits + gamma * head.beta).argmax(1) == labels).mean() for gamma in differ]
    return np.broadcast_to(np.array(right, np.float32), len(gammas))


def _over_draws(fitted: Head, data: Embeddings, draws: Sequence[ShotDraw]) -> tuple[Array, Array]:
    """β and mean similarity to base of the novel classes, per draw: two of (D, C - B)."""
    betas, similarities = [], []
    for draw in draws:
        head = fitted.fork()
        for rows in draw.rows:
            head.add(data.shots(rows), data.y_train[rows])
        n_base, prototypes = head.n_base, head.prototypes
        betas.append(head.beta[n_base:])
        similarities.append(similarity(prototypes[n_base:], prototypes[:n_base]).mean(1))
    return np.stack(betas), np.stack(similarities)


def _sample(labels: Array) -> Array:
    """The first few rows of every class."""
    order = np.argsort(labels, kind="stable")
    rows = ClassRows(order, labels[order], int(labels.max(initial=-1)) + 1)
    return np.sort(order[rows.ranks < SAMPLE_PER_CLASS])
