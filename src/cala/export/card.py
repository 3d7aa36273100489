"""What the file says about itself: classes, preprocessing, where it comes from."""

from __future__ import annotations

import json
import re
from typing import Any

from cala import __version__
from cala.encoders.base import Encoder
from cala.model import Model

FORMAT = 1
KEY = "cala"
ABOUT = (
    "Classifies photos and can learn new classes. `images`: RGB, resized and cropped as the "
    "metadata says. `logits` = `embedding` @ `weights`.T + `bias`. `new_weight` and `new_bias`: "
    "the batch read as photos of one new class; append them to `weights` and `bias`."
)


def card(model: Model, encoder: Encoder, opset: int) -> dict[str, Any]:
    """The metadata under the key `cala`, as JSON values."""
    current = model.current
    classifier = current.classifier
    return {
        "format": FORMAT,
        "cala": __version__,
        "model_version": model.version,
        "opset": opset,
        "classes": current.names,
        "n_known": current.n_known,
        "method": classifier.method,
        "encoder": {
            "uri": without_folders(current.encoder.uri),
            "fingerprint": current.encoder.fingerprint,
            "dim": encoder.dim,
        },
        "tta": current.encoder.tta,
        "preprocessing": {
            **encoder.transform.as_dict(),
            "outside": ["resize", "fit", "filter", "size"],
            "inside": ["mean", "std"],
        },
    }


def describe(proto: Any, facts: dict[str, Any]) -> None:
    """Write the metadata into an `onnx.ModelProto`."""
    proto.producer_name, proto.producer_version = "cala", facts["cala"]
    proto.model_version = facts["model_version"]
    proto.graph.name, proto.doc_string = "cala", ABOUT
    del proto.metadata_props[:]
    proto.metadata_props.add(key=KEY, value=json.dumps(facts, ensure_ascii=False))


def without_folders(uri: str) -> str:
    """A URI without the folders of this machine: the file may go anywhere.

    >>> without_folders("/home/ann/base/encoder.safetensors"), without_folders("timm:resnet18")
    ('encoder.safetensors', 'timm:resnet18')
    >>> without_folders("timm:local-dir:/data/vit")
    'timm:local-dir:vit'
    """
    return re.sub(r"(^|:)(?:/|~|[A-Za-z]:\\).*[/\\]([^/\\]+)[/\\]*$", r"\1\2", uri)
