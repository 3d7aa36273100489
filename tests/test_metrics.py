"""Metrics against scikit-learn, against brute force, and against the paper's own tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix

import oracle
from cala.metrics import (
    SessionMetrics,
    average,
    harmonic,
    session_metrics,
    summarise,
    trade_off_from_switches,
)
from refusals import refused

SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(0, 10_000))


def ausuc(logits, columns, n_base):
    return session_metrics(logits, columns, n_base).ausuc


def logits_and_columns(n_base, n_novel, seed, n=40):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n_base + n_novel), rng.integers(0, n_base + n_novel, n)])
    z = rng.normal(size=(len(y), n_base + n_novel))
    z[np.arange(len(y)), y] += rng.uniform(0, 2)
    return z, y


@given(SHAPES)
def test_session_metrics_agree_with_the_slow_version(shape):
    n_base = shape[0]
    z, y = logits_and_columns(*shape)
    fast, slow = session_metrics(z, y, n_base), oracle.session_metrics(z, y, n_base)
    for name, value in slow.items():
        assert getattr(fast, name) == pytest.approx(value), name


@given(SHAPES)
def test_session_metrics_agree_with_a_confusion_matrix(shape):
    n_base, n_novel, _ = shape
    z, y = logits_and_columns(*shape)
    matrix = confusion_matrix(y, z.argmax(1), labels=range(n_base + n_novel))
    found = session_metrics(z, y, n_base)
    assert found.accuracy == pytest.approx(np.trace(matrix) / matrix.sum())
    assert found.base == pytest.approx(np.trace(matrix[:n_base]) / matrix[:n_base].sum())
    novel = matrix[n_base:]
    assert found.novel == pytest.approx(np.trace(novel[:, n_base:]) / novel.sum())
    assert found.fpr == pytest.approx(novel[:, :n_base].sum() / novel.sum())
    mirror = matrix[:n_base, n_base:].sum() / matrix[:n_base].sum()
    assert found.fpr_mirror == pytest.approx(mirror)


@given(SHAPES)
def test_ausuc_agrees_with_brute_force(shape):
    n_base = shape[0]
    z, y = logits_and_columns(*shape)
    assert ausuc(z, y, n_base) == pytest.approx(oracle.tradeoff_area(z, y, n_base))


@given(SHAPES, st.floats(-5, 5))
def test_no_shift_changes_ausuc(shape, delta):
    n_base = shape[0]
    z, y = logits_and_columns(*shape)
    shifted = z.copy()
    shifted[:, n_base:] += delta
    assert ausuc(shifted, y, n_base) == pytest.approx(ausuc(z, y, n_base))


def test_ausuc_gives_half_for_ties():
    z = np.array([[1.0, 0.0], [1.0, 0.0]])  # both switch at the same shift
    assert ausuc(z, [0, 1], 1) == pytest.approx(0.5)
    assert ausuc(np.array([[2.0, 0.0], [1.0, 0.0]]), [0, 1], 1) == pytest.approx(1.0)


def test_trade_off_reads_novel_accuracy_at_a_base_loss():
    curve = trade_off_from_switches([1.0, 2.0, 3.0, 4.0], [True] * 4, [0.5, 1.5, 9.0], [True] * 3)
    assert curve.base[0] == 1.0
    assert curve.novel_at_base_loss(0.0) == pytest.approx(1 / 3)
    assert curve.novel_at_base_loss(0.25) == pytest.approx(2 / 3)
    assert curve.novel_at_base_loss(1.0) == pytest.approx(1.0)
    weighted = trade_off_from_switches([1.0, 2.0], [True, False], [0.0], [True], [1.0, 3.0], [1.0])
    assert weighted.base[0] == pytest.approx(0.25)


def test_ncr_is_read_at_two_and_five_points():
    """100 base images lost one by one as δ grows, 10 novel ones won on the way."""
    z = np.zeros((110, 2))
    z[:100, 0] = np.arange(1, 101)
    z[100:, 0] = np.arange(10) + 0.5
    found = session_metrics(z, [0] * 100 + [1] * 10, 1)
    assert found.ncr2 == pytest.approx(0.3)
    assert found.ncr5 == pytest.approx(0.6)


def test_ncr_is_read_at_points_of_accuracy_not_at_a_share_of_it():
    """80 of 100 base images are right; two points below that are 78, two percent of it 79."""
    z = np.zeros((110, 3))
    z[:80, 0] = np.arange(1, 81)
    z[80:100, 1] = 50.0  # wrong for good: the other base class wins
    z[100:, 0] = np.arange(10) + 0.5
    found = session_metrics(z, [0] * 100 + [2] * 10, 2)
    assert found.ncr2 == pytest.approx(0.3)
    assert found.ncr5 == pytest.approx(0.6)


def test_without_base_images_there_is_no_ncr():
    z, y = logits_and_columns(3, 2, 0)
    found = session_metrics(z[y >= 3], y[y >= 3], 3)
    assert np.isnan(found.ncr2)
    assert np.isnan(found.ncr5)
    assert np.isnan(found.base)
    assert found.novel >= 0


def test_no_sessions_have_no_summary():
    with refused(field="sessions", code="no_sessions"):
        summarise([])


def test_session_zero_has_no_novel_part():
    z, y = logits_and_columns(4, 1, 0)
    only = session_metrics(z[y < 4][:, :4], y[y < 4], 4)
    assert only.accuracy == only.base
    assert all(np.isnan(getattr(only, n)) for n in ("novel", "hm", "fpr", "ausuc", "ncr2"))
    assert only.fpr_mirror == 0.0


def test_harmonic_of_nothing_is_zero():
    assert harmonic(0.0, 0.0) == 0.0
    assert harmonic(0.5, 0.0) == 0.0


def test_summary_takes_each_figure_from_its_sessions():
    def session(accuracy, base, novel, fpr):
        hm = harmonic(base, novel)
        return SessionMetrics(accuracy, base, novel, hm, fpr, 0.0, 0.5, 0.1, 0.2)

    nan = float("nan")
    got = summarise(
        [session(0.8, 0.8, nan, nan), session(0.6, 0.7, 0.2, 0.5), session(0.5, 0.6, 0.3, 0.4)]
    )
    assert got.last == 0.5
    assert got.avg == pytest.approx(1.9 / 3)
    assert got.pd == pytest.approx(0.3)
    assert got.ahm == pytest.approx((harmonic(0.7, 0.2) + harmonic(0.6, 0.3)) / 2)
    assert got.avg_novel == pytest.approx(0.25)
    assert (got.fpr_first, got.fpr_last) == (0.5, 0.4)
    alone = summarise([session(0.8, 0.8, nan, nan)])
    assert alone.last == 0.8
    assert np.isnan(alone.ahm)


PAPER_ROWS = {  # accuracy per session on mini-ImageNet, and the average that follows from it
    "CEC": ([72.17, 66.97, 62.96, 59.50, 56.62, 53.78, 51.15, 49.32, 47.45], 57.77),
    "FACT": ([72.71, 69.78, 66.53, 62.81, 60.73, 57.46, 54.46, 52.28, 50.60], 60.82),
    "TEEN": ([73.53, 70.55, 66.37, 63.23, 60.53, 57.95, 55.24, 53.44, 52.08], 61.44),
    "LA-fscil": ([83.98, 78.60, 73.95, 69.22, 65.85, 62.95, 59.68, 58.11, 56.65], 67.67),
    "CALA": ([83.98, 79.09, 74.70, 70.92, 67.46, 64.25, 61.26, 59.32, 57.75], 68.75),
}


DELTA_LAST = {  # Table tabminicom: CALA's lead in the last session, as printed
    "CEC": 10.30,
    "FACT": 7.15,
    "TEEN": 5.67,
    "LA-fscil": 1.10,
}


@pytest.mark.parametrize("row", DELTA_LAST)
def test_delta_last_of_the_papers_rows(row):
    """Recomputed by `summarise` from the printed accuracies, as a run's summaries are."""

    def last(name):
        accuracies, _ = PAPER_ROWS[name]
        return summarise([SessionMetrics(a / 100, *[0.5] * 8) for a in accuracies]).last

    assert 100 * (last("CALA") - last(row)) == pytest.approx(DELTA_LAST[row], abs=0.005)


def test_delta_last_of_the_papers_gammas():
    """Table tabcifargamma: last accuracy and its difference to γ = 0, as the bench pairs them."""
    from cala.records import Record
    from cala.results import Results

    printed = {"0": (55.42, 0.0), "1": (55.59, 0.17), "10": (56.64, 1.22), "100": (26.53, -28.89)}
    results = Results(
        [
            Record(f"gamma={g}", "canonical", 0, 0, 100, 10_000, {"accuracy": last / 100})
            for g, (last, _) in printed.items()
        ]
    )
    for gamma, (_, delta) in printed.items():
        found = results.difference(f"gamma={gamma}", "gamma=0", "last", ["canonical"])
        assert found.mean == pytest.approx(delta, abs=0.005)


@pytest.mark.parametrize("row", PAPER_ROWS)
def test_avg_of_the_papers_rows(row):
    """LA-fscil's printed 65.43 is an arithmetic slip: its row averages to 67.67."""
    accuracies, expected = PAPER_ROWS[row]
    assert average(accuracies) == pytest.approx(expected, abs=0.005)
