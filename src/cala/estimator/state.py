"""A fitted classifier as JSON values and tensors, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from cala.core.rejection import Rejection
from cala.errors import InputError
from cala.estimator.arguments import seed_of
from cala.estimator.growing import GrowingClassifier
from cala.heads.base import State
from cala.heads.factory import restore_head


def classifier_state(model: GrowingClassifier) -> State:
    """Everything that a fitted classifier knows: {"config", "meta" (JSON values), "tensors"}."""
    head = model._fitted_head().state()
    params = {name: getattr(model, name) for name in model.options()}
    params["random_state"] = seed_of(params["random_state"])
    if isinstance(params["shots"], tuple):
        params["shots"] = list(params["shots"])
    return {
        "config": params,
        "meta": {
            "labels": "str" if model.classes_.dtype.kind == "U" else model.classes_.dtype.str,
            "classes": model.classes_.tolist(),
            "next_id": model._next_id,
            "features": model.n_features_in_,
            "head": {k: head[k] for k in ("name", "config", "meta")},
        },
        "tensors": {
            **{f"head.{name}": tensor for name, tensor in head["tensors"].items()},
            **{f"rejection.{name}": t for name, t in model.rejection_.tensors().items()},
        },
    }


def restore_classifier(state: State) -> GrowingClassifier:
    """The classifier that `classifier_state` came from."""
    meta: dict[str, Any] = state["meta"]
    config = dict(state["config"])
    if isinstance(config["shots"], list):
        config["shots"] = tuple(config["shots"])
    model = GrowingClassifier(**config)
    parts: dict[str, dict[str, Any]] = {"head": {}, "rejection": {}}
    for name, tensor in state["tensors"].items():
        part, _, rest = name.partition(".")
        parts[part][rest] = tensor
    model._head = restore_head({**meta["head"], "tensors": parts["head"]})
    model._rejection = Rejection.from_tensors(parts["rejection"])
    model.classes_ = np.array(meta["classes"], dtype=meta["labels"])
    if len(model.classes_) != len(model._head.classes):
        raise InputError("the classifier's names and columns differ in number")
    model._next_id, model.n_features_in_ = meta["next_id"], meta["features"]
    return model
