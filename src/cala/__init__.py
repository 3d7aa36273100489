"""cala: teach a frozen vision model new classes from a handful of photos.

Examples
--------
>>> import cala
>>> model = cala.fit("photos/", "birds")  # doctest: +SKIP
>>> model.add(["1.jpg", "2.jpg"], "kingfisher")  # doctest: +SKIP
>>> model.predict("garden/")  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cala.version import __version__

if TYPE_CHECKING:
    from cala import errors
    from cala.data.embeddings import load_embeddings
    from cala.encoders import load_encoder
    from cala.estimator.classifier import CalaClassifier
    from cala.heads import make_head
    from cala.model import Model, fit, load

__all__ = [
    "CalaClassifier",
    "Model",
    "__version__",
    "errors",
    "fit",
    "load",
    "load_embeddings",
    "load_encoder",
    "make_head",
]

_HOME = {
    "CalaClassifier": "cala.estimator.classifier",
    "Model": "cala.model",
    "fit": "cala.model",
    "load": "cala.model",
    "load_embeddings": "cala.data.embeddings",
    "load_encoder": "cala.encoders",
    "make_head": "cala.heads",
}


def __getattr__(name: str) -> Any:
    # scikit-learn takes seconds to import, and commands need little of this: load on first use.
    if name == "errors":
        return import_module("cala.errors")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'cala' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
