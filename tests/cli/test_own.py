"""`cala fit`, `add`, `predict`, `eval`, `show`, `undo`, `forget`, `rename`, `tune`."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cala
from model.photos import ENCODER, write_photos
from waiting import GENEROUS, wait_for

TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def photos(tmp_path):
    write_photos(tmp_path / "known", range(6), range(5))
    write_photos(tmp_path / "new", range(6, 8), range(5))
    write_photos(tmp_path / "test", range(10), range(100, 103))
    return tmp_path


@pytest.fixture
def birds(photos, inside):
    """A model with 6 known and 2 new classes."""
    out = photos / "birds"
    options = ("--encoder", ENCODER, "--fakes", "feature", "-q")
    assert inside("fit", photos / "known", "-o", out, *options)[0] == 0
    assert inside("add", out, photos / "new", "-q")[0] == 0
    return out


def test_the_whole_way(photos, inside):
    out = photos / "birds"
    code, said, notes = inside(
        "fit", photos / "known", "-o", out, "--encoder", ENCODER, "--fakes", 50
    )
    assert code == 0
    assert "6 classes from 30 photos" in said
    assert "note: " in notes
    code, said, _ = inside("add", out, photos / "new")
    assert code == 0
    assert "class 6: new class, 5 photos" in said
    assert "knows 8 classes now (version 2)" in said
    single = photos / "test" / "class 7" / "0100.png"
    code, said, _ = inside("predict", out, single, photos / "test" / "class 1", "--unknown", "off")
    assert code == 0
    assert len(said.splitlines()) == 4
    assert said.splitlines()[0].startswith("class 7 ")
    code, said, _ = inside("eval", out, photos / "test")
    assert code == 0
    assert "known classes" in said
    assert "of 18 photos" in said
    assert "AUROC" in said
    code, said, _ = inside("show", out)
    assert "fit 6 classes (30 photos)" in said
    assert "add 2 classes (10 photos)" in said
    code, said, _ = inside("undo", out)
    assert "undo: add 2 classes (10 photos); " in said
    assert "knows 6 classes (version 3)" in said
    code, said, _ = inside("undo", out, "--redo")
    assert "knows 8 classes (version 4)" in said
    code, said, _ = inside("rename", out, "class 6", "--", "-odd name 🐦")
    code, said, _ = inside("forget", out, "--", "-odd name 🐦")
    assert "knows 7 classes" in said


def test_json_everywhere(birds, photos, inside):
    single = photos / "test" / "class 7" / "0100.png"
    more = write_photos(photos / "more", range(8, 9), range(4))
    for command in (
        ("add", birds, more),
        ("predict", birds, single, "--top", 3, "--why"),
        ("eval", birds, photos / "test"),
        ("show", birds),
        ("rename", birds, "class 1", "one"),
        ("tune", birds, "--reject", 0.1, "--objective", "harmonic"),
        ("forget", birds, "one"),
        ("undo", birds),
    ):
        code, said, _ = inside(*command, "--json")
        assert code == 0, command
        found = json.loads(said)
        assert found["model"] == str(birds)
        assert found["version"] == cala.load(birds).version
    code, said, _ = inside("predict", birds, single, "--top", 3, "--why", "--json")
    (answer,) = json.loads(said)["predictions"]
    assert len(answer["top"]) == 3
    assert 0 < answer["familiarity"] <= 1
    assert answer["why"]["closest"][0]["label"] == answer["best"]


def test_csv(birds, photos, inside):
    out = photos / "table.csv"
    assert inside("predict", birds, photos / "test", "--csv", out, "--top", 2)[0] == 0
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert len(rows) == 30
    assert set(rows[0]) == {
        "image", "label", "best", "kind", "probability", "familiarity", "unknown", "label 2",
        "probability 2",
    }  # fmt: skip
    known = cala.load(birds).predict([row["image"] for row in rows])
    assert [row["label"] for row in rows] == known
    code, _, said = inside("predict", birds, photos / "test", "--csv", photos / "no" / "t.csv")
    assert code == 2
    assert "cannot be written" in said


def test_the_three_ways_of_unknown(birds, photos, inside):
    strange = photos / "test"
    said = {}
    for mode in ("on", "off", "report"):
        _, out, _ = inside("predict", birds, strange, "--unknown", mode, "--reject", 0.5, "--json")
        said[mode] = json.loads(out)["predictions"]
    assert any(a["label"] == "unknown" for a in said["on"])
    assert not any(a["label"] == "unknown" for a in said["report"] + said["off"])
    assert [a["unknown"] for a in said["on"]] == [a["unknown"] for a in said["report"]]
    assert not any(a["unknown"] for a in said["off"])
    _, text, _ = inside("predict", birds, strange, "--reject", 0.5)
    assert "unknown (closest: " in text


def test_photos_with_a_name(birds, photos, inside):
    loose = photos / "loose"
    loose.mkdir()
    for n, path in enumerate(write_photos(photos / "x", range(9, 10), range(4)).rglob("*.png")):
        path.rename(loose / f"{n}.png")
    code, said, _ = inside("add", birds, *sorted(loose.iterdir()), "--as", "king fisher")
    assert code == 0
    assert "king fisher: new class, 4 photos" in said
    code, said, _ = inside("add", birds, loose, "--as", "king fisher")
    assert (code, "nothing new" in said) == (0, True)
    code, _, said = inside("add", birds, loose)  # a folder of photos is a class by its own name
    assert code == 2
    assert "already 'king fisher'" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("predict", "{birds}", "nowhere.jpg"), "nowhere.jpg"),
        (("predict", "nothing", "{photos}/test"), "there is no model at nothing"),
        (("predict", "{photos}/test", "{photos}/test"), "there is no model at"),
        (("add", "{birds}", "{photos}/test/class 1/0100.png"), "--as NAME"),
        (("add", "{birds}", "{photos}/empty"), "holds no photos"),
        (("add", "{birds}", "{photos}/new", "--as", "unknown"), "cannot be called 'unknown'"),
        (("fit", "{photos}/known", "-o", "{birds}"), "already holds a model"),
        (("fit", "{photos}/nowhere", "-o", "{photos}/m"), "nowhere"),
        (("fit", "{photos}/known", "-o", "{photos}/m", "--encoder", "resnet"), "unknown encoder"),
        (("fit", "{photos}/known", "-o", "{photos}/m", "--method", "magic"), "magic"),
        (("fit", "{photos}/known", "-o", "{photos}/m", "--fakes", "0"), "fakes is"),
        (("fit", "{photos}/known", "-o", "{photos}/m", "--reject", "2"), "reject is 2.0"),
        (("forget", "{birds}", "heron"), "no class 'heron'"),
        (("rename", "{birds}", "class 1", "class 2"), "cannot rename 'class 1'"),
        (("tune", "{birds}"), "nothing to change"),
        (("tune", "{birds}", "--objective", "best"), "best"),
        (("undo", "{photos}/known"), "there is no model at"),
        (("eval", "{birds}", "{photos}/empty"), "holds no photos"),
        (("predict", "{birds}", "{photos}/empty"), "holds no image"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(birds, photos, inside, arguments, words):
    (photos / "empty").mkdir()
    before = snapshot(birds)
    given = [a.format(birds=birds, photos=photos) for a in arguments]
    if given[0] == "fit" and "--encoder" not in given:
        given += ["--encoder", ENCODER]
    code, _, said = inside(*given)
    assert code == 2
    assert said.startswith("error: ")
    assert words in said
    assert len(said.strip().splitlines()) == 1
    assert snapshot(birds) == before


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.name != ".lock"
    }


def test_bad_photos_are_named_and_the_others_answered(birds, photos, inside):
    bad = photos / "test" / "class 1" / "bad one\n.png"
    bad.write_bytes(b"no image")
    code, said, notes = inside("predict", birds, photos / "test" / "class 1")
    assert code == 1
    assert len(said.splitlines()) == 3
    assert r"bad one\n.png: not an image" in notes
    code, said, _ = inside("predict", birds, photos / "test" / "class 1", "--json")
    found = json.loads(said)
    assert (code, len(found["predictions"]), len(found["errors"])) == (1, 3, 1)
    code, _, said = inside("predict", birds, bad)
    assert code == 1
    code, _, said = inside("eval", birds, photos / "test")
    assert (code, "--skip-bad" in said) == (2, True)
    assert inside("eval", birds, photos / "test", "--skip-bad")[0] == 0
    (photos / "new" / "class 6" / "bad.png").write_bytes(b"")
    before = snapshot(birds)
    code, _, said = inside("add", birds, photos / "new")
    assert code == 2
    assert "bad.png: empty file" in said
    assert snapshot(birds) == before


@pytest.mark.system
def test_as_a_process(birds, photos):
    env = {
        **os.environ,
        "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}",
        "OMP_NUM_THREADS": "1",
    }

    def call(*arguments: object) -> subprocess.CompletedProcess:
        words = [sys.executable, "-m", "cala", *map(str, arguments)]
        return subprocess.run(words, env=env, capture_output=True, text=True, check=False)

    answer = call("predict", birds, photos / "test" / "class 2", "--unknown", "off")
    assert answer.returncode == 0
    assert len(answer.stdout.splitlines()) == 3
    assert "class 2 " in answer.stdout
    assert call("forget", birds, "heron").returncode == 2
    (photos / "bad.jpg").write_bytes(b"x")
    assert call("predict", birds, photos / "bad.jpg").returncode == 1


@pytest.mark.parametrize(
    "command", ["fit", "add", "predict", "eval", "show", "undo", "forget", "rename", "tune"]
)
def test_help_has_an_example(inside, command):
    code, said, _ = inside(command, "--help")
    assert code == 0
    assert f"cala {command} " in said
    assert all(len(line) <= 80 for line in said.splitlines())


def test_photos_need_no_scikit_learn():
    """Its import takes as long as torch's."""
    heavy = "('sklearn', 'scipy', 'pandas')"
    code = f"import sys, cala.model; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_too_few_photos_for_unknown_are_said(photos, inside):
    known = write_photos(photos / "few", range(3), range(3))
    options = ("--encoder", ENCODER, "--fakes", "feature")
    _, _, notes = inside("fit", known, "-o", photos / "few model", *options)
    assert "9 photos are too few to call anything unknown at --reject 0.05" in notes
    assert "--reject 0.101" in notes
    _, _, notes = inside("eval", photos / "few model", photos / "test")
    assert "too few photos to call anything unknown" in notes


def test_what_is_passed_over_is_said(photos, inside):
    (photos / "known" / "empty class").mkdir()
    (photos / "known" / "class 1" / "photo.HEIC").write_bytes(b"x")
    options = ("--encoder", ENCODER, "--fakes", "feature")
    _, _, notes = inside("fit", photos / "known", "-o", photos / "m", *options)
    assert "empty class: no" in notes
    assert "photo.HEIC" in notes
    (photos / "new" / "class 6" / "photo.HEIC").write_bytes(b"x")
    _, _, notes = inside("add", photos / "m", photos / "new")
    assert "photo.HEIC" in notes


def test_names_that_are_nearly_right(birds, photos, inside):
    code, _, said = inside("forget", birds, "Class_7")
    assert (code, "did you mean 'class 7'?" in said) == (2, True)
    path = write_photos(photos / "y", range(7, 8), range(50, 52)) / "class 7"
    code, _, said = inside("add", birds, path, "--as", "Class_7")
    assert code == 0
    assert "'Class_7' is a new class beside 'class 7'" in said
    code, _, said = inside("eval", birds, photos)
    assert "did you mean" in said


def test_max_base_loss_is_a_share(birds, inside):
    code, _, said = inside("tune", birds, "--max-base-loss", 1)
    assert (code, "such as 0.01" in said) == (2, True)
    assert inside("tune", birds, "--max-base-loss", 0.01)[0] == 0
    _, said, _ = inside("show", birds)
    assert "known classes may lose 1.0 %" in said


def test_eval_says_what_predict_would_answer(birds, photos, inside):
    _, said, _ = inside("eval", birds, photos / "test", "--reject", 0.5, "--json")
    found = json.loads(said)
    _, said, _ = inside("predict", birds, photos / "test", "--reject", 0.5, "--json")
    answers = json.loads(said)["predictions"]
    inner = [a for a in answers if int(a["image"].split("class ")[1][0]) < 8]
    right = [a["label"] == Path(a["image"]).parent.name for a in inner]
    assert found["answered"] == pytest.approx(sum(right) / len(right), abs=1e-6)
    assert found["answered"] < found["accuracy"]


@pytest.mark.system
def test_interrupted_work_is_said_and_goes_on(photos):
    import signal

    env = {
        **os.environ,
        "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}",
        "OMP_NUM_THREADS": "1",
    }
    slow = ENCODER.replace("s:c", "s:slow_c")
    words = ["fit", photos / "known", "-o", photos / "m", "--encoder", slow]
    process = subprocess.Popen(
        [sys.executable, "-m", "cala", *map(str, words)], env=env, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: (photos / "started").exists() or process.poll() is not None)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=GENEROUS)
    assert process.returncode == 130
    assert "interrupted; rerun the same command" in said
    assert not (photos / "m" / "model.json").exists()
