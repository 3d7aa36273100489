"""Teaching that is asked for twice with one key happens once, across restarts too.

The journal says of a change which request made it and what was answered. It is written with the
change in one step, so there is no moment at which one is there without the other.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from cala.app.problems import Problem
from cala.app.snapshot import Snapshot

MOST = 1000
LONGEST = 200


@dataclass(frozen=True)
class RequestKey:
    """A request with a key: digests of the key and of what it asks for."""

    key: str
    body: str

    @classmethod
    def of(cls, key: str | None, *what: Any) -> RequestKey | None:
        if key is None:
            return None
        if not 1 <= len(key) <= LONGEST or not key.isprintable():
            detail = f"the key has {len(key)} characters"
            fix = f"use 1 to {LONGEST} printable characters, such as a UUID"
            raise Problem("bad_value", detail, fix, field="Idempotency-Key")
        return cls(_digest(key), _digest(json.dumps(what)))

    def entry(self, answer: dict[str, Any]) -> dict[str, Any]:
        """For the journal."""
        return {"request": {"key": self.key, "body": self.body, "answer": answer}}


class KnownRequests:
    """Answers by key: those of this process, and those that the journal remembers.

    Requests that changed nothing are not in the journal; they change nothing again.
    """

    def __init__(self) -> None:
        self._answers: OrderedDict[str, tuple[str, dict[str, Any]]] = OrderedDict()

    def find(self, asked: RequestKey | None, snapshot: Snapshot) -> dict[str, Any] | None:
        """The answer to the same request; a problem where the key was used for another one."""
        if asked is None:
            return None
        found = self._answers.get(asked.key) or _journalled(asked.key, snapshot)
        if found is None:
            return None
        body, answer = found
        if body != asked.body:
            detail = "this key was used for another request"
            fix = "give every request a key of its own, and only its repeats the same one"
            raise Problem("key_reused", detail, fix, field="Idempotency-Key")
        return answer

    def keep(self, asked: RequestKey | None, answer: dict[str, Any]) -> None:
        if asked is not None:
            self._answers[asked.key] = (asked.body, answer)
            while len(self._answers) > MOST:
                self._answers.popitem(last=False)


def _journalled(key: str, snapshot: Snapshot) -> tuple[str, dict[str, Any]] | None:
    for entry in reversed(snapshot.journal):
        request = entry.get("request")
        if isinstance(request, dict) and request.get("key") == key:
            return request["body"], {**request["answer"], "version": entry["version"]}
    return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
