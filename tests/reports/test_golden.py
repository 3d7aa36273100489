"""A small run as it was written by schema 1, and its tables to the letter."""

from __future__ import annotations

from pathlib import Path

import pytest

from cala.reports.build import make_report

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("golden")
    found = make_report([GOLDEN / "run"], out)
    assert [note.split(":")[0] for note in found.notes] == [
        "nearest-mean",
        "la",
        "nearest-mean+cala",
    ]
    return out


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.md")), ids=lambda p: p.stem)
def test_tables_stay_the_same(made, path):
    assert (made / "tables" / path.name).read_text("utf-8") == path.read_text("utf-8")
