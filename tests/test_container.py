"""The Dockerfile's layers, reproduced in a folder by container/layers.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import missing
from waiting import GENEROUS

ROOT = Path(__file__).parent.parent
SMALL = """# a comment
FROM python AS build
COPY first.txt second.txt /cala/
COPY part /cala/part
RUN mkdir -p /opt/cala && touch /opt/other && \\
  cp -r /cala/part /cala/first.txt /opt/cala
FROM python
COPY --from=build /opt/cala /opt/cala
CMD ["serve", "/models/model"]
"""


@pytest.fixture
def layers(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "container")
    import layers

    return layers


@pytest.fixture
def context(tmp_path) -> Path:
    """A small project with a Dockerfile."""
    folder = tmp_path / "context"
    (folder / "part" / "__pycache__").mkdir(parents=True)
    for name in ("first.txt", "second.txt", "part/a.py", "part/__pycache__/a.pyc"):
        (folder / name).write_text(name)
    (folder / ".dockerignore").write_text("*\n!first.txt\n!second.txt\n!part\n**/__pycache__\n")
    (folder / "Dockerfile").write_text(SMALL)
    return folder


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_only_what_docker_would_copy_is_there(layers, context, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    image = layers.reproduce(context, root)
    assert files(root) == {"opt/cala/part/a.py", "opt/cala/first.txt"}
    assert (root / "models").is_dir()
    assert image["CMD"] == f'["serve", "{root}/models/model"]'


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("Dockerfile", "first.txt", "third.txt"),
        ("Dockerfile", "COPY part", "COPY gone"),
        ("Dockerfile", "cp -r", "false"),
        (".dockerignore", "!first.txt", ""),
        (".dockerignore", "!part", ""),
    ],
)
def test_what_fails_in_docker_fails_here(layers, context, tmp_path, name, old, new):
    text = (context / name).read_text()
    assert old in text
    (context / name).write_text(text.replace(old, new))
    with pytest.raises(SystemExit):
        layers.reproduce(context, tmp_path / "root")


def test_all_that_the_image_copies_is_in_the_project(layers, tmp_path):
    copied = [
        rest
        for word, rest in layers.instructions((ROOT / "Dockerfile").read_text())
        if word == "COPY" and not rest.startswith("--from")
    ]
    for rest in copied:
        layers.copy(ROOT, tmp_path, rest)
    assert {"cala/pyproject.toml", "cala/warm.py", "cala/src/cala/version.py"} <= files(tmp_path)
    assert not [name for name in files(tmp_path) if "__pycache__" in name]


@pytest.mark.system
@pytest.mark.long
def test_the_image_serves(tmp_path):
    """Installs everything anew, so it needs a package index."""
    probe = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", tmp_path, "idna"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        missing("index", "pip reaches no package index")
    done = subprocess.run(
        [sys.executable, ROOT / "container" / "layers.py", tmp_path / "root"],
        capture_output=True,
        text=True,
        timeout=GENEROUS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not list((tmp_path / "root").rglob("sklearn"))
