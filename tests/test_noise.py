"""Intervals on pure noise: no method is better there, and few may seem so.

Labels say nothing of noise, so with as many test images of each class every classifier is right
one time in C, whatever it learned: the true difference of any two methods is 0.
"""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from cala.benchmark.config import RunConfig
from cala.benchmark.runner import run_records
from cala.benchmark.sources import Source
from cala.benchmark.task import BenchTask
from cala.data.embeddings import Embeddings
from cala.data.protocol import Protocol
from cala.image_groups import IMAGE_GROUPS, image_groups, kept_groups
from cala.metrics import Answers, metrics_of
from cala.records import Record
from cala.results import Results

PROTOCOL = Protocol(name="noise", base=6, way=2, shot=5, sessions=2)
LABELS = np.repeat(np.arange(10), 250)
IN_GROUPS = image_groups(LABELS)


def played(method, rng, planted=0.0, draws=6) -> list[Record]:
    """Last sessions as records, of noise in place of logits.

    A fair stand-in for heads, and quick: scores of base classes are the same in all draws, since
    only shots are drawn again, and those of novel classes are others in every draw.

    planted : share of test images that are right though they were wrong, the same in all draws
    """
    n, records = len(LABELS), []
    base, known = rng.normal(size=(n, 6)), rng.random(n) < planted / 0.9
    for draw in range(draws):
        logits = np.concatenate([base, rng.normal(size=(n, 4))], axis=1)
        logits[known, LABELS[known]] = 9
        answers = Answers.of(logits, LABELS, 6)
        values, kept = asdict(metrics_of(answers)), kept_groups(answers, IN_GROUPS, IMAGE_GROUPS)
        records.append(Record(method, f"random:{draw}", 0, 2, 10, n, values, groups=kept))
    return records


def clear(records: list[Record], *, images: bool = True) -> bool:
    """Whether the second method seems better or worse than the first in the last session."""
    results = Results(records if images else [replace(r, groups=None) for r in records])
    first, second = results.methods
    found = results.difference(second, first, "last", results.draws)
    assert found.groups == (20 if images else 0)
    return found.clear


@pytest.fixture(scope="module")
def reference():
    return [played("reference", np.random.default_rng([0, i])) for i in range(100)]


def test_noise_is_seldom_called_a_result(reference):
    found = [
        [*records, *played("other", np.random.default_rng([1, i]))]
        for i, records in enumerate(reference)
    ]
    assert sum(map(clear, found)) <= 10
    assert sum(clear(records, images=False) for records in found) >= 20, "draws alone: too narrow"


def test_three_points_are_found(reference):
    found = [
        [*records, *played("better", np.random.default_rng([1, i]), planted=0.03)]
        for i, records in enumerate(reference)
    ]
    assert sum(map(clear, found)) >= 80


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::cala.errors.FallbackWarning")
@pytest.mark.parametrize("method", ["whitened", "cala-plus"])
def test_real_methods_on_noise(method):
    """100 files of noise, each with a fixed base session: real heads from rows to records."""
    draws = tuple(f"random:{i}" for i in range(10))
    names = ("nearest-mean",) if method == "whitened" else ("nearest-mean", method)
    found = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        train, test = np.repeat(np.arange(10), 20), np.repeat(np.arange(10), 20)
        x, x_test = (rng.normal(size=(len(y), 32)).astype(np.float32) for y in (train, test))
        source = Source(Embeddings(x, train, x_test, test), "noise.npz")
        config = RunConfig("noise", names, draws)
        task = BenchTask(source, PROTOCOL)
        records = run_records(config, task)
        if method == "whitened":
            more = run_records(replace(config, metric="whitened"), task)
            records += [replace(r, method="whitened") for r in more]
        found.append(records)
    assert sum(map(clear, found)) <= 10
    assert sum(clear(records, images=False) for records in found) >= 20
