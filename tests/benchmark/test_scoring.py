"""Learning and scoring from shards: the same numbers as in memory, in memory that has a bound."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import textwrap
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from cala.benchmark import scoring
from cala.benchmark.runner import fit_method
from cala.benchmark.scoring import run_draw
from cala.benchmark.task import make_draw
from cala.core.rows import StoredRows
from cala.data.embeddings import Embeddings, load_embeddings, save_embeddings
from cala.data.protocol import Protocol, load_protocol, make_protocol
from cala.data.shard_writer import ShardWriter
from cala.shipped import shipped
from refusals import refused


def into_shards(folder: Path, data: Embeddings, rows: int, **options: object) -> Path:
    """The same embeddings in shards of so many rows."""
    names = data.class_names or tuple(map(str, range(int(data.y_train.max()) + 1)))
    settings = {"dtype": "float32", "scale": data.scale, "provenance": data.provenance, **options}
    dim = data.x_train.shape[1]
    with ShardWriter(folder, dim=dim, classes=names, **settings) as writer:
        for split, x, y in (
            ("train", data.x_train, data.y_train),
            ("test", data.x_test, data.y_test),
        ):
            for start in range(0, len(y), rows):
                part = slice(start, start + rows)
                held = data.holdout[part] if split == "train" and data.holdout is not None else None
                writer.write(None, x[part], y[part], split, holdout=held)
        if data.fakes is not None:
            pool = data.fakes
            number = np.arange(len(pool)).repeat(pool.images)
            features = pool.features.reshape(len(number), dim)
            writer.write(None, features, number, "fake", pairs=pool.pairs[number])
        writer.finish()
    return folder


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> tuple[Embeddings, Embeddings, Protocol]:
    """The shipped embeddings in memory and in shards, and their protocol."""
    inside = load_embeddings(shipped("cifar100/embeddings.npz"))
    folder = into_shards(tmp_path_factory.mktemp("s") / "cifar100.shards", inside, rows=7001)
    protocol = load_protocol("cifar100")
    outside = load_embeddings(folder)
    assert isinstance(outside.x_train, StoredRows)
    assert isinstance(outside.x_test, StoredRows)
    return inside.relabelled(protocol), outside.relabelled(protocol), protocol


def close(first: object, second: object) -> bool:
    pairs = zip(asdict(first).values(), asdict(second).values(), strict=True)
    return all(math.isclose(a, b, abs_tol=1e-6) or (a != a and b != b) for a, b in pairs)


LONG = [pytest.param(m, marks=pytest.mark.long) for m in ("nearest-mean", "la", "teen+cala")]


@pytest.mark.parametrize("method", ["cala", "cala-plus", *LONG])
def test_shards_give_what_memory_gives(
    cifar: tuple[Embeddings, Embeddings, Protocol], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "_SCORES", 100 * 777)  # blocks that end inside shards
    inside, outside, protocol = cifar
    draw = make_draw("random:0", protocol, inside)
    heads = [fit_method(method, data, protocol) for data in (inside, outside)]
    for name, array in heads[0].state()["tensors"].items():
        assert np.allclose(heads[1].state()["tensors"][name], array, atol=1e-6, equal_nan=True)
    found = [
        run_draw(head, data, protocol, draw)
        for head, data in zip(heads, (inside, outside), strict=True)
    ]
    assert len(found[0]) == 9
    assert all(close(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.long
def test_fakes_mixed_from_shards_are_the_same(
    cifar: tuple[Embeddings, Embeddings, Protocol],
) -> None:
    """Without image-level fakes they are mixed from rows that are read one by one."""
    inside, outside, protocol = cifar
    inside, outside = (replace(d, fakes=None, holdout=None) for d in (inside, outside))
    heads = [fit_method("cala-plus", data, protocol) for data in (inside, outside)]
    for name, array in heads[0].state()["tensors"].items():
        assert np.allclose(heads[1].state()["tensors"][name], array, atol=1e-6, equal_nan=True)


def few(seed: int = 0) -> Embeddings:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(12, 8))
    y = np.arange(12).repeat(12)
    x, z = ((centres[y] + rng.normal(size=(len(y), 8))).astype(np.float32) for _ in range(2))
    return Embeddings(x, y, z, y)


def test_few_rows_are_judged_by_folds_from_shards_too(tmp_path: Path) -> None:
    """A whitened metric of few rows is refitted without the rows it judges."""
    inside = few()
    outside = load_embeddings(into_shards(tmp_path / "few.shards", inside, rows=10))
    protocol = make_protocol(12, base=8, way=2, shot=5, name="few")
    heads = [fit_method("cala-plus", d.relabelled(protocol), protocol) for d in (inside, outside)]
    query = inside.x_test
    assert np.allclose(heads[0].logits(query), heads[1].logits(query), atol=1e-5)


def test_dev_and_other_orders_stay_on_the_disk(tmp_path: Path) -> None:
    inside = few()
    outside = load_embeddings(into_shards(tmp_path / "few.shards", inside, rows=10))
    protocol = make_protocol(12, base=8, way=2, shot=5, order_seed=3, name="few")
    views = [d.relabelled(protocol).dev(3, seed=0, keep=[]) for d in (inside, outside)]
    assert isinstance(views[1].x_test, StoredRows)
    assert np.array_equal(views[1].x_test[:], views[0].x_test)
    draw = make_draw("random:0", protocol, views[0])
    found = [run_draw(fit_method("la", v, protocol), v, protocol, draw) for v in views]
    assert all(close(a, b) for a, b in zip(*found, strict=True))


def test_heads_that_need_memory_say_so(tmp_path: Path) -> None:
    outside = load_embeddings(into_shards(tmp_path / "few.shards", few(), rows=10))
    protocol = make_protocol(12, base=8, way=2, shot=5, name="few")
    with refused("gkeal", code="not_streaming"):
        fit_method("gkeal", outside.relabelled(protocol), protocol)
    with refused("gkeal", code="not_streaming"):
        fit_method("gkeal+cala", outside.relabelled(protocol), protocol)


def test_shards_are_not_saved_as_a_file(tmp_path: Path) -> None:
    outside = load_embeddings(into_shards(tmp_path / "few.shards", few(), rows=10))
    with refused(code="in_shards"):
        save_embeddings(tmp_path / "few.npz", outside)


BOUNDED = """
    import resource, sys
    import scipy.linalg, scipy.optimize  # what is loaded on first use is no part of the work
    from cala.benchmark.task import make_draw
    from cala.benchmark.runner import fit_method
    from cala.benchmark.scoring import run_draw
    from cala.data.embeddings import load_embeddings
    from cala.data.protocol import make_protocol
    from cala.heads import calibrated_mean

    data = load_embeddings(sys.argv[1])
    protocol = make_protocol(40, base=30, way=5, shot=5, name="big")
    data = data.relabelled(protocol)
    used = int(open("/proc/self/statm").read().split()[5]) * resource.getpagesize()
    limit = used + int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    draw = make_draw("random:0", protocol, data)
    quick = {"episodes": 20, "heldout_episodes": 4, "epochs": 2}
    for method in ("cala", "cala-plus"):
        head = fit_method(method, data, protocol, adapter=quick)
        run_draw(head, data, protocol, draw)
    if sys.argv[3] == "load":
        data.x_train[:]
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory as Linux does")
@pytest.mark.system
def test_memory_has_a_bound(tmp_path: Path) -> None:
    """410 MB of embeddings within 250 MB more than what is there before the work begins."""
    folder = tmp_path / "big.shards"
    rng = np.random.default_rng(0)
    rows, dim = 200_000, 512
    with ShardWriter(folder, dim=dim, classes=tuple(map(str, range(40)))) as writer:
        for split, blocks in (("train", 9), ("test", 1)):
            for _ in range(blocks):
                y = rng.integers(40, size=rows // 10)
                x = rng.standard_normal((len(y), dim), dtype=np.float32)
                x[np.arange(len(y)), y] += 8
                writer.write(None, x, y, split)
        writer.finish()

    def run(what: str) -> int:
        code = textwrap.dedent(BOUNDED)
        command = [sys.executable, "-c", code, str(folder), str(250 << 20), what]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        return subprocess.run(command, env=environment, check=False, stderr=-1).returncode

    assert run("stream") == 0
    assert run("load") != 0
