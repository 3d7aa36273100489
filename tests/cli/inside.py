"""`cala` within the test process, for tests in which a process of its own tells nothing more."""

from __future__ import annotations

import sys

import pytest

from cala.cli import main


@pytest.fixture
def inside(monkeypatch, capsys):
    """Arguments -> exit code, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cala", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "80")
        try:
            main()
            code = 0
        except SystemExit as error:
            code = int(error.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
