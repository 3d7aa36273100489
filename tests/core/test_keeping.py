"""Tensors kept in blocks of their own."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from cala.core import keeping
from cala.core.keeping import Keeper


@dataclass(frozen=True)
class Pair:
    first: Tensor
    second: Tensor
    number: int = 3


@dataclass(frozen=True)
class Whole:
    pair: Pair
    flags: Tensor


def test_values_stay_and_memory_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "BLOCK", 1000)
    keeper = Keeper()
    generator = torch.Generator().manual_seed(0)
    given = [
        Whole(
            Pair(torch.randn(3, n, generator=generator), torch.arange(n)),
            torch.rand(n, generator=generator) > 0.5,
        )
        for n in (1, 7, 0, 40, 500)
    ]
    kept = [keeper.keep(whole) for whole in given]
    for old, new in zip(given, kept, strict=True):
        assert torch.equal(old.pair.first, new.pair.first)
        assert torch.equal(old.pair.second, new.pair.second)
        assert torch.equal(old.flags, new.flags)
        assert new.flags.dtype == torch.bool
        assert new.pair.number == 3
    memory = {whole.pair.first.untyped_storage().data_ptr() for whole in kept[:2]}
    assert len(memory) == 1
    assert kept[0].pair.first.data_ptr() != given[0].pair.first.data_ptr()


def test_what_is_no_tensor_stays() -> None:
    assert Keeper().keep("text") == "text"
