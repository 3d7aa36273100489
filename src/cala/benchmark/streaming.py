"""Scoring test rows that do not fit into memory: one pass for all sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cala.core.rows import StoredRows
from cala.data.embeddings import Embeddings
from cala.heads import Head
from cala.metrics import Answers

SCORES = 2**23  # numbers at a time: 32 MB of rows or of logits
FIGURE_SCORES = 2**25  # rows × classes of the sample that figures are drawn from


def streamed_answers(heads: Sequence[Head], data: Embeddings, n_base: int) -> list[Answers]:
    """Answers of each session; every test row is read and embedded once.

    heads : as they were after each session; a row counts from the session that knows its class on
    """
    parts: list[list[Answers]] = [[] for _ in heads]
    last = heads[-1]
    stay = last.host.traits.old_columns_stay
    size = max(1, SCORES // max(len(last.classes), last.dim))
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
