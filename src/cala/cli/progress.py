"""Progress of long work, on the error stream: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import TaskID

#: Called with what is done, how many are done, and of how many.
Show = Callable[[str, int, int], None]

SHORT = 1.0  # seconds; work that takes no longer needs no line
SILENCE = 30.0  # seconds after which a line is due
STEP = 10  # percent


class Lines:
    """Progress as lines for a log: soon after the start, then every tenth or half minute.

    >>> times = iter([0, 2, 3, 20])
    >>> lines = Lines(print, clock=lambda: next(times))
    >>> for done in (0, 10, 11, 100):
    ...     lines("encoding images", done, 100)
    encoding images: 10 of 100 (10 %), about 18 s left
    encoding images: 100 of 100
    """

    def __init__(
        self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write, self._clock = write, clock
        self._started: dict[str, tuple[float, int]] = {}
        self._said: dict[str, tuple[float, int]] = {}
        self._last: dict[str, int] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        now = self._clock()
        if done < self._last.get(what, 0):  # the same kind of work, begun anew
            del self._started[what]
            self._said.pop(what, None)
        self._last[what] = done
        began, first = self._started.setdefault(what, (now, done))
        if now - began < SHORT or total < 1:
            return
        percent = 100 * done // total
        said, before = self._said.get(what, (-SILENCE, -STEP))
        if now - said < SILENCE and percent // STEP == before // STEP:
            return
        self._said[what] = now, percent
        left = ""
        if first < done < total:
            seconds = (now - began) * (total - done) / (done - first)
            left = f" ({percent} %), about {_duration(seconds)} left"
        self._write(f"{what}: {done:,} of {total:,}{left}")


@contextmanager
def progress(quiet: bool = False) -> Iterator[Show]:
    """Gives a function of (what, done, total); reading and decoding images are shown with it."""
    import typer

    from cala.data.progress import progress_to

    if quiet:
        yield _nothing
    elif not _on_terminal():
        lines = Lines(lambda line: typer.echo(line, err=True))
        with progress_to(lambda what, done, total: lines(f"{what} images", done, total)):
            yield lines
    else:
        with (
            _bars() as show,
            progress_to(lambda what, done, total: show(f"{what} images", done, total)),
        ):
            yield show


@contextmanager
def counting(text: str, total: int, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """A bar that counts; gives a function of how many more are done."""
    done = 0
    with progress_bar(text, quiet) as advance:

        def count(more: int) -> None:
            nonlocal done
            done += more
            advance(done, total)

        yield count


@contextmanager
def progress_bar(text: str, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """`progress` of one thing; gives a function of (done, total)."""
    with progress(quiet) as show:
        yield lambda done, total: show(text, done, total)


@contextmanager
def _bars() -> Iterator[Show]:
    """A bar with the time that is left for each thing, from when there is something to do."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn())
    screen = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=screen, transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks and done < total:
                tasks[what] = bar.add_task(what, total=total)
            if what in tasks:
                bar.update(tasks[what], completed=done, total=total)

        yield show


def _on_terminal() -> bool:
    from rich.console import Console

    return Console(stderr=True).is_terminal


def _nothing(what: str, done: int, total: int) -> None:
    pass


def _duration(seconds: float) -> str:
    """
    >>> _duration(40), _duration(1000), _duration(20_000)
    ('40 s', '17 min', '5.6 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
