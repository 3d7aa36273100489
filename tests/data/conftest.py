"""Every test has a cache of its own; real image sets come from `CALA_DATA`.

The whole of CIFAR-100 may also lie at `CALA_CIFAR100`; `CALA_REQUIRE=cifar100` insists on it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import missing


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("CALA_CACHE", str(folder))
    return folder


def real(name: str, part: str = "data") -> Path:
    given = os.environ.get("CALA_DATA", "")
    path = Path(given) / name
    if not given or not path.exists():
        missing(part, f"set CALA_DATA to the folder with {name}")
    return path


@pytest.fixture
def real_cifar100() -> Path:
    given = os.environ.get("CALA_CIFAR100")
    return Path(given) if given else real("cifar-100-python", "cifar100")


@pytest.fixture
def cub200_sample() -> Path:
    return real("cub200_sample")


@pytest.fixture
def mini_sample() -> Path:
    return real("miniimagenet_sample")
