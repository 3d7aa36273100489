"""Storage files: what is written is read again, and nothing that is damaged passes."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from cala import storage
from cala.errors import DamagedFile, InputError, StateError

META = {"names": ["a", "ü\n"], "scale": 1.5, "none": None, "deep": {"x": [1, 2]}}


def arrays():
    rng = np.random.default_rng(0)
    return {
        "x": rng.normal(size=(6, 3)).astype(np.float32),
        "half": rng.normal(size=(2, 2)).astype(np.float16),
        "y": np.arange(6),
        "bytes": np.arange(5, dtype=np.uint8),
        "mask": np.array([True, False]),
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 4), np.float32),
        "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    }


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.safetensors"
    storage.write(path, "embeddings", META, arrays())
    return path


def test_what_is_written_is_read(path):
    meta, found = storage.read(path, "embeddings")
    assert meta == META
    assert found.keys() == arrays().keys()
    for name, array in arrays().items():
        np.testing.assert_array_equal(found[name], array, strict=True)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_others_read_it_too_and_equal_content_is_equal_bytes(path):
    with safe_open(path, "np") as file:
        np.testing.assert_array_equal(file.get_tensor("x"), arrays()["x"])
        assert json.loads(file.metadata()["cala"])["meta"] == META
    code = (
        "import sys; sys.path.insert(0, 'tests'); from pathlib import Path; import test_storage\n"
        "test_storage.storage.write(Path(sys.argv[1]), 'embeddings', test_storage.META,"
        " test_storage.arrays())"
    )
    other = path.with_name("b.safetensors")
    subprocess.run([sys.executable, "-c", code, str(other)], check=True)
    assert other.read_bytes() == path.read_bytes()


def test_any_wrong_byte_is_noticed(path):
    content = path.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 0x21
        path.write_bytes(changed)
        try:
            meta, found = storage.read(path, "embeddings")
        except InputError:
            continue
        assert meta == META, f"byte {place}"
        for name, array in arrays().items():
            np.testing.assert_array_equal(found[name], array, strict=True)
        assert chr(content[place]).isspace() or chr(changed[place]).isspace(), f"byte {place}"


def test_a_file_that_is_cut_short_is_damaged(path):
    content = path.read_bytes()
    for end in (0, 4, 8, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:end])
        with pytest.raises(DamagedFile) as caught:
            storage.read(path, "embeddings")
        assert caught.value.code == "damaged_file"
        assert caught.value.fix


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"kind": "encoder"}, "other_kind"),
        ({"kind": None}, "other_kind"),
        ({"version": 99}, "newer_file"),
        ({"version": "1"}, "damaged_file"),
        ({"meta": {}}, "damaged_file"),
        ({"meta": []}, "damaged_file"),
        ({"sha256": None}, "damaged_file"),
    ],
)
def test_headers_that_do_not_fit(path, change, code):
    with safe_open(path, "np") as file:
        header = json.loads(file.metadata()["cala"])
    save_file(arrays() | {"columns": arrays()["columns"].copy("C")}, path,
              metadata={"cala": json.dumps(header | change)})  # fmt: skip
    with pytest.raises(InputError) as caught:
        storage.read(path, "embeddings")
    assert caught.value.code == code


def test_files_of_others_and_files_from_before_there_were_kinds(tmp_path):
    path = tmp_path / "old.safetensors"
    save_file({"x": np.eye(2)}, path, metadata={"cala": '{"format": 1}', "more": "text"})
    with pytest.raises(InputError) as caught:
        storage.read(path, "encoder")
    assert caught.value.code == "other_kind"
    meta, found = storage.read(path, "encoder", old=lambda header: json.loads(header["cala"]))
    assert meta == {"format": 1}
    assert found["x"].shape == (2, 2)
    with pytest.raises(InputError) as caught:
        storage.read(path, "encoder", old=lambda header: {"x": header["no such entry"]})
    assert caught.value.code == "other_kind"
    with pytest.raises(InputError) as caught:
        storage.read(tmp_path / "gone", "encoder")
    assert caught.value.code == "missing_file"


@pytest.mark.parametrize("word", [b"kind", b"cala", b"sha256"])
def test_a_changed_header_is_not_an_older_file(path, word):
    whole = bytearray(path.read_bytes())
    whole[whole.index(word)] ^= 1
    path.write_bytes(bytes(whole))
    with pytest.raises(InputError):
        storage.read(path, "embeddings", old=lambda header: {})


def test_too_many_open_files_are_no_damage(path, monkeypatch):
    def full(*args, **options):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(InputError) as caught:
        storage.read(path, "embeddings")
    assert caught.value.code == "unreadable_file"
    assert not isinstance(caught.value, DamagedFile)


def test_a_failed_write_leaves_the_old_file(path, monkeypatch):
    before = path.read_bytes()

    def full(*paths):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError) as caught:
        storage.write(path, "embeddings", {}, {})
    assert caught.value.code == "not_written"
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_what_json_cannot_hold_is_refused(path):
    before = path.read_bytes()
    for meta in ({"x": float("nan")}, {"x": {1}}):
        with pytest.raises((ValueError, TypeError)):
            storage.write(path, "embeddings", meta, {})
    assert path.read_bytes() == before


def test_rows_are_read_a_few_at_a_time(path):
    rows, x = storage.StoredTensors(path), arrays()["x"]
    assert rows.shapes["x"] == (6, 3)
    assert rows.dtypes["x"] == "F32"
    np.testing.assert_array_equal(rows.read("x", 2, 5), x[2:5], strict=True)
    np.testing.assert_array_equal(rows.read("y"), np.arange(6), strict=True)
    np.testing.assert_array_equal(rows.take("x", np.array([5, 0, 5])), x[[5, 0, 5]], strict=True)
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(DamagedFile):
        rows.read("x", 0, 1)
    storage.write(path, "embeddings", {}, {"x": x[:4]})
    with pytest.raises(DamagedFile):
        rows.read("x", 0, 1)


def test_arrays_are_mapped(tmp_path):
    path, wanted = tmp_path / "m.safetensors", {"a": np.arange(5), "b": np.eye(3, dtype=np.float32)}
    storage.write(path, "images", META, wanted)
    meta, found = storage.read(path, "images", mapped=True)
    assert meta == META
    for name, array in wanted.items():
        assert isinstance(found[name], np.memmap)
        assert not found[name].flags.writeable
        np.testing.assert_array_equal(found[name], array, strict=True)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedFile):
        storage.read(path, "images", mapped=True)
    assert storage.read(path, "images", mapped=True, check=False)[0] == META
    path.write_bytes(content[:-1])
    with pytest.raises(DamagedFile):
        storage.read(path, "images", mapped=True, check=False)


def test_one_process_holds_a_lock(tmp_path):
    lock = tmp_path / "lock"
    with storage.locked(lock, "the folder"):
        with pytest.raises(StateError) as caught, storage.locked(lock, "the folder", timeout=0):
            pass
        assert caught.value.code == "in_use"
    with storage.locked(lock, "the folder", timeout=0):
        pass
    with pytest.raises(InputError), storage.locked(lock / "below", "x", timeout=0):
        pass


def test_no_torch_is_needed():
    code = "import sys, cala.storage; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
