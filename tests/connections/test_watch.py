"""`cala watch`: every photo once, whatever arrives and whatever ends the process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from PIL import Image

from cala.connections.watch import LEDGER, Ledger, Watcher
from cala.errors import DamagedFile
from cala.model.sorting import MANIFEST, unsort_photos
from model.photos import photo, write_photos
from refusals import refused
from waiting import GENEROUS, wait_for

TESTS = Path(__file__).parents[1]
ACTIONS = ("copy", "link", "move")


class Folder:
    """An inbox, a watcher of it, and what it said; every `look` is one turn of its loop."""

    def __init__(self, model, root: Path, sort: bool = True, **options) -> None:
        self.inbox, self.out = root / "inbox", root / "out"
        for folder in (self.inbox, self.out):
            folder.mkdir(exist_ok=True)
        self.notes: list[str] = []
        out = self.out if sort else None
        self.watcher = Watcher(
            model, self.inbox, self.out / LEDGER, out=out, say=self.notes.append, **options
        )

    def put(self, name: str, label: int = 0, number: int = 0) -> Path:
        path = self.inbox / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photo(label, number)).save(path, "png")
        return path

    def look(self) -> list[dict]:
        stop = threading.Event()
        stop.wait = lambda seconds: True  # one look, and no waiting
        return list(self.watcher.run(1, stop))

    def sorted(self) -> list[str]:
        return sorted(str(p.relative_to(self.out)) for p in self.out.rglob("*.png"))

    def ledger(self) -> list[dict]:
        return [json.loads(line) for line in (self.out / LEDGER).read_text().splitlines()]


@pytest.fixture
def folder(model, tmp_path):
    return Folder(model, tmp_path)


def test_a_photo_is_recognised_when_it_is_complete(folder, fitted):
    path = folder.put("a.png", 3)
    whole = path.read_bytes()
    path.write_bytes(whole[:50])
    assert folder.look() == []
    path.write_bytes(whole[:90])
    assert (folder.look(), folder.watcher.waiting) == ([], 1)
    path.write_bytes(whole)
    assert folder.look() == []
    (entry,) = folder.look()
    assert (entry["image"], entry["size"]) == (str(path), len(whole))
    assert entry["label"] == fitted.predict(path)[0]
    assert (folder.look(), folder.ledger()) == ([], [entry])
    assert folder.sorted() == [f"{entry['label']}/a.png"]
    assert path.exists()


def test_another_photo_of_the_same_name_is_another_photo(folder):
    folder.put("a.png", 3)
    assert len([*folder.look(), *folder.look()]) == 1
    folder.put("a.png", 4)
    (entry,) = [*folder.look(), *folder.look()]
    assert "4" in entry["label"]
    assert len(folder.sorted()) == 2


def test_what_is_ignored(folder, tmp_path):
    for name in (".hidden.png", "a.png.part", "b.png.tmp", "c.png~", "@eaDir/d.png", ".x/e.png"):
        folder.put(name)
    (folder.inbox / "link.png").symlink_to(folder.put("../elsewhere.png"))
    os.mkfifo(folder.inbox / "pipe.png")
    assert [*folder.look(), *folder.look()] == []
    (folder.inbox / "a.png.part").rename(folder.inbox / "a.png")
    assert [Path(e["image"]).name for e in [*folder.look(), *folder.look()]] == ["a.png"]


def test_what_is_no_photo_is_said_once(folder, model, tmp_path):
    (folder.inbox / "broken.jpg").write_bytes(b"\xff\xd8\xff nothing")
    (folder.inbox / "film.mp4").write_bytes(b"x")
    folder.put("good.png")
    said = {Path(e["image"]).name: "error" in e for e in [*folder.look(), *folder.look()]}
    assert said == {"broken.jpg": True, "film.mp4": True, "good.png": False}
    assert folder.look() == []
    again = Folder(model, tmp_path)
    assert [*again.look(), *again.look()] == []
    again.put("broken.jpg", 2)  # it was not complete, after all
    (entry,) = [*again.look(), *again.look()]
    assert "2" in entry["label"]


def test_folders_in_the_inbox_and_the_target_in_it(model, tmp_path):
    (tmp_path / "inbox").mkdir()
    out = tmp_path / "inbox" / "sorted"
    watcher = Watcher(model, tmp_path / "inbox", out / LEDGER, out=out)
    out.mkdir()
    found = Folder(model, tmp_path)
    found.watcher, found.out = watcher, out
    found.put("DCIM/100/1.png", 1)
    found.put("DCIM/101/1.png", 1, 1)
    assert len([*found.look(), *found.look()]) == 2
    assert [*found.look(), *found.look()] == []
    assert len(found.sorted()) == 2


def test_without_sorting_nothing_is_moved(model, tmp_path):
    found = Folder(model, tmp_path, sort=False)
    found.put("a.png")
    (entry,) = [*found.look(), *found.look()]
    assert (set(entry), found.sorted()) == (
        {"image", "size", "modified", "label", "probability"},
        [],
    )


def test_a_model_that_changes_is_followed(folder, model):
    import cala

    folder.put("1.png", 30, 1)
    assert [e["label"] for e in [*folder.look(), *folder.look()]] != ["wren"]
    cala.load(model.path).add([photo(30, n) for n in range(10, 15)], "wren")
    folder.put("2.png", 30, 2)
    assert [e["label"] for e in [*folder.look(), *folder.look()]] == ["wren"]
    (model.path / "model.json").rename(model.path / "away")
    folder.put("3.png", 30, 3)
    assert [e["label"] for e in [*folder.look(), *folder.look()]] == ["wren"]
    folder.put("4.png", 30, 4)
    assert (len([*folder.look(), *folder.look()]), len(folder.notes)) == (1, 1)


def test_an_inbox_that_goes_and_comes_back(folder):
    folder.inbox.rename(folder.inbox.with_name("away"))
    assert [*folder.look(), *folder.look()] == []
    assert len(folder.notes) == 1
    folder.inbox.with_name("away").rename(folder.inbox)
    folder.put("a.png")
    assert len([*folder.look(), *folder.look()]) == 1


@pytest.mark.parametrize("action", ACTIONS)
def test_a_photo_that_is_taken_away_meanwhile(model, tmp_path, monkeypatch, action):
    found = Folder(model, tmp_path, action=action)
    for number in range(3):
        found.put(f"{number}.png", number)
    real = model.explain

    def explain(paths, **options):
        answers = real(paths, **options)
        (found.inbox / "1.png").unlink(missing_ok=True)
        return answers

    monkeypatch.setattr(model, "explain", explain)
    said = [*found.look(), *found.look(), *found.look()]
    assert [Path(entry["image"]).name for entry in said] == ["0.png", "2.png"]
    assert len(found.sorted()) == 2


@pytest.mark.parametrize("action", ACTIONS)
def test_after_undo_photos_stay_where_they_are(model, tmp_path, action):
    found = Folder(model, tmp_path, action=action)
    path = found.put("a.png")
    assert len([*found.look(), *found.look()]) == 1
    assert unsort_photos(found.out) == (1, [])
    assert path.exists()
    again = Folder(model, tmp_path, action=action)
    assert [*again.look(), *again.look()] == []


def test_what_was_taken_out_of_the_sorted_folder_is_not_sorted_again(model, tmp_path):
    found = Folder(model, tmp_path)
    found.put("a.png")
    (entry,) = [*found.look(), *found.look()]
    (found.out / entry["target"]).unlink()
    again = Folder(model, tmp_path)
    assert [*again.look(), *again.look()] == []


def test_a_ledger_that_ends_anywhere(tmp_path):
    path = tmp_path / LEDGER
    entries = [{"image": f"/{name}", "size": 1, "modified": 2} for name in "abc"]
    Ledger(path).add(entries)
    text = path.read_bytes()
    for end in range(len(text) + 1):
        path.write_bytes(text[:end])
        found = Ledger(path)
        assert len(found.done) == text[:end].count(b"\n")
        found.add(entries[len(found.done) :])
        assert path.read_bytes() == text
    path.write_text("[]\n")
    with refused(LEDGER, code="damaged_file", kind=DamagedFile):
        Ledger(path)


def test_the_command(model, tmp_path, inside):
    inbox, out, lines = tmp_path / "inbox", tmp_path / "out", tmp_path / "a.jsonl"
    write_photos(inbox, range(3), range(100, 102))
    (inbox / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    words = ("watch", model.path, inbox, "--once", "--every", "0.05")
    code, said, _ = inside(*words, "--sort", out, "--move", "--json")
    found = [json.loads(line) for line in said.splitlines()]
    assert (code, len(found), sum("error" in one for one in found)) == (0, 7, 1)
    assert len(list(out.rglob("*.png"))) == 6
    assert list(inbox.rglob("*.png")) == []
    assert inside(*words, "--sort", out, "--move")[:2] == (0, "")
    assert inside("sort", "--undo", out)[0] == 0
    assert len(list(inbox.rglob("*.png"))) == 6
    code, said, _ = inside(*words, "--lines", lines)
    assert (code, len(said.splitlines()), len(lines.read_text().splitlines())) == (0, 6, 7)
    for bad in (
        words,
        (*words, "--lines", lines, "--move"),
        (*words, "--sort", out, "--move", "--link"),
        (*words, "--sort", inbox),
        (*words, "--sort", out, "--reject", "3"),
        ("watch", model.path, inbox / "class 0", "--sort", inbox),
        ("watch", model.path, tmp_path / "none", "--sort", out),
        ("watch", tmp_path / "none", inbox, "--sort", out),
    ):
        assert inside(*bad)[0] == 2


def start(*arguments: object) -> subprocess.Popen:
    path = f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


@pytest.mark.system
def test_a_process_that_watches(model, tmp_path):
    inbox, out = tmp_path / "inbox", tmp_path / "out"
    inbox.mkdir()
    words = ("-m", "cala", "watch", model.path, inbox, "--sort", out, "--every", "0.1", "--json")
    process = start(*words)
    try:
        wait_for(lambda: (out / f".{LEDGER}.lock").exists())
        second = start(*words)
        assert second.wait(GENEROUS) == 2  # one process at a time
        whole = write_photos(tmp_path / "new", range(1), range(1)) / "class 0" / "0000.png"
        shutil.copy(whole, inbox / "a.png.part")
        (inbox / "a.png.part").rename(inbox / "a.png")
        assert json.loads(process.stdout.readline())["image"] == str(inbox / "a.png")
        process.send_signal(signal.SIGINT)
        assert process.wait(GENEROUS) == 0
    finally:
        process.kill()
        process.wait()
    assert len(list(out.rglob("*.png"))) == 1


@pytest.mark.system
@pytest.mark.parametrize("action", ACTIONS)
def test_killed_at_every_step(model, tmp_path, action):
    """Every new file, flush, rename, link and deletion, one after the other."""
    photos = write_photos(tmp_path / "photos", range(3), range(100, 101))
    process = start(TESTS / "connections" / "killing.py", model.path, photos, action)
    lines, _ = process.communicate(timeout=GENEROUS)
    assert process.returncode == 0
    found = [json.loads(line) for line in lines.splitlines()]
    assert len(found) > 15
    for one in found:
        assert one == {"step": one["step"], **GOOD[action]}, one
    assert {"open", "link", "replace", "fsync"} <= {one["step"] for one in found}


GOOD = {
    action: {"copies": 3, "different": 3, "inbox": 0 if action == "move" else 3, "lines": 3,
             "rests": [MANIFEST, LEDGER]}
    for action in ACTIONS
}  # fmt: skip
