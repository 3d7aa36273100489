"""Whatever call to the disk fails once: the state before or after, a clear error, and life goes on.

All points of all changes are tried in `make test-all`, a sample of them in `make test`.
"""

from __future__ import annotations

import itertools
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cala
from app.clients import client_of, png, teach
from cala.data.embeddings import load_embeddings
from cala.encoders import load_encoder
from cala.encoders.embed import EmbeddingCache
from cala.errors import CacheWarning, CalaError
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
    "merge": lambda model: model.merge("first", "class 1"),
    "refit": lambda model: model.refit(),
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
    return itertools.count() if thorough else (2**k - 1 for k in itertools.count())


def attempt(faults: Faults, act: Callable[[], object]) -> bool:
    """Whether it was done; any error but ours ends the test."""
    try:
        with warnings.catch_warnings(), faults:
            warnings.simplefilter("ignore", CacheWarning)
            act()
    except CalaError:
        return False
    return True


@pytest.fixture
def count(record_property):
    """Tells `--junitxml` how many calls were made to fail."""
    return lambda points: record_property("points", points)


def errors(*kinds: str):
    """Each error at every point in `make test-all`, and two or three at some points always."""
    quick = [pytest.param(k, False, id=f"{k}-sample") for k in kinds if k not in ("EIO", "EACCES")]
    whole = [pytest.param(k, True, id=f"{k}-all", marks=pytest.mark.long) for k in kinds]
    return pytest.mark.parametrize(("error", "thorough"), quick + whole)


@errors(*ERRORS, SHORT)
@pytest.mark.parametrize("change", CHANGES)
def test_change_of_a_model(spare, tmp_path, monkeypatch, count, change, error, thorough):
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
    count(tried)
    assert tried >= (1 if error == SHORT else 4)


@errors(*ERRORS, SHORT)
def test_fit(spare, tmp_path, monkeypatch, count, error, thorough):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    for last in points(thorough):
        path = tmp_path / str(last)
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        faults = Faults(tmp_path, last, error)
        done = attempt(
            faults,
            lambda path=path: cala.fit(
                spare / "photos", path, encoder=ENCODER, method="nearest-mean"
            ),
        )
        if not done and not (path / "model.json").exists():
            cala.fit(spare / "photos", path, encoder=ENCODER, method="nearest-mean")
        assert cala.load(path).classes == [f"class {i}" for i in range(4)]
        if not faults.failed:
            break
    count(last)


@errors(*ERRORS)
@pytest.mark.parametrize("action", ["copy", "link", "move"])
def test_sort_loses_no_photo(spare, tmp_path, monkeypatch, count, action, error, thorough):
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
    count(last)


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


@errors(*ERRORS, SHORT)
def test_run_is_resumed(embeddings, tmp_path, count, error, thorough):
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
    count(last)


def scores(folder: Path) -> tuple:
    records, unreadable = read_records(folder / "records.jsonl")
    found = {(r.method, r.draw, r.session): r.metrics["accuracy"] for r in records}
    return sorted(found.items()), unreadable


@errors(*ERRORS, SHORT)
@pytest.mark.parametrize("name", ["x.npz", "x.safetensors", "x.shards"])
def test_encode(spare, tmp_path, count, name, error, thorough):
    """The embeddings of a run without trouble, or one line and none; again, and they are there."""
    photos = tmp_path / "photos"
    shutil.copytree(spare / "photos", photos)
    words = ["encode", photos, "--encoder", ENCODER, "--test", "0.2", "--fakes", "4", "--base", "2"]
    words += ["--shard-rows", "10", "--quiet", "-o"]
    clean = tmp_path / f"clean-{name}"
    assert within(*words, clean, CALA_CACHE=tmp_path / "clean").returncode == 0
    for last in points(thorough):
        place = tmp_path / str(last)
        place.mkdir()
        faults, told_cache = Faults(place, last, error), {"CALA_CACHE": place / "cache"}
        with faults:
            ended = within(*words, place / name, **told_cache)
        told(ended)
        if ended.returncode:
            assert within(*words, place / name, **told_cache).returncode == 0
        assert_same_embeddings(place / name, clean)
        assert not list(place.glob(".*.tmp"))
        if not faults.failed:
            break
    count(last)


def assert_same_embeddings(path: Path, clean: Path) -> None:
    found, wanted = load_embeddings(path), load_embeddings(clean)
    for part in ("x_train", "y_train", "x_test", "y_test"):
        np.testing.assert_array_equal(
            np.asarray(getattr(found, part)[:]), np.asarray(getattr(wanted, part)[:])
        )


@errors(*ERRORS)
def test_the_embedding_cache(tmp_path, monkeypatch, count, error, thorough):
    """Whatever fails in it costs time and nothing else."""
    encoder = load_encoder(ENCODER, engine="torch")
    digests = [bytes([n]) * 32 for n in range(3)]
    rows = np.arange(3 * encoder.dim, dtype=np.float32).reshape(3, -1)
    for last in points(thorough):
        monkeypatch.setenv("CALA_CACHE", str(tmp_path / str(last)))
        cache, faults = EmbeddingCache(encoder), Faults(tmp_path / str(last), last, error)

        def use(cache=cache):
            with cache.rows.claim(digests[0], wait=False):
                cache.put(digests, rows)
            found, known = cache.find(digests)
            np.testing.assert_array_equal(found[known], rows[known])

        assert attempt(faults, use)
        use()
        assert cache.find(digests)[1].all()
        if not faults.failed:
            break
    count(last)


@errors(*ERRORS, SHORT)
def test_teaching_the_service(spare, tmp_path, monkeypatch, count, error, thorough):
    """201 or a problem that says that nothing was saved, and the same request works again."""
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    before = state(spare / "model")
    for last in points(thorough):
        path = tmp_path / str(last)
        shutil.copytree(spare / "model", path)
        faults = Faults(path, last, error)
        with client_of(path) as client:
            with faults:
                answer = teach(client, "new", 30, 3, key="once")
            done = answer.status_code == 201
            assert done or answer.json()["code"] in ("not_saved", "model_damaged"), answer.text
            assert (state(path) == before) != done
            assert len(thumbnails(path)) == len(thumbnails(spare / "model")) + 3 * done
            assert client.post("/v1/predict", files={"images": png(1, 7)}).status_code == 200
            again = teach(client, "new", 30, 3, key="once")
            assert again.status_code in (200, 201), again.text
            assert cala.load(path).classes.count("new") == 1
        assert not list(path.rglob("*.tmp"))
        shutil.rmtree(path)
        if not faults.failed:
            break
    count(last)


def thumbnails(path: Path) -> list[str]:
    return sorted(p.name for p in (path / "thumbnails").glob("*.jpg"))
