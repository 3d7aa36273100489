"""CALA, the CALA paper's method from top to bottom: Eq. 1 to 9 and Algorithm 1.

These are the functions that heads call. B base classes, F novel (or fake) classes, f(x) the frozen
encoder, p_c a class prototype, s the logit scale, S_c the similarities of class c to base.

A class is its prototype (Eq. 2), and logits are scaled cosines (Eq. 4). Novel prototypes come from
a few shots, so novel images are often mistaken for base classes. CALA adds γ·β_c to the logits of
novel class c (Eq. 8), where a small network computes β_c from the class's similarities to base
(Eq. 6, 7). The network is trained before any novel class exists, on fake classes that mix two base
classes each (Eq. 1, Eq. 9, Algorithm 1). LA (Eq. 5) is the same with one scalar for all classes.

The file follows the order of the CALA paper: fake classes (Eq. 1), prototypes and the growing
classifier (Eq. 2, 3), logits (Eq. 4), similarity (Eq. 6), the adapter (Eq. 7, in
`cala.core.adapters`), adjusted logits (Eq. 8), the losses (Eq. 5, 9), and Algorithm 1.

docs/paper-map.md says how cala reads the paper where it leaves something open or cannot be followed
as printed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.random import Generator
from typing_extensions import Self

from cala.core._memory import AppendOnly
from cala.core.adapters import Adapter, Step
from cala.core.rows import Array, chunks
from cala.errors import InputError

DEFAULT_SCALE = 16.0
LARGEST = 1e6  # largest adapter parameter: beyond it, β overflows in single precision
TINY = 1e-12


# Eq. 1: a fake novel class mixes the images of two base classes.


def mix(x_i: Any, x_j: Any, lam: Any) -> Any:
    """Eq. 1: λ·x_i + (1 − λ)·x_j, of arrays or tensors.

    >>> mix(np.array([1.0]), np.array([0.0]), 0.4)
    array([0.4])
    """
    return lam * x_i + (1 - lam) * x_j


# Eq. 2 and 3: prototypes, and a classifier that only grows.


def normalise(x: Array) -> Array:
    """Scale the last axis to unit length; a zero vector stays zero.

    >>> normalise(np.array([[3.0, 4.0]]))
    array([[0.6, 0.8]])
    """
    length = np.sqrt(np.einsum("...d,...d->...", x, x))
    return x / np.maximum(length, TINY)[..., None]


class PrototypeTable:
    """Sums and counts of unit vectors per class, which give means, leave-one-out and tightness.

    Immutable: `extended` returns a new table, so copies may share it.

    sums : (C, d) float64, the sum of each class's unit vectors
    counts : (C,) int64
    """

    def __init__(self, sums: Array | AppendOnly, counts: Array | AppendOnly) -> None:
        self._sums, self._counts = AppendOnly.of(sums), AppendOnly.of(counts)

    @classmethod
    def empty(cls, n_classes: int, dim: int) -> Self:
        return cls(np.zeros((n_classes, dim)), np.zeros(n_classes, dtype=np.int64))

    @classmethod
    def of(cls, parts: Iterable[tuple[Array, Array]], n_classes: int, dim: int) -> Self:
        """The table of rows that come in parts: unit vectors (n, d) and their columns (n,)."""
        table = cls.empty(n_classes, dim)
        for unit, columns in parts:
            table._fold(unit, columns)
        return table

    @property
    def sums(self) -> Array:
        return self._sums.rows

    @property
    def counts(self) -> Array:
        return self._counts.rows

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def means(self) -> Array:
        """Eq. 2: the mean of each class's unit embeddings, (C, d) float64."""
        return self.sums / self.counts[:, None]

    @property
    def tightness(self) -> Array:
        """Mean pairwise cosine among each class's shots: (C,) float64, NaN for a single shot.

        For unit vectors the pairwise sum is |sum|² − K, so the shots need not be kept.
        """
        k = self.counts.astype(np.float64)
        pairs = k * (k - 1)
        total = np.einsum("cd,cd->c", self.sums, self.sums) - k
        return np.divide(total, pairs, out=np.full(len(self), np.nan), where=pairs > 0)

    def extended(self, unit: Array, columns: Array) -> Self:
        """Eq. 3: fold rows into the given columns; columns past the end are new classes.

        Adding new classes costs only their own rows; folding into old ones copies the table.

        unit : (n, d) unit vectors; columns : (n,) int64
        """
        old = len(self)
        new = max(int(columns.max(initial=-1)) + 1 - old, 0)
        sums = self._sums.appended(np.zeros((new, self.sums.shape[1])))
        counts = self._counts.appended(np.zeros(new, dtype=np.int64))
        if bool((columns < old).any()):
            sums, counts = AppendOnly(sums.rows.copy()), AppendOnly(counts.rows.copy())
        table = type(self)(sums, counts)
        table._fold(unit, columns)
        return table

    def _fold(self, unit: Array, columns: Array) -> None:
        """Add rows in place; only safe before the table is shared."""
        for rows in chunks(*unit.shape):
            order = np.argsort(columns[rows], kind="stable")
            own = columns[rows][order]
            starts = np.flatnonzero(np.diff(own, prepend=-1))
            ordered = unit[rows][order]
            self.sums[own[starts]] += np.add.reduceat(ordered, starts, axis=0, dtype=np.float64)
        self.counts[:] += np.bincount(columns, minlength=len(self))

    def reduced(self, unit: Array, column: int) -> Self:
        """Take rows (n, d) that were folded into a column out of it again."""
        sums, counts = self.sums.copy(), self.counts.copy()
        sums[column] -= unit.sum(0, dtype=np.float64)
        counts[column] -= len(unit)
        return type(self)(sums, counts)

    def at(self, columns: Array) -> Self:
        """The table of some columns (m,) only."""
        return type(self)(self.sums[columns], self.counts[columns])

    def without(self, column: int) -> Self:
        """The table with one class removed."""
        return self.at(np.delete(np.arange(len(self)), column))


# Eq. 4: logits.


def cosine_logits(unit: Array, weights: Array) -> Array:
    """Eq. 4: cos(f(x), p_c) of unit embeddings (n, d) and unit prototypes (C, d) -> (n, C).

    The factor s follows once rows have been left out of their own prototypes
    (`cala.heads.table.ScaledHead`).
    """
    return unit @ weights.T


# Eq. 6: what an adapter knows about a class.


def similarity(prototypes: Array, base: Array) -> Array:
    """Eq. 6: cosine of prototypes (F, d) to unit base prototypes (B, d): (F, B)."""
    return normalise(prototypes.astype(base.dtype, copy=False)) @ base.T


@dataclass(frozen=True)
class ClassContext:
    """F classes as their adapter sees them.

    similarity : (F, B), Eq. 6
    tightness : (F,), mean pairwise cosine among the shots; NaN for a single shot
    shots : (F,), how many images made the prototype
    """

    similarity: Array
    tightness: Array
    shots: Array

    @classmethod
    def of(cls, prototypes: Array, table: PrototypeTable, base: Array) -> Self:
        """Make it from the prototypes (F, d) of F classes, and `table` with their sums and counts.

        base : (B, d) base prototypes of unit length
        """
        tightness, shots = (x.astype(base.dtype) for x in (table.tightness, table.counts))
        return cls(similarity(prototypes, base), tightness, shots)

    def __len__(self) -> int:
        return len(self.shots)


# Eq. 7, the adapters g that turn inputs into β, is cala.core.adapters. Eq. 8: adjusted logits.


def novel_shift(beta: Array, n_base: int, gamma: float, delta: float = 0.0) -> Array:
    """What Eq. 8 adds to each column: [0, γβ + δ]. δ is the operating point, 0 in the CALA paper.

    beta : (B + F,), of which the first B are base classes -> (B + F,)

    >>> novel_shift(np.array([0.0, 0.0, 0.5]), 2, gamma=10.0)
    array([0., 0., 5.])
    """
    shift = gamma * beta
    shift[n_base:] += delta
    shift[:n_base] = 0
    return shift


def adjusted_logits(logits: Array, shift: Array) -> Array:
    """Eq. 8: z + [0, γβ], in place: logits (n, B + F), shift (B + F,)."""
    logits += shift
    return logits


# Eq. 5 and 9: the losses, on logits of a pseudo session.

#: `balanced` is the default: cross-entropy of base and fake queries, equal weight per class. The
#: other two are Eq. 9 as printed and its nearest finite reading. In `literal` the regulariser
#: Σ(β_c − μ‖S_c‖) is linear in β, so its gradient is a constant that drives β to −∞ once there are
#: a few fake classes; `linear-mean` averages it, which is finite, but γ and the share of
#: fake queries, not the data, decide where it settles.
LOSSES = ("balanced", "literal", "linear-mean")


@dataclass(frozen=True)
class Scores:
    """Logits of Q queries over B base and F novel columns, compressed.

    Shifting the novel columns does not change the base columns, so only three numbers of a query's
    base logits matter. Novel logits are kept as powers exp(z − top), so that a sum over classes
    of exp(z + shift) is one matrix-vector product for any shift.

    base_lse : (Q,) log-sum-exp of the base columns
    base_max : (Q,) their maximum
    base_right : (Q,) bool, the maximum is the query's own class
    powers : (Q, F) exp(novel logit − top); top : (Q,) the largest novel logit
    own : (Q,) the query's novel column, -1 for a base query
    true : (Q,) logit of the query's own class, before any shift
    weight : (Q,) sums to one, with an equal share for every class present
    """

    base_lse: Array
    base_max: Array
    base_right: Array
    powers: Array
    top: Array
    own: Array
    true: Array
    weight: Array

    @classmethod
    def of(cls, logits: Array, columns: Array, n_base: int) -> Self:
        """Compress logits (Q, B + F) of queries whose true columns are (Q,)."""
        base, novel = logits[:, :n_base], logits[:, n_base:]
        winner = base.argmax(1)
        base_max = np.take_along_axis(base, winner[:, None], 1)[:, 0]
        counts = np.bincount(columns, minlength=logits.shape[1])
        top = novel.max(1)
        weight = 1 / (counts[columns] * np.count_nonzero(counts))
        return cls(
            base_lse=np.log(_powers(base, base_max).sum(1)) + base_max,
            base_max=base_max,
            base_right=winner == columns,
            powers=_powers(novel, top),
            top=top,
            own=np.where(columns >= n_base, columns - n_base, -1),
            true=np.take_along_axis(logits, columns[:, None], 1)[:, 0],
            weight=weight.astype(logits.dtype),
        )

    def cross_entropy(self, shift: Array) -> tuple[Array, Array, Array]:
        """−log softmax of the true class after adding shift (F,) to the novel columns: (Q,).

        Also returns exp(shift − m) (F,) and exp(top + m − log-sum-exp) (Q,), where m is the largest
        shift: the two factors of the novel probabilities that `powers` leaves out.
        """
        most = shift.max()
        factor = np.exp(shift - most)
        # If the sum underflowed, its logarithm would be infinite.
        total = np.maximum(self.powers @ factor, np.finfo(self.powers.dtype).tiny)
        above = self.top + most
        everything = np.logaddexp(self.base_lse, above + np.log(total))
        true = self.true + np.where(self.own >= 0, shift[self.own], 0)
        return everything - true, factor, np.exp(np.minimum(above - everything, 80))

    def best(self, shift: Array) -> tuple[Array, Array]:
        """The largest novel logit after adding shift (F,), and its column: (Q,), (Q,)."""
        shifted = np.log(self.powers) + shift
        column = shifted.argmax(1)
        return np.take_along_axis(shifted, column[:, None], 1)[:, 0] + self.top, column


def _powers(logits: Array, top: Array) -> Array:
    """exp(logits − top) for logits (n, m) and the maximum (n,) of each row.

    Exponents are limited so that no number becomes subnormal: such numbers do not change a sum that
    contains a 1, and computing with them is ten times slower.
    """
    powers = logits - top[:, None]
    np.maximum(powers, math.log(np.finfo(logits.dtype).tiny) + 7, out=powers)
    return np.exp(powers, out=powers)


@dataclass(frozen=True)
class AdapterLoss:
    """Eq. 9 on one pseudo session, in one of its readings (`LOSSES`), with its gradient.

    With one β for all classes this is Eq. 5. `balanced` adds ρ·mean(β_c − μ‖S_c‖)².
    """

    gamma: float = 10.0
    kind: str = "balanced"
    rho: float = 0.0
    mu: float = 0.0

    def __call__(self, episode: Episode, beta: Array) -> tuple[float, Array]:
        """The loss, and its derivative by β (F,)."""
        scores = episode.scores
        entropy, factor, rest = scores.cross_entropy(self.gamma * beta)
        balanced = self.kind == "balanced"
        weight = scores.weight if balanced else np.full_like(scores.weight, 1 / len(entropy))
        # d(cross-entropy) / d(shift of class c) = Σ_q weight·(probability of c − [q is of c])
        gradient = factor * (scores.powers.T @ (weight * rest))
        novel = scores.own >= 0
        gradient -= np.bincount(scores.own[novel], weight[novel], len(beta))
        residual = beta - self.mu * np.linalg.norm(episode.context.similarity, axis=1)
        loss, by_beta = float(weight @ entropy), self.gamma * gradient
        if self.kind == "literal":
            return loss + float(residual.sum()), by_beta + 1
        if self.kind == "linear-mean":
            return loss + float(residual.mean()), by_beta + 1 / len(beta)
        penalty, slope = self.rho * float(np.mean(residual**2)), 2 * self.rho / len(beta)
        return loss + penalty, by_beta + slope * residual


# Algorithm 1: pseudo-incremental training, and pseudo-testing on pairs that it has not seen.


class Host(Protocol):
    """What Algorithm 1 needs from the classifier that an adapter is trained on."""

    classes: tuple[int, ...]
    n_base: int
    table: PrototypeTable

    def fork(self) -> Self: ...
    def add_unit(self, unit: Array, labels: Array) -> Any: ...
    def unit_logits(self, unit: Array, members: Array | None = None) -> Array: ...
    def prototypes_at(self, columns: Array) -> Array: ...


Session: TypeAlias = tuple[Array, Array]
"""The shots of one pseudo session: rows (n, e) as the host embeds them, and fake classes (n,)."""


@dataclass(frozen=True)
class Queries:
    """Queries to a pseudo-incremental host: rows (Q, e), their columns, and `members` (Q,): the
    column that a row helped to make and is left out of, or -1 if there is none."""

    rows: Array
    columns: Array
    members: Array


@dataclass(frozen=True)
class Episode:
    """A played episode: what the adapter reads, and the scores that judge its answer.

    sample : logits (m, B + F) and columns (m,) of some queries, if requested
    """

    context: ClassContext
    scores: Scores
    sample: tuple[Array, Array] | None = None


def play(
    host: Host, sessions: Iterable[Session], queries: Queries, base: Array, *, sampled: int = 0
) -> Episode:
    """The inner loop of Algorithm 1: learn the fake classes of each session, then score queries.

    Fake classes are numbered in order of arrival, so their columns follow the base columns.

    base : (B, d) base prototypes of unit length, for Eq. 6
    sampled : the largest number of logits to keep
    """
    grown, first = host.fork(), max(host.classes) + 1
    for shots, fakes in sessions:
        grown.add_unit(shots, first + fakes)
    logits = grown.unit_logits(queries.rows, queries.members)
    novel = np.arange(host.n_base, len(grown.classes))
    context = ClassContext.of(grown.prototypes_at(novel), grown.table.at(novel), base)
    every = max(1, -(-logits.size // sampled)) if sampled else 1
    sample = (logits[::every], queries.columns[::every]) if sampled else None
    return Episode(context, Scores.of(logits, queries.columns, host.n_base), sample)


def mean_loss(adapter: Adapter, episodes: Sequence[Episode], loss: AdapterLoss) -> float:
    """Pseudo-testing: the mean loss of an adapter over episodes; NaN if there are none."""
    losses = [loss(e, adapter(e.context))[0] for e in episodes]
    return float(np.mean(losses)) if losses else math.nan


def train_by_steps(
    adapter: Adapter,
    episodes: Sequence[Episode],
    heldout: Sequence[Episode],
    loss: AdapterLoss,
    rng: Generator,
    step: Step,
    epochs: int = 20,
    steps: int = 50,
) -> None:
    """Algorithm 1: one optimiser step per episode; keeps the best epoch on held-out pairs.

    The untrained adapter is not a candidate. Without held-out episodes the last epoch is kept.

    step : maps the gradient (p,) and the parameters (p,) to the next parameters
    """
    inputs = [adapter.inputs(e.context) for e in episodes]
    candidates = []
    for _ in range(epochs):
        for index in rng.integers(len(episodes), size=steps):
            _, by_beta = loss(episodes[index], adapter.score(inputs[index]))
            now = step(adapter.gradient(inputs[index], by_beta), adapter.parameters)
            if np.abs(now).max() < LARGEST:  # a loss without a minimum ends here
                adapter.parameters = now
        candidates.append((mean_loss(adapter, heldout, loss), adapter.parameters))
    adapter.parameters = _best(candidates) if heldout else candidates[-1][1]


def train_convex(
    adapter: Adapter,
    episodes: Sequence[Episode],
    heldout: Sequence[Episode],
    loss: AdapterLoss,
    ridges: Sequence[float] = (0.0,),
) -> None:
    """L-BFGS on all episodes at once, for adapters that are linear in their parameters.

    The problem is convex, so each ridge has one solution; the ridge that does best on held-out
    pairs is kept. It penalises every parameter except the last, the offset.
    """
    from scipy.optimize import minimize

    inputs = [adapter.inputs(e.context) for e in episodes]
    candidates = []
    for ridge in ridges:
        penalty = np.full(len(adapter.parameters), ridge)
        penalty[-1] = 0.0

        def objective(parameters: Array, penalty: Array = penalty) -> tuple[float, Array]:
            adapter.parameters = parameters
            total, gradient = 0.0, np.zeros(len(parameters))
            for episode, x in zip(episodes, inputs, strict=True):
                value, by_beta = loss(episode, adapter.score(x))
                total += value
                gradient += adapter.gradient(x, by_beta)
            n = len(episodes)
            ridged = float(penalty @ parameters**2)
            return total / n + ridged, gradient / n + 2 * penalty * parameters

        start, limits = adapter.parameters, {"maxiter": 60, "gtol": 1e-6}
        found = minimize(objective, start, jac=True, method="L-BFGS-B", options=limits)
        adapter.parameters = found.x
        candidates.append((mean_loss(adapter, heldout or episodes, loss), adapter.parameters))
    adapter.parameters = _best(candidates)


def _best(candidates: Sequence[tuple[float, Array]]) -> Array:
    """The parameters with the lowest loss, the first if several tie; NaN is ignored."""
    numbers = [candidate for candidate in candidates if not math.isnan(candidate[0])]
    if not numbers:
        detail = "the adapter's training diverged: its loss on held-out pairs is NaN"
        raise InputError(detail, "use a lower lr or loss='balanced'", code="diverged")
    return min(numbers, key=lambda candidate: candidate[0])[1]
