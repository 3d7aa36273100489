"""Protocols and draws."""

from __future__ import annotations

import numpy as np

from cala.data import protocol as module
from cala.data.protocol import Protocol, canonical_draw, load_protocol, random_draw
from refusals import refused

LABELS = np.repeat(np.arange(10), 8)
SMALL = Protocol(name="small", base=4, way=3, shot=5, sessions=2)
ALL = np.ones(80, dtype=bool)


def test_cifar100_is_the_fields_protocol():
    p = load_protocol("cifar100")
    assert (p.base, p.way, p.shot, p.sessions, p.n_classes) == (60, 5, 5, 8, 100)
    rows = [row for session in p.canonical for row in session]
    assert len(p.canonical) == 8
    assert len(set(rows)) == 200
    assert rows[:3] == [29774, 33344, 4815]
    assert list(p.session_labels(0)) == list(range(60))
    assert list(p.session_labels(8)) == [95, 96, 97, 98, 99]


def test_canonical_rows_hold_the_right_classes(cifar):
    p = load_protocol("cifar100")
    for session, rows in enumerate(canonical_draw(p).rows, start=1):
        labels = cifar.y_train[rows]
        assert labels.tolist() == [c for c in p.session_labels(session) for _ in range(5)]


def test_a_damaged_manifest_is_noticed(monkeypatch):
    real = module.json.loads

    def damaged(text):
        manifest = real(text)
        manifest["canonical"][3][2] += 1
        return manifest

    monkeypatch.setattr(module.json, "loads", damaged)
    with refused(code="damaged_file"):
        load_protocol("cifar100")


def test_unknown_protocols_and_missing_lists_are_named():
    with refused("'cifar10'", field="protocol", code="unknown_name") as caught:
        load_protocol("cifar10")
    assert "'cifar100'?" in caught.value.fix
    with refused(code="no_shots"):
        canonical_draw(SMALL)


def test_random_draws_are_reproducible_and_differ():
    first, again, other = (random_draw(SMALL, LABELS, ALL, seed) for seed in (0, 0, 1))
    assert all(map(np.array_equal, first.rows, again.rows))
    assert not all(map(np.array_equal, first.rows, other.rows))
    assert len(first.rows) == len(again.rows) == 2
    assert all(rows.dtype == np.int64 for rows in first.rows)
    for session, rows in enumerate(first.rows, start=1):
        assert len(set(rows.tolist())) == 15
        assert LABELS[rows].tolist() == [c for c in SMALL.session_labels(session) for _ in range(5)]


def test_a_class_keeps_its_shots_whatever_else_is_drawn():
    shifted = Protocol(name="other", base=5, way=1, shot=5, sessions=5)
    first, second = random_draw(SMALL, LABELS, ALL, 0), random_draw(shifted, LABELS, ALL, 0)
    assert set(first.rows[0][5:10].tolist()) == set(second.rows[0].tolist())


def test_draws_use_usable_rows_only():
    usable = ALL.copy()
    usable[LABELS == 9] = False
    with refused("class 9 has 0", field="shot"):
        random_draw(SMALL, LABELS, usable, 0)
