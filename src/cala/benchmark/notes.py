"""What a run reports while it works: notes, status and progress, as data."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from cala.errors import FallbackWarning

T = TypeVar("T")


@dataclass(frozen=True)
class RunNote:
    """Something that a user should know.

    Parameters
    ----------
    code : str
        `fallback`, `left_out`, `no_canonical`, `seen_classes` or `no_holdout`.
    text : str
        A sentence for people.
    method : str, optional
        The method that it is about; None for the whole run.
    """

    code: str
    text: str
    method: str | None = None


def _ignore(*_: object) -> None:
    pass


@dataclass(frozen=True)
class Watch:
    """Callbacks of a run.

    note : called with every note; status : with what is being done
    advance : with the number of finished cells, and of all cells
    """

    note: Callable[[RunNote], None] = _ignore
    status: Callable[[str], None] = _ignore
    advance: Callable[[int, int], None] = _ignore


SILENT = Watch()


def report_fallbacks(fit: Callable[[], T], method: str, note: Callable[[RunNote], None]) -> T:
    """Call `fit`; its FallbackWarnings become notes, other warnings stay warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FallbackWarning)
        found = fit()
    for one in caught:
        if issubclass(one.category, FallbackWarning):
            note(RunNote("fallback", f"{method}, in all draws: {one.message}", method))
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    return found
