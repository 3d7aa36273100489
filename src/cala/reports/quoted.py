"""Numbers printed in the paper, always shown as quoted; its slips are found by computing."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from cala.metrics import average

MARK = "quoted"


@cache
def quoted() -> dict[str, Any]:
    """The paper's tables by what they hold: sessions, fpr, gamma, plug."""
    text = resources.files("cala.reports").joinpath("quoted.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def average_slip(row: dict[str, Any]) -> float | None:
    """The mean of a row's own sessions where the printed average is not that; else None.

    >>> rows = {row["method"]: row for row in quoted()["sessions"]["rows"]}
    >>> average_slip(rows["LA-fscil"]), average_slip(rows["CALA"])
    (67.67, None)
    """
    mean = average(row["sessions"])
    return round(mean, 2) if abs(mean - row["avg"]) > 0.00501 else None


def impossible_rates(row: dict[str, Any], per_session: int) -> list[int]:
    """Sessions whose printed rate is no k/(images), so not that of one run.

    >>> rows = {row["method"]: row for row in quoted()["fpr"]["rows"]}
    >>> impossible_rates(rows["CALA"], 500), impossible_rates(rows["LA-fscil"], 500)
    ([], [2, 3, 4, 5, 6, 7, 8])
    """
    wrong = []
    for session, percent in enumerate(row["sessions"], 1):
        images = per_session * session
        nearest = 100 * round(percent / 100 * images) / images
        if abs(nearest - percent) > 0.00501:
            wrong.append(session)
    return wrong


def is_quoted_set(part: str, dataset: str) -> bool:
    """Whether the paper's table is about this data set."""
    plain = dataset.lower().replace("-", "_").split(":")[0]
    return bool(quoted()[part]["dataset"] == plain)
