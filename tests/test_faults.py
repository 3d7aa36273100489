"""Whatever call to the disk fails once: the state before or after, a clear error, and life goes on.

All points of all changes are tried in `make test-all`, a sample of them in `make test`.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cala
from cala.errors import CalaError
from cala.model.sorting import sort_photos, unsort_photos
from cala.records import read_records
from cala.store import Store
from cli.inside import within
from faults import ERRORS, SHORT, Faults
from model.photos import ENCODER, photo, write_photos

Change = Callable[[cala.Model], object]


def pictures(label: int, count: int = 3) -> list[np.ndarray]:
    return [photo(label, number) for number in range(count)]


CHANGES: dict[str, Change] = {
    "add": lambda model: model.add(pictures(30), "new"),
    "forget": lambda model: model.forget("class 1"),
    "forget a photo": lambda model: model.forget("class 1", photo="0001.png"),
    "rename": lambda model: model.rename("class 1", "renamed"),
    "reject": lambda model: model.reject(pictures(40, 5)),
    "tune": lambda model: model.tune(objective="harmonic"),
    "undo": lambda model: model.undo(),
    "redo": lambda model: model.redo(),
}


@pytest.fixture(scope="module")
def spare(tmp_path_factory):
    """A model on which undo and redo are possible; no test may change it."""
    root = tmp_path_factory.mktemp("faults")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALA_CACHE", str(root / "cache"))
        photos = write_photos(root / "photos", range(4), range(5))
        model = cala.fit(photos, root / "model", encoder=ENCODER)
        model.add(pictures(20), "first")
        model.add(pictures(21), "second")
        model.undo()
    return root


def state(path: Path) -> tuple:
    """All that a model holds; every byte is checked on the way."""
    cala.load(path)
    found = Store(path).read()
    arrays = {
        (group, name): array.tobytes()
        for group, held in found.groups.items()
        for name, array in held.items()
    }
    return found.meta, arrays


def points(thorough: bool):
    """Numbers of the calls to fail: all of them, or fewer and fewer."""
    return itertools.count() if thorough else (round(1.6**k) - 1 for k in itertools.count(1))


def attempt(faults: Faults, act: Callable[[], object]) -> bool:
    """Whether it was done; any error but ours ends the test."""
    try:
        with faults:
            act()
    except CalaError:
        return False
    return True


THOROUGH = [False, pytest.param(True, marks=pytest.mark.long)]


@pytest.mark.parametrize("thorough", THOROUGH, ids=["sample", "all"])
@pytest.mark.parametrize("error", [*ERRORS, SHORT])
@pytest.mark.parametrize("change", CHANGES)
def test_change_of_a_model(spare, tmp_path, monkeypatch, change, error, thorough):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    before = state(spare / "model")
    shutil.copytree(spare / "model", tmp_path / "after")
    CHANGES[change](cala.load(tmp_path / "after"))
    after = state(tmp_path / "after")
    tried = 0
    for last in points(thorough):
        path = tmp_path / str(last)
        shutil.copytree(spare / "model", path)
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        faults = Faults(tmp_path, last, error)
        model = cala.load(path)
        done = attempt(faults, lambda: CHANGES[change](model))  # noqa: B023
        found = state(path)
        assert found in (before, after), (faults.failed, last)
        assert found == after or not done
        if found == before and before != after:
            CHANGES[change](cala.load(path))
            assert state(path) == after
        assert not list(path.rglob("*.tmp")) or found == before
        if not faults.failed:
            break
        tried += 1
        shutil.rmtree(path)
    assert tried >= (1 if error == SHORT else 4)


@pytest.mark.parametrize("thorough", THOROUGH, ids=["sample", "all"])
@pytest.mark.parametrize("error", [*ERRORS, SHORT])
def test_fit(spare, tmp_path, monkeypatch, error, thorough):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    for last in points(thorough):
        path = tmp_path / str(last)
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        faults = Faults(tmp_path, last, error)
        done = attempt(faults, lambda: cala.fit(spare / "photos", path, encoder=ENCODER))  # noqa: B023
        if not done and not (path / "model.json").exists():
            cala.fit(spare / "photos", path, encoder=ENCODER)
        assert cala.load(path).classes == [f"class {i}" for i in range(4)]
        if not faults.failed:
            break


@pytest.mark.parametrize("thorough", THOROUGH, ids=["sample", "all"])
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("action", ["copy", "link", "move"])
def test_sort_loses_no_photo(spare, tmp_path, monkeypatch, action, error, thorough):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    model = cala.load(spare / "model")
    for last in points(thorough):
        trip, out = tmp_path / f"trip {last}", tmp_path / f"sorted {last}"
        shutil.copytree(spare / "photos" / "class 0", trip)
        there = {path.name: path.read_bytes() for path in trip.iterdir()}
        answers = model.explain(sorted(trip.iterdir()))
        faults = Faults(tmp_path, last, error)
        attempt(faults, lambda: sort_photos(answers, out, action))  # noqa: B023
        found = [*trip.iterdir(), *(out.rglob("*.png") if out.exists() else [])]
        assert {path.read_bytes() for path in found} == set(there.values())
        if (out / "cala-sort.json").exists():
            unsort_photos(out)
        assert {path.name: path.read_bytes() for path in trip.iterdir()} == there
        if not faults.failed:
            break


@pytest.fixture(scope="module")
def embeddings(tmp_path_factory) -> Path:
    """Six classes of easy rows."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("embeddings") / "easy.npz"
    y = np.repeat(np.arange(6), 8)
    x = np.eye(6)[y] + rng.normal(0, 0.2, (len(y), 6))
    np.savez(path, x_train=x, y_train=y, x_test=x[::2], y_test=y[::2])
    return path


def told(ended) -> None:
    """A command that fails does so with one line and exit code 2, never with a traceback."""
    if ended.returncode:
        assert ended.returncode == 2
        assert ended.stderr.splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize("thorough", THOROUGH, ids=["sample", "all"])
@pytest.mark.parametrize("error", [*ERRORS, SHORT])
def test_run_is_resumed(embeddings, tmp_path, error, thorough):
    words = ["run", f"features:{embeddings}", "--base", "4", "--way", "1", "--draws", "random:2"]
    words += ["--methods", "nearest-mean", "--no-report", "--quiet", "--out"]
    assert within(*words, tmp_path / "clean").returncode == 0
    clean = scores(tmp_path / "clean")
    for last in points(thorough):
        faults = Faults(tmp_path, last, error)
        with faults:
            ended = within(*words, tmp_path / str(last))
        told(ended)
        if ended.returncode:
            assert within(*words, tmp_path / str(last)).returncode == 0
        assert scores(tmp_path / str(last))[0] == clean[0]
        if not faults.failed:
            break


def scores(folder: Path) -> tuple:
    records, unreadable = read_records(folder / "records.jsonl")
    found = {(r.method, r.draw, r.session): r.metrics["accuracy"] for r in records}
    return sorted(found.items()), unreadable
