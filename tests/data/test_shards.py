"""Folders of shards: what is written is read again, and what is damaged is named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cala.data.shard_rows import Shards, open_shards
from cala.data.shard_writer import ShardWriter
from cala.data.shards import read_manifest
from cala.errors import StateError
from cala.files import sha256
from refusals import refused

CLASSES = ("ant", "bee", "crow")
FROM = {"encoder": "mine", "fingerprint": "f00"}


def writer(folder: Path, **options: object) -> ShardWriter:
    settings = {"dim": 4, "classes": CLASSES, "dtype": "float32", "provenance": FROM}
    return ShardWriter(folder, **{**settings, **options})


def rows(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 4)).astype(np.float32), rng.integers(3, size=n)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "my.shards"
    with writer(path) as w:
        for seed, n in enumerate((5, 1, 7)):
            w.write(f"u{seed}", *rows(n, seed), names=[f"{seed}/ü\n{i}" for i in range(n)])
        w.write("t", *rows(3, 9), split="test")
        w.finish()
    return path


def everything(n: tuple[int, ...] = (5, 1, 7)) -> tuple[np.ndarray, np.ndarray]:
    parts = [rows(size, seed) for seed, size in enumerate(n)]
    x, y = (np.concatenate(part) for part in zip(*parts, strict=True))
    return x, y


def test_what_was_written_is_read(folder: Path) -> None:
    shards = open_shards(folder)
    x, y = everything()
    assert shards.classes == CLASSES
    assert (shards.rows("train"), shards.rows("test"), shards.rows("fake")) == (13, 3, 0)
    np.testing.assert_array_equal(shards.features("train")[:], x, strict=True)
    np.testing.assert_array_equal(shards.labels("train"), y, strict=True)
    assert list(shards.names("train"))[4:7] == ["0/ü\n4", "1/ü\n0", "2/ü\n0"]
    assert shards.manifest.provenance == FROM
    assert shards.fakes() is None
    assert shards.holdout() is None
    shards.verify()


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_blocks_cover_all_rows_in_order(folder: Path, size: int) -> None:
    blocks = list(open_shards(folder).blocks("train", rows=size))
    x, y = everything()
    assert max(len(b) for b, _ in blocks) <= size
    np.testing.assert_array_equal(np.concatenate([b for b, _ in blocks]), x, strict=True)
    np.testing.assert_array_equal(np.concatenate([b for _, b in blocks]), y, strict=True)


def test_rows_are_indexed_like_an_array(folder: Path) -> None:
    x, _ = everything()
    stored = open_shards(folder).features("train")
    rng = np.random.default_rng(0)
    for _ in range(30):
        index = rng.integers(13, size=6)
        np.testing.assert_array_equal(stored[index], x[index], strict=True)
        pair = rng.integers(13, size=(2, 3))
        np.testing.assert_array_equal(stored[pair], x[pair], strict=True)
        mask = rng.random(13) > 0.5
        some, same = stored.where(mask), x[mask]
        np.testing.assert_array_equal(some[:], same, strict=True)
        np.testing.assert_array_equal(some[1:4], same[1:4], strict=True)
        low, high = sorted(rng.integers(14, size=2).tolist())
        np.testing.assert_array_equal(stored[low:high], x[low:high], strict=True)
        deeper = np.arange(len(same))[::-1]
        np.testing.assert_array_equal(some.where(deeper)[:], same[::-1], strict=True)
    with pytest.raises(IndexError):
        stored[np.array([13])]


def test_sparse_rows_come_from_a_map(tmp_path: Path) -> None:
    with writer(tmp_path / "my.shards", dtype="float16") as w:
        x, y = rows(1000)
        w.write(None, x, y)
        w.finish()
    stored = open_shards(tmp_path / "my.shards").features("train")
    index = np.array([999, 3, 500, 3])
    half = x.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(stored[index], half[index], strict=True)


def test_fakes_and_holdout(tmp_path: Path) -> None:
    with writer(tmp_path / "my.shards", scale=12.0) as w:
        x, y = rows(6)
        w.write("a", x[:3], y[:3], holdout=np.array([True, False, True]))
        w.write("b", x[3:], y[3:])
        pairs = np.repeat([[0, 1], [1, 2]], 3, axis=0)
        w.write("f", *(rows(6, 1)[0], np.repeat([0, 1], 3)), split="fake", pairs=pairs)
        w.finish()
    shards = open_shards(tmp_path / "my.shards")
    assert shards.holdout().tolist() == [True, False, True, False, False, False]
    pool = shards.fakes()
    assert pool.features.shape == (2, 3, 4)
    assert pool.pairs.tolist() == [[0, 1], [1, 2]]
    np.testing.assert_array_equal(pool.features.reshape(6, 4), rows(6, 1)[0], strict=True)
    assert shards.manifest.scale == 12.0


def test_a_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "my.shards"
    keys = ("u0", "u1", "u2")
    with writer(path, keys=keys) as w:
        w.write("u1", *rows(2, 1))
        assert w.missing == ("u0", "u2")
    with refused("2 parts", "u0", code="incomplete"):
        open_shards(path)
    with writer(path, keys=keys) as w:
        assert w.missing == ("u0", "u2")
        with refused("u1", field="key"):
            w.write("u1", *rows(2, 1))
        w.write("u0", *rows(2, 0))
        with refused("u2", code="incomplete"):
            w.finish()
        w.write("u2", *rows(2, 2))
        w.finish()
    shards = open_shards(path)
    assert [s.key for s in shards.manifest.shards] == list(keys)  # whatever the order they came in
    np.testing.assert_array_equal(shards.labels("train")[:2], rows(2, 0)[1], strict=True)


def test_files_of_others_stay(folder: Path) -> None:
    strange = ["shard-backup.safetensors", ".notes.tmp", "thesis.safetensors"]
    for name in strange:
        (folder / name).write_text("mine")
    (folder / "shard-00099.safetensors").write_text("of a writer that was killed")
    (folder / f".shard-00009.safetensors.{'0' * 16}.tmp").write_text("part")
    writer(folder).close()
    left = {path.name for path in folder.iterdir()}
    assert left >= set(strange)
    assert not left & {"shard-00099.safetensors", f".shard-00009.safetensors.{'0' * 16}.tmp"}


@pytest.mark.parametrize(
    ("before", "after"),
    [(("a", "b"), ("b", "a")), (("a", "b"), ("z", "a", "b")), ((), ("a", "b"))],
)
def test_a_writer_with_another_list_of_units_overwrites_nothing(
    tmp_path: Path, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    path = tmp_path / "my.shards"
    with writer(path, keys=before) as w:
        w.write("b", *rows(3, 1))
    with writer(path, keys=after) as w:
        for key in w.missing:
            w.write(key, *rows(2, ord(key)))
        w.finish()
    shards = open_shards(path)
    shards.verify()
    wanted = {tuple(x) for seed, n in [(1, 3), *((ord(k), 2) for k in after if k != "b")]
              for x in rows(n, seed)[0].tolist()}  # fmt: skip
    assert {tuple(x) for x in shards.features("train")[:].tolist()} == wanted


@pytest.mark.parametrize(
    ("options", "told", "named"),
    [
        ({"dim": 0}, {"code": "bad_manifest"}, "dim is 0"),
        ({"scale": float("nan")}, {"code": "bad_manifest"}, "scale is nan"),
        ({"keys": (None, 1)}, {"code": "bad_manifest"}, "no name"),
        ({"keys": ("a", "a")}, {"code": "bad_manifest"}, "repeated"),
        ({"classes": ("ant", 3)}, {"field": "classes"}, "'ant', 3"),
        ({"classes": ("ant", "ant")}, {"field": "classes"}, "'ant', 'ant'"),
        ({"classes": ()}, {"code": "bad_manifest"}, "classes is 0"),
        ({"provenance": {"x": {1}}}, {"field": "provenance"}, ""),
    ],
)
def test_what_could_not_be_read_again_is_not_begun(
    tmp_path: Path, options: dict[str, object], told: dict[str, str], named: str
) -> None:
    with refused(named, **told):
        writer(tmp_path / "my.shards", **options)
    assert not (tmp_path / "my.shards").exists()


def test_names_and_numbers_that_cannot_be_kept(tmp_path: Path) -> None:
    x, y = rows(2)
    with writer(tmp_path / "my.shards") as w:
        for names in ([None, None], ["\ud800", "a"]):
            with refused(field="names"):
                w.write("a", x, y, names=names)
        for wrong in (x.astype(complex), x.astype(str)):
            with refused(wrong.dtype, field="x"):
                w.write("a", wrong, y)
        w.write("a", x, y)
        w.finish()
        with refused(w.folder, code="closed"):
            w.write("b", x, y)


def test_a_lost_shard_is_named_missing(folder: Path) -> None:
    lost = folder / "shard-00001.safetensors"
    lost.unlink()
    with refused("shard-00001", code="missing_file"):
        open_shards(folder)
    with writer(folder, keys=("u0", "u1", "u2", "t")) as w:
        assert w.missing == ("u1",)
        w.write("u1", *rows(1, 1))
        w.finish()
    assert open_shards(folder).rows("train") == 13


@pytest.mark.parametrize(
    ("options", "field", "named"),
    [
        ({"dim": 5}, "dim", "4, not 5"),
        ({"dtype": "float16"}, "dtype", "float32, not float16"),
        ({"scale": 2.0}, "scale", "None, not 2.0"),
        ({"classes": ("ant", "bee", "dog")}, "classes", "dog"),
        ({"provenance": {**FROM, "fingerprint": "bad"}}, "fingerprint", "f00, not bad"),
        ({"provenance": {**FROM, "base": list(range(99))}}, "base", "other base"),
        ({"keys": ("u0", "t")}, "keys", "u1"),
    ],
)
def test_another_folder_is_refused(
    folder: Path, options: dict[str, object], field: str, named: str
) -> None:
    with refused(named, field=field, code="other_folder"):
        writer(folder, **options)
    open_shards(folder)


def test_two_writers_at_once_are_refused(tmp_path: Path) -> None:
    with writer(tmp_path / "my.shards"), pytest.raises(StateError) as caught:
        writer(tmp_path / "my.shards")
    assert caught.value.code == "in_use"


def _bad_x() -> np.ndarray:
    x, _ = rows(2)
    x[1, 2] = np.nan
    return x


@pytest.mark.parametrize(
    ("x", "y", "field", "named"),
    [
        (np.ones((2, 3)), np.zeros(2, int), "x", "(2, 3)"),
        (np.ones((0, 4)), np.zeros(0, int), "x", "(0, 4)"),
        (np.float32(3), np.zeros(0, int), "x", "()"),
        (np.ones((2, 4)), np.zeros(3, int), "y", "(3,)"),
        (np.ones((2, 4)), np.zeros(2), "y", "float64"),
        (np.ones((2, 4)), np.array([0, 3]), "y", "holds 3"),
        (np.ones((2, 4)), np.array([0, -1]), "y", "holds -1"),
        (_bad_x(), np.zeros(2, int), "x", "NaN"),
        (np.array([[1.0, 0, 0, 0], [0, 0, 0, 0]]), np.zeros(2, int), "x", "row 1 "),
    ],
)
def test_bad_rows_are_not_written(
    tmp_path: Path, x: np.ndarray, y: np.ndarray, field: str, named: str
) -> None:
    with writer(tmp_path / "my.shards") as w, refused(named, field=field):
        w.write("u", x, y)
    assert not list((tmp_path / "my.shards").glob("shard-*"))


def test_half_precision_says_what_it_cannot_hold(tmp_path: Path) -> None:
    half = writer(tmp_path / "my.shards", dtype="float16")
    with half as w, refused("row 0 ", "float16", field="x"):
        w.write("u", np.full((1, 4), 1e6), np.zeros(1, int))


def test_a_cut_shard_is_named(folder: Path) -> None:
    path = folder / "shard-00002.safetensors"
    whole = path.read_bytes()
    for size in (0, 5, 40, len(whole) - 1):
        path.write_bytes(whole[:size])
        with refused("shard-00002", code="damaged_file"):
            open_shards(folder)
    path.write_bytes(whole + b"more")
    with refused("shard-00002", code="damaged_file"):
        open_shards(folder)


def test_a_shard_cut_after_opening_is_named(folder: Path) -> None:
    shards = open_shards(folder)
    path = folder / "shard-00000.safetensors"
    path.write_bytes(path.read_bytes()[:-60])
    for read in (lambda: shards.features("train")[:], lambda: shards.labels("train")):
        with refused("shard-00000", code="damaged_file"):
            read()


def test_a_changed_byte_is_found(folder: Path) -> None:
    path = folder / "shard-00000.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with refused("shard-00000", "checksum", code="damaged_file"):
        open_shards(folder).verify()


def _overwritten(folder: Path, member: str, values: np.ndarray) -> Shards:
    """A folder whose first shard holds other numbers of the same size."""
    part = open_shards(folder).parts("train")[0]
    data = bytearray(part.path.read_bytes())
    offset = data.index(part.members.read(member).tobytes())
    data[offset : offset + values.nbytes] = values.tobytes()
    part.path.write_bytes(data)
    return open_shards(folder)


def test_nan_and_zero_rows_in_a_shard_are_named(folder: Path) -> None:
    shards = _overwritten(folder, "x", np.full(4, np.nan, np.float32))
    with refused("shard-00000", "NaN", "row 0", code="damaged_file"):
        shards.features("train")[:]
    shards = _overwritten(folder, "x", np.zeros(4, np.float32))
    with refused("shard-00000", "zero in row 0", code="damaged_file"):
        next(shards.blocks("train"))


def test_labels_out_of_range_are_named(folder: Path) -> None:
    shards = _overwritten(folder, "y", np.array([7]))
    with refused("shard-00000", "y holds 7", code="damaged_file"):
        shards.labels("train")


@pytest.mark.parametrize(
    ("change", "code", "named"),
    [
        ({"schema": 2}, "newer_file", "schema 2"),
        ({"schema": None}, "damaged_file", "schema is None"),
        ({"dim": 5}, "damaged_file", "x is F32 (5, 4)"),
        ({"dtype": "float16"}, "damaged_file", "x is not float16"),
        ({"dtype": "int8"}, "damaged_file", "dtype is 'int8'"),
        ({"rows": {}}, "damaged_file", "not the sum"),
        ({"classes": 4}, "damaged_file", "names 3 classes, the manifest 4"),
        ({"shards": [{"file": "../x"}]}, "damaged_file", "manifest.json"),
        ({"unknown": 1}, "damaged_file", "manifest.json"),
        ({"provenance": []}, "damaged_file", "provenance"),
        ({"scale": -3}, "damaged_file", "scale is -3"),
        ({"scale": "1"}, "damaged_file", "scale is '1'"),
        ({"complete": "no"}, "damaged_file", "work units are missing"),
        ({"complete": True, "expected": ["never"]}, "damaged_file", "work units are missing"),
        ({"expected": [1, None]}, "damaged_file", "has no name"),
        ({"expected": ["a", "a"]}, "damaged_file", "repeated"),
    ],
)
def test_a_manifest_that_does_not_fit_is_named(
    folder: Path, change: dict[str, object], code: str, named: str
) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with refused(named, code=code):
        open_shards(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"file": "../x"}, {"file": "/x"}, {"file": 3}, {"split": "other"}, {"rows": -5},
        {"rows": "5"}, {"rows": 10**9}, {"bytes": 1}, {"bytes": None}, {"key": 3}, {"key": "u1"},
        {"file": "shard-00001.safetensors"}, {"more": 1},
    ],
)  # fmt: skip
def test_an_entry_that_does_not_fit_is_named(folder: Path, change: dict[str, object]) -> None:
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    content["shards"][0] |= change
    path.write_text(json.dumps(content))
    with refused("manifest.json", code="damaged_file"):
        open_shards(folder)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_a_manifest_that_is_no_json_object_is_named(folder: Path, text: str) -> None:
    (folder / "manifest.json").write_text(text)
    with refused("manifest.json", code="damaged_file"):
        open_shards(folder)


def test_a_folder_of_an_earlier_version_is_read_and_resumed(folder: Path) -> None:
    """Its shards are safetensors files without a header of ours."""
    content = json.loads((folder / "manifest.json").read_text())
    for entry in content["shards"]:
        path = folder / entry["file"]
        save_file(load_file(path), path)
        entry |= {"bytes": path.stat().st_size, "sha256": sha256(path)}
    (folder / "manifest.json").write_text(json.dumps(content))
    shards = open_shards(folder)
    shards.verify()
    np.testing.assert_array_equal(shards.features("train")[:], everything()[0], strict=True)
    assert list(shards.names("train"))[4] == "0/ü\n4"
    with writer(folder) as w:
        assert w.done == {"u0", "u1", "u2", "t"}
        w.write("u3", *rows(2, 3))
        w.finish()
    assert open_shards(folder).rows("train") == 15


def test_no_folder_and_no_manifest_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.shards", tmp_path):
        with refused("manifest", code="missing_file"):
            open_shards(path)


KILLED = """
    import os, signal, sys
    import numpy as np
    from cala.data import shard_writer
    from cala.data.shard_writer import ShardWriter

    path, moment = sys.argv[1], sys.argv[2]
    def half(*_):
        os.kill(os.getpid(), signal.SIGKILL)
    w = ShardWriter(path, dim=4, classes=("ant", "bee", "crow"), dtype="float32", keys=("a", "b"))
    w.write("a", np.ones((2, 4)), np.array([0, 1]))
    if moment == "shard":  # the file is written aside
        os.replace = half
    else:  # the file is there, the manifest does not know it yet
        shard_writer.sha256 = half
    w.write("b", np.ones((3, 4)), np.array([0, 1, 2]))
"""


@pytest.mark.system
@pytest.mark.parametrize("moment", ["shard", "manifest"])
def test_a_killed_writer_loses_only_what_it_was_writing(tmp_path: Path, moment: str) -> None:
    path = tmp_path / "my.shards"
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(path), moment]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    left = {p.name for p in path.iterdir()}
    assert any(n.endswith(".tmp") for n in left) or "shard-00001.safetensors" in left
    assert read_manifest(path).missing == ("b",)
    options = {"dim": 4, "classes": CLASSES, "dtype": "float32", "keys": ("a", "b")}
    with ShardWriter(path, **options) as w:
        assert w.missing == ("b",)
        w.write("b", np.ones((3, 4)), np.array([0, 1, 2]))
        w.finish()
    shards = open_shards(path)
    shards.verify()
    assert shards.rows("train") == 5
    assert not [p.name for p in path.iterdir() if p.name.endswith(".tmp")]
