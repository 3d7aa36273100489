"""Warnings of a method's training as notes that name the method."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cala.benchmark.runner import Fit


def noting(fit: Fit, note: Callable[[str], None]) -> Fit:
    """A fit that hands what was trained smaller than asked for to `note`, and warns no more.

    Other warnings stay warnings.
    """
    from cala.errors import FallbackWarning

    def call(config: Any, method: str, seed: int, data: Any, protocol: Any) -> Any:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", FallbackWarning)
            head = fit(config, method, seed, data, protocol)
        for warning in caught:
            if issubclass(warning.category, FallbackWarning):
                note(f"note: {method}, in all draws: {warning.message}")
            else:
                warnings.warn_explicit(
                    warning.message, warning.category, warning.filename, warning.lineno
                )
        return head

    return call
