"""What `cala show` tells about a model: classes and what they are close to, settings, history."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from cala.core.cala import normalise
from cala.model.model import Model
from cala.model.prediction import largest
from cala.model.version import ModelVersion


def overview(model: Model) -> dict[str, Any]:
    """JSON values."""
    current = model.current
    return {
        "model": str(model.path),
        "version": model.version,
        "classes": class_rows(current),
        "encoder": asdict(current.encoder),
        "settings": settings_of(current),
        "history": [{**entry, "text": text} for entry, text in described(model.history())],
        "notes": [note.text for note in current.notes],
    }


def class_rows(current: ModelVersion) -> list[dict[str, Any]]:
    """Every class with its photos, what the adapter adds to it, and the class it is closest to."""
    classifier, head, names = current.classifier, current.classifier.head_, current.names
    unit = normalise(head.prototypes)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    nearest = cosines.argmax(1).tolist()
    photos = current.photos.counts()
    shift, beta = head.shift, classifier.beta_
    return [
        {
            "name": name,
            "kind": current.kind_at(column),
            "photos": photos[head.classes[column]],
            "beta": float(beta[column]),
            "shift": float(shift[column]),
            "closest": {"name": names[near], "cosine": float(cosines[column, near])},
        }
        for column, (name, near) in enumerate(zip(names, nearest, strict=True))
    ]


def relatives(current: ModelVersion, column: int, most: int = 3) -> list[tuple[int, float]]:
    """Columns of the classes whose prototypes are closest to that of one, with their cosines."""
    unit = normalise(current.classifier.head_.prototypes)
    cosines = unit @ unit[column]
    cosines[column] = -np.inf
    columns = largest(cosines[None], min(most, len(cosines) - 1))[0]
    return list(zip(columns.tolist(), cosines[columns].tolist(), strict=True))


def settings_of(current: ModelVersion) -> dict[str, Any]:
    """How it was made, and where it stands between its known and its new classes."""
    classifier = current.classifier
    return {
        "method": classifier.method,
        "metric": classifier.metric,
        "objective": classifier.objective,
        "max_base_loss": classifier.max_base_loss,
        "delta": classifier.delta_,
        "reject": current.reject,
        "fakes": current.fakes,
        "report": classifier.report_,
    }


def described(journal: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
    """Each change with a line about it; undo and redo say what they took back or brought back.

    >>> steps = [("rename", {"from": "a", "to": "b"}), ("forget", {"class": "c"})]
    >>> lines = [{"version": v, "action": a, **d} for v, (a, d) in enumerate(steps, 2)]
    >>> undo = {"version": 4, "action": "undo", "of": 3, "also": [2], "to": 1}
    >>> described([*lines, undo])[-1][1]
    'undo: forget c; also rename a to b, since version 2 is damaged'
    """
    words = {entry["version"]: _words(entry) for entry in journal}

    def line(entry: dict[str, Any]) -> str:
        if entry.get("of") not in words:
            return words[entry["version"]]
        text = f"{entry['action']}: {words[entry['of']]}"
        for version in entry.get("also", ()):
            text += f"; also {words.get(version, 'a change')}, since version {version} is damaged"
        return text

    return [(entry, line(entry)) for entry in journal]


def _words(entry: dict[str, Any]) -> str:
    """One line about a change; a journal that was edited may hold anything."""
    try:
        return _told(entry)
    except (TypeError, ValueError):
        return str(entry["action"])


def _told(entry: dict[str, Any]) -> str:
    """What was changed.

    >>> _told({"action": "add", "classes": {"kingfisher": 5}})
    'add kingfisher (5 photos)'
    """
    action, counts = entry["action"], entry.get("classes")
    if action in ("fit", "add") and isinstance(counts, dict):
        if len(counts) == 1:
            name, count = next(iter(counts.items()))
            return f"{action} {name} ({count} {'photo' if count == 1 else 'photos'})"
        return f"{action} {len(counts)} classes ({sum(counts.values()):,} photos)"
    if action == "forget" and entry.get("photo"):
        return f"forget {entry['photo']} of {entry.get('class')}"
    if action == "forget":
        return f"forget {entry.get('class')}"
    if action == "annotate":
        return "annotation noted, nothing changed"
    if action == "reject":
        return f"reject {entry.get('photos')} photos"
    if action == "merge":
        return f"merge {entry.get('from')} into {entry.get('to')}"
    if action == "refit":
        return f"refit {entry.get('classes')} classes ({entry.get('photos'):,} photos)"
    if action == "rename":
        return f"rename {entry.get('from')} to {entry.get('to')}"
    if action == "tune":
        known = ("objective", "max_base_loss", "delta", "reject")
        return "tune " + ", ".join(f"{n} {_short(entry[n])}" for n in known if n in entry)
    return f"{action}: back to version {entry.get('to')}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
