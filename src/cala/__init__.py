"""cala: teach a frozen vision model new classes from a handful of photos."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cala.estimator import CalaClassifier

__version__ = "0.1.0"
__all__ = ["CalaClassifier", "__version__"]


def __getattr__(name: str) -> Any:
    # torch takes seconds to import, so the estimator is loaded on first use.
    if name == "CalaClassifier":
        from cala.estimator import CalaClassifier

        return CalaClassifier
    raise AttributeError(f"module 'cala' has no attribute {name!r}")
