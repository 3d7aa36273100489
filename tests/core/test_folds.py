"""Folds for metrics that know the rows they are asked about."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from cala.core.folds import FOLDS, draw_folds, judges_itself_fairly


@given(st.lists(st.integers(0, 6), min_size=1, max_size=80), st.integers(0, 99))
def test_folds_are_even_and_leave_something_of_every_class(labels, seed):
    columns = torch.tensor(labels)
    folds = draw_folds(columns, torch.Generator().manual_seed(seed))
    for c in set(labels):
        own = folds[columns == c].tolist()
        if len(own) == 1:
            assert own == [-1]
            continue
        sizes = [own.count(fold) for fold in range(FOLDS)]
        assert sum(sizes) == len(own)
        assert max(sizes) - min(sizes) <= 1
        assert max(sizes) < len(own)


def test_many_rows_per_dimension_need_no_folds():
    assert judges_itself_fairly(dim=64, rows=30_000, classes=60)
    assert not judges_itself_fairly(dim=1280, rows=3_000, classes=100)
    assert not judges_itself_fairly(dim=10, rows=5, classes=5)
