"""The store: versions, undo and redo, and everything that may be wrong with the files."""

from __future__ import annotations

import hashlib
import json
import threading

import numpy as np
import pytest
from safetensors.numpy import save

import cala
from cala import storage
from cala.errors import DamagedFile, InputError, StateError
from cala.store import Content, JournalEntry, Store
from cala.store import store as module
from cala.store.files import read_blob, write_blob
from refusals import refused


def content(number: int) -> Content:
    return Content(
        {"number": number, "name": "bird 🐦\n"},
        {
            "base": {"matrix": np.arange(6.0).reshape(2, 3)},
            "classes": {"sums": np.full((number, 2), float(number))},
        },
    )


def same(a: Content, b: Content) -> bool:
    return a.meta == b.meta and all(
        np.array_equal(a.groups[g][n], b.groups[g][n]) for g in b.groups for n in b.groups[g]
    )


@pytest.fixture
def store(tmp_path) -> Store:
    made = Store(tmp_path / "birds")
    assert made.create(content(1), JournalEntry("fit")) == 1
    return made


def grow(store: Store, number: int) -> int:
    return store.change(lambda old: (content(number), JournalEntry("add", {"number": number})))


def files(store: Store) -> dict[str, bytes]:
    return {
        str(p.relative_to(store.path)): p.read_bytes() for p in store.path.rglob("*") if p.is_file()
    }


def test_what_is_written_is_read(store):
    assert same(store.read(), content(1))
    assert same(Store(store.path).read(), content(1))
    assert [entry["action"] for entry in store.journal()] == ["fit"]


def test_a_group_that_stays_is_written_once(store):
    before = {p.name for p in (store.path / "blobs").iterdir()}
    grow(store, 2)
    after = {p.name for p in (store.path / "blobs").iterdir()}
    assert len(before) == 2
    assert len(after - before) == 1


def test_undo_and_redo_walk_through_the_changes(store):
    for number in (2, 3):
        grow(store, number)
    seen = []
    for step in (store.undo, store.undo, store.redo, store.redo, store.undo):
        step()
        seen.append(store.read().meta["number"])
    assert seen == [2, 1, 2, 3, 2]
    assert store.version() == 8
    actions = " ".join(entry["action"] for entry in store.journal())
    assert actions == "fit add add undo undo redo redo undo"


def test_a_change_after_undo_ends_redo(store):
    grow(store, 2)
    store.undo()
    grow(store, 5)
    with pytest.raises(StateError) as caught:
        store.redo()
    assert caught.value.code == "nothing_to_redo"
    store.undo()
    assert store.read().meta["number"] == 1


def test_undo_has_an_end(store):
    with pytest.raises(StateError) as caught:
        store.undo()
    assert caught.value.code == "nothing_to_undo"


def test_old_versions_and_rests_are_cleared_away(store, monkeypatch):
    monkeypatch.setattr(module, "UNDO_STEPS", 3)
    (store.path / "blobs" / f".{'0' * 64}.safetensors.0123456789abcdef.tmp").write_bytes(b"rest")
    (store.path / ".model.json.0123456789abcdef.tmp").write_bytes(b"rest")
    (store.path / "history" / ".000001.json.0123456789abcdef.tmp").write_bytes(b"rest")
    for number in range(2, 9):
        grow(store, number)
    assert sorted(p.name for p in (store.path / "history").iterdir()) == [
        "000005.json", "000006.json", "000007.json"
    ]  # fmt: skip
    assert len(list((store.path / "blobs").iterdir())) == 5  # base, and classes of 4 versions
    assert not list(store.path.rglob("*.tmp"))
    for _ in range(3):
        store.undo()
    assert store.read().meta["number"] == 5


def test_a_change_that_fails_changes_nothing(store):
    grow(store, 2)
    before = files(store)

    def fail(old: Content) -> tuple[Content, JournalEntry]:
        raise InputError("no", code="of_this_test")

    with refused(code="of_this_test"):
        store.change(fail)
    assert store.change(lambda old: None) == 2
    assert files(store) == before


@pytest.mark.parametrize("name", ["model.json", "blobs"])
def test_every_flipped_bit_is_noticed(store, name):
    grow(store, 2)
    good = store.read()
    target = store.path / name
    for path in sorted(target.iterdir()) if target.is_dir() else [target]:
        whole = path.read_bytes()
        used = path.stem in read(store)["blobs"].values() or name == "model.json"
        for place in range(0, len(whole), max(1, len(whole) // 60)):
            damaged = bytearray(whole)
            damaged[place] ^= 0x10
            path.write_bytes(damaged)
            if not used:
                assert same(store.read(), good)
                continue
            try:
                found = store.read()
            except InputError as error:
                assert error.code in ("damaged_file", "newer_format")  # noqa: PT017
            else:  # white space of the JSON carries nothing
                assert same(found, good)
        path.write_bytes(whole)


def read(store: Store) -> dict:
    return json.loads((store.path / "model.json").read_text())


def test_editing_by_hand_is_noticed(store):
    document = read(store)
    document["meta"]["number"] = 7
    (store.path / "model.json").write_text(json.dumps(document))
    with refused("model.json", "checksum", kind=DamagedFile, code="damaged_file"):
        store.read()


def test_a_newer_format_is_left_alone(store):
    document = read(store)
    document["format"] = 99
    (store.path / "model.json").write_text(json.dumps(document))
    for call in (store.read, store.undo, store.redo, lambda: grow(store, 2)):
        with pytest.raises(InputError) as caught:
            call()
        assert caught.value.code == "newer_format"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"format": 1}', '{"format": "1"}', "\x00\xff", '{"format": true}'],
)
def test_a_document_that_is_none(store, text):
    (store.path / "model.json").write_text(text)
    with pytest.raises(DamagedFile):
        store.read()


@pytest.mark.parametrize("damage", ["cut", "gone", "blob gone", "blob cut"])
def test_undo_goes_back_to_the_last_whole_version(store, damage):
    grow(store, 2)
    grow(store, 3)
    document = read(store)
    blob = store.path / "blobs" / f"{document['blobs']['classes']}.safetensors"
    path = blob if damage.startswith("blob") else store.path / "model.json"
    if damage.endswith("gone"):
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DamagedFile):
        store.read()
    version = store.undo()
    assert version > 3
    assert store.read().meta["number"] == 2
    grow(store, 4)
    assert store.read().meta["number"] == 4


def test_nothing_whole_is_left(store):
    (store.path / "model.json").write_text("{")
    with pytest.raises(DamagedFile):
        store.undo()


def test_where_there_is_no_model(tmp_path):
    store = Store(tmp_path / "nothing")
    for call in (store.read, store.undo, store.redo, store.journal, lambda: grow(store, 2)):
        with pytest.raises(InputError) as caught:
            call()
        assert caught.value.code == "no_model"
    assert not store.path.exists()


def test_what_is_there_is_not_overwritten(store, tmp_path):
    before = files(store)
    with pytest.raises(InputError) as caught:
        store.create(content(9), JournalEntry("fit"))
    assert caught.value.code == "model_exists"
    assert files(store) == before
    other = tmp_path / "photos"
    other.mkdir()
    (other / "a.jpg").write_bytes(b"x")
    with pytest.raises(InputError) as caught:
        Store(other).create(content(9), JournalEntry("fit"))
    assert caught.value.code == "not_empty"
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError) as caught:
        Store(tmp_path / "file").create(content(9), JournalEntry("fit"))
    assert caught.value.code == "not_empty"


def test_an_empty_folder_will_do(tmp_path):
    (tmp_path / "birds").mkdir()
    assert Store(tmp_path / "birds").create(content(1), JournalEntry("fit")) == 1


def test_changes_at_the_same_time_all_take_place(store):
    def add(number: int) -> None:
        def make(old: Content) -> tuple[Content, JournalEntry]:
            told = [*old.meta.get("told", []), number]
            return Content({**old.meta, "told": told}, old.groups), JournalEntry("add")

        Store(store.path).change(make)

    threads = [threading.Thread(target=add, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(store.read().meta["told"]) == list(range(12))
    assert store.version() == 13


def test_who_waits_too_long_is_told(store, monkeypatch):
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.1)
    with Store(store.path)._locked(), pytest.raises(StateError) as caught:
        grow(store, 2)
    assert caught.value.code == "locked"


def test_readers_need_no_lock_and_see_whole_versions(store):
    stop = threading.Event()
    faults = []

    def watch() -> None:
        while not stop.is_set():
            found = store.read()
            if found.groups["classes"]["sums"].shape[0] != found.meta["number"]:
                faults.append(found.meta)

    reader = threading.Thread(target=watch)
    reader.start()
    for number in range(2, 40):
        grow(store, number)
        if number % 5 == 0:
            store.undo()
            grow(store, number + 100)
    stop.set()
    reader.join()
    assert not faults


def test_recovery_does_not_bring_back_what_was_undone(store):
    grow(store, 2)
    store.undo()
    (store.path / "model.json").write_text("{")
    store.undo()
    assert store.read().meta["number"] == 1
    with pytest.raises(StateError) as caught:
        store.undo()
    assert caught.value.code == "nothing_to_undo"


def test_what_was_undone_is_better_than_nothing(store):
    grow(store, 2)
    store.undo()
    (store.path / "model.json").write_text("{")
    (store.path / "history" / "000001.json").unlink()
    store.undo()
    assert store.read().meta["number"] == 2


@pytest.mark.parametrize("damage", ["document", "blob", "deep"])
def test_undo_steps_over_a_damaged_version(store, damage):
    for number in (2, 3):
        grow(store, number)
    path = store.path / "history" / "000002.json"
    if damage == "blob":
        name = json.loads(path.read_text())["blobs"]["classes"]
        path = store.path / "blobs" / f"{name}.safetensors"
    path.write_text("[" * 200_000 if damage == "deep" else "{")
    store.undo()
    assert store.read().meta["number"] == 1


def test_recovery_at_the_limit_leaves_no_dead_step(store, monkeypatch):
    monkeypatch.setattr(module, "UNDO_STEPS", 3)
    for number in range(2, 9):
        grow(store, number)
    (store.path / "model.json").write_text("{")
    store.undo()
    for _ in range(2):
        store.undo()
    with pytest.raises(StateError) as caught:
        store.undo()
    assert caught.value.code == "nothing_to_undo"
    assert store.read().meta["number"] == 5


def test_a_full_disk_takes_nothing_with_it(store, monkeypatch):
    grow(store, 2)
    before = files(store)
    write = module.write_document

    def full(path, document):
        if path.name == "model.json":
            raise OSError(28, "No space left on device")
        write(path, document)

    monkeypatch.setattr(module, "write_document", full)
    with refused(store.path, "No space left", code="not_saved"):
        grow(store, 3)
    assert files(store) == before


def test_undo_and_redo_and_create_wait_for_their_turn(store, monkeypatch):
    grow(store, 2)
    store.undo()
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.05)
    fresh = Store(store.path.parent / "fresh")
    fresh.path.mkdir()
    for one, call in ((store, store.undo), (store, store.redo)):
        with Store(one.path)._locked(), pytest.raises(StateError) as caught:
            call()
        assert caught.value.code == "locked"
    with Store(fresh.path)._locked(), pytest.raises(StateError) as caught:
        fresh.create(content(1), JournalEntry("fit"))
    assert caught.value.code == "locked"


def test_a_journal_is_written_where_cala_is_not_installed(monkeypatch):
    """Run from its sources, no distribution of that name is known."""
    from importlib import metadata

    def unknown(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", unknown)
    assert JournalEntry("fit").dated(1)["cala"] == cala.__version__


def test_arrays_come_back_as_they_were(tmp_path):
    kept = {
        "rows": np.arange(12.0, dtype=np.float32).reshape(3, 4).T,
        "part": np.arange(10)[::3],
        "digest": np.arange(64, dtype=np.uint8).reshape(2, 32),
        "number": np.array(0.5),
        "empty": np.zeros((0, 5)),
        "mask": np.array([True, False]),
    }
    store = Store(tmp_path / "birds")
    store.create(Content({}, {"base": kept}), JournalEntry("fit"))
    found = store.read().groups["base"]
    assert set(found) == set(kept)
    for name, array in kept.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert np.array_equal(found[name], array)


def test_blobs_of_version_0_1_are_read_and_others_are_storage_files(tmp_path):
    x = {"x": np.arange(3.0)}
    data = save(x)  # a safetensors file without a header of cala
    name = hashlib.sha256(data).hexdigest()
    (tmp_path / f"{name}.safetensors").write_bytes(data)
    assert np.array_equal(read_blob(tmp_path, name)["x"], x["x"])
    new = write_blob(tmp_path, x)
    assert np.array_equal(storage.read(tmp_path / f"{new}.safetensors", "model")[1]["x"], x["x"])


def test_a_type_of_numbers_that_is_not_read_is_named(tmp_path):
    header = json.dumps({"x": {"dtype": "F8_E5M2", "shape": [4], "data_offsets": [0, 4]}}).encode()
    data = len(header).to_bytes(8, "little") + header + bytes(4)
    name = hashlib.sha256(data).hexdigest()
    (tmp_path / f"{name}.safetensors").write_bytes(data)
    with refused(name, "float8_e5m2", kind=DamagedFile, code="damaged_file"):
        read_blob(tmp_path, name)
