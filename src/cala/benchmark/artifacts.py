"""What figures need, kept for one cell per method, so that a report never has to load a model.

Schema 1, one safetensors file per method: the canonical draw (or the first) and the first seed,
after the last session. C classes in order of arrival, B of them base, n test images.

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
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from cala.core.similarity import similarity
from cala.data.embeddings import Embeddings
from cala.data.protocol import Protocol, ShotDraw
from cala.files import atomic
from cala.heads import AdaptedHead, Head

SCHEMA = 1
SAMPLE_PER_CLASS = 20


def make_artifact(
    head: Head, data: Embeddings, protocol: Protocol, draw: ShotDraw
) -> dict[str, Tensor]:
    """Tensors as listed above, for a head fitted to the base session (which is not changed)."""
    head = head.fork()
    for rows in draw.rows:
        head.add(data.x_train[rows], data.y_train[rows])
    n_base, n_classes = protocol.base, len(head.classes)
    seen = data.y_test < n_classes
    labels, unit = data.y_test[seen], head.embed(data.x_test[seen])
    after = head.unit_logits(unit)
    before, beta, shift = after, after.new_zeros(n_classes), after.new_zeros(n_classes)
    if isinstance(head, AdaptedHead):
        before, beta, shift = head.host.unit_logits(unit), head.beta, head.shift
    base, novel = after[:, :n_base].max(1), after[:, n_base:].max(1)
    confusion = torch.bincount(labels * n_classes + after.argmax(1), minlength=n_classes**2)
    picked = _sample(labels)
    prototypes = head.prototypes
    return {
        "confusion": confusion.reshape(n_classes, n_classes).int(),
        "softmax_before": before.softmax(1).mean(0),
        "softmax_after": after.softmax(1).mean(0),
        "beta": beta,
        "shift": shift,
        "shots": head.table.counts.clone(),
        "tightness": head.table.tightness.float(),
        "similarity": similarity(prototypes[n_base:], prototypes[:n_base]),
        "labels": labels,
        "switch": base.values - novel.values,
        "base_right": base.indices == labels,
        "novel_right": novel.indices + n_base == labels,
        "prototypes": prototypes,
        "sample": unit[picked],
        "sample_labels": labels[picked],
    }


def save_artifact(path: Path, tensors: dict[str, Tensor], meta: dict[str, object]) -> None:
    """Write in one step; `meta` goes into the file's header as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = {"schema": str(SCHEMA), "meta": json.dumps(meta, ensure_ascii=False)}
    with atomic(path) as temporary:
        save_file({k: v.contiguous() for k, v in tensors.items()}, temporary, metadata=header)


def _sample(labels: Tensor) -> Tensor:
    """The first few rows of every class."""
    order = labels.argsort(stable=True)
    counts = torch.bincount(labels)
    rank = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[labels[order]]
    return order[rank < SAMPLE_PER_CLASS].sort().values
