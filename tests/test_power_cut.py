"""After a power cut at any moment: the state before or after, and what was acknowledged is there.

Which writes that were not flushed are lost is drawn by a seed, which a failure names.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import cala
from cala.benchmark.costs import Cost
from cala.benchmark.run_folder import RunFolder
from cala.data.shard_writer import ShardWriter
from cala.data.shards import read_manifest
from cala.model.sorting import sort_photos, unsort_photos
from cala.records import Record
from cala.store import JournalEntry, Store
from model.photos import ENCODER, photo, write_photos
from power_cut import Recorder
from store.test_store import content, grow, same

SEEDS = [1, pytest.param(40, marks=pytest.mark.long)]


def cuts(recorder: Recorder, seeds: int, folder: Path) -> Iterator[tuple[Path, bool, str]]:
    """Folders after a cut, whether all was done before it, and how to get the folder again."""
    last = len(recorder.moments) - 1
    for moment, seed in itertools.product(range(last + 1), range(seeds)):
        path = folder / f"cut {moment} {seed}"
        recorder.cut(moment, seed, path)
        yield path, moment == last, f"moment {moment} of {last}, seed {seed}"
        shutil.rmtree(path)


CHANGES: dict[str, tuple[Callable[[Store], object], int, int]] = {
    "change": (lambda store: grow(store, 4), 2, 4),
    "undo": (lambda store: store.undo(), 2, 1),
    "redo": (lambda store: store.redo(), 2, 3),
}


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_store(tmp_path, record_property, change, seeds):
    act, before, after = CHANGES[change]
    store = Store(tmp_path / "model")
    store.create(content(1), JournalEntry("fit"))
    for number in (2, 3):
        grow(store, number)
    store.undo()
    with Recorder(store.path) as recorder:
        act(store)
    seen = set()
    for path, done, where in cuts(recorder, seeds, tmp_path):
        found = Store(path).read()
        number = found.meta["number"]
        assert number in ((after,) if done else (before, after)), where
        assert same(found, content(number)), where
        grow(Store(path), 9)
        Store(path).undo()
        assert same(Store(path).read(), content(number)), where
        seen.add(number)
    assert seen == {before, after}
    record_property("points", len(recorder.moments) * seeds)


@pytest.mark.parametrize("seeds", SEEDS)
def test_a_new_store(tmp_path, record_property, seeds):
    (tmp_path / "models").mkdir()
    with Recorder(tmp_path / "models") as recorder:
        Store(tmp_path / "models" / "m").create(content(1), JournalEntry("fit"))
    for path, done, where in cuts(recorder, seeds, tmp_path):
        store = Store(path / "m")
        if not done and not (path / "m" / "model.json").exists():
            store.create(content(1), JournalEntry("fit"))
        assert same(store.read(), content(1)), where
        grow(store, 2)
        store.undo()
        assert same(store.read(), content(1)), where
    record_property("points", len(recorder.moments) * seeds)


@pytest.mark.long
def test_a_model(tmp_path, monkeypatch, record_property):
    """With thumbnails, which are written before the change and cleared after it."""
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    photos = write_photos(tmp_path / "photos", range(4), range(5))
    model = cala.fit(photos, tmp_path / "model", encoder=ENCODER, keep_thumbnails=True)
    with Recorder(model.path) as recorder:
        model.add([photo(30, number) for number in range(3)], "new")
    for path, done, where in cuts(recorder, 3, tmp_path):
        found = cala.load(path)
        assert len(found.classes) in ((5,) if done else (4, 5)), where
        assert found.rename("class 0", "zero").undo().classes == found.classes, where
    record_property("points", len(recorder.moments) * 3)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("action", ["copy", "link", "move"])
@pytest.mark.parametrize("back", [False, True])
def test_sorting_loses_no_photo(tmp_path, record_property, action, back, seeds):
    from cala.model.prediction import Prediction

    disk = tmp_path / "disk"
    names = ["a.jpg", "b.jpg"]
    (disk / "trip").mkdir(parents=True)
    for name in names:
        (disk / "trip" / name).write_bytes(name.encode() * 50)
    there = {path.read_bytes() for path in (disk / "trip").iterdir()}
    answers = [
        Prediction(str(disk / "trip" / name), "wren", "wren", "known", 0.9, 0.5, False, ())
        for name in names
    ]
    if back:
        sort_photos(answers, disk / "sorted", action)
    with Recorder(disk) as recorder:
        if back:
            unsort_photos(disk / "sorted")
        else:
            sort_photos(answers, disk / "sorted", action)
    for path, _, where in cuts(recorder, seeds, tmp_path):
        found = {photo.read_bytes() for photo in path.rglob("*.jpg")}
        assert found >= there, where
    record_property("points", len(recorder.moments) * seeds)


CONFIG = {
    "schema": 1, "protocol": {"sessions": 1}, "embeddings": {}, "methods": ["a", "b"],
    "draws": ["canonical"], "seeds": [0],
}  # fmt: skip


def cell(method: str) -> tuple[Cost, list[Record]]:
    records = [
        Record(method, "canonical", 0, session, 3 + session, 10, {"accuracy": 0.5})
        for session in range(2)
    ]
    return Cost(method, "canonical", 0, 1.0, 10, [0.1]), records


@pytest.mark.parametrize("seeds", SEEDS)
def test_a_run(tmp_path, record_property, seeds):
    folder = tmp_path / "run"
    folder.mkdir()
    done: list[int] = []
    with Recorder(folder) as recorder:
        run = RunFolder(folder, CONFIG)
        for method in ("a", "b"):
            run.append(*cell(method))
            done.append(len(recorder.moments))
    for moment, seed in itertools.product(range(len(recorder.moments)), range(seeds)):
        path = tmp_path / "cut"
        recorder.cut(moment, seed, path)
        found = {record.method for record in RunFolder(path, CONFIG).records}
        sure = {method for method, end in zip("ab", done, strict=True) if moment >= end - 1}
        assert sure <= found <= {"a", "b"}, (moment, seed)
        shutil.rmtree(path)
    record_property("points", len(recorder.moments) * seeds)


@pytest.mark.parametrize("seeds", SEEDS)
def test_shards(tmp_path, record_property, seeds):
    (tmp_path / "disk").mkdir()
    rows, labels = np.ones((3, 4), np.float32), np.zeros(3, np.int64)
    done: list[int] = []

    def writer(folder: Path) -> ShardWriter:
        return ShardWriter(folder / "x.shards", dim=4, classes=["ant"], keys=["a", "b"])

    with Recorder(tmp_path / "disk") as recorder:
        opened = writer(tmp_path / "disk")
        for key in ("a", "b"):
            opened.write(key, rows, labels)
            done.append(len(recorder.moments))
        opened.finish()
    for moment, seed in itertools.product(range(len(recorder.moments)), range(seeds)):
        path = tmp_path / "cut"
        recorder.cut(moment, seed, path)
        sure = {key for key, end in zip("ab", done, strict=True) if moment >= end - 1}
        with writer(path) as again:
            assert sure <= again.done, (moment, seed)
            for key in again.missing:
                again.write(key, rows, labels)
            again.finish()
        assert read_manifest(path / "x.shards").complete
        shutil.rmtree(path)
    record_property("points", len(recorder.moments) * seeds)


def test_the_recorder_finds_a_file_that_was_never_flushed(tmp_path):
    """Else the tests above would prove nothing."""
    (tmp_path / "disk").mkdir()
    with Recorder(tmp_path / "disk") as recorder:
        (tmp_path / "disk" / "a").write_text("new")
    found = {
        path.joinpath("a").read_text() if path.joinpath("a").exists() else None
        for path, _, _ in cuts(recorder, 20, tmp_path)
    }
    assert found == {None, "", "new"}
