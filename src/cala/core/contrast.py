"""Contrast with labels (SAVC): an anchor nears the keys of its own class, one by one."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TEMPERATURE = 0.07
EMPTY = -1  # the label of a place that no key has taken yet
NOTHING = -1e9


def contrast(
    anchors: Tensor,
    keys: Tensor,
    labels: Tensor,
    queue: Tensor,
    queue_labels: Tensor,
    temperature: float = TEMPERATURE,
) -> Tensor:
    """Mean over anchors of Σ_pos log(1 + Σ_neg e^{s_neg} · e^{−s_pos}) / #pos, a scalar.

    Positive are an anchor's own key and the keys of its class in the queue, negative all others
    there. Rows are unit vectors, s is their cosine over the temperature.

    anchors, keys : (n, e); labels : (n,); queue : (K, e); queue_labels : (K,)
    """
    own = (anchors * keys).sum(1) / temperature
    others = (anchors @ queue.T).to(own.dtype) / temperature  # autocast gives half precision
    same = labels[:, None] == queue_labels
    no_negative = same | (queue_labels == EMPTY)
    negatives = others.masked_fill(no_negative, NOTHING).logsumexp(1)
    # Positives are few: only these are looked at one by one.
    row, column = same.nonzero(as_tuple=True)
    each = F.softplus(negatives[row] - others[row, column])
    sums = F.softplus(negatives - own).index_add(0, row, each)
    return (sums / (1 + same.sum(1))).mean()


class KeyQueue(nn.Module):
    """The last K keys and their labels; a new one takes the place of the oldest."""

    keys: Tensor  # (K, e) unit vectors
    labels: Tensor  # (K,), `EMPTY` where there is none
    place: Tensor  # () where the next key goes

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(size, dim))
        self.register_buffer("labels", torch.full((size,), EMPTY))
        self.register_buffer("place", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def put(self, keys: Tensor, labels: Tensor) -> None:
        """Keys (n, e) and labels (n,), in this order."""
        size = len(self.labels)
        keys, labels = keys[-size:], labels[-size:]
        places = (self.place + torch.arange(len(labels), device=labels.device)) % size
        self.keys[places] = keys.to(self.keys)
        self.labels[places] = labels
        self.place.copy_((self.place + len(labels)) % size)

    @property
    def empty(self) -> bool:
        return bool(self.labels[0] == EMPTY)
