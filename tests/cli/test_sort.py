"""`cala sort`: every photo arrives once, nothing is overwritten, and undo restores what was."""

from __future__ import annotations

import csv
import json
import os

import pytest

from cala.errors import InputError
from cala.model import sorting
from cala.model.prediction import Prediction
from cala.model.sorting import MANIFEST, _folders, finish_sorting, sort_photos, unsort_photos
from model.photos import ENCODER, write_photos
from refusals import refused


@pytest.fixture
def trip(tmp_path):
    """Two photos of the same name, another one, and what the model says of them."""
    files = {"a/1.jpg": b"one", "b/1.jpg": b"two", "b/2.jpg": b"three"}
    for name, data in files.items():
        (tmp_path / "trip" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "trip" / name).write_bytes(data)
    labels = ["wren", "wren", "unknown"]
    return [
        Prediction(str(tmp_path / "trip" / name), label, label, "known", 0.9, 0.5, False, ())
        for name, label in zip(files, labels, strict=True)
    ]


def snapshot(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("action", ["copy", "link", "move"])
def test_there_and_back(trip, tmp_path, action):
    before, out = snapshot(tmp_path / "trip"), tmp_path / "sorted"
    assert len(sort_photos(trip, out, action, dry_run=True)[0]) == 3
    assert not out.exists()
    done, again = sort_photos(trip, out, action)
    assert (len(done), again) == (3, 0)
    found = snapshot(out)
    del found[MANIFEST]
    assert found == {"wren/1.jpg": b"one", "wren/1 (2).jpg": b"two", "unknown/2.jpg": b"three"}
    assert snapshot(tmp_path / "trip") == ({} if action == "move" else before)
    if action == "link":
        assert (out / "wren" / "1.jpg").stat().st_nlink == 2
    assert unsort_photos(out) == (3, [])
    assert snapshot(tmp_path / "trip") == before
    assert not out.exists()


def test_files_that_are_there_stay(trip, tmp_path):
    out = tmp_path / "sorted"
    (out / "wren").mkdir(parents=True)
    (out / "wren" / "1.jpg").write_bytes(b"mine")
    (out / "wren" / "1 (2).jpg").symlink_to("nowhere")
    sort_photos(trip, out, "move")
    assert (out / "wren" / "1.jpg").read_bytes() == b"mine"
    assert (out / "wren" / "1 (3).jpg").read_bytes() == b"one"
    assert unsort_photos(out)[1] == []
    assert sorted(p.name for p in (out / "wren").iterdir()) == ["1 (2).jpg", "1.jpg"]


def test_sorting_again_adds_what_is_new(trip, tmp_path):
    out = tmp_path / "sorted"
    assert sort_photos(trip[:1], out) == (sort_photos(trip[:1], tmp_path / "x")[0], 0)
    done, before = sort_photos(trip, out)
    assert (len(done), before) == (2, 1)
    assert unsort_photos(out) == (3, [])


def test_undo_never_loses_a_photo(trip, tmp_path):
    out = tmp_path / "sorted"
    sort_photos(trip, out)
    source = [tmp_path / "trip" / name for name in ("a/1.jpg", "b/1.jpg", "b/2.jpg")]
    source[0].unlink()  # the copy is the only one now
    source[1].write_bytes(b"another")
    (out / "unknown" / "2.jpg").write_bytes(b"edited")
    count, stay = unsort_photos(out)
    assert (count, {target for target, _ in stay}) == (1, {"wren/1 (2).jpg", "unknown/2.jpg"})
    assert source[0].read_bytes() == b"one"
    assert source[1].read_bytes() == b"another"
    assert (out / "wren" / "1 (2).jpg").read_bytes() == b"two"
    assert (out / "unknown" / "2.jpg").read_bytes() == b"edited"
    assert len(json.loads((out / MANIFEST).read_text())["photos"]) == 2


def test_a_sort_that_stops_can_be_undone(trip, tmp_path, monkeypatch):
    before, out, real = snapshot(tmp_path / "trip"), tmp_path / "sorted", sorting._place

    def full(source, target, action):
        if target.parent.name == "unknown":
            raise OSError(28, "No space left on device")
        real(source, target, action)

    monkeypatch.setattr(sorting, "_place", full)
    with pytest.raises(InputError) as caught:
        sort_photos(trip, out, "move")
    assert caught.value.code == "not_sorted"
    monkeypatch.setattr(sorting, "_place", real)
    unsort_photos(out)
    assert (snapshot(tmp_path / "trip"), out.exists()) == (before, False)


def test_a_plan_that_was_not_carried_out_is_made_again(trip, tmp_path, monkeypatch):
    out = tmp_path / "sorted"
    with monkeypatch.context() as patch:
        patch.setattr(sorting, "_place", lambda *_: None)  # the process ends before
        sort_photos(trip, out)
    done, before = sort_photos(trip, out)
    assert (len(done), before) == (3, 0)
    entries = json.loads((out / MANIFEST).read_text())["photos"]
    assert [one["target"] for one in entries] == ["wren/1.jpg", "wren/1 (2).jpg", "unknown/2.jpg"]
    assert unsort_photos(out) == (3, [])


def test_a_copy_is_there_as_a_whole_or_not_at_all(trip, tmp_path, monkeypatch):
    out, real = tmp_path / "sorted", sorting.shutil.copyfileobj
    there = []

    def copy(source, target):
        there.extend(out.glob("*/*.jpg"))
        real(source, target)

    monkeypatch.setattr(sorting.shutil, "copyfileobj", copy)
    sort_photos(trip[:1], out)
    assert there == []
    (out / "wren" / ".cala-part-0").write_bytes(b"on")
    assert len(finish_sorting(out, ())) == 1
    assert sorted(snapshot(out)) == [MANIFEST, "wren/1.jpg"]


def test_a_move_that_stopped_half_way_is_finished(trip, tmp_path, monkeypatch):
    out = tmp_path / "sorted"
    assert finish_sorting(out, ()) == []
    with monkeypatch.context() as patch:
        patch.setattr(sorting.Path, "unlink", lambda *_, **__: None)  # the process ends before
        done, _ = sort_photos(trip, out, "move")
    assert len(snapshot(tmp_path / "trip")) == 3
    (tmp_path / "trip" / "b" / "1.jpg").unlink()
    (tmp_path / "trip" / "b" / "1.jpg").write_bytes(b"another")
    first = (done[0].source, done[0].sha256)
    assert finish_sorting(out, {first}) == done[1:]
    assert sorted(snapshot(tmp_path / "trip")) == ["a/1.jpg", "b/1.jpg"]


def test_moving_to_a_disk_without_links(trip, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    sort_photos(trip, tmp_path / "sorted", "move")
    assert len(snapshot(tmp_path / "sorted")) == 4
    assert snapshot(tmp_path / "trip") == {}
    with pytest.raises(InputError):
        sort_photos(_moved(tmp_path), tmp_path / "y", "link")


def _moved(tmp_path):
    path = tmp_path / "sorted" / "wren" / "1.jpg"
    return [Prediction(str(path), "wren", "wren", "known", 0.9, 0.5, False, ())]


@pytest.mark.parametrize("text", ["{}", "no json", '{"format": 9, "photos": []}'])
def test_a_manifest_that_is_none(tmp_path, text):
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(InputError):
        unsort_photos(tmp_path)


def test_a_manifest_that_leads_outside(tmp_path):
    out, mine = tmp_path / "out", tmp_path / "mine.jpg"
    out.mkdir()
    mine.write_bytes(b"x")
    one = {"source": str(tmp_path / "s"), "target": "../mine.jpg", "action": "copy", "label": "a"}
    entry = {**one, "probability": 1.0, "sha256": "0" * 64}
    (out / MANIFEST).write_text(json.dumps({"format": 1, "photos": [entry]}))
    with pytest.raises(InputError):
        unsort_photos(out)
    assert mine.exists()


@pytest.mark.parametrize("name", [".bashrc", "authorized_keys", "run.py"])
def test_a_manifest_of_others_puts_no_file_but_photos_anywhere(trip, tmp_path, name):
    out, home = tmp_path / "sorted", tmp_path / "home"
    sort_photos(trip, out, "copy")
    found = json.loads((out / MANIFEST).read_text())
    found["photos"][0]["source"] = str(home / name)
    (out / MANIFEST).write_text(json.dumps(found))
    back, stay = unsort_photos(out)
    assert (back, len(stay), home.exists()) == (2, 1, False)
    assert (out / stay[0][0]).exists()


def test_names_of_classes_as_folders():
    names = ["a/b", "a\\b", "..", "Wren", "wren", "x" * 300]
    found = _folders(set(names))
    assert len({name.casefold() for name in found.values()}) == len(names)
    assert not any(
        set('/\\:*?"<>|') & set(name) or name in ("", ".", "..") for name in found.values()
    )


def test_the_command(tmp_path, inside, monkeypatch):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    write_photos(tmp_path / "known", range(4), range(5))
    write_photos(tmp_path / "trip", range(5), range(100, 103))
    options = ("--encoder", ENCODER, "--fakes", "feature")
    assert inside("fit", tmp_path / "known", "-o", tmp_path / "m", *options)[0] == 0
    out, table = tmp_path / "trip" / "sorted", tmp_path / "t.csv"
    before = snapshot(tmp_path / "trip")
    arguments = ("sort", tmp_path / "m", tmp_path / "trip", "-o", out, "--csv", table, "--json")
    code, said, _ = inside(*arguments)
    found = json.loads(said)
    assert (code, len(found["photos"]), sum(found["summary"].values())) == (0, 15, 15)
    assert len(list(csv.DictReader(table.open()))) == 15
    answers = json.loads(inside("predict", tmp_path / "m", tmp_path / "trip", "--json")[1])
    assert answers["summary"] == {k: 2 * v for k, v in found["summary"].items()}  # copies too
    code, said, _ = inside("predict", tmp_path / "m", tmp_path / "trip")
    assert said.splitlines()[-1].startswith("30 photos: ")
    assert json.loads(inside(*arguments)[1])["sorted_before"] == 15
    assert inside("sort", "--undo", out)[0] == 0
    assert snapshot(tmp_path / "trip") == before
    for bad in (
        ("sort", tmp_path / "m"),
        ("sort", tmp_path / "m", tmp_path / "trip", "-o", out, "--link", "--move"),
        ("sort", tmp_path / "m", "--undo", out),
        ("sort", "--undo", tmp_path / "trip"),
    ):
        assert inside(*bad)[0] == 2


def test_a_moved_photo_that_is_not_found_stays_in_the_list(trip, tmp_path):
    out = tmp_path / "sorted"
    sort_photos(trip, out, "move")
    (out / "wren" / "1.jpg").rename(out / "elsewhere.jpg")
    back, stay = unsort_photos(out)
    assert back == 2
    assert [name for name, _ in stay] == ["wren/1.jpg"]
    (out / "wren").mkdir()
    (out / "elsewhere.jpg").rename(out / "wren" / "1.jpg")
    assert unsort_photos(out) == (1, [])
    assert len(snapshot(tmp_path / "trip")) == 3


def test_symbolic_links(trip, tmp_path):
    real = tmp_path / "real.jpg"
    real.write_bytes(b"real")
    link = tmp_path / "trip" / "a" / "1.jpg"
    link.unlink()
    link.symlink_to("../../real.jpg")
    with refused("a/1.jpg", code="linked_photo"):
        sort_photos(trip, tmp_path / "moved", "move")
    assert not (tmp_path / "moved").exists()
    sort_photos(trip, tmp_path / "linked", "link")
    assert (tmp_path / "linked" / "wren" / "1.jpg").read_bytes() == b"real"
    assert unsort_photos(tmp_path / "linked") == (3, [])
    assert link.is_symlink()


def test_folders_are_checked_before_any_photo_is_placed(trip, tmp_path):
    out = tmp_path / "sorted"
    out.mkdir()
    (out / "unknown").write_text("a file")
    with refused("unknown", field="out"):
        sort_photos(trip, out, "move")
    assert len(snapshot(tmp_path / "trip")) == 3
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.json").write_text("{}")
    with refused("holds a model", field="out"):
        sort_photos(trip, tmp_path / "model")
