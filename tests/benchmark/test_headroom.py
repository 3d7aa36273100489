"""Oracles against slow searches; what a run keeps of them."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from scipy.optimize import minimize

from cala.benchmark.config import RunConfig
from cala.benchmark.execute import execute
from cala.benchmark.headroom import (
    ORACLE,
    class_shifts,
    cross_fitted,
    halves,
    headroom,
    likely_shifts,
    measure,
    no_shift,
    single_shift,
)
from cala.benchmark.sources import Source
from cala.benchmark.task import BenchTask, make_draw
from cala.data.embeddings import Embeddings
from cala.data.protocol import Protocol
from cala.errors import UnknownNameError
from problems import blobs

PROTOCOL = Protocol(name="small", base=8, way=2, shot=3, sessions=2)
SHIFTS = (no_shift, single_shift, class_shifts, likely_shifts)


def problem(seed, n=40, base=3, novel=2, signal=1.0):
    """Logits in which novel classes are too low, as those of few shots are."""
    rng = np.random.default_rng(seed)
    own = np.arange(n) % (base + novel)
    z = rng.normal(size=(n, base + novel)) + signal * np.eye(base + novel)[own]
    z[:, base:] -= 0.7
    return z.astype(np.float32), own, base


def right(z, own, base, shifts):
    """Images that are right, counted one by one."""
    total = 0
    for row, label in zip(z.astype(np.float64), own, strict=True):
        moved = [v + (shifts[c - base] if c >= base else 0.0) for c, v in enumerate(row)]
        total += moved.index(max(moved)) == label
    return total


def between(values):
    """A point in each stretch that sorted values leave."""
    at = np.unique(values)
    return np.concatenate([[at[0] - 1], (at[1:] + at[:-1]) / 2, [at[-1] + 1]])


def candidates(z, column):
    """Every shift of one column that gives another outcome."""
    others = np.delete(z.astype(np.float64), column, axis=1)
    return between(others - z[:, [column]])


@pytest.mark.parametrize("seed", range(8))
def test_no_other_single_shift_is_better(seed):
    z, own, base = problem(seed)
    wide = z.astype(np.float64)
    tried = between(wide[:, :base].max(1) - wide[:, base:].max(1))
    best = max(right(z, own, base, [shift] * 2) for shift in tried)
    found = single_shift(z, own, base)
    assert found[0] == found[1]
    assert right(z, own, base, found) == best


@pytest.mark.parametrize("seed", range(4))
def test_no_column_alone_can_improve_class_shifts(seed):
    z, own, base = problem(seed, n=30)
    found = class_shifts(z, own, base)
    reached = right(z, own, base, found)
    moved = z + np.concatenate([np.zeros(base), found])
    for column in range(2):
        for step in candidates(moved, base + column):
            assert right(moved, own, base, step * np.eye(2)[column]) <= reached


@pytest.mark.parametrize("seed", range(4))
def test_class_shifts_lie_between_single_shift_and_every_combination(seed):
    z, own, base = problem(seed, n=15, base=2)
    # Novel columns also meet each other: shifts of one are tried at each of the other's.
    grid = [np.linspace(-4, 4, 81)] * 2
    best = max(right(z, own, base, shifts) for shifts in itertools.product(*grid))
    reached = [right(z, own, base, fit(z, own, base)) for fit in SHIFTS[:3]]
    assert reached == sorted(reached)
    assert best <= reached[2] + 1, "coordinate ascent may miss an image, not more, on these"


@pytest.mark.parametrize("seed", range(3))
def test_likely_shifts_against_a_search_without_gradients(seed):
    z, own, base = problem(seed, n=60, novel=1)

    def loss(values):
        scaled = np.exp(values[0]) * z.astype(np.float64)
        scaled[:, base] += values[1]
        return -sum(row[y] - np.log(np.exp(row).sum()) for row, y in zip(scaled, own, strict=True))

    best = minimize(loss, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-8})
    assert likely_shifts(z, own, base)[0] == pytest.approx(best.x[1] / np.exp(best.x[0]), abs=1e-2)


def test_a_column_without_gain_stays():
    z, own = np.array([[2.0, 0.0], [0.0, 2.0]]), np.array([0, 1])
    assert single_shift(z, own, 1).tolist() == [0.0]
    never = np.array([[0.0, 1.0], [0.0, 2.0]])  # no image of the novel class, which wins both
    shift = single_shift(never, np.array([0, 0]), 1)
    assert right(never, np.array([0, 0]), 1, shift) == 2
    assert shift[0] == pytest.approx(-2, abs=1e-5), "no further than needed"


def test_halves_split_every_class_evenly():
    own = np.repeat(np.arange(7), [4, 5, 6, 1, 3, 2, 1])
    first = halves(own)
    counts = np.array([np.bincount(own[part], minlength=7) for part in (first, ~first)])
    assert np.abs(counts[0] - counts[1]).max() == 1
    assert abs(len(own) - 2 * first.sum()) <= 1
    assert np.array_equal(first, halves(own))


def test_each_half_is_scored_with_what_the_other_taught():
    z, own, base = problem(0, n=200)
    first, seen = halves(own), []

    def spy(logits, labels, n_base):
        seen.append(labels)
        return class_shifts(logits, labels, n_base)

    rates = cross_fitted(z, own, base, first, spy)
    assert [s.tolist() for s in seen] == [own[first].tolist(), own[~first].tolist()]
    shifts = [class_shifts(z[part], own[part], base) for part in (first, ~first)]
    scored = [
        right(z[part], own[part], base, shift) / part.sum()
        for part, shift in zip((~first, first), shifts, strict=True)
    ]
    fitted = [
        right(z[part], own[part], base, shift) / part.sum()
        for part, shift in zip((first, ~first), shifts, strict=True)
    ]
    assert rates["accuracy"] == pytest.approx(np.mean(scored))
    assert rates["fitted"] == pytest.approx(np.mean(fitted))


def test_more_freedom_fits_better_and_noise_teaches_nothing():
    z, own, base = problem(1, n=400, base=10, novel=10, signal=0.0)
    first = halves(own)
    rates = [cross_fitted(z, own, base, first, fit) for fit in SHIFTS[:3]]
    fitted = [r["fitted"] for r in rates]
    assert fitted == sorted(fitted)
    assert fitted[2] > 0.09
    assert rates[2]["accuracy"] < 0.075, "of 0.05 by chance: nothing of the half itself is used"


def test_a_single_shift_leaves_ausuc():
    z, own, base = problem(2, n=300)
    found = headroom(z, z, own, base)
    assert found["single_shift"]["ausuc"] == pytest.approx(found["plain"]["ausuc"])
    assert found["all_images"] == found["plain"]
    assert found["single_shift"]["accuracy"] > found["plain"]["accuracy"]


def data(usable=None) -> Embeddings:
    x, y = blobs(12, 40, 12, spread=1.5)
    x, train = x.astype(np.float32), np.arange(len(y)) % 2 == 0
    return Embeddings(x[train], y[train], x[~train], y[~train], usable=usable)


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_all_images_are_those_that_may_be_learned():
    usable = np.arange(240) % 4 != 0  # the others may be queries
    held = data(usable)
    draw = make_draw("random:0", PROTOCOL, held)
    rates, images = measure(held, PROTOCOL, draw, "cosine")
    x, y = unit(held.x_train[usable].astype(np.float64)), held.y_train[usable]
    means = unit(np.array([x[y == label].mean(0) for label in range(12)]))
    answers = (unit(held.x_test.astype(np.float64)) @ means.T).argmax(1)
    assert images == 240
    assert rates["all_images"]["accuracy"] == pytest.approx((answers == held.y_test).mean())
    assert rates["all_images"]["accuracy"] > rates["plain"]["accuracy"]


def ran(out, methods=("nearest-mean",), **options):
    config = RunConfig("small", methods, ("random:0", "random:1"), **options)
    execute(config, BenchTask(Source(data(), "small.npz"), PROTOCOL), out=out)
    return out / "headroom.json"


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return ran(tmp_path_factory.mktemp("run"))


def test_plain_is_what_the_records_say(kept):
    content = json.loads(kept.read_text())
    assert content["oracle"] == ORACLE == "uses test labels; cannot be selected"
    assert list(content["headroom"]) == ["cosine"]
    found = content["headroom"]["cosine"]
    assert (found["draw"], found["images"]) == ("random:0", 240)
    lines = [json.loads(x) for x in (kept.parent / "records.jsonl").read_text().splitlines()]
    last = next(r for r in lines if r["draw"] == "random:0" and r["session"] == 2)["metrics"]
    for rate in ("accuracy", "base", "novel"):
        assert found["rates"]["plain"][rate] == pytest.approx(last[rate])


def test_more_metrics_are_added_and_others_kept(kept, tmp_path):
    for name in ("config.json", "records.jsonl"):
        (tmp_path / name).write_text((kept.parent / name).read_text())
    before = json.loads(kept.read_text())
    before["headroom"]["cosine"]["images"] = 7  # so that it is known again
    (tmp_path / "headroom.json").write_text(json.dumps(before))
    after = json.loads(ran(tmp_path, ("nearest-mean", "auto")).read_text())["headroom"]
    assert after["cosine"] == before["headroom"]["cosine"]
    assert set(after["whitened"]["rates"]) == set(after["cosine"]["rates"])


@pytest.mark.parametrize(
    "damage",
    ["", "[]", '{"schema": 9, "headroom": {}}', '{"schema": 1, "headroom": {"cosine": 5}}'],
)
def test_a_damaged_file_is_made_again(kept, tmp_path, damage):
    for name in ("config.json", "records.jsonl"):
        (tmp_path / name).write_text((kept.parent / name).read_text())
    (tmp_path / "headroom.json").write_text(damage)
    assert ran(tmp_path).read_text() == kept.read_text()


def test_runs_that_vary_gamma_have_none(tmp_path):
    assert not ran(tmp_path, ("la",), gamma=1.0).exists()


def test_an_oracle_is_no_method(kept):
    for name in json.loads(kept.read_text())["headroom"]["cosine"]["rates"]:
        with pytest.raises(UnknownNameError):
            RunConfig("small", (name, "headroom"), ("random:0",))
