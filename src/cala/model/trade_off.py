"""Known against new classes on given photos: what any operating point would answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cala.model.knowledge import Knowledge


@dataclass(frozen=True)
class Sides:
    """For each of n photos the best class of either side, and where the answer changes sides.

    known, new : (n,) columns; new is -1 where the model has no new class
    switch : (n,) the new class wins where δ is larger than this; infinite without one
    """

    known: NDArray[np.int64]
    new: NDArray[np.int64]
    switch: NDArray[np.float64]


def sides(knowledge: Knowledge, features: NDArray[np.float32]) -> Sides:
    """Of embeddings (n, d). One pass serves every δ, since δ moves all new classes alike."""
    head, n_known = knowledge.classifier.head_, knowledge.n_known
    logits = head.host.unit_logits(head.embed(features.astype(head.dtype, copy=False)))
    if head.adapted:
        logits += head.gamma * head.beta
    known = logits[:, :n_known].argmax(1)
    if logits.shape[1] == n_known:
        nothing = np.full(len(features), -1)
        return Sides(known, nothing, np.full(len(features), np.inf))
    new = logits[:, n_known:].argmax(1) + n_known
    rows = np.arange(len(features))
    return Sides(known, new, (logits[rows, known] - logits[rows, new]).astype(np.float64))
