"""A head whose best classes are searched for instead of compared one by one.

With a million classes an image's logits are a million inner products. An index finds a few
candidates among them, and only these are scored, exactly: s·cos + γβ + δ as the head has it. The
bias takes part in the search as well: logits are linear, u·w + b = [u, 1]·[w, b], so the index
holds [w, b] and is asked for the largest inner products with [u, 1]. What can go wrong is a class
that is not found; what is returned for one that is found is the head's own logit.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from cala.core.mixing import FakePool
from cala.core.stored_rows import Features
from cala.errors import InputError, install
from cala.heads.around import AroundHead
from cala.heads.base import Head, State
from cala.heads.checks import check_features
from cala.heads.top import SCORES, Top, best_columns, check_k, merged, top_of_unit

FEW = 20_000  # classes: fewer are compared faster than searched
PENDING = 8  # the index is made again when one in so many columns is not in it as it is now
ROWS_PER_CELL = 40  # to learn a cell from
ROUNDS = 8  # of k-means
LANES = 8  # numbers that one instruction takes


class ApproximateHead(AroundHead):
    """A linear head with an index of its columns; `top` is approximate, everything else the head's.

    Columns that arrived or changed since the index was made are compared one by one, so a new class
    is found at once and exactly.

    cells : into how many parts the index divides the columns; about 2·√C by default
    probes : how many of them are searched; more find more and take longer
    candidates : how many columns are scored exactly for each row
    """

    name = "approximate"

    def __init__(
        self, head: Head, *, cells: int | None = None, probes: int = 16, candidates: int = 32
    ) -> None:
        if not head.linear:
            head.linear_form()  # says why it cannot
        for option, value in (("probes", probes), ("candidates", candidates), ("cells", cells)):
            whole = isinstance(value, int) and not isinstance(value, bool)
            if value is not None and not (whole and value >= 1):
                raise InputError(f"{option} is {value!r}: give a whole number, at least 1")
        self.host = head
        self.cells, self.probes, self.candidates = cells, probes, candidates
        self._index: Any = None
        self._bias = torch.zeros(0)  # of the columns in the index, when it was made
        self._table = head.table  # the last one that this head knows to have touched
        self._touched: frozenset[int] = frozenset()
        self._outside: tuple[Any, Tensor, Tensor] | None = None

    def top(self, features: Tensor, k: int = 1) -> Top:
        """The k best columns of rows (n, d), each with its exact logit."""
        check_k(k, len(self.classes))
        return self.top_of_unit(self.embed(check_features(features, self.dim, self.dtype)), k)

    def top_of_unit(self, unit: Tensor, k: int = 1) -> Top:
        """`top` of rows (n, e) that `embed` gave."""
        check_k(k, len(self.classes))
        if len(self.classes) < FEW:
            return top_of_unit(self.host, unit, k)
        if self._index is None or self.host.table is not self._table:
            self.make_index()  # there is none, or its head was changed by somebody else
        pending, stale = self._not_indexed()
        if len(pending) * PENDING > len(self.classes):
            self.make_index()
            pending, stale = self._not_indexed()
        wanted = max(k, min(self.candidates, len(self._bias)))
        parts = []
        for rows in unit.split(max(1, SCORES // (wanted * self.dim))):
            plain = rows[:, : self.dim]
            found = self._scored(plain, self._searched(plain, wanted), stale)
            best = merged(found, best_columns(self.host, plain, pending, k), k)
            parts.append(self._whole(rows, best, k))
        return Top(torch.cat([p.columns for p in parts]), torch.cat([p.logits for p in parts]))

    def _whole(self, rows: Tensor, best: Top, k: int) -> Top:
        """Rows for which the searched cells held fewer than k columns are compared with all."""
        short = (best.logits == -torch.inf).any(1)
        if not bool(short.any()):
            return best
        exact = top_of_unit(self.host, rows[short], k)
        columns, logits = best.columns.clone(), best.logits.clone()
        columns[short], logits[short] = exact.columns, exact.logits
        return Top(columns, logits)

    def make_index(self) -> None:
        """Learn cells from a sample of the columns, and put all columns into them."""
        faiss = _faiss()
        count = len(self.classes)
        cells = min(self.cells or int(2 * count**0.5), max(1, count // ROWS_PER_CELL))
        half, kind = faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
        coarse = faiss.IndexFlatIP(self._width)
        index = faiss.IndexIVFScalarQuantizer(coarse, self._width, cells, half, kind, False)
        index.cp.niter, index.cp.seed = ROUNDS, 0
        index.cp.max_points_per_centroid = ROWS_PER_CELL
        generator = torch.Generator().manual_seed(0)
        sample = torch.randperm(count, generator=generator)[: cells * ROWS_PER_CELL]
        index.train(self._rows(sample.sort().values))
        for columns in torch.arange(count).split(max(1, SCORES // self.dim)):
            index.add(self._rows(columns))
        self._index, self._touched = index, frozenset()
        self._bias, self._table = self.linear_bias(), self.host.table

    def _rows(self, columns: Tensor) -> Any:
        """[w, b, 0] of some columns (m,)."""
        weights, bias = self.host.linear_at(columns)
        return self._padded(weights, bias)

    @property
    def _width(self) -> int:
        """d + 1, and zeros up to a number at which the index is seven times faster."""
        return -(-(self.dim + 1) // LANES) * LANES

    def _padded(self, vectors: Tensor, last: Tensor) -> Any:
        """[vector, last, 0]: (n, d), (n,) -> (n, width)."""
        padded = torch.zeros(len(vectors), self._width)
        padded[:, : self.dim], padded[:, self.dim] = vectors, last
        return padded.numpy()

    def _not_indexed(self) -> tuple[Tensor, Tensor]:
        """Columns (m,) that the index lacks, or has with another prototype or bias; mask (C,).

        It takes a look at all columns, so it is kept until something has changed.
        """
        point = [getattr(self.host, name, None) for name in ("beta", "gamma", "delta")]
        state = [self._index, self.host, self.host.table, self._touched, *point]
        if self._outside is not None and _same(self._outside[0], state):
            return self._outside[1], self._outside[2]
        bias, old = self.linear_bias(), len(self._bias)
        stale = torch.ones(len(bias), dtype=torch.bool)
        stale[:old] = bias[:old] != self._bias
        if self._touched:
            stale[torch.tensor(sorted(self._touched))] = True
        self._outside = state, stale.nonzero()[:, 0], stale
        return self._outside[1], self._outside[2]

    def _searched(self, unit: Tensor, wanted: int) -> Tensor:
        """Candidates (n, wanted) for rows (n, d); -1 where fewer were found."""
        self._index.nprobe = self.probes
        _, columns = self._index.search(self._padded(unit, unit.new_ones(len(unit))), wanted)
        return torch.from_numpy(columns)

    def _scored(self, unit: Tensor, columns: Tensor, stale: Tensor) -> Top:
        """Candidates (n, c) with their exact logits; those that are none get −∞."""
        none = (columns < 0) | stale[columns.clamp_min(0)]
        weights, bias = self.host.linear_at(columns.clamp_min(0).flatten())
        scores = torch.einsum("nd,ncd->nc", unit, weights.unflatten(0, columns.shape))
        scores = (scores + bias.unflatten(0, columns.shape)).masked_fill(none, -torch.inf)
        return Top(columns, scores)

    # Learning is the head's; what was touched is no longer as the index has it.

    def fit_base(
        self,
        features: Features,
        labels: Tensor,
        *,
        fakes: FakePool | None = None,
        holdout: Tensor | None = None,
    ) -> Self:
        fitted = self.blank()
        fitted.host.fit_base(features, labels, fakes=fakes, holdout=holdout)
        return self._become(fitted)

    def add(self, features: Tensor, labels: Tensor) -> Self:
        return self._grown(self.host.fork().add(features, labels), torch.as_tensor(labels))

    def add_unit(self, unit: Tensor, labels: Tensor) -> Self:
        return self._grown(self.host.fork().add_unit(unit, labels), labels)

    def _grown(self, head: Head, labels: Tensor) -> Self:
        given = set(labels.tolist())
        known = {c for c, label in enumerate(head.classes[: len(self._bias)]) if label in given}
        grown = self.fork()
        grown.host, grown._touched = head, self._touched | known
        if self.host.table is self._table:
            grown._table = head.table
        return self._become(grown)

    def forget(self, label: int) -> Self:
        smaller = self.fork()
        smaller.host = self.host.fork().forget(label)
        smaller._index, smaller._bias, smaller._touched = None, torch.zeros(0), frozenset()
        return self._become(smaller)

    def logits(self, features: Tensor) -> Tensor:
        return self.host.logits(features)

    def unit_logits(self, unit: Tensor, members: Tensor | None = None) -> Tensor:
        return self.host.unit_logits(unit, members)

    def linear_form(self) -> tuple[Tensor, Tensor]:
        return self.host.linear_form()

    def linear_at(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        return self.host.linear_at(columns)

    def linear_bias(self) -> Tensor:
        return self.host.linear_bias()

    def blank(self) -> Self:
        return type(self)(
            self.host.blank(), cells=self.cells, probes=self.probes, candidates=self.candidates
        )

    def state(self) -> State:
        """The head's own: an index follows from it. The options are not part of it: to keep
        other ones, wrap the restored head again."""
        return self.host.state()

    @classmethod
    def from_state(cls, state: State) -> Self:
        from cala.heads.factory import restore_head

        return cls(restore_head(state))


def _same(before: list[Any], now: list[Any]) -> bool:
    return all(
        a is b or (isinstance(a, float) and a == b) for a, b in zip(before, now, strict=True)
    )


def _faiss() -> Any:
    try:
        return import_module("faiss")
    except ImportError as error:
        raise InputError(
            f"searching among many classes needs faiss, which is not installed: {install('ann')}"
        ) from error
