"""What is published: the wheel and the sdist, what is in them, and that they install and work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

import cala
from conftest import missing
from waiting import GENEROUS

pytestmark = [pytest.mark.long, pytest.mark.system]
ROOT = Path(__file__).resolve().parent.parent
PICTURES = {".jpg", ".jpeg", ".png", ".gif", ".webp", ".heic", ".bmp", ".tif"}
ESTIMATOR = """
import numpy as np
from cala import CalaClassifier

X = np.random.default_rng(0).normal(size=(30, 8)) + np.repeat(np.eye(8)[:3] * 9, 10, 0)
y = np.repeat(list("abc"), 10)
model = CalaClassifier().fit(X[:20], y[:20], holdout="all")
print("".join(model.partial_fit(X[20:25], y[20:25]).predict(X[25:])))
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output of a command that knows nothing of this process's packages."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env |= {"CALA_CACHE": str(cwd / "cache"), "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run(
        [str(word) for word in command],
        env=env,
        cwd=cwd,
        timeout=4 * GENEROUS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def uv() -> str:
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.is_file() else shutil.which("uv")
    if found is None:
        missing("uv", "uv is not installed")
    return found


@pytest.fixture(scope="module")
def dist(uv, tmp_path_factory) -> Path:
    """The sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(uv, "build", "--out-dir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(dist) -> Path:
    (found,) = dist.glob("*.whl")
    return found


def pythons() -> list[str]:
    """Interpreters of this machine that cala supports, the lowest version first."""
    named = [shutil.which(f"python3.{minor}") for minor in range(10, 20)]
    pyenv = (Path.home() / ".pyenv/versions").glob("3.*/bin/python")
    ask = "import sys; print(sys.version_info.minor if sys.version_info[:2] >= (3, 10) else '')"
    found = {}
    for path in filter(None, [sys.executable, *named, *map(str, pyenv)]):
        said = subprocess.run([path, "-c", ask], capture_output=True, text=True, check=False)
        if said.returncode == 0 and said.stdout.strip():
            found[int(said.stdout)] = path
    return [found[minor] for minor in sorted(found)]


def members(path: Path) -> dict[str, int]:
    """Names and checksums of what is in a wheel."""
    with zipfile.ZipFile(path) as archive:
        return {info.filename: info.CRC for info in archive.infolist()}


def test_wheel_is_the_package_and_nothing_else(wheel):
    tracked = {
        f"cala/{path.relative_to(ROOT / 'src/cala').as_posix()}"
        for path in (ROOT / "src/cala").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    found = set(members(wheel))
    assert {name for name in found if ".dist-info/" not in name} == tracked
    assert not {name for name in found if PurePosixPath(name).suffix.lower() in PICTURES}


def test_wheel_of_the_sdist_is_that_of_the_tree(uv, wheel, tmp_path):
    run(uv, "build", "--wheel", "--out-dir", tmp_path, ROOT, cwd=tmp_path)
    assert members(tmp_path / wheel.name) == members(wheel)


def test_sdist_has_no_data_and_all_documents(dist):
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    pictures = {name for name in found if PurePosixPath(name).suffix.lower() in PICTURES}
    assert {PurePosixPath(name).parent.as_posix() for name in pictures} == {"docs/pictures"}
    assert not {name for name in found if "cache" in PurePosixPath(name).parent.as_posix()}
    assert {path.name for path in ROOT.glob("*.md")} <= found
    assert {"CITATION.cff", ".github/workflows/test.yml", ".ci/run"} <= found


@pytest.mark.parametrize("resolution", ["lowest-direct", "highest"])
def test_light_install(resolution, uv, wheel, tmp_path):
    """The lowest versions on the lowest Python here, the newest on the newest."""
    python = pythons()[0 if resolution == "lowest-direct" else -1]
    venv = tmp_path / "venv"
    run(uv, "venv", "--python", python, venv, cwd=tmp_path)
    install = [uv, "pip", "install", "--python", venv]
    # Of a wheel uv takes the newest dependencies, whatever the resolution.
    run(*install, "--resolution", resolution, "-r", ROOT / "pyproject.toml", cwd=tmp_path)
    run(*install, "--no-deps", wheel, cwd=tmp_path)
    scripts = venv / ("Scripts" if os.name == "nt" else "bin")
    assert run(scripts / "cala", "--version", cwd=tmp_path) == f"cala {cala.__version__}\n"
    run(scripts / "python", ROOT / "examples/first_steps.py", "demo", cwd=tmp_path)
    assert cala.load(tmp_path / "demo/things").classes[-1] == "umbrella"
    assert run(scripts / "python", "-c", ESTIMATOR, cwd=tmp_path) == "ccccc\n"


def test_runs_without_being_installed(uv, wheel, tmp_path):
    said = run(
        uv, "tool", "run", "--python", sys.executable, "--from", wheel, "cala", "--version",
        cwd=tmp_path,
    )  # fmt: skip
    assert said == f"cala {cala.__version__}\n"
