"""Embeddings in use: what is read, in whose order, and the development view."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from cala.benchmark.sources import Source
from cala.data.embeddings import load_embeddings, save_embeddings
from cala.data.protocol import Expected, make_protocol
from data.embedding_arrays import write
from refusals import refused


def test_a_whole_file(tmp_path):
    data = load_embeddings(write(tmp_path, holdout=np.arange(40) % 4 == 0))
    assert data.x_train.dtype == np.float32
    assert data.y_train.dtype == np.int64
    assert data.fakes.features.shape == (5, 6, 3)
    assert data.scale == 16.0
    assert int(data.holdout.sum()) == 10
    assert data.learnable().all()


def test_holdout_may_be_row_numbers(tmp_path):
    data = load_embeddings(write(tmp_path, holdout=np.array([3, 5])))
    assert np.flatnonzero(data.holdout).tolist() == [3, 5]


def test_only_the_four_arrays_are_needed(tmp_path):
    data = load_embeddings(write(tmp_path, fake=None, pairs=None, scale=None))
    assert (data.fakes, data.scale, data.holdout) == (None, None, None)


def test_string_labels_become_places_in_sorted_order(tmp_path):
    names = np.array(["ant", "bee", "cat", "dog"])
    path = write(tmp_path, y_train=np.repeat(names[[3, 0, 1, 2]], 10), y_test=np.repeat(names, 2))
    data = load_embeddings(path)
    assert data.class_names == ("ant", "bee", "cat", "dog")
    assert data.y_train.tolist() == np.repeat([3, 0, 1, 2], 10).tolist()
    assert data.y_test.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    given = np.array(["dog", "cat", "bee", "ant", "never seen"])
    path = write(tmp_path, y_train=np.repeat(names, 10), y_test=np.repeat(names, 2),
                 class_names=given)  # fmt: skip
    assert load_embeddings(path).y_train.tolist() == np.repeat([3, 2, 1, 0], 10).tolist()


def test_an_order_moves_labels_names_and_fakes_together(tmp_path):
    data = load_embeddings(write(tmp_path, class_names=np.array(["a", "b", "c", "d"])))
    protocol = make_protocol(4, base=3, way=1, order_seed=5)
    assert protocol.order != (0, 1, 2, 3)
    moved = data.relabelled(protocol)
    for row in (0, 15, 39):
        assert moved.class_names[moved.y_train[row]] == data.class_names[data.y_train[row]]
    last = protocol.order[3]
    kept = [pair for pair in data.fakes.pairs.tolist() if last not in pair]
    assert [[protocol.order[i] for i in pair] for pair in moved.fakes.pairs.tolist()] == kept
    assert 0 < len(kept) < 5


def test_fakes_of_classes_that_are_not_base_are_left_out(tmp_path):
    data = load_embeddings(write(tmp_path))
    kept = data.relabelled(make_protocol(4, base=2, way=1)).fakes
    assert kept.pairs.tolist() == [[0, 1]]
    np.testing.assert_array_equal(kept.features[0], data.fakes.features[0], strict=True)
    assert data.relabelled(make_protocol(4, base=1, way=1)).fakes is None


def test_classes_named_like_the_benchmarks_take_its_order(tmp_path):
    data = load_embeddings(write(tmp_path, class_names=np.array(["d", "c", "b", "a"])))
    expected = Expected(("a", "b", "c", "d", "e"), {}, {})
    protocol = replace(make_protocol(5, base=4, way=1), expected=expected)
    moved = data.relabelled(protocol)
    assert moved.y_train.tolist() == np.repeat([3, 2, 1, 0], 10).tolist()
    assert moved.fakes.pairs[0].tolist() == [3, 2]
    assert moved.class_names == expected.classes
    other = replace(data, class_names=("d", "c", "b", "other"))
    np.testing.assert_array_equal(other.relabelled(protocol).y_train, data.y_train, strict=True)


def test_names_follow_their_rows(tmp_path):
    names = np.array([f"train/{row}.jpg" for row in range(40)])
    tests = np.array([f"test/{row}.jpg" for row in range(8)])
    data = load_embeddings(write(tmp_path, names_train=names, names_test=tests))
    assert data.relabelled(make_protocol(4, base=2, way=1, sessions=1)).names_test == tuple(
        tests[:6]
    )
    dev = data.dev(2, seed=0, keep=[])
    rows = np.flatnonzero(~dev.learnable()).tolist()
    assert dev.names_test == tuple(f"train/{row}.jpg" for row in rows)


def test_dev_never_holds_a_test_image_or_a_kept_shot(tmp_path):
    data = load_embeddings(write(tmp_path))
    dev = data.dev(4, seed=0, keep=[30, 31])
    assert np.bincount(dev.y_test).tolist() == [4, 4, 4, 4]
    assert int(dev.learnable().sum()) == 24
    assert dev.learnable()[[30, 31]].all()
    queries = {tuple(row) for row in dev.x_test.tolist()}
    learned = {tuple(row) for row in dev.x_train[dev.learnable()].tolist()}
    assert not queries & learned
    assert not queries & {tuple(row) for row in data.x_test.tolist()}
    np.testing.assert_array_equal(
        dev.x_test, data.dev(4, seed=0, keep=[30, 31]).x_test, strict=True
    )


def test_dev_leaves_classes_that_never_arrive_alone(tmp_path):
    data = load_embeddings(write(tmp_path))
    dev = data.relabelled(make_protocol(4, base=2, way=1, sessions=1)).dev(4, seed=0, keep=[])
    assert np.unique(dev.y_test).tolist() == [0, 1, 2]
    assert not dev.learnable()[30:].any()


def test_dev_keeps_shots_out_of_scarce_queries(tmp_path):
    """With every row asked for, all become queries except the kept shots."""
    data = load_embeddings(write(tmp_path))
    dev = data.dev(10, seed=0, keep=[30, 31, 32])
    assert np.flatnonzero(dev.learnable()).tolist() == [30, 31, 32]


def test_dev_takes_base_queries_from_the_hold_out_and_leaves_half_to_adapters(tmp_path):
    holdout = np.isin(np.arange(40), [0, 1, 2, 3, 10, 11, 12])
    data = load_embeddings(write(tmp_path, holdout=holdout))
    query = ~data.dev(4, seed=0, keep=[]).learnable()
    assert set(np.flatnonzero(query[:20]).tolist()) <= {0, 1, 2, 3, 10, 11, 12}
    assert int(query[:10].sum()) == 2
    assert int(query[10:20].sum()) == 1
    assert int(query[20:].sum()) == 8


def virtual(seed):
    return np.random.default_rng(seed).normal(size=(2, 3)).astype(np.float32)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_parts_travel_with_the_file(tmp_path, suffix):
    parts = {"attention.query.weight": np.eye(3, dtype=np.float32), "virtual": virtual(0)}
    data = replace(load_embeddings(write(tmp_path)), parts=parts)
    again = load_embeddings(save_embeddings(tmp_path / f"again{suffix}", data))
    assert again.parts.keys() == parts.keys()
    for name, part in parts.items():
        np.testing.assert_array_equal(again.parts[name], part, strict=True)
    assert Source(again, "").fingerprint == Source(data, "").fingerprint
    assert Source(replace(data, parts={}), "").fingerprint != Source(data, "").fingerprint


def test_parts_that_do_not_fit_are_named(tmp_path):
    with refused("NaN", field="part.virtual"):
        load_embeddings(write(tmp_path, **{"part.virtual": np.array([[np.nan]])}))


def test_the_room_needs_no_torch():
    code = (
        "import importlib, pkgutil, sys, cala.data\n"
        "for found in pkgutil.iter_modules(cala.data.__path__, 'cala.data.'):\n"
        "    importlib.import_module(found.name)\n"
        "print('cala.data.embeddings' in sys.modules, 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert found == "True False\n"
