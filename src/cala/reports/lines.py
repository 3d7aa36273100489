"""Reading records.jsonl line by line: what cannot be used is left out, counted and named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cala.files import shown
from cala.image_groups import left_out
from cala.records import FIELDS, Record, parse_line
from cala.results import SESSION_COLUMNS

MOST_SESSIONS = 1000
#: Rates may pass 1 by what sums of floats do.
SLACK = 1e-6


@dataclass
class Wrong:
    """Values of one field that cannot be used: how many, and the first of them in words."""

    first: str
    count: int = 0


@dataclass
class Lines:
    """records : whose fields and accuracy are sound; other rates are None where they are not

    unread, total : lines that are no record, and those that are
    unknown : fields of newer versions
    wrong : by field
    """

    records: list[Record] = field(default_factory=list)
    unread: int = 0
    total: int = 0
    unknown: set[str] = field(default_factory=set)
    wrong: dict[str, Wrong] = field(default_factory=dict)

    def blame(self, name: str, value: object, record: Record) -> None:
        place = shown(f"{record.method}, {record.draw}, session {record.session}")
        first = f"{_clip(shown(json.dumps(value, ensure_ascii=False)))} in {_clip(place, 80)}"
        self.wrong.setdefault(name, Wrong(first)).count += 1

    def notes(self) -> list[str]:
        """One sentence for each kind of damage, however many lines have it."""
        found = []
        if self.unread:
            found.append(
                f"{self.unread} of the lines in records.jsonl cannot be read; passed over."
            )
        if self.unknown:
            names = ", ".join(sorted(map(shown, self.unknown)))
            found.append(f"Unknown fields are passed over: {names}.")
        for name, wrong in self.wrong.items():
            what = RULES[name][1] if name in RULES else OTHERS.get(name, "rate from 0 to 1")
            dropped = name in RULES or name == "accuracy"
            gone = "records" if dropped else "values"
            count = f"{wrong.count} of {self.total} records"
            first = wrong.first if wrong.count == 1 else f"first: {wrong.first}"
            found.append(f"{name} is no {what} in {count} ({first}); these {gone} are left out.")
        return found


def read_lines(text: str) -> Lines:
    """Every line that is a record; rates that are none are dropped, without accuracy the record."""
    found = Lines()
    for line in text.split("\n"):
        if not line.strip():
            continue
        record = _parse(line, found)
        if record is None:
            found.unread += 1
            continue
        found.total += 1
        sound = _with_sound_fields(record, found)
        sound = sound and _with_sound_rates(sound, found)
        if sound:
            found.records.append(sound)
    return found


def _parse(line: str, found: Lines) -> Record | None:
    try:
        record = parse_line(line)
        if record is not None:
            found.unknown |= set(json.loads(line)) - FIELDS
    except RecursionError:  # a line of brackets alone
        return None
    return record


def _with_sound_fields(record: Record, found: Lines) -> Record | None:
    """The record with names fit for one line and whole numbers as such; None if that fails."""
    values = {name: rule(getattr(record, name)) for name, (rule, _) in RULES.items()}
    for name, value in values.items():
        if value is None:
            found.blame(name, getattr(record, name), record)
            return None
    return replace(record, **values)  # type: ignore[arg-type]


def _with_sound_rates(record: Record, found: Lines) -> Record | None:
    metrics = dict(record.metrics)
    for name in SESSION_COLUMNS:
        value = metrics.get(name)
        if _is_rate(value) or (value is None and name != "accuracy"):
            continue
        found.blame(name, value, record)
        if name == "accuracy":
            return None
        metrics[name] = None
    groups = record.groups
    if groups is not None and left_out(groups) is None:
        found.blame("groups", groups, record)
        groups = None
    return replace(record, metrics=metrics, groups=groups)


def _is_rate(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and -SLACK <= value <= 1 + SLACK  # type: ignore[operator]


def _name(value: object) -> str | None:
    return shown(value) if isinstance(value, str) else None


def _whole_number(least: int | None, most: int | None = None) -> Callable[[object], int | None]:
    def rule(value: object) -> int | None:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            return None
        low = least is not None and value < least
        return None if low or (most is not None and value > most) else value

    return rule


#: Field -> how its value is read (None: not at all), and what it should be.
RULES: dict[str, tuple[Callable[[object], str | int | None], str]] = {
    "method": (_name, "name"),
    "draw": (_name, "name"),
    "seed": (_whole_number(None), "whole number"),
    "session": (_whole_number(0, MOST_SESSIONS), f"whole number from 0 to {MOST_SESSIONS}"),
    "n_classes": (_whole_number(1), "whole number from 1"),
}


OTHERS = {"groups": "counts of groups of test images"}


def _clip(words: str, most: int = 40) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"
