"""What `cala show` tells about a model: classes with their relatives, settings, history."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from cala.core.cala import normalise
from cala.model.knowledge import Knowledge
from cala.model.model import Model
from cala.model.prediction import largest


def overview(model: Model) -> dict[str, Any]:
    """JSON values."""
    knowledge = model.knowledge
    return {
        "model": str(model.path),
        "version": model.version,
        "classes": classes_of(knowledge),
        "encoder": asdict(knowledge.encoder),
        "settings": settings_of(knowledge),
        "history": [{**entry, "text": text} for entry, text in told(model.history())],
        "notes": list(knowledge.notes),
    }


def classes_of(knowledge: Knowledge) -> list[dict[str, Any]]:
    """Every class with its photos, what the adapter adds to it, and its closest relative."""
    classifier, head, names = knowledge.classifier, knowledge.classifier.head_, knowledge.names
    unit = normalise(head.prototypes)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    nearest = cosines.argmax(1)
    photos = knowledge.seen.counts()
    shift, beta = head.shift, classifier.beta_
    return [
        {
            "name": name,
            "kind": knowledge.kind_at(column),
            "photos": photos[head.classes[column]],
            "beta": float(beta[column]),
            "shift": float(shift[column]),
            "closest": {
                "name": names[nearest[column]],
                "cosine": float(cosines[column, nearest[column]]),
            },
        }
        for column, name in enumerate(names)
    ]


def relatives(knowledge: Knowledge, column: int, most: int = 3) -> list[tuple[int, float]]:
    """Columns of the classes whose prototypes are closest to that of one, with their cosines."""
    unit = normalise(knowledge.classifier.head_.prototypes)
    cosines = unit @ unit[column]
    cosines[column] = -np.inf
    columns = largest(cosines[None], min(most, len(cosines) - 1))[0]
    return list(zip(columns.tolist(), cosines[columns].tolist(), strict=True))


def settings_of(knowledge: Knowledge) -> dict[str, Any]:
    """How it was made, and where it stands between its known and its new classes."""
    classifier = knowledge.classifier
    return {
        "method": classifier.method,
        "metric": classifier.metric,
        "objective": classifier.objective,
        "max_base_loss": classifier.max_base_loss,
        "delta": classifier.delta_,
        "reject": knowledge.reject,
        "fakes": knowledge.fakes,
        "report": classifier.report_,
    }


def told(journal: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
    """Each change with a line about it; an undo says what it took back."""
    words = {entry["version"]: _words(entry) for entry in journal}
    return [
        (entry, f"undo: {words[entry['of']]}" if entry.get("of") in words else _words(entry))
        for entry in journal
    ]


def _words(entry: dict[str, Any]) -> str:
    """One line about a change.

    >>> _words({"action": "add", "classes": {"kingfisher": 5}})
    'add kingfisher (5 photos)'
    """
    action = entry["action"]
    if action in ("fit", "add"):
        counts = entry["classes"]
        if len(counts) == 1:
            name, count = next(iter(counts.items()))
            return f"{action} {name} ({count} {'photo' if count == 1 else 'photos'})"
        return f"{action} {len(counts)} classes ({sum(counts.values()):,} photos)"
    if action == "forget":
        return f"forget {entry['class']}"
    if action == "rename":
        return f"rename {entry['from']} to {entry['to']}"
    if action == "tune":
        known = ("objective", "max_base_loss", "delta", "reject")
        return "tune " + ", ".join(f"{n} {_short(entry[n])}" for n in known if n in entry)
    return f"{action}: back to version {entry['to']}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
