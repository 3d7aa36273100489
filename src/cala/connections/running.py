"""What commands share that run until they are stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cala.errors import CalaError
from cala.model import Model

Say = Callable[[str], object]


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, so that work ends between two photos."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Once:
    """Prints a message when it changes, so that what lasts is said once."""

    def __init__(self, say: Say) -> None:
        self.say, self.last = say, ""

    def __call__(self, text: str) -> None:
        """Print `text`, unless it was the last one; "" is for all is well again."""
        if text and text != self.last:
            self.say(text)
        self.last = text


class LatestModel:
    """A model that follows the changes that other processes make on disk."""

    def __init__(self, model: Model, say: Say) -> None:
        self.model, self._tell = model, Once(say)
        self._version: int | None = None

    def get(self) -> Model:
        """The present version; the last one that could be read, if that cannot be read."""
        try:
            version = self.model.version
            if version != self._version:
                self.model.reload()
                self._version = version
            self._tell("")
        except (CalaError, OSError) as error:
            self._tell(f"the model is used as it was: {error}")
        return self.model
