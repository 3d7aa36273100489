"""Embeddings of their own for the methods of a host: which serve whom, and the same rows in all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cala.benchmark.sources import (
    HostOption,
    Source,
    check_same_rows,
    host_of,
    parse_host_option,
    short_encoder_name,
)
from cala.benchmark.task import BenchTask, ProtocolOverrides, load_task
from cala.data.embeddings import Embeddings, save_embeddings
from cala.data.protocol import Protocol
from cala.errors import InputError
from cala.heads import ADAPTERS, HEADS
from problems import blobs
from refusals import refused

PROTOCOL = Protocol(name="small", base=8, way=2, shot=3, sessions=2)
METHODS = ("nearest-mean", "teen", "teen+cala")
NUMBERS = ProtocolOverrides(base=8, way=2, shot=3, sessions=2)


def embeddings(seed: int = 0, dim: int = 12, **more) -> Embeddings:
    """The same rows for every seed, as another encoder sees them."""
    x, y = blobs(12, 30, dim, seed=seed)
    x, train = x.astype(np.float32), np.arange(len(y)) % 2 == 0
    return Embeddings(x[train], y[train], x[~train], y[~train], **more)


def load(tmp_path, usual: Embeddings | None, own: Embeddings, **options):
    """A problem of base.npz and teen=teen.npz."""
    base = None if usual is None else save_embeddings(tmp_path / "base.npz", usual)
    teen = save_embeddings(tmp_path / "teen.npz", own)
    given = {"overrides": NUMBERS, "methods": METHODS, "per_host": {"teen": teen}, **options}
    return load_task("small", base, **given)


@pytest.mark.parametrize("host", HEADS)
def test_own_embeddings_serve_a_host_with_every_adapter(host):
    usual, own = Source(embeddings(), "base.npz"), Source(embeddings(1), "own.npz")
    task = BenchTask(usual, PROTOCOL, per_host={host: own})
    for method in (host, *(f"{host}+{adapter}" for adapter in ADAPTERS)):
        assert host_of(method) == host
        assert task.source_of(method) is own
    for other in set(HEADS) - {host}:
        assert task.source_of(other) is usual


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
    assert parse_host_option("--embeddings", values, METHODS) == HostOption(usual, own)


def test_an_equals_sign_in_the_name_of_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refused("lr=0.1.npz", field="embeddings"):
        parse_host_option("--embeddings", ["lr=0.1.npz"], METHODS)
    (tmp_path / "lr=0.1.npz").touch()
    assert parse_host_option("--embeddings", ["lr=0.1.npz"], METHODS).default == "lr=0.1.npz"


@pytest.mark.parametrize(
    ("values", "code", "named", "fix"),
    [
        (["tean=t.npz"], "not_a_host", "tean=t.npz", "'teen'?"),
        (["cala=t.npz"], "not_a_host", "cala=t.npz", "nearest-mean=…"),
        (["teen+cala=t.npz"], "not_a_host", "teen+cala=t.npz", "teen=…"),
        (["gkeal=g.npz"], "unused_host", "gkeal", "nearest-mean, teen"),
        (["teen=a.npz", "teen=b.npz"], "repeated", "teen=…", "once"),
        (["teen="], "no_value", "teen=", ""),
        (["a.npz", "b.npz"], "repeated", "a.npz and b.npz", "HOST=…"),
    ],
)
def test_what_serves_nobody_is_refused(values, code, named, fix):
    with refused(named, field="embeddings", code=code) as caught:
        parse_host_option("--embeddings", values, METHODS)
    assert fix in caught.value.fix


def test_names_of_encoders_have_no_absolute_path():
    path = "/home/me/bases/alice/encoder.safetensors"
    assert short_encoder_name(path) == "alice/encoder.safetensors"
    assert short_encoder_name("onnx:/home/me/net.onnx") == "onnx:me/net.onnx"
    for name in ("resnet20-cifar100", "timm:vit", "bases/alice/encoder.safetensors"):
        assert short_encoder_name(name) == name


def test_a_problem_gives_every_method_its_embeddings(tmp_path):
    usual, own = embeddings(), embeddings(1, dim=5)
    problem = load(tmp_path, usual, own)
    assert np.array_equal(problem.source_of("nearest-mean").data.x_train, usual.x_train)
    assert np.array_equal(problem.source_of("cala").data.x_train, usual.x_train)
    assert np.array_equal(problem.source_of("teen").data.x_train, own.x_train)
    assert np.array_equal(problem.source_of("teen+cala").data.x_test, own.x_test)
    assert (problem.default.name, problem.per_host["teen"].name) == ("base.npz", "teen.npz")


def test_no_others_are_looked_for_where_all_have_their_own(tmp_path):
    own = embeddings(1)
    problem = load(tmp_path, None, own, methods=("teen", "teen+cala"))
    assert np.array_equal(problem.source_of("teen").data.x_train, own.x_train)
    assert problem.dataset == problem.protocol.name == "small"
    with pytest.raises(InputError) as error:
        load(tmp_path, None, own)
    assert error.value.code == "no_embeddings"


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
    assert load(tmp_path, usual, own, overrides=numbers).per_host
    with refused("teen.npz", "base.npz", code="other_rows") as caught:
        load(tmp_path, usual, change(own), overrides=numbers)
    assert caught.value.detail.endswith(f" {member}")


def test_names_that_only_one_has_are_not_compared(tmp_path):
    assert load(tmp_path, embeddings(), embeddings(1, names_train=ROWS)).per_host
    source = Source(embeddings(), "a.npz")
    check_same_rows("teen", source, Source(embeddings(1, class_names=CLASSES), "b.npz"))


def test_more_classes_than_the_first_file_has(tmp_path):
    x, y = blobs(14, 30, 4)
    more = Embeddings(x, y, x, y)
    for order_seed, told in ((None, {"code": "other_rows"}), (0, {"field": "y"})):
        with refused("teen.npz, for teen", **told):
            load(tmp_path, embeddings(), more, overrides=replace(NUMBERS, order_seed=order_seed))


def marked(rows) -> np.ndarray:
    holdout = np.zeros(180, dtype=bool)
    holdout[rows] = True
    return holdout


def test_dev_asks_the_same_images_of_all(tmp_path):
    first, other = marked(np.arange(0, 120, 3)), marked(np.arange(1, 120, 3))
    same = load(tmp_path, embeddings(holdout=first), embeddings(1, holdout=first), split="dev")
    assert np.array_equal(same.data.usable, same.source_of("teen").data.usable)
    assert np.array_equal(same.data.y_test, same.source_of("teen").data.y_test)
    for holdout in (other, None):
        differing = embeddings(1, holdout=holdout)
        both = load(tmp_path, embeddings(holdout=first), differing)
        assert both.per_host, "test images are the same"
        with pytest.raises(InputError) as error:
            load(tmp_path, embeddings(holdout=first), differing, split="dev")
        assert error.value.code == "other_queries"


def test_classes_that_trained_an_encoder_are_looked_for_in_every_file(tmp_path):
    usual = embeddings(class_names=CLASSES)
    own = replace(embeddings(1, class_names=CLASSES), provenance={"seen": ["a", "k"]})
    with refused("teen.npz", "(k)", field="base", code="leakage"):
        load(tmp_path, usual, own)
    (note,) = load(tmp_path, usual, own, allow_seen=True).notes
    assert "teen.npz" in note.text
    assert "(k)" in note.text
    assert note.code == "seen_classes"
