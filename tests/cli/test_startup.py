"""Commands that answer at once: what they import is asserted, not how long that takes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.inside import within
from model.photos import write_photos

SLOW = ("torch", "sklearn", "matplotlib", "pandas", "scipy.stats", "ray", "fastapi")
CODE = f"""
import sys
from cala.cli import main
try:
    main()
except SystemExit as ended:
    sys.stderr.flush()
    print(ended.code, [name for name in {SLOW} if name in sys.modules])
"""
ENCODER = "resnet20-cifar100"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A folder with photos, and a model whose encoder is in the cache, with a change undone."""
    root = tmp_path_factory.mktemp("startup")
    write_photos(root / "known", range(3), range(6))
    write_photos(root / "new", range(3, 5), range(3))
    write_photos(root / "more", range(5, 6), range(3))
    options = ("--encoder", ENCODER, "--fakes", "feature", "-q")
    birds = root / "birds"
    assert within("fit", root / "known", "-o", birds, *options).returncode == 0
    for command in (("add", birds, root / "new"), ("rename", birds, "class 2", "robin")):
        assert within(*command).returncode == 0
    assert within("undo", birds).returncode == 0
    return root


@pytest.fixture
def place(prepared, tmp_path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "copy"))


def imported(folder: Path, *arguments: str) -> str:
    """Exit code of `cala ARGUMENTS`, and which of the slow libraries it imported."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, *arguments], capture_output=True, text=True, cwd=folder
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "command",
    [
        "predict birds new",
        "add birds more --engine onnxruntime",
        "watch birds new --lines lines.jsonl --once --every 0.05",
        "show birds",
        "undo birds",
        "undo birds --redo",
        "redo birds",
        "rename birds|class 3|robin",
        "forget birds|class 4",
        "tune birds --objective harmonic",
        "eval birds known",
        "fit known -o again --encoder resnet20-cifar100 --fakes feature",
        "encode known -o known.npz --encoder resnet20-cifar100 --fakes 0",
        "methods",
        "encoders",
        "datasets",
        "data check known",
        "cache info",
        "doctor",
        "--version",
    ],
)
def test_commands_that_train_nothing_import_no_torch(place, command):
    assert imported(place, *_words(command)) == "0 []"


@pytest.mark.parametrize(
    "command",
    [
        "show birdz",
        "undo birdz",
        "tune birds --reject 3",
        "predict birds gone.jpg",
        "predict birds new --engine onnx",
        "predict birdz new",
        "watch birds gone --sort x",
        "fit gone -o x",
        "fit known -o x --method cla",
        "fit known -o x --encoder resnet",
        "fit known -o x --engine onnx",
        "add birds gone",
        "eval birds gone",
        "encode gone -o x.npz",
        "encode known -o x.npz --engine onnx",
        "run --methods cla",
        "run cub200 --data gone",
        "run --engine onnx",
        "train gone -o x",
        "train known -o x --encoder resnet",
        "report gone",
        "compare gone",
        "serve birds --engine onnx",
        "data check gone",
    ],
)
def test_refusals_import_no_torch(place, command):
    code, _, slow = imported(place, *_words(command)).partition(" ")
    assert code in ("1", "2")
    assert slow == "[]"


def _words(command: str) -> list[str]:
    first, *names = command.split("|")
    return [*first.split(), *names]
