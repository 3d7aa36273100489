"""Everything that is ever reported: pure functions of logits, scores and labels.

Columns are classes in order of arrival, base classes first; the label space is always the joint
one (argmax over every class seen so far). Rates are fractions of images, never means of batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cala.errors import InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SessionMetrics:
    """One session's rates. What does not exist (novel images in session 0) is NaN."""

    accuracy: float
    base: float
    novel: float
    hm: float
    fpr: float
    fpr_mirror: float
    ausuc: float
    ncr2: float
    ncr5: float


def harmonic(a: float, b: float) -> float:
    """Harmonic mean; 0 when both are 0.

    >>> harmonic(0.6, 0.3)
    0.4
    """
    return float(2 * a * b / (a + b)) if a + b > 0 else float(0.0 if a + b == 0 else np.nan)


@dataclass(frozen=True)
class Answers:
    """What rates need of each image's logits: its best base and its best novel class.

    Test sets beyond memory are scored part by part; of each image only this is kept.

    base, novel : (n,) the best logit of either side, −∞ where there is no such class
    base_column, novel_column : (n,) the column of that logit
    own : (n,) each image's true column
    n_base, n_classes : columns that are base, and of all
    """

    base: Floats
    base_column: NDArray[np.int64]
    novel: Floats
    novel_column: NDArray[np.int64]
    own: NDArray[np.int64]
    n_base: int
    n_classes: int

    @classmethod
    def of(cls, logits: ArrayLike, columns: ArrayLike, n_base: int) -> Answers:
        """From logits (n, C) and true columns (n,), of which n_base are base."""
        z, y = np.asarray(logits), np.asarray(columns)
        sides = (z[:, :n_base], 0), (z[:, n_base:], n_base)
        (base, base_column), (novel, novel_column) = (_best(*side) for side in sides)
        return cls(base, base_column, novel, novel_column, y, n_base, z.shape[1])

    @classmethod
    def joined(cls, parts: Sequence[Answers]) -> Answers:
        """The answers of all parts of a test set."""
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in PER_IMAGE
        }
        return replace(parts[0], **arrays)

    def where(self, images: NDArray[np.bool_]) -> Answers:
        """Those of some images, by a mask (n,)."""
        return replace(self, **{name: getattr(self, name)[images] for name in PER_IMAGE})

    @property
    def predicted(self) -> NDArray[np.int64]:
        """(n,) the column with the largest logit, the first of several."""
        return np.where(self.base >= self.novel, self.base_column, self.novel_column)


PER_IMAGE = ("base", "base_column", "novel", "novel_column", "own")


def _best(logits: NDArray[np.floating], first: int) -> tuple[Floats, NDArray[np.int64]]:
    """Largest logit of each row and its column, columns counted from `first`."""
    if not logits.shape[1]:
        return np.full(len(logits), -np.inf), np.full(len(logits), -1)
    column = logits.argmax(1)
    return np.take_along_axis(logits, column[:, None], 1)[:, 0].astype(np.float64), column + first


def session_metrics(logits: ArrayLike, columns: ArrayLike, n_base: int) -> SessionMetrics:
    """All rates of one session.

    logits : (n, C); columns : (n,) each image's true column; n_base : columns that are base
    """
    return metrics_of(Answers.of(logits, columns, n_base))


def metrics_of(answers: Answers) -> SessionMetrics:
    """All rates of one session from what was answered."""
    predicted, n_base = answers.predicted, answers.n_base
    right = predicted == answers.own
    is_base = answers.own < n_base
    base, novel = average(right[is_base]), average(right[~is_base])
    curve = trade_off(answers)
    return SessionMetrics(
        accuracy=average(right),
        base=base,
        novel=novel,
        hm=harmonic(base, novel),
        fpr=average(predicted[~is_base] < n_base),
        fpr_mirror=average(predicted[is_base] >= n_base),
        ausuc=curve.area,
        ncr2=curve.novel_at_base_loss(0.02),
        ncr5=curve.novel_at_base_loss(0.05),
    )


@dataclass(frozen=True)
class TradeOff:
    """Base against novel accuracy as one shift δ on all novel columns goes from −∞ to +∞.

    Between two switching shifts nothing changes, so the curve has one point per interval: point i
    holds from `delta[i]` (the first is −∞) to `end[i]`. A curve that keeps all its points needs no
    `end`: where one point ends the next begins, and the last never does.

    delta, base, novel, end : (m,)
    """

    delta: Floats
    base: Floats
    novel: Floats
    end: Floats = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        if len(self.end) == 0:
            object.__setattr__(self, "end", np.append(self.delta[1:], np.inf))

    @property
    def area(self) -> float:
        """AUSUC: exact area under novel accuracy over base accuracy; no shift can change it."""
        if np.isnan(self.base).any() or np.isnan(self.novel).any():
            return float("nan")
        return float(np.sum(-np.diff(self.base) * (self.novel[1:] + self.novel[:-1]) / 2))

    def novel_at_base_loss(self, loss: float) -> float:
        """NCR: novel accuracy where base accuracy has fallen by at most `loss` from its best.

        NaN without base images: nothing says how far to go.
        """
        if np.isnan(self.base).any():
            return float("nan")
        return float(self.novel[self.index_at_base_loss(loss)])

    def index_at_base_loss(self, loss: float) -> int:
        """The last point whose base accuracy is within `loss` of the best (that at δ = −∞)."""
        allowed = self.base >= self.base[0] - loss - 1e-12
        return int(np.flatnonzero(allowed)[-1]) if allowed.any() else 0

    def index_of_best_harmonic(self) -> int:
        """The point with the largest harmonic mean; the middle one where several share it."""
        total = self.base + self.novel
        hm = np.divide(2 * self.base * self.novel, total, out=np.zeros_like(total), where=total > 0)
        best = np.flatnonzero(hm >= hm.max() - 1e-12)
        return int(best[len(best) // 2])


#: Where there are no base or no novel classes to trade.
NO_CURVE = TradeOff(np.full(1, -np.inf), np.full(1, np.nan), np.full(1, np.nan))


def trade_off(answers: Answers) -> TradeOff:
    """The exact curve; an image's switching shift is the difference of its two best logits."""
    if answers.n_classes <= answers.n_base or answers.n_base == 0:
        return NO_CURVE
    base = answers.own < answers.n_base
    right = np.where(base, answers.base_column, answers.novel_column) == answers.own
    switch = answers.base - answers.novel
    return trade_off_from_switches(switch[base], right[base], switch[~base], right[~base])


def trade_off_from_switches(
    base_switch: ArrayLike,
    base_right: ArrayLike,
    novel_switch: ArrayLike,
    novel_right: ArrayLike,
    base_weight: ArrayLike | None = None,
    novel_weight: ArrayLike | None = None,
) -> TradeOff:
    """The curve from each image's switching shift and whether it is right on its own side.

    A base image is lost once δ exceeds its switch, a novel one is won there. Weights (default
    equal) are normalised within base and within novel.
    """
    gone, loss = _steps(base_switch, base_right, base_weight)
    won, gain = _steps(novel_switch, novel_right, novel_weight)
    delta = np.unique(np.concatenate([gone, won]))
    lost_by = np.concatenate([[0.0], np.cumsum(loss)])[np.searchsorted(gone, delta, side="right")]
    won_by = np.concatenate([[0.0], np.cumsum(gain)])[np.searchsorted(won, delta, side="right")]
    best_base = float(loss.sum()) if np.size(base_switch) else np.nan
    novel = won_by if np.size(novel_switch) else np.full(len(delta), np.nan)
    return TradeOff(
        np.concatenate([[-np.inf], delta]),
        np.concatenate([[best_base], best_base - lost_by]).clip(min=0.0),
        np.concatenate([[0.0 if np.size(novel_switch) else np.nan], novel]),
    )


@dataclass(frozen=True)
class Summary:
    """A whole run over sessions 0..T."""

    last: float
    avg: float
    pd: float
    base: float
    novel: float
    hm: float
    ahm: float
    avg_novel: float
    fpr_first: float
    fpr_last: float
    ausuc: float
    ncr2: float
    ncr5: float


def summarise(sessions: Sequence[SessionMetrics]) -> Summary:
    """Avg includes session 0; AHM and Avg_novel start at session 1."""
    if not sessions:
        fix = "give the metrics of session 0 at least"
        raise InputError("there are no sessions", fix, field="sessions", code="no_sessions")
    accuracy = [s.accuracy for s in sessions]
    later, last = sessions[1:], sessions[-1]
    return Summary(
        last=accuracy[-1],
        avg=average(accuracy),
        pd=accuracy[0] - accuracy[-1],
        base=last.base,
        novel=last.novel,
        hm=last.hm,
        ahm=average([s.hm for s in later]),
        avg_novel=average([s.novel for s in later]),
        fpr_first=later[0].fpr if later else float("nan"),
        fpr_last=last.fpr,
        ausuc=last.ausuc,
        ncr2=last.ncr2,
        ncr5=last.ncr5,
    )


def average(values: Sequence[float] | NDArray[np.bool_]) -> float:
    """The mean, such as Avg = mean of A_0..A_T; NaN for nothing.

    >>> round(average([83.98, 78.60, 73.95, 69.22, 65.85, 62.95, 59.68, 58.11, 56.65]), 2)
    67.67
    """
    return float(np.mean(values)) if len(values) else float("nan")


def _steps(switch: ArrayLike, right: ArrayLike, weight: ArrayLike | None) -> tuple[Floats, Floats]:
    """Sorted switching shifts of the right images, and what each is worth."""
    at, ok = np.asarray(switch, dtype=np.float64), np.asarray(right, dtype=bool)
    w = np.ones(len(at)) if weight is None else np.asarray(weight, dtype=np.float64)
    worth = (w / w.sum())[ok] if len(at) else w
    order = np.argsort(at[ok], kind="stable")
    return at[ok][order], worth[order]


# How well a score tells known images (the positives) from unknown ones; higher is more familiar.


def auroc(known: ArrayLike, unknown: ArrayLike) -> float:
    """How often a known image scores higher than an unknown one, ties counting half.

    known : (n,); unknown : (m,) -> in [0, 1], NaN without one of the two

    >>> auroc([0.9, 0.5], [0.5, 0.1])
    0.875
    """
    high, low = np.asarray(known, dtype=np.float64), np.sort(np.asarray(unknown, dtype=np.float64))
    if not len(high) or not len(low):
        return float("nan")
    below = np.searchsorted(low, high, side="left")
    not_above = np.searchsorted(low, high, side="right")
    return float((below + not_above).mean() / (2 * len(low)))


def fpr_at_tpr(known: ArrayLike, unknown: ArrayLike, tpr: float = 0.95) -> float:
    """Share of unknown images let in by the strictest threshold that lets in `tpr` of the known.

    known : (n,); unknown : (m,) -> in [0, 1], NaN without one of the two

    >>> fpr_at_tpr([0.9, 0.8, 0.7, 0.6], [0.65, 0.1], tpr=0.75)
    0.0
    """
    kept, other = np.sort(np.asarray(known, dtype=np.float64)), np.asarray(unknown)
    if not len(kept) or not len(other):
        return float("nan")
    lost = int(np.floor((1 - tpr) * len(kept) + 1e-9))
    return float((other >= kept[min(lost, len(kept) - 1)]).mean())
