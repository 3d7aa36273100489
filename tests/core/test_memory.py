"""Rows that grow in shared memory: copies never see each other's changes."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cala.core._memory import AppendOnly
from cala.core.cala import PrototypeTable


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=30))
def test_any_tree_of_copies_agrees_with_plain_lists(steps):
    """Append to arbitrary earlier versions; every version keeps its own content."""
    versions = [AppendOnly(np.zeros((1, 2)))]
    expected = [[0.0]]
    for number, (parent, count) in enumerate(steps):
        index = parent % len(versions)
        versions.append(versions[index].appended(np.full((count, 2), float(number + 1))))
        expected.append(expected[index] + [float(number + 1)] * count)
    for version, rows in zip(versions, expected, strict=True):
        assert version.rows[:, 0].tolist() == rows


def test_appending_does_not_copy_what_is_there():
    rows = AppendOnly(np.zeros((100, 4))).appended(np.ones((1, 4)))
    longer = rows.appended(np.ones((1, 4)))
    assert longer.rows.ctypes.data == rows.rows.ctypes.data
    assert rows.appended(np.ones((1, 4))).rows.ctypes.data != rows.rows.ctypes.data


def test_pickles_and_copies_carry_only_the_rows():
    rows = AppendOnly(np.zeros((100, 4))).appended(np.ones((1, 4)))
    for again in (pickle.loads(pickle.dumps(rows)), copy.deepcopy(rows)):
        assert np.array_equal(again.rows, rows.rows)
        assert len(again.appended(np.ones((2, 4))).rows) == 103


def test_threads_that_grow_one_parent_do_not_mix():
    parent = PrototypeTable(np.zeros((3, 2)), np.ones(3, dtype=np.int64))
    parent = parent.extended(np.ones((1, 2)), np.array([3]))
    results = {}

    def grow(value):
        table = parent
        for step in range(50):
            table = table.extended(np.full((1, 2), float(value)), np.array([4 + step]))
        results[value] = table.sums[4:, 0].tolist()

    threads = [threading.Thread(target=grow, args=(value,)) for value in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {value: [float(value)] * 50 for value in range(1, 5)}


def test_rows_that_cannot_be_written_to_are_copied():
    """As those of a model whose file is memory-mapped."""
    rows = AppendOnly(np.zeros((3, 2))).appended(np.ones((1, 2)))
    rows._buffer.memory.flags.writeable = False
    longer = rows.appended(np.full((1, 2), 2.0))
    np.testing.assert_array_equal(longer.rows[:, 0], [0, 0, 0, 1, 2])
