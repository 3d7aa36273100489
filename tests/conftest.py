"""Shared fixtures. `CALA_REQUIRE=data,browser` turns a skip for a missing part into a failure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from cala.data.embeddings import load_embeddings

torch.set_num_threads(1)  # the tensors here are tiny
settings.register_profile("cala", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("cala")

CIFAR_FILE = "cifar100_resnet20_features.npz"


def missing(part: str, why: str) -> None:
    """Skip for a missing part, unless it is required."""
    if part in os.environ.get("CALA_REQUIRE", "").split(","):
        pytest.fail(f"{part} is required here: {why}")
    pytest.skip(why)


@pytest.fixture(scope="session")
def cifar_path() -> Path:
    path = Path(os.environ.get("CALA_DATA", "")) / CIFAR_FILE
    if not os.environ.get("CALA_DATA") or not path.is_file():
        missing("data", f"set CALA_DATA to the folder with {CIFAR_FILE}")
    return path


@pytest.fixture(scope="session")
def cifar(cifar_path):
    return load_embeddings(cifar_path)
