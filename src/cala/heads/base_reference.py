"""Base rows that a head keeps, to see what novel classes take from the base classes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cala.core.operating_point import losses_within
from cala.core.rows import Array
from cala.heads.base import Head
from cala.heads.base_data import BaseData

MOST_ROWS, MOST_NUMBERS = 2000, 2**20
MARGIN = 1e-4  # of a logit, above rounding


@dataclass(frozen=True)
class BaseReference:
    """Base queries, of which those count that are right where there are base classes alone.

    rows : (R, e) as the head embeds them; own : (R,) their base columns
    best : (R,) their largest base logit, -inf where it is not that of their own class
    queries : (B,) how many of each base class were asked
    """

    rows: Array
    best: Array
    own: Array
    queries: Array

    @classmethod
    def none(cls) -> BaseReference:
        nothing = np.zeros(0, np.int64)
        return cls(np.zeros((0, 0), np.float32), np.zeros(0, np.float32), nothing, nothing)

    @classmethod
    def of(cls, host: Head, data: BaseData) -> BaseReference:
        """None where rows cannot be left out of what the host learned from them."""
        scorers = data.scorers(host)
        if len(scorers) > 1 or not scorers[0].leave_out:
            return cls.none()
        rng = np.random.default_rng(0)
        most = max(1, min(MOST_ROWS, MOST_NUMBERS // data.dim))
        asked = scorers[0].rows.where(data.queries)
        asked = asked.draw(-(-most // data.n_base), rng).thinned(most, rng)
        if not len(asked):
            return cls.none()
        rows = host.embed(data.features[asked.order])
        return cls(rows, rows[:, 0], asked.columns, asked.counts).refreshed(host)

    def refreshed(self, host: Head) -> BaseReference:
        """After base classes have learned more: their logits are others."""
        if not len(self.rows):
            return self
        logits = host.unit_logits(self.rows, self.own)[:, : host.n_base]
        right = logits.argmax(1) == self.own
        return replace(self, best=np.where(right, logits.max(1), -np.inf).astype(logits.dtype))

    def without(self, column: int) -> BaseReference:
        """After a base class was forgotten: none of its rows is kept or promised anything."""
        if column >= len(self.queries):
            return self
        stay = self.own != column
        own = self.own[stay]
        queries = np.delete(self.queries, column)
        return BaseReference(self.rows[stay], self.best[stay], own - (own > column), queries)

    def delta(self, host: Head, shift: Array, max_base_loss: float) -> float:
        """The largest δ that loses no more than the asked share of base queries.

        host : with its novel classes; shift : (F,) what is added to these already
        """
        right = self.best > -np.inf
        novel = host.unit_logits(self.rows[right])[:, host.n_base :] + shift
        switches = np.sort(self.best[right] - novel.max(1))
        lost = losses_within(max_base_loss, int(self.queries.sum()))
        if lost >= len(switches):
            return float(switches[-1]) + 1.0
        return float(switches[lost]) - MARGIN  # this one and all after it stay
