"""Small models on disk, without photos: a tiny encoder and classes of noise in colours."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import nn

from cala import CalaClassifier
from cala.encoders.base import Encoder
from cala.encoders.torch_module import from_module
from cala.encoders.transform import Transform
from cala.errors import BaseQueryWarning, FallbackWarning
from cala.model.model import Model
from cala.model.version import EncoderCard, ModelVersion, PhotoIndex
from cala.store import JournalEntry, Store
from conftest import missing

SIDE, DIM = 12, 9
CLASSES, PER_CLASS = 12, 8


def need_onnx() -> None:
    for module in ("onnx", "onnxruntime"):
        if find_spec(module) is None:
            missing(module, f"{module} is not installed")


class Tiny(nn.Module):
    """(n, 3, s, s) -> (n, 9), and not blind to mirroring."""

    dim = DIM

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv, self.norm = nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8)
            self.last = nn.Linear(8 * 25, DIM)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.conv(x))).flatten(1))


def tiny_encoder() -> Encoder:
    transform = Transform(SIDE, SIDE + 2, filter="bicubic")
    return from_module("tiny", Tiny(), transform, architecture="tiny", pretrained=True)


def photos(label: int, count: int, seed: int = 0, side: int = SIDE + 2) -> np.ndarray:
    """Images (n, h, w, 3) of one class: its own pattern under noise."""
    pattern = np.random.default_rng(1000 + label).integers(0, 256, (side, side, 3))
    noise = np.random.default_rng([seed, label]).integers(0, 256, (count, side, side, 3))
    return (0.5 * pattern + 0.5 * noise).astype(np.uint8)


def make_model(
    folder: Path,
    encoder: Encoder | None = None,
    method: str = "cala-plus",
    *,
    metric: str | None = None,
    tta: str = "none",
    classes: int = CLASSES,
) -> Model:
    """What `fit` makes, from embeddings that are computed here."""
    encoder = encoder or tiny_encoder()
    rows = [photos(label, PER_CLASS) for label in range(classes)]
    names = np.repeat([f"class {label}" for label in range(classes)], PER_CLASS)
    features = features_of(encoder, np.concatenate(rows), tta)
    classifier = CalaClassifier(method, metric=metric)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BaseQueryWarning)
        warnings.simplefilter("ignore", FallbackWarning)
        classifier.fit(features, names, holdout="all")
    card = EncoderCard(encoder.name, encoder.fingerprint, encoder.dim, tta)
    current = ModelVersion(classifier, PhotoIndex.empty(), card, 0.05, "feature")
    Store(folder).create(current.to_content(), JournalEntry("fit"))
    return Model(folder, encoder=encoder)


def features_of(encoder: Encoder, images: np.ndarray, tta: str) -> np.ndarray:
    inputs = encoder.inputs(list(images))
    found = encoder.encode(inputs)
    if tta == "flip":
        found = (found + encoder.encode(inputs[..., ::-1])) / 2
    return found


def logits_of(model: Model, images: np.ndarray) -> np.ndarray:
    """What cala says."""
    features = features_of(model.encoder, images, model.current.encoder.tta)
    return model.current.classifier.decision_function(features)


def prepared(model: Model, images: np.ndarray) -> np.ndarray:
    return model.encoder.transform.stack(list(images))


def many(count: int = 200, seed: int = 5) -> np.ndarray:
    """Images of known and of other classes."""
    parts = [photos(label, 1 + count // 20, seed) for label in range(20)]
    return np.concatenate(parts)[:count]
