"""Rows that grow in shared memory: copies never see each other's changes."""

from __future__ import annotations

import copy
import pickle
import threading

import torch
from hypothesis import given
from hypothesis import strategies as st

from cala.core.growing import GrowingRows
from cala.core.prototypes import PrototypeTable


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=30))
def test_any_tree_of_copies_agrees_with_plain_lists(steps):
    """Append to arbitrary earlier versions; every version keeps its own content."""
    versions = [GrowingRows(torch.zeros(1, 2))]
    expected = [[0.0]]
    for number, (parent, count) in enumerate(steps):
        index = parent % len(versions)
        versions.append(versions[index].appended(torch.full((count, 2), float(number + 1))))
        expected.append(expected[index] + [float(number + 1)] * count)
    for version, rows in zip(versions, expected, strict=True):
        assert version.rows[:, 0].tolist() == rows


def test_appending_does_not_copy_what_is_there():
    rows = GrowingRows(torch.zeros(100, 4)).appended(torch.ones(1, 4))
    longer = rows.appended(torch.ones(1, 4))
    assert longer.rows.data_ptr() == rows.rows.data_ptr()
    assert rows.appended(torch.ones(1, 4)).rows.data_ptr() != rows.rows.data_ptr()


def test_pickles_and_copies_carry_only_the_rows():
    rows = GrowingRows(torch.zeros(100, 4)).appended(torch.ones(1, 4))
    for again in (pickle.loads(pickle.dumps(rows)), copy.deepcopy(rows)):
        assert torch.equal(again.rows, rows.rows)
        assert len(again.appended(torch.ones(2, 4)).rows) == 103


def test_threads_that_grow_one_parent_do_not_mix():
    parent = PrototypeTable(torch.zeros(3, 2, dtype=torch.float64), torch.ones(3).long())
    parent = parent.extended(torch.ones(1, 2), torch.tensor([3]))
    results = {}

    def grow(value):
        table = parent
        for step in range(50):
            table = table.extended(torch.full((1, 2), float(value)), torch.tensor([4 + step]))
        results[value] = table.sums[4:, 0].tolist()

    threads = [threading.Thread(target=grow, args=(value,)) for value in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {value: [float(value)] * 50 for value in range(1, 5)}
