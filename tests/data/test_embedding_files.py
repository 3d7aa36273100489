"""The embeddings file on disk: two formats, one content, and every way in which it is wrong."""

from __future__ import annotations

import io
import json
import zipfile
from contextlib import suppress
from dataclasses import fields, replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cala.core.fakes import FakePool
from cala.data.embeddings import Embeddings, load_embeddings, save_embeddings
from cala.errors import InputError
from data.embedding_arrays import arrays, write
from refusals import refused


def whole(d: int = 3) -> Embeddings:
    rng = np.random.default_rng(0)
    return Embeddings(
        x_train=rng.normal(size=(12, d)).astype(np.float32),
        y_train=np.arange(12) % 4,
        x_test=rng.normal(size=(8, d)).astype(np.float32),
        y_test=np.arange(8) % 4,
        fakes=FakePool(
            rng.normal(size=(3, 5, d)).astype(np.float32), np.array([[0, 1], [2, 1], [3, 0]])
        ),
        holdout=np.arange(12) % 3 == 0,
        scale=16.0,
        class_names=("plain", "zwölf 🐦", "with, comma", 'quote"'),
        names_train=tuple(f"images/ä {i}.jpg" for i in range(12)),
        names_test=tuple(f"test/{i}.jpg" for i in range(8)),
        provenance={"encoder": "resnet20", "command": "cala encode …", "size": [32, 32]},
    )


def same(a: object, b: object) -> bool:
    if isinstance(a, FakePool):
        return same(a.features, b.features) and same(a.pairs, b.pairs)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return a == b


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".NPZ"])
@pytest.mark.parametrize("content", ["everything", "what is needed", "no test rows"])
def test_what_is_saved_is_loaded(tmp_path, suffix, content):
    data = whole()
    if content != "everything":
        data = Embeddings(data.x_train, data.y_train, data.x_test, data.y_test)
    if content == "no test rows":
        data = replace(data, x_test=np.zeros((0, 3), np.float32), y_test=data.y_test[:0])
    path = save_embeddings(tmp_path / f"odd näme 🐦{suffix}", data)
    again = load_embeddings(path)
    for field in fields(Embeddings):
        assert same(getattr(data, field.name), getattr(again, field.name)), field.name
    assert [p.name for p in tmp_path.iterdir()] == [path.name], "nothing is left beside it"


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_half_precision_when_asked(tmp_path, suffix):
    data = whole(64)
    full, half = (
        save_embeddings(tmp_path / f"{name}{suffix}", data, half=name == "half")
        for name in ("full", "half")
    )
    assert half.stat().st_size < full.stat().st_size - 2 * 64 * 20
    again = load_embeddings(half)
    assert again.x_train.dtype == np.float32
    np.testing.assert_array_equal(
        again.x_train, data.x_train.astype(np.float16).astype(np.float32), strict=True
    )
    halved = data.fakes.features.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(again.fakes.features, halved, strict=True)
    with refused("65,504", field="x_train"):
        save_embeddings(half, replace(data, x_train=data.x_train * 1e6), half=True)


def test_what_cannot_be_saved(tmp_path):
    data = whole()
    view = data.dev(1, seed=0, keep=[])
    with refused(code="not_original"):
        save_embeddings(tmp_path / "a.npz", view)
    with refused(field="provenance"):
        save_embeddings(tmp_path / "a.npz", replace(data, provenance={"a": {1, 2}}))
    with refused("(3,)", field="names_train"):
        save_embeddings(tmp_path / "a.npz", replace(data, names_train=("a", "b", "c")))
    with refused("a.pt", field="path"):
        save_embeddings(tmp_path / "a.pt", data)
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "folder.safetensors").mkdir()
    for place in ("nowhere/a.npz", "nowhere/a.safetensors", "folder.npz", "folder.safetensors"):
        with refused(code="not_written"):
            save_embeddings(tmp_path / place, data)
    with refused(field="compress"):
        save_embeddings(tmp_path / "a.safetensors", data, compress=True)
    assert {p.name for p in tmp_path.iterdir()} == {"folder.npz", "folder.safetensors"}


def test_an_old_file_stays_when_writing_fails(tmp_path, monkeypatch):
    path = save_embeddings(tmp_path / "a.npz", whole())
    before = path.read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with refused(path, "No space left", code="not_written"):
        save_embeddings(path, whole(5))
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_bfloat16(tmp_path):
    import torch
    from safetensors.torch import save_file as save_torch

    tensors = {k: torch.from_numpy(np.array(v)) for k, v in arrays().items()}
    for name in ("x_train", "fake", "scale"):
        tensors[name] = tensors[name].bfloat16()
    save_torch(tensors, tmp_path / "b.safetensors")
    found = load_embeddings(tmp_path / "b.safetensors")
    np.testing.assert_array_equal(found.x_train, tensors["x_train"].float().numpy(), strict=True)
    np.testing.assert_array_equal(
        found.fakes.features, tensors["fake"].float().numpy(), strict=True
    )
    assert found.scale == 16.0


N = 40  # training rows


@pytest.mark.parametrize(
    ("changes", "field", "named"),
    [
        ({"x_test": None}, "x_test", "y_train, y_test"),
        ({"x_train": np.zeros((0, 3)), "y_train": np.zeros(0, int)}, "x_train", "(0, 3)"),
        ({"x_train": np.zeros((N, 0)), "x_test": np.zeros((8, 0))}, "x_train", "(40, 0)"),
        ({"x_train": np.zeros(N)}, "x_train", "(40,)"),
        ({"x_train": np.zeros((N, 3), complex)}, "x_train", "complex128"),
        ({"x_train": np.full((N, 3), "a")}, "x_train", "<U1"),
        ({"x_train": np.full((N, 3), np.nan)}, "x_train", "NaN"),
        ({"x_test": np.full((8, 3), -np.inf)}, "x_test", "NaN"),
        ({"x_test": np.full((8, 3), 1e300)}, "x_test", "too large"),
        ({"x_test": np.zeros((8, 5))}, "x_test", "(8, 5)"),
        ({"y_train": np.zeros(3, int)}, "y_train", "(3,)"),
        ({"y_train": np.zeros((N, 1), int)}, "y_train", "(40, 1)"),
        ({"y_train": np.full(N, 0.5)}, "y_train", "float64"),
        ({"y_train": np.full(N, np.nan)}, "y_train", "float64"),
        ({"y_test": np.full(8, -1)}, "y_test", "-1"),
        ({"y_test": np.full(8, 2**63, np.uint64)}, "y_test", "9223372036854775808"),
        ({"y_test": np.full(8, "cat")}, "y_test", "strings"),
        ({"y_test": np.full(8, True)}, "y_test", "bool"),
        ({"class_names": np.array(["a", "b"])}, "y_train", "2"),
        ({"class_names": np.array(["a", "b", "a", "c"])}, "class_names", "'a' twice"),
        ({"class_names": np.arange(4)}, "class_names", "int64"),
        ({"names_train": np.array(["a", "b"])}, "names_train", "(2,)"),
        ({"names_test": np.array("a")}, "names_test", "()"),
        ({"pairs": None}, "fake", "pairs"),
        ({"fake": None}, "pairs", "fake"),
        ({"fake": np.zeros((5, 3))}, "fake", "(5, 3)"),
        ({"fake": np.zeros((5, 0, 3))}, "fake", "(5, 0, 3)"),
        ({"fake": np.zeros((0, 5, 3)), "pairs": np.zeros((0, 2), int)}, "fake", "(0, 5, 3)"),
        ({"fake": np.full((5, 6, 3), np.nan)}, "fake", "NaN"),
        ({"pairs": np.zeros((4, 2), int)}, "pairs", "(4, 2)"),
        ({"pairs": np.full((5, 2), 0.5)}, "pairs", "float64"),
        ({"pairs": np.full((5, 2), 9)}, "pairs", "9"),
        ({"pairs": np.full((5, 2), 2)}, "pairs", "class 2 with itself"),
        ({"holdout": np.zeros(3, bool)}, "holdout", "(3,)"),
        ({"holdout": np.zeros((N, 1), bool)}, "holdout", "(40, 1)"),
        ({"holdout": np.array([3, -1])}, "holdout", "-1"),
        ({"holdout": np.array([3, N])}, "holdout", "40"),
        ({"holdout": np.array([0.0, 1.0])}, "holdout", "float64"),
        ({"holdout": np.array([1, 0, 1])}, "holdout", "40 rows"),
        ({"scale": np.float32(np.nan)}, "scale", "NaN"),
        ({"scale": np.float32(0)}, "scale", "0.0"),
        ({"scale": np.float32(-16)}, "scale", "-16.0"),
        ({"scale": np.array([16.0])}, "scale", "(1,)"),
        ({"scale": np.array("16")}, "scale", "<U2"),
        ({"provenance": np.array("resnet")}, "provenance", "JSON object"),
        ({"provenance": np.array("[1]")}, "provenance", "JSON object"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, changes, field, named):
    path = write(tmp_path, **changes)
    with refused(f"{path}: {field} ", named, field=field):
        load_embeddings(path)


def test_string_labels_outside_the_class_names(tmp_path):
    labels = {"y_train": np.repeat(["a", "b"], 20), "y_test": np.repeat(["a", "c"], 4)}
    with refused("'c'", field="y_test"):
        load_embeddings(write(tmp_path, **labels, pairs=None, fake=None, class_names=["a", "b"]))


@pytest.mark.parametrize("kind", [np.uint8, np.int64])
def test_a_mask_of_zeros_and_ones_is_a_mask(tmp_path, kind):
    given = (np.arange(N) % 4 == 0).astype(kind)
    data = load_embeddings(write(tmp_path, holdout=given))
    assert np.flatnonzero(data.holdout).tolist() == list(range(0, N, 4))
    ones = load_embeddings(write(tmp_path, holdout=np.ones(N, kind)))
    assert ones.holdout.all()


def test_a_mask_that_marks_nothing_is_none(tmp_path):
    for given in (np.zeros(N, bool), np.zeros(N, np.uint8), np.zeros(0)):
        assert load_embeddings(write(tmp_path, holdout=given)).holdout is None
    few = {"x_train": np.ones((2, 3)), "y_train": np.array([0, 1]), "fake": None, "pairs": None}
    with refused(field="holdout", code="ambiguous"):
        load_embeddings(write(tmp_path, **few, holdout=np.array([0, 1])))


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_files_cut_short_or_of_another_kind(tmp_path, suffix):
    good = save_embeddings(tmp_path / f"good{suffix}", whole()).read_bytes()
    broken = tmp_path / f"broken{suffix}"
    cuts = [good[:n] for n in (0, 1, 8, 100, len(good) // 2, len(good) - 30, len(good) - 1)]
    for content in (b"hello", b"\x00" * 500, b"\xff" * 500, *cuts):
        broken.write_bytes(content)
        with refused(broken, code="damaged_file"):
            load_embeddings(broken)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_flipped_byte_anywhere_gives_the_same_data_or_an_error(tmp_path, suffix):
    data = whole()
    good = save_embeddings(tmp_path / f"good{suffix}", data).read_bytes()
    broken = tmp_path / f"broken{suffix}"
    for place in range(0, len(good), max(1, len(good) // 150)):
        broken.write_bytes(good[:place] + bytes([good[place] ^ 0x5A]) + good[place + 1 :])
        with suppress(InputError):
            again = load_embeddings(broken)
            assert suffix == ".npz" or same(data.x_train, again.x_train)
            assert suffix == ".npz" or same(data.fakes, again.fakes)


def test_compressed_members_that_are_damaged(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, **arrays())
    content = path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        start = archive.getinfo("x_train.npy").header_offset + 60
    path.write_bytes(content[:start] + b"\xff" * 40 + content[start + 40 :])
    with refused("x_train", code="damaged_file"):
        load_embeddings(path)


def test_other_content_under_the_name(tmp_path):
    path = tmp_path / "a.npz"
    with path.open("wb") as file:
        np.save(file, np.zeros((3, 3)))
    with refused(path, "single array", code="damaged_file"):
        load_embeddings(path)
    np.savez(path, **arrays(x_train=np.array([{"a": 1}], dtype=object)))
    with refused("x_train", code="damaged_file"):
        load_embeddings(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x_train", "text")
    with refused("x_train", code="damaged_file"):
        load_embeddings(path)
    with zipfile.ZipFile(path, "w"):
        pass
    with refused("nothing", field="x_train"):
        load_embeddings(path)


def test_places_without_a_file(tmp_path):
    with refused("nothing.npz", code="missing_file"):
        load_embeddings(tmp_path / "nothing.npz")
    (tmp_path / "folder.npz").mkdir()
    with refused("folder.npz", code="missing_file"):
        load_embeddings(tmp_path / "folder.npz")
    with refused(r"nul\x00byte.npz", code="missing_file"):
        load_embeddings("nul\0byte.npz")
    (tmp_path / "a.csv").write_text("1,2")
    with refused("a.csv", field="path"):
        load_embeddings(tmp_path / "a.csv")


def test_safetensors_of_other_hands(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file(arrays(scale=None), path, metadata={"format": "pt"})
    assert load_embeddings(path).class_names is None
    for text, told in (
        ("not json", {"code": "other_kind"}),
        (json.dumps([1, 2, 3, 4]), {"field": "class_names"}),
    ):
        save_file(arrays(scale=None), path, metadata={"class_names": text})
        with refused("a.safetensors", **told):
            load_embeddings(path)


def test_safetensors_of_an_earlier_version(tmp_path):
    """Its strings are JSON under their own names in the header."""
    data = whole()
    save_embeddings(tmp_path / "new.safetensors", data)
    header = {name: json.dumps(getattr(data, name)) for name in
              ("class_names", "names_train", "names_test", "provenance")}  # fmt: skip
    save_file(load_file(tmp_path / "new.safetensors"), tmp_path / "old.safetensors", header)
    again = load_embeddings(tmp_path / "old.safetensors")
    for field in fields(Embeddings):
        assert same(getattr(data, field.name), getattr(again, field.name)), field.name
