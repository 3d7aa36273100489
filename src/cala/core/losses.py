"""The losses of the paper (Eq. 5, Eq. 9) on logits that may be kept in compressed form.

A shift of the novel columns leaves the base columns alone, so of a query's B base logits only
their log-sum-exp, their maximum and the true one matter. `Scores` keeps just these: a cached
pseudo episode costs F + 4 numbers per query instead of B + F.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cala.core.novel_columns import NovelLogits, NovelPowers, novel_columns, powers
from cala.registry import check_choice

#: `balanced` is the default. The other two are Eq. 9 as printed and its nearest finite reading:
#: in `literal` the regulariser Σ(β_c − μ‖S_c‖) is linear in β, so its gradient is a constant that
#: drives β to −∞ once there are a few fake classes; `linear-mean` averages it, which is finite, but
#: where it settles is decided by γ and the share of fake queries instead of the data (with fake
#: queries alone: where the mean base probability is 1/γ).
LOSSES = ("balanced", "literal", "linear-mean")


@dataclass(frozen=True)
class Scores:
    """Logits of Q queries over B base and F novel columns, compressed.

    base_lse : (Q,) log-sum-exp of the base columns
    base_max : (Q,) their maximum
    base_right : (Q,) bool, the maximum is the query's own class
    novel : (Q, F), see `novel_columns`
    own : (Q,) the query's novel column, -1 for a base query
    true : (Q,) logit of the query's own class, before any shift
    weight : (Q,) sums to one, every class present has the same share
    """

    base_lse: Tensor
    base_max: Tensor
    base_right: Tensor
    novel: NovelLogits | NovelPowers
    own: Tensor
    true: Tensor
    weight: Tensor

    @classmethod
    def of(cls, logits: Tensor, columns: Tensor, n_base: int) -> Scores:
        """Compress logits (Q, B + F) of queries whose true columns are (Q,)."""
        base = logits[:, :n_base]
        base_max, winner = base.max(1)
        counts = torch.bincount(columns, minlength=logits.shape[1])
        present = int((counts > 0).sum())
        return cls(
            base_lse=powers(base, base_max).sum(1).log() + base_max,
            base_max=base_max,
            base_right=winner == columns,
            novel=novel_columns(logits[:, n_base:].clone()),  # a view would keep all columns
            own=torch.where(columns >= n_base, columns - n_base, -1),
            true=logits.gather(1, columns[:, None])[:, 0],
            weight=1 / (counts[columns].to(logits.dtype) * present),
        )

    def cross_entropy(self, shift: Tensor) -> Tensor:
        """-log softmax of the true class after adding shift (F,) to the novel columns: (Q,)."""
        novel = self.novel.log_sum_exp(shift)
        true = self.true + torch.where(self.own >= 0, shift[self.own.clamp_min(0)], 0.0)
        return torch.logaddexp(self.base_lse, novel) - true


def la_loss(scores: Scores, alpha: Tensor) -> Tensor:
    """Eq. 5: mean cross-entropy with one scalar α added to every novel logit."""
    return scores.cross_entropy(alpha.expand(len(scores.novel))).mean()


def cala_loss(
    scores: Scores,
    beta: Tensor,
    similarity: Tensor,
    *,
    gamma: float,
    kind: str = "balanced",
    rho: float = 0.0,
    mu: float = 0.0,
) -> Tensor:
    """Eq. 9. `balanced`: equal weight per class, plus ρ·mean(β_c − μ‖S_c‖)²; see `LOSSES`.

    beta : (F,); similarity : (F, B) -> scalar
    """
    check_choice("loss", kind, LOSSES)
    cross_entropy = scores.cross_entropy(gamma * beta)
    residual = beta - mu * similarity.norm(dim=1)
    if kind == "literal":
        return cross_entropy.mean() + residual.sum()
    if kind == "linear-mean":
        return cross_entropy.mean() + residual.mean()
    return (scores.weight * cross_entropy).sum() + rho * residual.square().mean()
