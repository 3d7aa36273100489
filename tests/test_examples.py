"""Examples run as they stand, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import cala
from waiting import GENEROUS

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.mark.system
def test_first_steps(tmp_path):
    env = {**os.environ, "CALA_CACHE": str(tmp_path / "cache")}
    script = [sys.executable, EXAMPLES / "first_steps.py", tmp_path / "demo"]
    assert subprocess.run(script, env=env, timeout=GENEROUS, check=False).returncode == 0
    model = cala.load(tmp_path / "demo" / "things")
    assert model.classes[-1] == "umbrella"
    assert model.version == 4
