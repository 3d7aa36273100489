"""Rates without a group of test images, against scoring the others alone."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from cala.image_groups import image_groups, kept_groups, left_out
from cala.metrics import Answers, session_metrics
from cala.records import Record, parse_line
from cala.results import Results


def problem(n=211, classes=7, n_base=4, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    z = rng.normal(size=(n, classes)).round(1)  # ties
    z[np.arange(n), y] += 1
    return z, y, n_base


def test_groups_are_decided_by_labels_and_share_every_class():
    _, y, _ = problem(n=1000)
    groups = image_groups(y)
    assert np.array_equal(groups, image_groups(y.copy()))
    for last in range(7):
        sizes = [np.bincount(groups[y <= last], minlength=20), np.bincount(groups[y == last])]
        assert all(np.ptp(size) <= 1 for size in sizes), "of a class, and of the classes so far"
    for k in (7, 3, 1):
        assert sorted(image_groups(y[:k])) == list(range(k)), "fewer images, fewer groups"


@pytest.mark.parametrize("seed", range(3))
def test_each_group_is_left_out(seed):
    z, y, n_base = problem(seed=seed)
    groups = image_groups(y)
    found = left_out(kept_groups(Answers.of(z, y, n_base), groups, 20, curve=True))
    assert len(found) == 20
    for g, metrics in enumerate(found):
        rest = groups != g
        wanted = asdict(session_metrics(z[rest], y[rest], n_base))
        assert asdict(metrics) == pytest.approx(wanted, abs=1e-6)


def test_session_0_keeps_base_counts_alone():
    z, y, n_base = problem()
    z, y = z[y < n_base][:, :n_base], y[y < n_base]
    kept = kept_groups(Answers.of(z, y, n_base), image_groups(y), 20, curve=True)
    assert set(kept) == {"base_images", "base_right", "base_as_novel"}
    found = left_out(kept)
    assert all(np.isnan(m.novel) and np.isnan(m.ausuc) for m in found)
    groups = image_groups(y)
    assert found[3].accuracy == pytest.approx((z.argmax(1) == y)[groups != 3].mean())


def test_no_group_is_left_out_of_one_image():
    z, y, n_base = problem(n=1)
    assert kept_groups(Answers.of(z, y, n_base), image_groups(y), 1) is None


def test_the_only_novel_image_cannot_be_left_out():
    z, y, n_base = problem()
    few = np.append(np.flatnonzero(y < n_base), np.flatnonzero(y >= n_base)[0])
    z, y = z[few], y[few]
    kept = kept_groups(Answers.of(z, y, n_base), image_groups(y), 20, curve=True)
    assert "ausuc" not in kept
    assert sum(np.isnan(m.novel) for m in left_out(kept)) == 1


@pytest.mark.parametrize(
    "damage",
    [
        {"base_images": 7},
        {"base_images": [1]},
        {"base_images": []},
        {"base_right": [1] * 19},
        {"base_right": ["many"] * 20},
        {"base_right": [-1] * 20},
        {"base_right": [10**400] * 20},
        {"ausuc": [[1.0]] * 20},
        {"ausuc": [float("nan")] * 20},
    ],
)
def test_what_are_no_counts(damage):
    z, y, n_base = problem()
    kept = kept_groups(Answers.of(z, y, n_base), image_groups(y), 20)
    assert left_out({**kept, "of a newer version": [1]}) is not None
    assert left_out({**kept, **damage}) is None
    assert left_out([kept]) is None


def cell(method, draw, keep=True):
    z, y, n_base = problem(seed=draw)
    answers = Answers.of(z, y, n_base)
    kept = kept_groups(answers, image_groups(y), 20, curve=True) if keep else None
    metrics = asdict(session_metrics(z, y, n_base))
    return Record(method, f"random:{draw}", 0, 0, 7, len(y), metrics, groups=kept)


def test_records_come_back_and_old_ones_stay_as_they_were():
    record = cell("la", 0)
    assert parse_line(record.line()) == record
    old = replace(record, groups=None)
    assert '"groups"' not in old.line()
    assert parse_line(old.line()) == old


def test_results_say_what_intervals_are_over():
    draws = [f"random:{i}" for i in range(3)]
    new = [cell("new", i) for i in range(3)]
    old = [cell("old", i, keep=False) for i in range(3)]
    mixed = [cell("mixed", i, keep=i > 0) for i in range(3)]
    both = Results([*new, *old, *mixed])
    assert [both.estimate(m, "last", draws).groups for m in both.methods] == [20, 0, 0]
    assert both.difference("new", "old", "last", draws).groups == 0
    assert both.covered(draws).endswith("(old, mixed: draws alone)")
    assert Results(new).covered(draws) == "over draws of shots and test images"
    assert Results(old).covered(draws) == "over draws of shots alone, not test images"
    summary = both.as_json("new")["random"]
    assert summary["new"]["summary"]["ausuc"]["groups"] == 20
    assert summary["new"]["sessions"]["accuracy"][0]["groups"] == 20
    assert summary["old"]["summary"]["last"]["groups"] == 0


def test_without_is_the_mean_over_draws():
    draws = [f"random:{i}" for i in range(3)]
    results = Results([cell("la", i) for i in range(3)])
    without = []
    for i in range(3):
        z, y, _ = problem(seed=i)
        groups = image_groups(y)
        right = z.argmax(1) == y
        without.append([100 * right[groups != g].mean() for g in range(20)])
    values = results.values("la", "last", draws)
    jackknife = 19 * np.mean(without, axis=0).var()
    error = np.sqrt(np.var(values, ddof=1) / 3 + jackknife)
    assert 1.96 * error < results.estimate("la", "last", draws).half < 4.31 * error


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("base_right", 10**6),
        ("novel_as_base", 10**6),
        ("ausuc", 5),
        ("ncr2", 2),
        ("base_images", 1e308),
    ],
)
def test_counts_beyond_their_images_and_rates_above_1_are_no_groups(name, value):
    z, y, n_base = problem()
    kept = kept_groups(Answers.of(z, y, n_base), image_groups(y), 20, curve=True)
    assert left_out(kept) is not None
    assert left_out({**kept, name: [value, *kept[name][1:]]}) is None
