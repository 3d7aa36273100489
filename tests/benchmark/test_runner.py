"""Comparisons: the same draws for all, nothing leaks, the reference row to the digit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from cala.benchmark.config import RunConfig
from cala.benchmark.notes import Watch
from cala.benchmark.runner import fit_method, run_records
from cala.benchmark.scoring import run_draw
from cala.benchmark.sources import Source
from cala.benchmark.tables import differences_table, results_table
from cala.benchmark.task import BenchTask, make_draw, parse_draws
from cala.cli.terminal import TerminalTable, console
from cala.core.fakes import FakePool
from cala.data.embeddings import Embeddings
from cala.data.protocol import Protocol, canonical_draw, load_protocol
from cala.heads.nearest_mean import NearestMean
from cala.results import Results
from cala.statistics import mean_interval, paired
from problems import blobs
from refusals import refused, warned

PROTOCOL = Protocol(name="small", base=8, way=2, shot=3, sessions=2)


def data(seed: int = 0) -> Embeddings:
    x, y = blobs(12, 30, 12, seed=seed)
    x, train = x.astype(np.float32), np.arange(len(y)) % 2 == 0
    return Embeddings(x[train], y[train], x[~train], y[~train])


DATA = data()
NAMES = tuple(parse_draws("random:3"))
DRAWS = [make_draw(name, PROTOCOL, DATA) for name in NAMES]
CONFIG = RunConfig("small", ("nearest-mean", "la", "cala-plus"), NAMES)


def records(config=CONFIG, data=DATA, source="", **options):
    return run_records(config, BenchTask(Source(data, source), PROTOCOL), **options)


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
    alone = records(RunConfig("small", ("la",), NAMES[1:2]))
    assert [r for r in records() if r.cell == ("la", "random:1", 0)] == alone


def test_test_labels_are_never_used_for_fitting():
    """Scrambled test images give the same fitted head."""
    other = Embeddings(DATA.x_train, DATA.y_train, -DATA.x_test[::-1], DATA.y_test)
    heads = [fit_method("cala", d, PROTOCOL) for d in (DATA, other)]
    states = [h.state()["tensors"] for h in heads]
    assert all(np.array_equal(states[0][k], states[1][k]) for k in states[0])


def test_the_adapter_prepares_for_the_protocol():
    head = fit_method("la", DATA, PROTOCOL)
    assert (head.recipe.novel, head.recipe.way, head.recipe.shots) == (4, 2, (3,))
    plus = fit_method("cala-plus", DATA, PROTOCOL, adapter={"episodes": 5})
    assert plus.recipe.shots == (1, 2, 5, 10, 20)
    assert plus.recipe.episodes == 5


def test_the_scale_of_the_file_belongs_to_the_cosine():
    scaled = replace(DATA, scale=11.0)
    assert fit_method("nearest-mean", scaled, PROTOCOL).scale == 11.0
    assert fit_method("la", scaled, PROTOCOL).host.scale == 11.0
    assert fit_method("nearest-mean", scaled, PROTOCOL, scale=7.0).scale == 7.0
    for data, options in ((scaled, {"metric": "whitened"}), (DATA, {})):
        fitted = fit_method("nearest-mean", data, PROTOCOL, **options)
        assert fitted.config["scale"] == "auto"
        assert fitted.scale not in (0.0, 11.0)


@pytest.mark.parametrize("method", ["la", "cala-plus"])
def test_the_seed_reaches_the_adapter(method):
    beta = [
        fit_method(method, DATA, PROTOCOL, seed=seed)
        .add(DATA.x_train[DRAWS[0].rows[0]], DATA.y_train[DRAWS[0].rows[0]])
        .beta[8:]
        for seed in (0, 3, 3)
    ]
    assert np.array_equal(beta[1], beta[2])
    assert not np.array_equal(beta[0], beta[1])


def test_a_base_class_without_rows_is_named():
    """Labels are columns: a gap would shift every class behind it."""
    gap = replace(DATA, usable=DATA.y_train != 3)
    with refused("class 3", field="y_train", code="empty_base_class"):
        fit_method("nearest-mean", gap, PROTOCOL)
    from_one = replace(DATA, y_train=DATA.y_train + 1, y_test=DATA.y_test + 1)
    with refused("class 0", field="y_train", code="empty_base_class"):
        fit_method("la", from_one, PROTOCOL)
    below = replace(DATA, y_train=np.where(np.arange(len(DATA.y_train)) == 0, -1, DATA.y_train))
    with refused("label -1", field="y_train"):
        fit_method("la", below, PROTOCOL)


def test_a_hold_out_of_few_classes_is_said():
    few = replace(DATA, holdout=(DATA.y_train == 2) & (np.arange(len(DATA.y_train)) % 2 == 0))
    with warned("partial_holdout", "1 of 8"):
        fit_method("la", few, PROTOCOL)


def test_fitting_gets_fakes_hold_out_and_usable_rows_only(monkeypatch):
    seen = {}
    real = NearestMean.fit_base

    def spy(self, data):
        seen.update(rows=len(data), fakes=data.fakes, holdout=data.holdout)
        return real(self, data)

    monkeypatch.setattr(NearestMean, "fit_base", spy)
    n = len(DATA.y_train)
    usable, holdout = np.arange(n) % 3 != 0, np.arange(n) % 2 == 0
    fakes = FakePool(
        np.random.default_rng(0).normal(size=(12, 8, 12)), np.arange(24).reshape(12, 2)
    )
    data = replace(DATA, usable=usable, holdout=holdout, fakes=fakes)
    fit_method("la", data, PROTOCOL)
    rows = usable & (DATA.y_train < 8)
    assert seen["rows"] == int(rows.sum())
    assert seen["fakes"].features is fakes.features
    assert np.array_equal(seen["holdout"], holdout[rows])


def test_sessions_see_only_the_classes_that_have_arrived():
    head = fit_method("nearest-mean", DATA, PROTOCOL)
    sessions = run_draw(head, DATA, PROTOCOL, DRAWS[0])
    assert len(sessions) == 3
    assert np.isnan(sessions[0].novel)
    assert len(head.classes) == 8, "the head given is not changed"
    fresh = head.fork().add(DATA.x_train[DRAWS[0].rows[0]], DATA.y_train[DRAWS[0].rows[0]])
    seen = DATA.y_test < 10
    accuracy = (fresh.logits(DATA.x_test[seen]).argmax(1) == DATA.y_test[seen]).mean()
    assert sessions[1].accuracy == pytest.approx(float(accuracy))


def test_a_missing_hold_out_is_said_once():
    trained = Embeddings(**{**vars(DATA), "scale": 16.0})
    notes = []
    records(RunConfig("small", ("la",), NAMES[:1]), trained, watch=Watch(note=notes.append))
    assert [note.code for note in notes] == ["no_holdout"]


def test_estimate_is_a_t_interval():
    values = [1.0, 2.0, 4.0, 8.0]
    found = mean_interval(values)
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((low, high))
    assert np.isnan(mean_interval([1.0]).half)
    assert not mean_interval([1.0]).clear
    difference = paired([3.0, 5.0, 9.0], [2.0, 4.0, 8.0])
    assert (difference.mean, difference.half, difference.clear) == (1.0, 0.0, True)
    a, b = np.array([3.0, 5.5, 9.0, 1.0]), np.array([2.0, 4.0, 8.5, 0.2])
    low, high = stats.ttest_rel(a, b).confidence_interval(0.95)
    found = paired(a, b)
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((low, high))
    with refused("3 draws", 2, code="not_paired"):
        paired([1.0, 2.0, 3.0], [1.0, 2.0])


def test_tables_fit_eighty_columns(capsys):
    results = Results(records())
    screen = console()
    screen.print(TerminalTable(results_table(results, NAMES, "title")))
    screen.print(
        TerminalTable(differences_table(results, NAMES, [("cala-plus", "nearest-mean")], "title"))
    )
    out = capsys.readouterr().out
    assert "…" not in out
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80
    last = results.as_json()["random"]["la"]["summary"]["last"]
    assert last["n"] == 3
    assert f"{last['mean']:.1f}" in out
    screen.print(TerminalTable(results_table(results, NAMES[:1], "one draw")))
    assert "±" not in capsys.readouterr().out


def test_seeds_are_averaged_inside_a_draw():
    config = RunConfig("small", ("nearest-mean", "la"), NAMES, seeds=(0, 1))
    made = records(config)
    both = Results(made)
    single = [Results([r for r in made if r.seed == seed]) for seed in (0, 1)]
    ours = both.values("la", "last", NAMES)
    assert len(ours) == 3, "draws, not draws times seeds"
    apart = [r.values("la", "last", NAMES) for r in single]
    np.testing.assert_allclose(ours, np.mean(apart, axis=0))
    assert both.estimate("la", "last", NAMES).n == 3


def test_gamma_at_inference():
    plain = Results(records(RunConfig("small", ("nearest-mean",), NAMES)))
    off = Results(records(RunConfig("small", ("la",), NAMES, gamma=0.0)))
    assert off.values("la", "hm", NAMES) == plain.values("nearest-mean", "hm", NAMES)
