"""A process that ends at any write, flush, rename, new file or deletion leaves a whole model.

Within this process, so that all points can be tried in a second: from the point of the crash on,
every call that would change the disk raises, also those of `finally` blocks, which no dead process
would reach. `tests/model/test_crash.py` does the same to `cala add` in processes that really end.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil

import pytest

from cala.store import Content, JournalEntry, Store
from store.test_store import content, grow, same

STEPS = ("write", "fsync", "replace", "rename", "mkdir", "unlink", "open")


class Crash(BaseException):
    """The end of a process."""


class Crashing:
    """Lets `os` do so many steps; `torn`: of the last one, if it is a write, the first half."""

    def __init__(self, steps: int, torn: bool) -> None:
        self.left, self.torn, self.last = steps, torn, ""

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in STEPS:
            patch.setattr(os, name, self.stopping(name, getattr(os, name)))

    def stopping(self, name: str, real):
        def call(*given, **named):
            if name == "open" and not given[1] & os.O_CREAT:
                return real(*given, **named)
            if self.left == 0:
                if name == "write" and self.torn and not self.last:
                    real(given[0], bytes(given[1])[: len(given[1]) // 2])
                self.last = self.last or name
                raise Crash
            self.left -= 1
            return real(*given, **named)

        return call


def prepared(path) -> Store:
    """Two changes and an undo, so that undo and redo are possible."""
    store = Store(path)
    store.create(content(1), JournalEntry("fit"))
    grow(store, 2)
    grow(store, 3)
    store.undo()
    return store


CHANGES = {
    "change": (lambda store: grow(store, 4), 2, 4),
    "undo": (lambda store: store.undo(), 2, 1),
    "redo": (lambda store: store.redo(), 2, 3),
}


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_the_version_before_or_after(tmp_path, change, torn):
    act, before, after = CHANGES[change]
    shutil.copytree(prepared(tmp_path / "first").path, tmp_path / "spare")
    found, steps = [], set()
    for last in itertools.count():
        path = tmp_path / str(last)
        shutil.copytree(tmp_path / "spare", path)
        crash = Crashing(last, torn)
        with pytest.MonkeyPatch.context() as patch:
            crash.install(patch)
            try:
                act(Store(path))
            except Crash:
                steps.add(crash.last)
        again = Store(path)
        found.append(again.read().meta["number"])
        assert same(again.read(), content(found[-1]))
        grow(again, 9)  # life goes on, and the rests are cleared away
        assert again.read().meta["number"] == 9
        assert not list(path.rglob("*.tmp"))
        again.undo()
        assert again.read().meta["number"] == found[-1]
        if not crash.last:
            break
    assert found == sorted(found, key=(before, after).index)  # one moment of change
    assert {found[0], found[-1]} == {before, after}
    assert steps >= {"fsync", "replace", "open"}
    assert len(found) >= 8


@pytest.mark.parametrize("torn", [False, True])
def test_no_model_or_a_whole_one(tmp_path, torn):
    for last in itertools.count():
        store, crash = Store(tmp_path / str(last)), Crashing(last, torn)
        with pytest.MonkeyPatch.context() as patch:
            crash.install(patch)
            with contextlib.suppress(Crash):
                store.create(content(1), JournalEntry("fit"))
        again = Store(store.path)
        if not (store.path / "model.json").exists():
            again.create(Content({"number": 7}, {}), JournalEntry("fit"))
            assert again.read().meta["number"] == 7
        else:
            assert same(again.read(), content(1))
        if not crash.last:
            break
    assert last >= 8
