"""`cala` within the test process, for tests in which a process of its own tells nothing more."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from cala.cli import main
from cala.errors import CalaError


class Ended(subprocess.CompletedProcess[str]):
    """A command that has ended, with the error that it printed."""

    error: BaseException | None = None


def within(*arguments: object, cwd: Path | None = None, **env: object) -> Ended:
    """What a process with these arguments and this environment would have ended with."""
    return called(main, ["cala", *map(str, arguments)], cwd=cwd, **env)


def refusal(*arguments: object, cwd: Path | None = None, **env: object) -> CalaError:
    """The error that ends a command: one line at the end of stderr, and exit code 2."""
    ended = within(*arguments, cwd=cwd, **env)
    assert isinstance(ended.error, CalaError), (ended.returncode, ended.stderr)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.endswith(f"error: {ended.error}\n")
    assert "\n" not in str(ended.error)
    return ended.error


def called(
    work: Callable[[], object], argv: list[str], cwd: Path | None = None, **env: object
) -> Ended:
    out, error, code, torch = io.StringIO(), io.StringIO(), 0, sys.modules.get("torch")
    raised = None
    threads = 1 if torch is None else torch.get_num_threads()
    told = {"COLUMNS": "80", **{name: str(value) for name, value in env.items()}}
    with (
        patch.object(sys, "argv", argv),
        patch.dict(os.environ, told),
        redirect_stdout(out),
        redirect_stderr(error),
        chdir(cwd) if cwd else nullcontext(),
    ):
        try:
            work()
        except SystemExit as ended:
            if isinstance(ended.code, str):
                print(ended.code, file=sys.stderr)  # noqa: T201
            code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
            raised = ended.__context__
        finally:
            if torch is not None:
                torch.set_num_threads(threads)
    found = Ended(argv, code, out.getvalue(), error.getvalue())
    found.error = raised
    return found


@contextmanager
def chdir(folder: Path):
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@pytest.fixture
def inside():
    """Arguments -> exit code, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        done = within(*arguments)
        return done.returncode, done.stdout, done.stderr

    return call
