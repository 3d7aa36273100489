"""A store deletes nothing that it did not write, and loses nothing without a word."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from cala import files as file_access
from cala.errors import CalaError, DamagedFile, InputError
from cala.store import Content, JournalEntry, Store
from store.test_store import content, files, grow, store

__all__ = ["store"]  # a fixture


@pytest.mark.parametrize("name", ["blobs", "history"])
def test_a_link_to_another_folder_is_refused(store, tmp_path, name):
    grow(store, 2)
    mine = tmp_path / "mine"
    (store.path / name).rename(mine)
    (mine / "thesis.txt").write_text("years of work")
    (store.path / name).symlink_to(mine)
    before = {path.name for path in mine.iterdir()}
    for change in (lambda: grow(store, 3), store.undo):
        with pytest.raises(InputError) as refused:
            change()
        assert refused.value.code == "linked_folder"
    assert {path.name for path in mine.iterdir()} == before


@pytest.mark.parametrize("name", ["blobs", "history", "."])
def test_files_of_others_stay(store, name):
    strange = ["thesis.txt", "1.json", "2024-backup.json", ".notes.tmp", "a.safetensors"]
    for one in strange:
        (store.path / name / one).write_text("mine")
    (store.path / name / "@eaDir").mkdir()
    for number in range(2, 30):
        grow(store, number)
    left = {path.name for path in (store.path / name).iterdir()}
    assert left >= {*strange, "@eaDir"}
    assert len(list((store.path / "history").glob("0*.json"))) == 20


def test_a_folder_that_only_looks_like_a_model_is_not_free(tmp_path):
    for name in ("blobs", "history"):
        folder = tmp_path / f"with {name}"
        (folder / name).mkdir(parents=True)
        (folder / name / "thesis.txt").write_text("years of work")
        with pytest.raises(InputError) as refused:
            Store(folder).create(content(1), JournalEntry("fit"))
        assert refused.value.code == "not_empty"
        assert (folder / name / "thesis.txt").read_text() == "years of work"
    (tmp_path / "linked").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "linked" / "blobs").symlink_to(tmp_path / "empty")
    with pytest.raises(InputError):
        Store(tmp_path / "linked").create(content(1), JournalEntry("fit"))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def test_an_undo_of_two_changes_names_both(store):
    for number in (2, 3, 4):
        grow(store, number)
    flip(store.path / "history" / "000003.json")
    store.undo()
    assert store.read().meta["number"] == 2
    last = store.journal()[-1]
    assert (last["of"], last["also"], last["to"]) == (4, [3], 2)
    store.redo()
    assert store.read().meta["number"] == 4


def test_an_undo_knows_what_it_takes_back(store):
    for number in (2, 3):
        grow(store, number)
    store.undo()  # version 4: as 2
    grow(store, 5)  # version 5
    store.undo()  # version 6: as 4, which is as 2
    store.undo()
    assert store.journal()[-1]["of"] == 2
    store.redo()
    assert store.journal()[-1]["of"] == 2


@pytest.fixture
def crowded(monkeypatch):
    """Earlier versions, which cannot be opened for a moment."""
    real, refused = Path.read_bytes, []

    def read(self):
        if self.parent.name == "history" and refused:
            raise OSError(errno.EMFILE, "Too many open files", str(self))
        return real(self)

    monkeypatch.setattr(Path, "read_bytes", read)
    return refused


def test_a_passing_fault_costs_no_history(store, crowded):
    for number in range(2, 8):
        grow(store, number)
    before = set(files(store))
    crowded.append(True)
    grow(store, 8)
    with pytest.raises(CalaError) as refused:
        store.undo()
    assert not isinstance(refused.value, DamagedFile)
    assert refused.value.code == "not_saved"
    crowded.clear()
    assert set(files(store)) > before
    for number in reversed(range(1, 8)):
        store.undo()
        assert store.read().meta["number"] == number


def test_a_damaged_version_stays_until_undo_cannot_reach_it(store):
    for number in range(2, 5):
        grow(store, number)
    path = store.path / "history" / "000002.json"
    good = path.read_bytes()
    flip(path)
    grow(store, 5)
    assert path.exists()
    path.write_bytes(good)  # put back from a copy
    for _ in range(3):
        store.undo()
    assert store.read().meta["number"] == 2


@pytest.mark.parametrize("stray", ["1.json", "2024-backup.json", "x.undone.json"])
def test_strays_do_not_stop_a_repair(store, stray):
    grow(store, 2)
    (store.path / "history" / stray).write_text("{}")
    (store.path / "model.json").write_text("{")
    store.undo()
    assert store.read().meta["number"] == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("undo", ["a"]),
        ("undo", [True]),
        ("redo", [{}]),
        ("journal", [1]),
        ("journal", [{"version": "x", "action": []}]),
        ("blobs", {"base": 5}),
        ("blobs", {"base": "../../x"}),
        ("version", True),
        ("version", 1 << 60),
        ("like", "x"),
        ("like", [1]),
        ("origin", "x"),
        ("origin", [3]),
        ("origin", -1),
        ("origin", float("inf")),
    ],
)
def test_a_document_with_odd_values_is_damaged(store, field, value):
    grow(store, 2)
    from cala.store.files import read_document, write_document

    path = store.path / "model.json"
    write_document(path, {**read_document(path), field: value})
    with pytest.raises(DamagedFile):
        store.read()
    store.undo()
    assert store.read().meta["number"] == 1


@pytest.mark.parametrize("name", ["model.json", "history/000001.json"])
@pytest.mark.parametrize("kind", ["large", "endless", "pipe"])
def test_what_is_no_document_is_not_read_into_memory(store, monkeypatch, name, kind):
    grow(store, 2)
    monkeypatch.setattr(file_access, "MOST_TEXT", 1 << 20)
    path = store.path / name
    path.unlink()
    if kind == "large":
        path.write_bytes(b" " * (1 << 20) + b"x")
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(path)
    if name == "model.json":
        with pytest.raises(InputError) as refused:
            store.read()
    else:
        with pytest.raises(InputError) as refused:
            store.undo()
    assert refused.value.code in ("unreadable", "not_saved")


def test_what_could_not_be_read_again_is_not_written(store, monkeypatch):
    monkeypatch.setattr(file_access, "MOST_TEXT", 4000)
    with pytest.raises(InputError) as refused:
        store.change(lambda old: (Content({"x": "y" * 4000}, {}), JournalEntry("add")))
    assert refused.value.code == "not_saved"
    assert store.read().meta["number"] == 1


def test_what_a_later_version_may_add_is_carried_along(store):
    """Groups and fields that this version does not know."""
    from cala.store.files import read_document, write_document

    path = store.path / "model.json"
    write_document(path, {**read_document(path), "settings": {"later": 1}})
    assert store.read().meta["number"] == 1
    assert json.loads(path.read_text())["settings"] == {"later": 1}
