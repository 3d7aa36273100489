"""`cala fit`, `add`, `predict`, `eval`, `show`, `undo`, `forget`, `rename`, `tune`."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cala
from cala.cli import main
from cala.errors import InputError, LeftOutWarning
from cli.inside import refusal
from model.photos import ENCODER, write_photos
from refusals import assert_names
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
    assert "AUROC" not in said
    code, said, _ = inside("show", out)
    assert "fit 6 classes (30 photos)" in said
    assert "add 2 classes (10 photos)" in said
    code, said, _ = inside("undo", out)
    assert "undo: add 2 classes (10 photos); " in said
    assert "knows 6 classes (version 3)" in said
    code, said, _ = inside("redo", out)
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
    nowhere = photos / "no" / "t.csv"
    found = refusal("predict", birds, photos / "test", "--csv", nowhere)
    assert_names(found, nowhere, field="csv")


def test_no_cell_of_a_table_is_a_formula(birds, photos, inside, tmp_path):
    """A class may be called anything, and so may a photo."""
    names = ["=cmd|' /C calc'!A0", "@SUM(1)", "+1+1", "-2+3", "\x1b[2Jred", "\t=1"]
    model, out = cala.load(birds), photos / "table.csv"
    for place, name in enumerate(names[:5]):
        model.rename(model.classes[place], name)
    odd = photos / "odd" / "=1+1\n.png"
    odd.parent.mkdir()
    (photos / "test" / "class 0" / "0100.png").rename(odd)
    for words in (
        ("predict", birds, photos / "test", odd, "--csv", out, "--unknown", "off"),
        ("eval", birds, photos / "test", "--csv", out),
        ("sort", birds, odd, "-o", tmp_path / "sorted", "--csv", out, "--unknown", "off"),
    ):
        assert inside(*words)[0] == 0
        cells = [cell for row in csv.reader(io.StringIO(out.read_text())) for cell in row]
        assert all(cell.isprintable() for cell in cells)
        risky = [cell for cell in cells if cell[:1] in tuple("=+-@")]
        assert all(cell[0] == "-" and float(cell) < 0 for cell in risky)
    assert any(cell.startswith("'=cmd") for cell in cells)


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "cp437"])
def test_output_of_any_encoding(birds, photos, encoding, monkeypatch):
    """Pipes of Windows, and terminals from before there was Unicode."""
    cala.load(birds).rename("class 0", "rouge-gorge 知更鸟 β 🐦")
    single = photos / "test" / "class 0" / "0100.png"
    for words in (
        ("show", birds, "--details"),
        ("predict", birds, single, "--details"),
        ("eval", birds, photos / "test"),
        ("methods",),
        ("rename", birds, "class 1", "→ ±"),
    ):
        raw = {name: io.BytesIO() for name in ("stdout", "stderr")}
        streams = {name: io.TextIOWrapper(raw[name], encoding, "strict") for name in raw}
        monkeypatch.setattr(sys, "argv", ["cala", *map(str, words)])
        for name, stream in streams.items():
            monkeypatch.setattr(sys, name, stream)
        with contextlib.suppress(SystemExit):
            main()
        for stream in streams.values():
            stream.flush()
        assert b"Traceback" not in raw["stderr"].getvalue()
        assert raw["stdout"].getvalue().decode(encoding)


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
    assert "unknown (most like " in text


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
    found = refusal("add", birds, loose)  # a folder of photos is a class by its own name
    assert_names(found, "'loose'", "'king fisher'", code="two_labels")


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
        (("fit", "{photos}/known/class 1", "-o", "{photos}/m"), "one class"),
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
        (("predict", "{birds}", "{photos}/empty"), "holds no photos"),
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
    found = refusal("eval", birds, photos / "test")
    assert_names(found, code="bad_image")
    assert "--skip-bad" in found.fix
    assert inside("eval", birds, photos / "test", "--skip-bad")[0] == 0
    (photos / "new" / "class 6" / "bad.png").write_bytes(b"")
    before = snapshot(birds)
    assert_names(refusal("add", birds, photos / "new"), "bad.png", code="bad_image")
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
    "command", ["fit", "add", "predict", "eval", "show", "undo", "redo", "forget", "rename", "tune"]
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
    known = write_photos(photos / "few", range(3), range(1))
    options = ("--encoder", ENCODER, "--fakes", "feature")
    inside("fit", known, "-o", photos / "few model", *options)
    model = cala.load(photos / "few model", trust_encoder=ENCODER)
    assert "nothing_unknown" in [note.code for note in model.notes]
    assert not model.current.can_reject()


def test_what_is_passed_over_is_said(photos, inside):
    (photos / "known" / "empty class").mkdir()
    (photos / "known" / "class 1" / "clip.MOV").write_bytes(b"x")
    options = ("--encoder", ENCODER, "--fakes", "feature")
    code, _, notes = inside("fit", photos / "known", "-o", photos / "m", *options, "--strict")
    assert (code, (photos / "m").exists()) == (2, False)
    _, _, notes = inside("fit", photos / "known", "-o", photos / "m", *options)
    assert "empty class: no" in notes
    assert "clip.MOV" in notes
    (photos / "new" / "class 6" / "notes.txt").write_bytes(b"x")
    (photos / "test" / "class 6" / "notes.txt").write_bytes(b"x")
    for command in ("add", "eval", "predict"):
        part = photos / ("new" if command == "add" else "test")
        before = snapshot(photos / "m")
        assert inside(command, photos / "m", part, "--strict")[0] == 2
        assert snapshot(photos / "m") == before
        code, _, notes = inside(command, photos / "m", part)
        assert (code, "notes.txt" in notes) == (0, True)
    with pytest.warns(LeftOutWarning):
        assert len(cala.load(photos / "m").predict(photos / "test")) == 30
    with pytest.raises(InputError) as caught:
        cala.load(photos / "m").add(photos / "new" / "class 6", "class 6", strict=True)
    assert caught.value.code == "left_out"


def test_names_that_are_nearly_right(birds, photos, inside):
    found = refusal("forget", birds, "Class_7")
    assert_names(found, "'Class_7'", field="name", code="no_such_class")
    assert "'class 7'?" in found.fix
    path = write_photos(photos / "y", range(7, 8), range(50, 52)) / "class 7"
    code, _, said = inside("add", birds, path, "--as", "Class_7")
    assert code == 0
    assert "'Class_7' is a new class beside 'class 7'" in said
    code, _, said = inside("eval", birds, photos)
    assert "did you mean" in said


def test_max_base_loss_is_a_share(birds, inside):
    found = refusal("tune", birds, "--max-base-loss", 1)
    assert_names(found, 1, field="max_base_loss")
    assert "0.01" in found.fix
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
    words = ["fit", photos / "known", "-o", photos / "m", "--encoder", slow, "--engine", "torch"]
    process = subprocess.Popen(
        [sys.executable, "-m", "cala", *map(str, words)], env=env, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: (photos / "started").exists() or process.poll() is not None)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=GENEROUS)
    assert process.returncode == 130
    assert said.splitlines()[-1].startswith("interrupted; rerun")
    assert not (photos / "m" / "model.json").exists()


def test_photos_of_none_of_the_classes(birds, photos, inside):
    other = write_photos(photos / "other", range(8, 10), range(2))
    status, out, _ = inside("reject", birds, other, "--json")
    assert status == 0
    found = json.loads(out)
    assert found["rejected"] == 4
    inside("undo", birds)
    assert len(cala.load(birds).current.classifier.rejection_.rejected) == 0


@pytest.mark.parametrize("given", ["https://example.org/robin.jpg", "-"])
def test_addresses_are_told_from_files(birds, given):
    assert refusal("predict", birds, given).code == "address"


def test_wide_letters_stay_in_columns(photos, inside):
    (photos / "known" / "class 0").rename(photos / "known" / "知更鸟")
    how = ("--encoder", ENCODER, "--fakes", "feature", "-q")
    assert inside("fit", photos / "known", "-o", photos / "m", *how)[0] == 0
    lines = inside("show", photos / "m")[1].splitlines()
    found = next(line for line in lines if line.startswith("知更鸟"))
    other = next(line for line in lines if line.startswith("class 1"))
    assert found.index("known") + 3 == other.index("known")
