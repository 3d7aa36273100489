"""A fitted classifier as JSON values and arrays, and back."""

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
    """Everything that a fitted classifier knows: {"config", "meta" (JSON values), "tensors"}.

    "tensors" are arrays by name.
    """
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
            **{f"head.{name}": array for name, array in head["tensors"].items()},
            **{f"rejection.{name}": a for name, a in model.rejection_.arrays().items()},
        },
    }


def restore_classifier(state: State) -> GrowingClassifier:
    """The classifier that `classifier_state` came from."""
    meta: dict[str, Any] = state["meta"]
    config = {k: v for k, v in state["config"].items() if k != "device"}  # of version 0.1
    if isinstance(config["shots"], list):
        config["shots"] = tuple(config["shots"])
    model = GrowingClassifier(**config)
    parts: dict[str, dict[str, Any]] = {"head": {}, "rejection": {}}
    for name, array in state["tensors"].items():
        part, _, rest = name.partition(".")
        parts[part][rest] = array
    model._head = restore_head({**meta["head"], "tensors": parts["head"]})
    model._rejection = Rejection(**parts["rejection"])
    model.classes_ = np.array(meta["classes"], dtype=meta["labels"])
    if len(model.classes_) != len(model._head.classes):
        raise InputError("the classifier's names and columns differ in number")
    model._next_id, model.n_features_in_ = meta["next_id"], meta["features"]
    return model
