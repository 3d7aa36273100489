"""A fitted classifier as JSON values and arrays, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import numpy as np

from cala.core.rejection import Rejection
from cala.core.rows import Array
from cala.errors import InputError
from cala.estimator.arguments import seed_of
from cala.estimator.growing import GrowingClassifier
from cala.heads.factory import restore_head
from cala.heads.table import part_of


class ClassifierState(TypedDict):
    """Everything that a fitted classifier knows; `config` and `meta` hold JSON values."""

    config: dict[str, Any]
    meta: dict[str, Any]
    tensors: dict[str, Array]


def classifier_state(model: GrowingClassifier) -> ClassifierState:
    """A fitted classifier as JSON values and arrays."""
    head = model._fitted_head().state()
    params = {name: getattr(model, name) for name in model.options()}
    params["random_state"] = seed_of(params["random_state"])
    return {
        "config": params,
        "meta": {
            "labels": "str" if model.classes_.dtype.kind == "U" else model.classes_.dtype.str,
            "classes": model.classes_.tolist(),
            "next_id": model._next_id,
            "features": model.n_features_in_,
            "head": {"name": head["name"], "config": head["config"], "meta": head["meta"]},
        },
        "tensors": {
            **{f"head.{name}": array for name, array in head["tensors"].items()},
            **{f"rejection.{name}": array for name, array in model.rejection_.arrays().items()},
        },
    }


def restore_classifier(state: Mapping[str, Any]) -> GrowingClassifier:
    """The classifier that a `ClassifierState` came from."""
    meta, tensors = state["meta"], state["tensors"]
    config = {k: v for k, v in state["config"].items() if k != "device"}  # of version 0.1
    if isinstance(config["shots"], list):
        config["shots"] = tuple(config["shots"])
    model = GrowingClassifier(**config)
    head: Any = {**meta["head"], "tensors": part_of(tensors, "head.")}
    model._head = restore_head(head)
    model._rejection = Rejection.restored(part_of(tensors, "rejection."))
    model.classes_ = np.array(meta["classes"], dtype=meta["labels"])
    if len(model.classes_) != len(model._head.classes):
        raise InputError("the classifier's names and columns differ in number")
    model._next_id, model.n_features_in_ = meta["next_id"], meta["features"]
    return model
