"""Examples run as they stand, in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cala
from conftest import missing
from waiting import GENEROUS

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


@pytest.mark.system
def test_first_steps(tmp_path):
    env = {**os.environ, "CALA_CACHE": str(tmp_path / "cache")}
    script = [sys.executable, EXAMPLES / "first_steps.py", tmp_path / "demo"]
    assert subprocess.run(script, env=env, timeout=GENEROUS, check=False).returncode == 0
    model = cala.load(tmp_path / "demo" / "things")
    assert model.classes[-1] == "umbrella"
    assert model.version == 4


@pytest.mark.system
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path):
    """In a kernel, as Jupyter and the site run it; the last cells assert what was shown."""
    try:
        import nbclient
        import nbformat
    except ImportError:
        missing("notebooks", "nbclient is not installed")
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=GENEROUS, resources=resources).execute()
    assert "error" not in [out.output_type for cell in notebook.cells for out in outputs(cell)]


def outputs(cell) -> list:
    return cell.get("outputs", [])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_without_outputs(path):
    """So that a change of one is a change of its text; the site shows outputs of its own run."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    assert cells[0]["source"][0].startswith("# ")
    assert [cell for cell in cells if outputs(cell) or cell.get("execution_count")] == []
