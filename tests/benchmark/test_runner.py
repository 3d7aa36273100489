"""Comparisons: the same draws for all, nothing leaks, the reference row to the digit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from cala.benchmark.runner import compare, fit_method, run_draw
from cala.benchmark.statistics import estimate, paired
from cala.benchmark.terminal import as_json, console, differences_table, results_table
from cala.data.embeddings import Embeddings
from cala.data.protocol import Protocol, canonical_draw, load_protocol, random_draw
from problems import blobs

PROTOCOL = Protocol(name="small", base=8, way=2, shot=3, sessions=2)


def data(seed: int = 0) -> Embeddings:
    x, y = blobs(12, 30, 12, seed=seed)
    train = torch.arange(len(y)) % 2 == 0
    return Embeddings(x[train].float(), y[train], x[~train].float(), y[~train])


DATA = data()
DRAWS = [random_draw(PROTOCOL, DATA.y_train, DATA.learnable(), seed) for seed in range(3)]
METHODS = {name: {"name": name} for name in ("nearest-mean", "la", "cala-plus")}


def test_canonical_nearest_mean_on_cifar_to_the_digit(cifar):
    """The reference row: counts of right test images per session."""
    protocol = load_protocol("cifar100")
    head = fit_method("nearest-mean", cifar, protocol, scale=cifar.scale)
    sessions = run_draw(head, cifar, protocol, canonical_draw(protocol))
    right = [round(s.accuracy * (6000 + 500 * t)) for t, s in enumerate(sessions)]
    reference = [65.73, 62.06, 58.77, 55.15, 52.22, 49.82, 47.67, 45.81, 43.92]
    for t, (count, percent) in enumerate(zip(right, reference, strict=True)):
        assert abs(100 * count / (6000 + 500 * t) - percent) <= 0.005 + 1e-9
    assert round(100 * np.mean([s.accuracy for s in sessions]), 2) == 53.46


def test_results_do_not_depend_on_what_else_is_compared():
    together = compare(METHODS, DATA, PROTOCOL, DRAWS)
    alone = compare({"la": {"name": "la"}}, DATA, PROTOCOL, DRAWS[1:2])
    assert repr(together["la"][DRAWS[1].name]) == repr(alone["la"][DRAWS[1].name])


def test_test_labels_are_never_used_for_fitting():
    """Scrambled test images give the same fitted head."""
    other = Embeddings(DATA.x_train, DATA.y_train, -DATA.x_test.flip(0), DATA.y_test)
    heads = [fit_method("cala", d, PROTOCOL) for d in (DATA, other)]
    states = [h.state()["tensors"] for h in heads]
    assert all(torch.equal(states[0][k], states[1][k]) for k in states[0])


def test_the_adapter_prepares_for_the_protocol():
    head = fit_method("la", DATA, PROTOCOL)
    assert (head.recipe.novel, head.recipe.way, head.recipe.shots) == (4, 2, (3,))
    plus = fit_method("cala-plus", DATA, PROTOCOL, adapter={"episodes": 5})
    assert plus.recipe.shots == (1, 2, 5, 10, 20)
    assert plus.recipe.episodes == 5


def test_sessions_see_only_the_classes_that_have_arrived():
    head = fit_method("nearest-mean", DATA, PROTOCOL)
    sessions = run_draw(head, DATA, PROTOCOL, DRAWS[0])
    assert len(sessions) == 3
    assert np.isnan(sessions[0].novel)
    assert len(head.classes) == 8, "the head given is not changed"
    fresh = head.fork().add(DATA.x_train[DRAWS[0].rows[0]], DATA.y_train[DRAWS[0].rows[0]])
    seen = DATA.y_test < 10
    accuracy = (fresh.logits(DATA.x_test[seen]).argmax(1) == DATA.y_test[seen]).double().mean()
    assert sessions[1].accuracy == pytest.approx(float(accuracy))


def test_a_missing_hold_out_is_said_once():
    trained = Embeddings(**{**vars(DATA), "scale": 16.0})
    said = []
    compare({"la": {"name": "la"}}, trained, PROTOCOL, DRAWS[:1], progress=said.append)
    assert sum("no held-out rows" in line for line in said) == 1


def test_estimate_is_a_t_interval():
    values = [1.0, 2.0, 4.0, 8.0]
    found = estimate(values)
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((low, high))
    assert np.isnan(estimate([1.0]).half)
    assert not estimate([1.0]).clear
    difference = paired([3.0, 5.0, 9.0], [2.0, 4.0, 8.0])
    assert (difference.mean, difference.half, difference.clear) == (1.0, 0.0, True)
    with pytest.raises(ValueError, match="3 draws against 2"):
        paired([1.0, 2.0, 3.0], [1.0, 2.0])


def test_tables_fit_eighty_columns(capsys):
    results = compare(METHODS, DATA, PROTOCOL, DRAWS)
    names = [draw.name for draw in DRAWS]
    screen = console()
    screen.print(results_table(results, names, "title"))
    screen.print(differences_table(results, names, [("cala-plus", "nearest-mean")], "title"))
    out = capsys.readouterr().out
    assert "…" not in out
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80
    numbers = as_json(results, names)
    assert numbers["la"]["last"]["n"] == 3
    assert f"{numbers['la']['last']['mean']:.1f}" in out
    single = results_table(results, names[:1], "one draw")
    screen.print(single)
    assert "±" not in capsys.readouterr().out
