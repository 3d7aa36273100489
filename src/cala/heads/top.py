"""The best classes of each row without logits over all of them: what a million classes need."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cala.errors import InputError
from cala.heads.base import Head
from cala.heads.checks import check_features

SCORES = 2**24  # logits at a time: 64 MB in single precision


@dataclass(frozen=True)
class Top:
    """The k best columns of each row, best first, and their logits: (n, k), (n, k)."""

    columns: Tensor
    logits: Tensor


def top(head: Head, features: Tensor, k: int = 1) -> Top:
    """The k best columns of rows (n, d), exactly, in memory that does not grow with n × C."""
    check_k(k, len(head.classes))
    return top_of_unit(head, head.embed(check_features(features, head.dim, head.dtype)), k)


def top_of_unit(head: Head, unit: Tensor, k: int = 1) -> Top:
    """`top` of rows (n, e) that `embed` gave."""
    check_k(k, len(head.classes))
    size = max(1, SCORES // len(head.classes))
    if len(unit) <= size or size > 64 or not head.linear:  # few rows want no copy of the weights
        parts = [head.unit_logits(part).topk(k) for part in unit.split(size)]
        return Top(torch.cat([p.indices for p in parts]), torch.cat([p.values for p in parts]))
    return best_columns(head, unit, torch.arange(len(head.classes)), k)


def best_columns(head: Head, unit: Tensor, columns: Tensor, k: int) -> Top:
    """The k best of some columns (m,) of a linear head, a part of them at a time."""
    best = Top(
        torch.full((len(unit), k), -1), torch.full((len(unit), k), -torch.inf, dtype=unit.dtype)
    )
    for part in columns.split(max(k, SCORES // max(len(unit), head.dim))):
        weights, bias = head.linear_at(part)
        scores = torch.addmm(bias, unit[:, : head.dim], weights.T)
        best = merged(best, Top(part.expand_as(scores), scores), k)
    return best


def merged(first: Top, second: Top, k: int) -> Top:
    """The k best of two; no column may stand in both."""
    logits = torch.cat([first.logits, second.logits], 1)
    values, places = logits.topk(k)
    return Top(torch.cat([first.columns, second.columns], 1).gather(1, places), values)


def check_k(k: int, classes: int) -> None:
    if not classes:
        raise InputError("no class is known yet: call fit_base first")
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= classes:
        raise InputError(f"k is {k}: give a number from 1 to the {classes} known classes")
