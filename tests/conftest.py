"""Shared fixtures, hypothesis profiles, and a summary of what could not be tested here.

`CALA_REQUIRE=data,browser` turns a skip for a missing part into a failure.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

for _library in ("OMP", "OPENBLAS", "MKL"):  # before NumPy: the arrays here are tiny
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

from cala.heads import ADAPTERS  # noqa: E402

settings.register_profile("quick", deadline=None, derandomize=True, max_examples=10)
settings.register_profile("thorough", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("quick")  # `--hypothesis-profile thorough` in `make test-all`

os.environ.setdefault("CALA_CONFIG", tempfile.mkdtemp(prefix="cala-config-"))  # not the user's
os.environ["HF_HUB_OFFLINE"] = "1"  # no test asks a hub, and none waits for one
FULL_ADAPTERS = {name: ADAPTERS[name] for name in ADAPTERS}
CIFAR_FILE = "cifar100_resnet20_features.npz"
PARTS = {
    "data": "benchmark data: CALA_DATA=FOLDER make test (docs/bench.md says what lies there)",
    "browser": "the pages in a browser: install chromium and playwright",
    "train": "training on several devices: install lightning-fabric",
    "ray": "clusters: install ray",
    "onnx": "export: install onnx and onnxscript",
    "onnxruntime": "ONNX encoders: install onnxruntime",
    "openvino": "the OpenVINO engine: install openvino",
    "index": "the container's layers: a package index that pip reaches",
    "timm": "timm encoders: install timm",
    "notebooks": "examples/*.ipynb: install nbclient and ipykernel",
    "uv": "the wheel in clean environments: install uv, and have a package index at hand",
    "cifar100": "CIFAR-100 in its official layout: cifar-100-python in CALA_DATA",
    "label-studio": "Label Studio: install it in a venv of its own, CALA_LABEL_STUDIO=COMMAND",
    "frigate": "the Frigate sidecar: install paho-mqtt and mosquitto",
    "transformers": "Hugging Face encoders: install transformers",
}
_MARK = "not installed or not given: "


def missing(part: str, why: str) -> None:
    """Skip for a missing part, unless it is required."""
    if part in os.environ.get("CALA_REQUIRE", "").split(","):
        pytest.fail(f"{part} is required here: {why}")
    pytest.skip(f"{_MARK}{part} ({why})")


def pytest_terminal_summary(terminalreporter) -> None:
    """Which parts were not tested, how many tests that is, and how to get them."""
    counts: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        part = reason.partition(_MARK)[2].split(" ")[0] or reason.removeprefix("Skipped: ")
        counts[part] = counts.get(part, 0) + 1
    if counts:
        terminalreporter.section("not tested here")
    for part, count in sorted(counts.items()):
        terminalreporter.write_line(f"{count:4} {PARTS.get(part, part)}")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """Nothing is read from or written to the user's cache, by no test and no process of one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALA_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module", autouse=True)
def _quick_adapters():
    """Adapters learn from a few episodes, unless a test gives a recipe of its own.

    Tests of what they learn do so, or ask for `full_adapters`.
    """
    few = {"episodes": 6, "heldout_episodes": 2, "epochs": 2, "steps": 10}
    with pytest.MonkeyPatch.context() as patch:
        for name, recipe in FULL_ADAPTERS.items():
            patch.setitem(ADAPTERS._entries, name, replace(recipe, **few))
        yield


@pytest.fixture
def full_adapters(monkeypatch):
    for name, recipe in FULL_ADAPTERS.items():
        monkeypatch.setitem(ADAPTERS._entries, name, recipe)


@pytest.fixture
def undrawn_figures(monkeypatch):
    """Figures are made, but not drawn, which takes nearly all of a report's time."""
    from cala.reports import assemble

    def save(picture, folder: Path) -> str:
        svg = f"<svg><title>{picture.name}</title></svg>"
        for ending in ("svg", "png"):
            (folder / f"{picture.name}.{ending}").write_text(svg)
        return svg

    monkeypatch.setattr(assemble, "save_picture", save)


@pytest.fixture(scope="session")
def cifar_path() -> Path:
    path = Path(os.environ.get("CALA_DATA", "")) / CIFAR_FILE
    if not os.environ.get("CALA_DATA") or not path.is_file():
        missing("data", f"set CALA_DATA to the folder with {CIFAR_FILE}")
    return path


@pytest.fixture(scope="session")
def cifar(cifar_path):
    from cala.data.embeddings import load_embeddings

    return load_embeddings(cifar_path)
