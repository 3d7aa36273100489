"""The headline: a fixed rule, and honest words for every outcome."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cala.benchmark.config import RunConfig
from cala.benchmark.execute import execute
from cala.benchmark.sources import Source
from cala.benchmark.task import BenchTask
from cala.data.embeddings import Embeddings
from cala.data.protocol import Protocol
from cala.records import Record
from cala.reports.phrases import SHIFTS, explained, headline
from cala.reports.runs import Run, load_run
from cala.reports.study import make_studies
from cala.results import SESSION_COLUMNS
from problems import blobs


def study_of(tmp_path, accuracies, groups=None):
    """One study; accuracies : method -> accuracy in the last session, per draw.

    groups : method -> what all its records keep of groups of test images
    """
    records = []
    for method, values in accuracies.items():
        for j, value in enumerate(values):
            for session in range(2):
                metrics = dict.fromkeys(SESSION_COLUMNS, value)
                record = Record(method, f"random:{j}", 0, session, 6 + session, 10, metrics)
                records.append(dataclasses.replace(record, groups=(groups or {}).get(method)))
    config = {"dataset": "toy", "split": "test"}
    (study,) = make_studies([Run(tmp_path, config, records, sessions=1)])
    return study


def test_the_adapter_of_the_headline_is_explained(tmp_path):
    values = [0.5, 0.6]
    assert SHIFTS["la"] in explained(study_of(tmp_path, {"host": values, "host+la": values}))
    said = explained(study_of(tmp_path, {"host": values, "host+mine": values}))
    assert "host+mine" in said
    assert not [words for words in SHIFTS.values() if words in said]
    assert "no adapter" in explained(study_of(tmp_path, {"host": values}))


def test_it_speaks_of_the_last_method_even_where_another_is_better(tmp_path):
    """The best on test images must not be picked by looking at test images."""
    study = study_of(tmp_path, {"plain": [0.5, 0.5], "best": [0.9, 0.9], "ours": [0.6, 0.6]})
    sentence = headline(study)
    assert "ours recognises 60.0 ± 0.0 % of the test images" in sentence
    assert "10.0 ± 0.0 points more than plain on the same 2 draws" in sentence
    assert "best" not in sentence
    assert "1 novel class joined 6 base classes" in sentence
    assert "known" not in sentence


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        ([0.4, 0.41], ", 9.5 ± 6.4 points less than plain on the same 2 draws (± over draws alone"),
        (
            [0.6, 0.61],
            ", 10.5 ± 6.4 points more than plain on the same 2 draws (± over draws alone",
        ),
        ([0.4, 0.58], ", not distinguishable from plain (−1.0 ± 114.4 points) on the same 2"),
        ([0.5, 0.5], ", not distinguishable from plain (+0.0 ± 0.0 points) on the same 2"),
        ([0.4], ", 10.0 points less than plain on one draw, which has no interval;"),
        ([0.5], ", as many as plain on one draw, which has no interval;"),
    ],
)
def test_every_sign_is_said(tmp_path, ours, words):
    plain = [0.5] * len(ours)
    assert words in headline(study_of(tmp_path, {"plain": plain, "ours": ours}))


@pytest.mark.parametrize(
    ("right", "words"),
    [
        ([6, 6, 6, 6], ", 10.0 ± 0.0 points more than plain on the same 2 draws and test images;"),
        ([10, 2, 10, 2], ", not distinguishable from plain (+10.0 ± 73.5 points) on the same 2 d"),
    ],
)
def test_few_test_images_can_not_tell_methods_apart(tmp_path, right, words):
    """All draws agree on +10 points; whether these are of all images or of some decides."""
    of, half = [10] * 4, [5] * 4
    groups = {
        "plain": {"base_images": of, "base_right": half},
        "ours": {"base_images": of, "base_right": right},
    }
    study = study_of(tmp_path, {"plain": [0.5, 0.5], "ours": [0.6, 0.6]}, groups)
    assert words in headline(study)


def test_one_method_is_compared_with_nothing(tmp_path):
    assert headline(study_of(tmp_path, {"plain": [0.5, 0.5]})).endswith(
        "of all 7 classes; of the novel images 50.0 %."
    )


@pytest.mark.filterwarnings("ignore::cala.errors.FallbackWarning")
@pytest.mark.parametrize(
    ("base", "per_class", "words"),
    [(4, 12, "cala fell back to LA"), (8, 1, "The adapter of cala shifts nothing here (β = 0).")],
)
def test_a_fallback_is_said(tmp_path, base, per_class, words):
    x, y = blobs(base + 2, 24, 8, spread=1.5)
    x, rank = x.astype(np.float32), np.arange(len(y)) % 24
    train = rank < np.where(y < base, per_class, 12)
    data = Embeddings(x[train], y[train], x[~train], y[~train])
    protocol = Protocol(name="tiny", base=base, way=2, shot=3, sessions=1)
    config = RunConfig("tiny", ("nearest-mean", "cala"), ("random:0", "random:1"))
    execute(config, BenchTask(Source(data, "tiny.npz"), protocol), out=tmp_path / "run")
    (study,) = make_studies([load_run(tmp_path / "run")])
    assert words in headline(study)
    plain = dataclasses.replace(study, artifacts={})
    assert words not in headline(plain)
