"""Which methods a run can have: some need images, some an encoder that was trained for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cala.benchmark.courses import check_images
from cala.benchmark.problem import Problem
from cala.benchmark.sources import host_of, source_of
from cala.errors import InputError
from cala.heads import HEADS
from cala.heads.factory import takes_parts

ALL = "all"


def able(
    problem: Problem, methods: Sequence[str], metric: str | None = None
) -> tuple[list[str], list[str]]:
    """The methods that this problem has everything for, and a note for each other one.

    metric : of the whole run; None for each method's own
    """
    kept, notes = [], []
    for method in methods:
        why = _lacks(problem, method, metric)
        if why:
            notes.append(f"note: {method} is left out: {why}")
        else:
            kept.append(method)
    return kept, notes


def _lacks(problem: Problem, method: str, metric: str | None) -> str:
    """What is missing for a method; empty if nothing is."""
    host = host_of(method)
    source, head = source_of(method, problem.usual, problem.own), HEADS[host]
    traits = head.traits
    if metric is not None and metric not in traits.metrics:
        return f"it works in the {' or '.join(traits.metrics)} metric"
    try:
        if traits.changes_encoder:
            check_images(host, source)
        if takes_parts(method):
            made: Any = head(parts=source.data.parts)  # type: ignore[call-arg]
            if hasattr(made, "check_parts"):  # others take parts and need none
                made.check_parts(source.data.x_train.shape[1])
    except InputError as error:
        return str(error)
    return ""
