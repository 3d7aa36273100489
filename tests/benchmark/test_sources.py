"""Embeddings of their own for the methods of a host: which serve whom, and the same rows in all."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from cala.benchmark.problem import Numbers, load_problem
from cala.benchmark.sources import (
    Choices,
    Source,
    brief,
    check_same_rows,
    host_of,
    read_choices,
    source_of,
)
from cala.data.embeddings import Embeddings, save_embeddings
from cala.errors import InputError
from cala.heads import ADAPTERS, HEADS
from problems import blobs

METHODS = ("nearest-mean", "teen", "teen+cala")
NUMBERS = Numbers(base=8, way=2, shot=3, sessions=2)


def embeddings(seed: int = 0, dim: int = 12, **more) -> Embeddings:
    """The same rows for every seed, as another encoder sees them."""
    x, y = blobs(12, 30, dim, seed=seed)
    x, train = x.astype(np.float32), np.arange(len(y)) % 2 == 0
    return Embeddings(x[train], y[train], x[~train], y[~train], **more)


def load(tmp_path, usual: Embeddings | None, own: Embeddings, **options):
    """A problem of base.npz and teen=teen.npz."""
    base = None if usual is None else save_embeddings(tmp_path / "base.npz", usual)
    teen = save_embeddings(tmp_path / "teen.npz", own)
    given = {"numbers": NUMBERS, "methods": METHODS, "own": {"teen": teen}, **options}
    return load_problem("small", base, **given)


@pytest.mark.parametrize("host", HEADS)
def test_own_embeddings_serve_a_host_with_every_adapter(host):
    usual, own = Source(embeddings(), "base.npz"), Source(embeddings(1), "own.npz")
    for method in (host, *(f"{host}+{adapter}" for adapter in ADAPTERS)):
        assert host_of(method) == host
        assert source_of(method, usual, {host: own}) is own
    for other in set(HEADS) - {host}:
        assert source_of(other, usual, {host: own}) is usual


@pytest.mark.parametrize(
    ("values", "usual", "own"),
    [
        ([], None, {}),
        (["base.npz"], "base.npz", {}),
        (["base.npz", "teen=t.npz"], "base.npz", {"teen": "t.npz"}),
        (["teen=t.npz", "base.npz"], "base.npz", {"teen": "t.npz"}),
        (["teen=t.npz", "nearest-mean=n.npz"], None, {"teen": "t.npz", "nearest-mean": "n.npz"}),
        (["teen=lr=0.1.npz"], None, {"teen": "lr=0.1.npz"}),
        (["runs/lr=0.1/e.npz"], "runs/lr=0.1/e.npz", {}),
        (["./teen=t.npz"], "./teen=t.npz", {}),
        (["onnx:models/lr=0.1.onnx"], "onnx:models/lr=0.1.onnx", {}),
    ],
)
def test_values_are_sorted(values, usual, own):
    assert read_choices("--embeddings", values, METHODS) == Choices(usual, own)


def test_an_equals_sign_in_the_name_of_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="unknown host 'lr'"):
        read_choices("--embeddings", ["lr=0.1.npz"], METHODS)
    (tmp_path / "lr=0.1.npz").touch()
    assert read_choices("--embeddings", ["lr=0.1.npz"], METHODS).usual == "lr=0.1.npz"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["tean=t.npz"], "unknown host 'tean': did you mean 'teen'? Known: alice"),
        (["cala=t.npz"], "cala is a method, give its host: nearest-mean=…. Known hosts: alice"),
        (["teen+cala=t.npz"], "teen+cala is a method, give its host: teen=…"),
        (["gkeal=g.npz"], "--embeddings gkeal=g.npz: no method of this run has the host gkeal: "),
        (["teen=a.npz", "teen=b.npz"], "--embeddings teen=… is given twice"),
        (["teen="], "nothing stands after the ="),
        (["a.npz", "b.npz"], "--embeddings a.npz and b.npz: give one for all methods"),
    ],
)
def test_what_serves_nobody_is_refused(values, message):
    with pytest.raises(InputError, match=re.escape(message)):
        read_choices("--embeddings", values, METHODS)


def test_names_of_encoders_have_no_absolute_path():
    assert brief("/home/me/bases/alice/encoder.safetensors") == "alice/encoder.safetensors"
    assert brief("onnx:/home/me/net.onnx") == "onnx:me/net.onnx"
    for name in ("resnet20-cifar100", "timm:vit", "bases/alice/encoder.safetensors"):
        assert brief(name) == name


def test_a_problem_gives_every_method_its_embeddings(tmp_path):
    usual, own = embeddings(), embeddings(1, dim=5)
    problem = load(tmp_path, usual, own)
    assert np.array_equal(problem.of("nearest-mean").x_train, usual.x_train)
    assert np.array_equal(problem.of("cala").x_train, usual.x_train)
    assert np.array_equal(problem.of("teen").x_train, own.x_train)
    assert np.array_equal(problem.of("teen+cala").x_test, own.x_test)
    assert (problem.source, problem.own["teen"].name) == ("base.npz", "teen.npz")


def test_no_others_are_looked_for_where_all_have_their_own(tmp_path):
    own = embeddings(1)
    problem = load(tmp_path, None, own, methods=("teen", "teen+cala"))
    assert np.array_equal(problem.of("teen").x_train, own.x_train)
    assert problem.dataset == problem.protocol.name == "small"
    with pytest.raises(InputError, match="no embeddings of small"):
        load(tmp_path, None, own)


CLASSES = tuple("abcdefghijkl")
ROWS = tuple(f"train/{row}" for row in range(180))


@pytest.mark.parametrize("order_seed", [None, 3])
@pytest.mark.parametrize(
    ("change", "member"),
    [
        (lambda e: replace(e, y_train=e.y_train[::-1]), "y_train"),
        (lambda e: replace(e, y_test=e.y_test[::-1]), "y_test"),
        (
            lambda e: replace(e, x_test=e.x_test[1:], y_test=e.y_test[1:], names_test=ROWS[1:]),
            "y_test, names_test",
        ),
        (lambda e: replace(e, names_train=ROWS[::-1]), "names_train"),
        (lambda e: replace(e, names_test=ROWS[::-1]), "names_test"),
        (lambda e: replace(e, class_names=CLASSES[::-1]), "class_names"),
    ],
)
def test_other_images_are_refused(tmp_path, change, member, order_seed):
    named = {"names_train": ROWS, "names_test": ROWS, "class_names": CLASSES}
    usual, own = embeddings(**named), embeddings(1, **named)
    numbers = replace(NUMBERS, order_seed=order_seed)
    assert load(tmp_path, usual, own, numbers=numbers).own
    message = rf"teen.npz, for teen, differs from base.npz in {member}: .*same images.*cala encode"
    with pytest.raises(InputError, match=message):
        load(tmp_path, usual, change(own), numbers=numbers)


def test_names_that_only_one_has_are_not_compared(tmp_path):
    assert load(tmp_path, embeddings(), embeddings(1, names_train=ROWS)).own
    source = Source(embeddings(), "a.npz")
    check_same_rows("teen", source, Source(embeddings(1, class_names=CLASSES), "b.npz"))


def test_more_classes_than_the_first_file_has(tmp_path):
    x, y = blobs(14, 30, 4)
    more = Embeddings(x, y, x, y)
    for order_seed in (None, 0):
        with pytest.raises(InputError, match=r"teen\.npz, for teen"):
            load(tmp_path, embeddings(), more, numbers=replace(NUMBERS, order_seed=order_seed))


def marked(rows) -> np.ndarray:
    holdout = np.zeros(180, dtype=bool)
    holdout[rows] = True
    return holdout


def test_dev_asks_the_same_images_of_all(tmp_path):
    first, other = marked(np.arange(0, 120, 3)), marked(np.arange(1, 120, 3))
    same = load(tmp_path, embeddings(holdout=first), embeddings(1, holdout=first), split="dev")
    assert np.array_equal(same.data.usable, same.of("teen").usable)
    assert np.array_equal(same.data.y_test, same.of("teen").y_test)
    for holdout in (other, None):
        differing = embeddings(1, holdout=holdout)
        assert load(tmp_path, embeddings(holdout=first), differing).own, "test images are the same"
        message = r"teen.npz, for teen, gives other dev images than base.npz.*\(holdout\)"
        with pytest.raises(InputError, match=message):
            load(tmp_path, embeddings(holdout=first), differing, split="dev")


def test_classes_that_trained_an_encoder_are_looked_for_in_every_file(tmp_path):
    usual = embeddings(class_names=CLASSES)
    own = replace(embeddings(1, class_names=CLASSES), provenance={"seen": ["a", "k"]})
    message = r"teen\.npz: 1 novel classes trained the encoder \(k\)"
    with pytest.raises(InputError, match=message):
        load(tmp_path, usual, own)
    (note,) = load(tmp_path, usual, own, allow_seen=True).notes
    assert re.match(f"note: {message}", note)
