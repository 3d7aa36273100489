"""`cala run`, `compare`, `ablate` and the lists; killed, as a process."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cala import storage
from cli.inside import refusal, within
from problems import blobs
from refusals import assert_names
from waiting import wait_for

CALA = [sys.executable, "-c", "from cala.cli import main; main()"]
METHODS = ("nearest-mean", "la")
QUICK = ["--base", "8", "--way", "2", "--shot", "3", "--sessions", "2"]


def cala(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return within(*arguments, cwd=cwd)


@pytest.fixture(scope="module")
def embeddings(tmp_path_factory) -> Path:
    x, y = blobs(12, 30, 12)
    train = np.arange(len(y)) % 2 == 0
    path = tmp_path_factory.mktemp("data") / "small.npz"
    np.savez(
        path, x_train=x[train], y_train=y[train], x_test=x[~train], y_test=y[~train],
        holdout=np.ones(train.sum(), bool),
    )  # fmt: skip
    return path


def small_run(embeddings: Path, out: Path, *more: object) -> list[object]:
    return [
        "run", "small", "--embeddings", embeddings, *QUICK, "--draws", "random:3",
        "--methods", "nearest-mean,la", "--no-report", "--out", out, *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def finished_run(embeddings, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "a"
    done = cala(*small_run(embeddings, out))
    assert done.returncode == 0, done.stderr
    assert max(len(line.rstrip()) for line in done.stdout.splitlines()) <= 80 + len(str(out))
    for word in ("nearest-mean", "la", "AUSUC", "Mean of 3 random draws", str(out.name)):
        assert word in done.stdout
    return out


def test_a_run_folder_holds_what_it_promises(finished_run):
    config = json.loads((finished_run / "config.json").read_text())
    assert config["protocol"] == {"name": "small", "base": 8, "way": 2, "shot": 3, "sessions": 2}
    assert set(config["versions"]) == {"cala", "torch", "numpy", "scikit-learn"}
    assert len(config["embeddings"]["fingerprint"]) == 64
    lines = (finished_run / "records.jsonl").read_text().splitlines()
    assert len(lines) == 2 * 3 * 3
    assert {"method", "draw", "seed", "session", "metrics", "schema"} <= set(json.loads(lines[0]))
    summary = json.loads((finished_run / "summary.json").read_text())
    assert summary["random"]["la"]["summary"]["last"]["n"] == 3
    for name, start in (("table.md", "Mean of 3"), ("table.csv", "method,draw,last")):
        assert (finished_run / name).read_text().startswith(start)
    assert "\\toprule" in (finished_run / "table.tex").read_text()
    meta, arrays = storage.read(finished_run / "artifacts" / "la.safetensors", "artifact")
    assert meta["method"] == "la"
    assert arrays["confusion"].shape == (12, 12)
    assert arrays["confusion"].sum() == 12 * 15
    np.testing.assert_allclose(arrays["softmax_after"].sum(), 1, rtol=1e-5)
    assert arrays["similarity"].shape == (4, 8)
    assert (arrays["beta"][:8] == 0).all()


def test_the_same_command_recomputes_nothing(finished_run, embeddings):
    before = {p: p.stat().st_mtime_ns for p in finished_run.rglob("*.jsonl")}
    artifact = finished_run / "artifacts" / "la.safetensors"
    made = artifact.stat().st_mtime_ns
    summary = (finished_run / "summary.json").read_text()
    done = cala(*small_run(embeddings, finished_run))
    assert done.returncode == 0, done.stderr
    assert {p: p.stat().st_mtime_ns for p in finished_run.rglob("*.jsonl")} == before
    assert artifact.stat().st_mtime_ns == made
    assert (finished_run / "summary.json").read_text() == summary


@pytest.mark.parametrize("damage", ["half a line", "unfinished cell", "garbage", "a digit"])
def test_damaged_records_are_mended(finished_run, embeddings, tmp_path, damage):
    out = tmp_path / "run"
    out.mkdir()
    (out / "config.json").write_text((finished_run / "config.json").read_text())
    whole = (finished_run / "records.jsonl").read_text()
    lines = whole.splitlines(keepends=True)
    damaged = {
        "half a line": "".join(lines[:-1]) + lines[-1][:40],
        "unfinished cell": "".join(lines[:-2]),
        "garbage": "".join(lines[:9]) + "\x00\x00{}\n[1]\nnull\n" + "".join(lines[9:15]),
        "a digit": whole.replace('"accuracy": 0.', '"accuracy": 0.1', 1),
    }[damage]
    (out / "records.jsonl").write_text(damaged)
    done = cala(*small_run(embeddings, out))
    assert done.returncode == 0, done.stderr
    assert sorted((out / "records.jsonl").read_text().splitlines()) == sorted(whole.splitlines())
    assert (out / "summary.json").read_text() == (finished_run / "summary.json").read_text()
    assert ("cannot be read" in done.stderr) == (damage != "unfinished cell")


def test_a_changed_digit_is_neither_compared_nor_reported(finished_run, tmp_path, undrawn_figures):
    run = shutil.copytree(finished_run, tmp_path / "run")
    text = (run / "records.jsonl").read_text()
    first = json.loads(text.splitlines()[0])
    (run / "records.jsonl").write_text(text.replace('"accuracy": 0.', '"accuracy": 0.1', 1))
    done = cala("compare", run, "--json")
    assert "1 line of records.jsonl" in done.stderr
    found = json.loads(done.stdout)["random"]
    assert {m: found[m]["summary"]["last"]["n"] for m in found} == {
        m: 2 if m == first["method"] else 3 for m in METHODS
    }
    done = cala("report", run, "--json")
    notes = json.loads(done.stdout)["notes"]
    assert "1 line of records.jsonl" in notes[0]
    assert first["draw"] in notes[1]


@pytest.mark.system
@pytest.mark.parametrize(
    "cells", [(7,), pytest.param((1, 7, 13), marks=pytest.mark.long)], ids=["once", "often"]
)
@pytest.mark.usefixtures("full_adapters")  # as the processes have them
def test_kill_9_in_the_middle_then_the_same_summary(embeddings, tmp_path, cells):
    whole, out = tmp_path / "whole", tmp_path / "run"
    assert cala(*small_run(embeddings, whole)).returncode == 0
    for wanted in cells:
        process = subprocess.Popen(
            [*CALA, *map(str, small_run(embeddings, out))],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        records = out / "records.jsonl"

        def far_enough(records=records, wanted=wanted, process=process):
            written = records.exists() and records.read_bytes().count(b"\n") >= wanted
            return written or process.poll() is not None

        wait_for(far_enough)
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = cala(*small_run(embeddings, out))
    assert done.returncode == 0, done.stderr
    assert (out / "summary.json").read_text() == (whole / "summary.json").read_text()
    assert not list(out.glob(".*.tmp")) or len(list(out.glob(".*.tmp"))) < 4


def test_more_methods_and_draws_continue_a_run(finished_run, embeddings, tmp_path):
    out = tmp_path / "run"
    first = small_run(embeddings, out)
    first[first.index("random:3")] = "random:1"
    assert cala(*first).returncode == 0
    assert cala(*small_run(embeddings, out)).returncode == 0
    made = sorted((out / "records.jsonl").read_text().splitlines())
    assert made == sorted((finished_run / "records.jsonl").read_text().splitlines())


def test_another_run_in_the_same_folder_is_refused(finished_run, embeddings):
    found = refusal(*small_run(embeddings, finished_run, "--metric", "whitened"))
    named = (finished_run, "metric", "None", "'whitened'")
    assert_names(found, *named, field="out", code="another_run")


def test_a_full_disk_is_said(embeddings, tmp_path, inside, monkeypatch):
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "a file")

    monkeypatch.setattr("cala.benchmark.execute.keep_artifact", full)
    code, _, err = inside(*small_run(embeddings, tmp_path / "run"))
    assert code == 2
    assert err.splitlines()[-1].startswith("error: No space left on device for a file: ")


def test_two_processes_in_one_folder(finished_run, embeddings):
    from filelock import FileLock

    with FileLock(finished_run / ".lock"):
        found = refusal(*small_run(embeddings, finished_run))
    assert_names(found, finished_run, code="in_use")


def test_json_is_the_summary(finished_run, embeddings):
    done = cala(*small_run(embeddings, finished_run, "--json"))
    assert json.loads(done.stdout) == json.loads((finished_run / "summary.json").read_text())


def test_compare(finished_run, tmp_path):
    done = cala("compare", finished_run, "--json")
    assert set(json.loads(done.stdout)["random"]) == {"nearest-mean", "la"}
    side = cala("compare", finished_run, finished_run)
    assert side.returncode == 0, side.stderr
    assert "a: la" in side.stdout
    assert_names(refusal("compare", tmp_path), tmp_path, field="runs")


def test_runs_on_other_test_images_have_no_differences(finished_run, embeddings, tmp_path):
    """Of the same numbers of images, too; another encoder of the same images may be compared."""
    with np.load(embeddings) as content:
        arrays = dict(content)
    other, encoder = tmp_path / "other.npz", tmp_path / "encoder.npz"
    moved = np.roll(arrays["y_test"], 1)
    np.savez(other, **{**arrays, "x_test": np.roll(arrays["x_test"], 1, 0), "y_test": moved})
    np.savez(encoder, **{**arrays, "x_train": -arrays["x_train"], "x_test": -arrays["x_test"]})
    runs = [finished_run, tmp_path / "other", tmp_path / "encoder"]
    for file, run in zip((other, encoder), runs[1:], strict=True):
        assert cala(*small_run(file, run)).returncode == 0
    done = cala("compare", *runs, "--json")
    found = json.loads(done.stdout)["random"]
    assert found["other: la"]["difference"] is None
    assert found["other: la"]["summary"]["last"]["n"] == 3
    assert found["encoder: la"]["difference"]["last"]["n"] == 3
    assert "other: la" in done.stderr
    assert "encoder: la" not in done.stderr
    table = cala("compare", *runs).stdout.partition("Difference to")[2]
    assert "encoder" in table
    assert "other: la" not in table
    more_shots = small_run(embeddings, tmp_path / "shots")
    more_shots[more_shots.index("--shot") + 1] = "4"
    assert cala(*more_shots).returncode == 0
    assert "Difference to a: la on" not in cala("compare", finished_run, tmp_path / "shots").stdout
    found = json.loads(cala("compare", finished_run, tmp_path / "shots", "--json").stdout)
    assert found["random"]["shots: la"]["difference"] is None


def test_runs_of_the_same_name_stay_apart(finished_run, tmp_path):
    other = tmp_path / finished_run.name
    shutil.copytree(finished_run, other)
    found = json.loads(cala("compare", finished_run, other, "--json").stdout)["random"]
    assert set(found) == {f"{p}: {m}" for p in (finished_run, other) for m in METHODS}
    assert len(found[f"{other}: la"]["sessions"]["accuracy"]) == 3


def test_compare_is_whole_at_eighty_columns_and_takes_a_reference(finished_run, tmp_path, inside):
    """Folders as `cala run` names them: long, and different only in the digest."""
    names = ("small-0123456789", "small-abcdef0123")
    runs = [shutil.copytree(finished_run, tmp_path / name) for name in names]
    code, out, _ = inside("compare", *runs, "--reference", "0123: la")
    assert code == 0
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80 + len(str(tmp_path))
    tables, legend = out.rsplit("\n\n", 1)
    assert "…" not in out
    assert max(len(line) for line in tables.splitlines()) <= 80
    assert "Difference to 0123: la on the same draws" in tables
    assert "abcd: nearest-mean" in tables
    joined = legend.replace("\n", "")
    assert joined == "".join(f"{n[6:10]}: {r}" for n, r in zip(names, runs, strict=True))
    code, out, _ = inside("compare", *runs, "--reference", f"{names[1]}: la", "--json")
    found = json.loads(out)["random"]
    assert found[f"{names[0]}: la"]["difference_to"] == f"{names[1]}: la"
    assert found[f"{names[0]}: la"]["difference"]["last"]["mean"] == 0.0
    assert_names(refusal("compare", *runs, "--reference", "la"), "'la'", field="reference")


def test_a_run_takes_a_reference(finished_run, embeddings, inside):
    arguments = small_run(embeddings, finished_run, "--reference", "la")
    code, out, _ = inside(*arguments)
    assert code == 0
    assert "Difference to la on the same draws" in out
    _, out, _ = inside(*arguments, "--json")
    assert json.loads(out)["random"]["nearest-mean"]["difference_to"] == "la"
    kept = json.loads((finished_run / "summary.json").read_text())["random"]
    assert kept["la"]["difference_to"] == "nearest-mean"


def test_features_is_the_same_run(finished_run, embeddings, tmp_path):
    """The folder is named after all that decides the numbers, so both commands find it."""
    quick = [*QUICK, "--draws", "random:1", "--methods", "nearest-mean", "--json"]
    quick.append("--no-report")
    first = cala("run", "small", "--embeddings", embeddings, *quick, cwd=tmp_path)
    again = cala("run", f"features:{embeddings}", *quick, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert again.stdout == first.stdout
    assert again.stderr == ""
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("small-")
    fewer = ["--base", "8", "--way", "2", "--shot", "2", "--sessions", "2", *quick[len(QUICK) :]]
    other = cala("run", f"features:{embeddings}", *fewer, cwd=tmp_path)
    assert other.returncode == 0, other.stderr
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_ablate_gamma(embeddings, tmp_path):
    done = cala(
        "ablate", "gamma", "small", "--values", "0,10", "--embeddings", embeddings,
        "--draws", "random:2", "--out", tmp_path / "g", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["random"]
    plain = cala(
        "run", "small", "--methods", "nearest-mean", "--embeddings", embeddings,
        "--draws", "random:2", "--no-report", "--out", tmp_path / "p", "--json",
    )  # fmt: skip
    reference = json.loads(plain.stdout)["random"]["nearest-mean"]["summary"]
    assert found["gamma=0"]["summary"]["last"] == reference["last"]
    assert set(found) == {"gamma=0", "gamma=10"}
    side = cala("compare", tmp_path / "g", "--json")
    assert side.returncode == 0, side.stderr
    compared = json.loads(side.stdout)["random"]
    assert compared["gamma=0: cala"]["summary"] == found["gamma=0"]["summary"]
    assert set(compared) == {"gamma=0: cala", "gamma=10: cala"}


def test_what_could_not_be_trained_is_a_note_with_the_method(embeddings, tmp_path):
    done = cala(
        "run", "small", "--embeddings", embeddings, "--base", 3, "--way", 2, "--shot", 3,
        "--draws", "random:2", "--seeds", 2, "--methods", "cala,cala-plus", "--no-report",
        "--out", tmp_path / "run",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    for method in ("cala", "cala-plus"):
        start = f"note: {method}, in all draws: 3 fake classes"
        assert done.stderr.count(start) == 1, done.stderr


RUN = ["run", "x", "--embeddings", "E"]


@pytest.mark.parametrize(
    ("arguments", "told", "named"),
    [
        (["run", "cub200"], {"code": "no_embeddings"}, "cub200"),
        (["run", "x", "--embeddings", "no.npz"], {"code": "missing_file"}, "no.npz"),
        ([*RUN, "--methods", "calla"], {"field": "method"}, "'calla'"),
        ([*RUN, "--draws", "some"], {"field": "draws"}, "'some'"),
        ([*RUN, "--draws", "random:0"], {"field": "draws"}, "'random:0'"),
        ([*RUN, "--draws", "canonical"], {"code": "no_shots"}, ""),
        ([*RUN, "--split", "train"], {"field": "split"}, "'train'"),
        ([*RUN, "--metric", "l2"], {"field": "metric"}, "'l2'"),
        ([*RUN, "--base", "50"], {"field": "base"}, "50 of 12"),
        ([*RUN, "--methods", ","], {"code": "no_names"}, "','"),
        ([*RUN, "--reference", "cal"], {"field": "reference"}, "'cal'"),
        (["run", "features:"], {"field": "dataset", "code": "bad_value"}, "features:"),
        (["run", "my.npz"], {"code": "no_embeddings"}, "my.npz"),
        (["run", "mini_imagenet", *RUN[2:], "--draws", "canonical"], {"code": "no_names"}, "mini"),
        (["ablate", "size", "--values", "1", *RUN[2:]], {"field": "what"}, "'size'"),
        (["ablate", "gamma", "x", "--values", "big", *RUN[2:]], {"field": "values"}, "'big'"),
        (["ablate", "mu", "x", "--values", "1", "--retrain", *RUN[2:]], {"field": "retrain"}, "mu"),
    ],
)
def test_bad_calls_are_one_line(arguments, told, named, embeddings, tmp_path):
    found = refusal(*(embeddings if a == "E" else a for a in arguments), cwd=tmp_path)
    assert_names(found, named, **told)


def test_help_never_imports_torch():
    code = (
        "import sys; from cala.cli import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False False"


def test_mistakes_are_told_before_torch_is_imported(tmp_path):
    (tmp_path / "photos").mkdir()
    calls = [
        ["run", "no.npz"], ["run", "--embeddings", "no.npz"], ["run", "--methods", "calla"],
        ["run", "nowhere", "--data", "nowhere", "--encoder", "x"], ["run", "--draws", "some"],
        ["run", "--on", "spark"], ["run", "--metrik", "cosine"], ["train", "nowhere", "-o", "x"],
        ["train", "photos", "-o", "x", "--method", "cek"],
        ["train", "photos", "-o", "x", "--precision", "double"],
        ["train", "photos", "-o", "x", "--epochs", "1", "--budget", "1"],
        ["encode", "nowhere", "-o", "x.npz"], ["encode", "photos", "-o", "x.png"],
        ["encode", "photos", "-o", "x.npz", "--on", "ray"], ["fit", "nowhere", "-o", "m"],
        ["fit", "photos", "-o", "m", "--method", "calla"], ["predict", "nowhere", "a.jpg"],
        ["predict", "nowhere", "a.jpg", "--tops", "3"], ["add", "nowhere", "photos"],
    ]  # fmt: skip
    code = (
        "import json, sys; from cala.cli import main\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    sys.argv = ['cala', *words]\n"
        "    try: main()\n"
        "    except SystemExit as ended: assert ended.code == 2, words\n"
        "    assert 'torch' not in sys.modules, words"
    )
    command = [sys.executable, "-c", code, json.dumps(calls)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


def test_methods_on_embeddings_never_import_torch(embeddings, tmp_path):
    out = ["--out", tmp_path / "a", "--no-report"]
    run = ["run", f"features:{embeddings}", *QUICK, "--draws", "random:1", *out]
    code = (
        "import sys; from cala.cli import app\n"
        "for words in (['methods'], sys.argv[1:]):\n"
        "    try: app(words)\n"
        "    except SystemExit as ended: assert not ended.code\n"
        "print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, *map(str, run)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "cala-plus" in done.stdout
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize("group", [(), ("data",), ("cache",)])
def test_what_a_command_does_is_told_in_a_line(inside, group):
    _, printed, _ = inside(*group, "--help")
    commands = printed.partition("Commands:")[2].splitlines()
    assert len(commands) > 2
    assert not [line for line in commands if line.endswith("...")]


@pytest.mark.parametrize(
    "command",
    [
        "run", "compare", "ablate", "report", "train", "encode", "encoders", "methods", "datasets",
        "data", "cache",
    ],
)  # fmt: skip
def test_help_teaches(command, inside):
    code, printed, _ = inside(command, "--help")
    assert code == 0
    assert "Example:" in printed or command in ("methods", "datasets", "encoders", "data", "cache")


def test_help_is_whole_in_80_columns(inside):
    """No line is too long, and text that is wrapped once is not wrapped again."""
    for command in ("run", "encode", "train", "ablate"):
        _, printed, _ = inside(command, "--help")
        for line in printed.splitlines():
            assert len(line) <= 80
            assert "\\" not in line
    words = " ".join(inside("run", "--help")[1].split())
    assert "(default: nearest-mean, la, cala, cala-plus)" in words
    ablate = inside("ablate", "--help")[1]
    assert "\n paper; --retrain" not in ablate
    words = inside("train", "--help")[1].replace("[x>=1]", "")
    words = " ".join(words.split())
    assert "instead of the recipe's" in words
    assert "of the recipe's" not in words.replace("instead of the recipe's", "")


def test_lists():
    from cala.heads import method_names

    done = cala("methods")
    assert max(map(len, done.stdout.splitlines())) <= 80
    for name in method_names():
        assert name in done.stdout
    assert set(json.loads(cala("methods", "--json").stdout)) == set(method_names())
    sets = cala("datasets").stdout
    assert "cifar100" in sets
    assert sum(line.startswith("features:") for line in sets.splitlines()) == 1
    assert cala("--version").stdout.startswith("cala 0.")
