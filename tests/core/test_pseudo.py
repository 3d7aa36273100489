"""Pseudo sessions: which classes, shots and queries make up an episode, and how it is played."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cala.core.cala import (
    ClassContext,
    Episode,
    PrototypeTable,
    Queries,
    Scores,
    normalise,
    play,
)
from cala.core.fakes import EpisodePlan, FakePool, draw_episode, draw_fakes, draw_pairs
from cala.core.operating_point import choose_delta, pseudo_trade_off, thinned
from cala.metrics import Answers, trade_off
from core.training_problem import HELDOUT
from refusals import refused


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def empty_pool(pairs, images):
    return FakePool(np.zeros((len(pairs), images, 2)), pairs)


@given(st.integers(2, 12), st.integers(1, 6), st.integers(1, 6), st.integers(0, 1000))
def test_an_episode_uses_a_pair_once_and_a_session_a_parent_once(n_base, way, sessions, seed):
    pairs = draw_pairs(n_base, 1000, seeded(seed))
    plan = EpisodePlan(way=way, sessions=sessions).fitted(empty_pool(pairs, 8), n_base)
    chosen, arrival = draw_fakes(pairs, plan.way, plan.sessions, seeded(seed))
    assert 1 <= len(chosen) <= plan.way * plan.sessions
    assert len(chosen) == len(arrival)
    assert len(set(chosen.tolist())) == len(chosen)
    assert (np.diff(arrival) >= 0).all()
    for session in np.unique(arrival):
        parents = pairs[chosen[arrival == session]].ravel().tolist()
        assert len(parents) <= 2 * plan.way
        assert len(set(parents)) == len(parents)


def test_forty_fakes_come_from_sixty_classes():
    pairs = draw_pairs(60, 900, seeded())
    chosen, arrival = draw_fakes(pairs, 5, 8, seeded(1))
    assert len(chosen) == 40
    assert arrival.tolist() == np.repeat(np.arange(8), 5).tolist()
    for session in chosen.reshape(8, 5):
        assert len(set(pairs[session].ravel().tolist())) == 10


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 50))
def test_shots_and_queries_are_disjoint(k1, k2, seed):
    pairs = draw_pairs(8, 28, seeded(seed))
    pool = empty_pool(pairs, 6)
    plan = EpisodePlan(way=3, sessions=2, shots=(k1, k2), queries=3)
    draw = draw_episode(pool, plan.fitted(pool, 8), seeded(seed))
    assert len(draw.sessions) == len(draw.fakes)
    for fake in range(len(draw.fakes)):
        shots = set(draw.shot_rows[draw.shot_of == fake].tolist())
        queries = set(draw.query_rows[draw.query_of == fake].tolist())
        assert len(shots) in (k1, k2)
        assert len(queries) == min(3, 6 - len(shots))
        assert not shots & queries


def test_more_shots_than_images_shrink_to_what_the_pool_has():
    pool = empty_pool(draw_pairs(3, 3, seeded()), 4)
    plan = EpisodePlan(way=5, sessions=8, shots=(20,)).fitted(pool, 3)
    assert (plan.way, plan.sessions, plan.shots) == (1, 3, (3,))


def test_draws_do_not_touch_global_random_state():
    before = np.random.get_state()  # noqa: NPY002
    draw_episode(empty_pool(draw_pairs(3, 3, seeded()), 8), EpisodePlan(), seeded())
    after = np.random.get_state()  # noqa: NPY002
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


class Cosine:
    """The least host that Algorithm 1 can play with: it notes what it is told."""

    def __init__(self, table, classes):
        self.table, self.classes, self.n_base, self.told = table, classes, len(classes), []

    def fork(self):
        fork = Cosine(self.table, self.classes)
        fork.told = self.told
        return fork

    def add_unit(self, unit, labels):
        self.told.append(sorted(set(labels.tolist())))
        known = [*self.classes, *sorted(set(labels.tolist()) - set(self.classes))]
        self.table = self.table.extended(unit, np.array([known.index(c) for c in labels.tolist()]))
        self.classes = tuple(known)

    def unit_logits(self, unit, members=None):
        return 16 * unit @ normalise(self.table.means).T

    def prototypes_at(self, columns):
        return self.table.at(columns).means


def test_an_episode_is_played_session_by_session():
    rng = seeded()
    unit = normalise(rng.normal(size=(8, 3)))
    host = Cosine(PrototypeTable.of([(unit[:2], np.arange(2))], 2, 3), (4, 9))
    queries = Queries(unit[6:], np.array([0, 3]), np.array([-1, -1]))
    sessions = [(unit[2:5], np.array([0, 1, 1])), (unit[5:6], np.array([2]))]
    base = normalise(host.table.means)
    played = play(host, iter(sessions), queries, base)
    assert host.told == [[10, 11], [12]]
    assert host.classes == (4, 9), "the host itself learns nothing"
    prototypes = np.stack([unit[2], (unit[3] + unit[4]) / 2, unit[5]])
    np.testing.assert_allclose(played.context.similarity, normalise(prototypes) @ base.T)
    assert played.context.shots.tolist() == [1, 2, 1]
    np.testing.assert_allclose(played.context.tightness, [np.nan, unit[3] @ unit[4], np.nan])
    logits = 16 * unit[6:] @ normalise(np.concatenate([host.table.means, prototypes])).T
    expected = Scores.of(logits, queries.columns, 2)
    for name, value in vars(expected).items():
        np.testing.assert_allclose(getattr(played.scores, name), value, atol=1e-12)


def test_pseudo_trade_off_weighs_classes_not_queries():
    """Class 0 has 9 queries, all right; class 1 has one, which is wrong."""
    y = np.array([0] * 9 + [1] + [2] * 4)
    z = np.zeros((14, 3))
    z[:10, 0] = 5.0
    z[10:, 2] = 1.0
    context = ClassContext(np.zeros((1, 2)), np.zeros(1), np.ones(1))
    scored = Episode(context, Scores.of(z, y, 2))
    assert pseudo_trade_off([scored], [np.zeros(1)]).base[0] == pytest.approx(0.5)


def test_pseudo_trade_off_is_the_trade_off_of_the_full_logits():
    rng = seeded()
    y = np.repeat(np.arange(7), 9)
    z = rng.normal(size=(len(y), 7))
    z[np.arange(len(y)), y] += 1
    shift = rng.normal(size=3)
    context = ClassContext(np.zeros((3, 4)), np.zeros(3), np.ones(3))
    made = pseudo_trade_off([Episode(context, Scores.of(z, y, 4))], [shift])
    z[:, 4:] += shift
    whole = trade_off(Answers.of(z, y, 4))
    assert made.area == pytest.approx(whole.area)
    np.testing.assert_allclose(made.delta[1:], whole.delta[1:])


def test_operating_points_move_the_way_they_say():
    curve = pseudo_trade_off(HELDOUT, [np.zeros(6) for _ in HELDOUT])
    assert choose_delta(curve, "accuracy") == 0.0
    strict, loose = (choose_delta(curve, max_base_loss=loss) for loss in (0.0, 0.2))
    assert strict < loose

    def at(delta):
        index = np.searchsorted(curve.delta, delta, side="right") - 1
        return curve.base[index], curve.novel[index]

    assert at(strict)[0] == pytest.approx(curve.base[0])
    assert at(loose)[0] >= curve.base[0] - 0.2 - 1e-9
    base, novel = at(choose_delta(curve, "harmonic"))
    hm = 2 * base * novel / (base + novel)
    every = 2 * curve.base * curve.novel / np.maximum(curve.base + curve.novel, 1e-12)
    assert hm == pytest.approx(every.max())
    chosen = choose_delta(curve, "harmonic")
    assert np.abs(curve.delta[1:] - chosen).min() > 0, "inside an interval, not on its edge"
    with refused("'best'", field="objective", code="unknown_name"):
        choose_delta(curve, "best")


def test_a_thinned_curve_keeps_its_ends_and_nearly_its_area():
    rng = seeded()
    y = rng.integers(0, 10, 3000)
    z = rng.normal(size=(3000, 10))
    z[np.arange(3000), y] += 1
    curve = trade_off(Answers.of(z, y, 6))
    thin = thinned(curve, 200)
    assert len(thin.delta) <= 200
    assert thin.base[0] == curve.base[0]
    assert thin.novel[-1] == curve.novel[-1]
    assert thin.area == pytest.approx(curve.area, abs=2e-3)
