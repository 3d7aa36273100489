"""The embeddings file: what is read, what is refused, and the development view."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cala.data.embeddings import load_embeddings
from cala.errors import InputError


def arrays(**changes):
    rng = np.random.default_rng(0)
    made = {
        "x_train": rng.normal(size=(40, 3)).astype(np.float16),
        "y_train": np.repeat(np.arange(4), 10).astype(np.uint8),
        "x_test": rng.normal(size=(8, 3)).astype(np.float16),
        "y_test": np.repeat(np.arange(4), 2).astype(np.uint8),
        "fake": rng.normal(size=(5, 6, 3)).astype(np.float16),
        "pairs": np.array([[0, 1], [0, 2], [1, 2], [0, 3], [1, 3]], dtype=np.uint8),
        "scale": np.float32(16),
    }
    made.update(changes)
    return {k: v for k, v in made.items() if v is not None}


def write(tmp_path, **changes):
    path = tmp_path / "odd näme 🐦.npz"
    np.savez(path, **arrays(**changes))
    return path


def test_a_whole_file(tmp_path):
    data = load_embeddings(write(tmp_path, holdout=np.arange(40) % 4 == 0))
    assert data.x_train.dtype == torch.float32
    assert data.y_train.dtype == torch.int64
    assert data.fakes.features.shape == (5, 6, 3)
    assert data.scale == 16.0
    assert int(data.holdout.sum()) == 10
    assert data.learnable().all()


def test_holdout_may_be_row_numbers(tmp_path):
    data = load_embeddings(write(tmp_path, holdout=np.array([3, 5])))
    assert data.holdout.nonzero()[:, 0].tolist() == [3, 5]


def test_only_the_four_arrays_are_needed(tmp_path):
    data = load_embeddings(write(tmp_path, fake=None, pairs=None, scale=None))
    assert (data.fakes, data.scale, data.holdout) == (None, None, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_test": None}, "lacks x_test: it holds x_train"),
        ({"y_train": np.zeros(3)}, "y_train \\(3,\\)"),
        ({"x_test": np.zeros((8, 5))}, "differ in dimension"),
        ({"x_train": np.full((40, 3), np.nan)}, "x_train contains NaN"),
        ({"pairs": None}, "pairs None"),
        ({"fake": np.zeros((5, 3))}, "fake is \\(5, 3\\)"),
        ({"holdout": np.zeros(3, bool)}, "holdout is \\(3,\\)"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        load_embeddings(write(tmp_path, **changes))


def test_files_cut_short_or_of_another_kind(tmp_path):
    with pytest.raises(InputError, match="no embeddings file at"):
        load_embeddings(tmp_path / "nothing.npz")
    whole = write(tmp_path).read_bytes()
    for content in (b"", b"hello", whole[: len(whole) // 2], whole[:-30]):
        broken = tmp_path / "broken.npz"
        broken.write_bytes(content)
        with pytest.raises(InputError, match=r"cannot be read as \.npz"):
            load_embeddings(broken)
    np.savez(broken, **arrays(x_train=np.array([{"a": 1}], dtype=object)))
    with pytest.raises(InputError, match="cannot be read"):
        load_embeddings(broken)


def test_dev_never_holds_a_test_image_or_a_kept_shot(tmp_path):
    data = load_embeddings(write(tmp_path))
    dev = data.dev(4, seed=0, keep=[30, 31])
    assert torch.bincount(dev.y_test).tolist() == [4, 4, 4, 4]
    assert int(dev.learnable().sum()) == 24
    assert dev.learnable()[[30, 31]].all()
    queries = {tuple(row) for row in dev.x_test.tolist()}
    learned = {tuple(row) for row in dev.x_train[dev.learnable()].tolist()}
    assert not queries & learned
    assert not queries & {tuple(row) for row in data.x_test.tolist()}
    assert torch.equal(dev.x_test, data.dev(4, seed=0, keep=[30, 31]).x_test)


def test_dev_keeps_shots_out_of_scarce_queries(tmp_path):
    """With every row asked for, all become queries except the kept shots."""
    data = load_embeddings(write(tmp_path))
    dev = data.dev(10, seed=0, keep=[30, 31, 32])
    assert dev.learnable().nonzero()[:, 0].tolist() == [30, 31, 32]


def test_dev_takes_base_queries_from_the_hold_out(tmp_path):
    holdout = np.isin(np.arange(40), [0, 1, 2, 10, 11, 12])
    data = load_embeddings(write(tmp_path, holdout=holdout))
    query = ~data.dev(4, seed=0, keep=[]).learnable()
    assert query[:20].nonzero()[:, 0].tolist() == [0, 1, 2, 10, 11, 12]
    assert int(query[20:].sum()) == 8
