"""cala: teach a frozen vision model new classes from a handful of photos."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cala.version import __version__

if TYPE_CHECKING:
    from cala.estimator.classifier import CalaClassifier
    from cala.model import Model, fit, load

__all__ = ["CalaClassifier", "Model", "__version__", "fit", "load"]


def __getattr__(name: str) -> Any:
    # scikit-learn takes seconds to import, and commands need little of this: load on first use.
    if name == "CalaClassifier":
        from cala.estimator.classifier import CalaClassifier

        return CalaClassifier
    if name in ("Model", "fit", "load"):
        from cala import model

        return getattr(model, name)
    raise AttributeError(f"module 'cala' has no attribute {name!r}")
