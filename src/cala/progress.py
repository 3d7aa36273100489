"""Progress of long work, on the error stream: bars for people, plain lines for logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import TaskID
    from typing_extensions import Self

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


class Bars:
    """Progress on stderr: a bar for each thing on a terminal, lines elsewhere."""

    def __init__(self, quiet: bool = False) -> None:
        from importlib.util import find_spec

        from rich import progress as rich
        from rich.console import Console

        widgets = find_spec("ipywidgets") is not None  # what rich draws bars with in a notebook
        screen = Console(stderr=True, force_jupyter=None if widgets else False)
        self.quiet = quiet
        self.on_terminal = (screen.is_terminal or screen.is_jupyter) and not quiet
        self._bar = rich.Progress(
            rich.TextColumn("{task.description}"),
            rich.BarColumn(bar_width=24),
            rich.MofNCompleteColumn(),
            rich.TimeRemainingColumn(),
            console=screen,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._starting: TaskID | None = None
        self._lines = Lines(self.print)

    def __enter__(self) -> Self:
        if self.on_terminal:
            self._bar.start()  # and until there is something to count:
            self._starting = self._bar.add_task("starting", total=None)
        return self

    def __exit__(self, *error: object) -> None:
        if self.on_terminal:  # rich before 14.3 ends with an empty line even if it showed nothing
            self._bar.stop()

    def print(self, line: str) -> None:
        if not self.quiet:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def show(self, what: str, done: int, total: int) -> None:
        """Progress of one thing; a bar comes up once there is something to do."""
        if not self.on_terminal:
            self._lines(what, done, total)
        elif what in self._tasks or done < total:
            if self._starting is not None:
                self._bar.remove_task(self._starting)
                self._starting = None
            if what not in self._tasks:
                self._tasks[what] = self._bar.add_task(what, total=total)
            self._bar.update(self._tasks[what], completed=done, total=total)

    def describe(self, what: str, text: str) -> None:
        """Replace the text of a bar."""
        if what in self._tasks:
            self._bar.update(self._tasks[what], description=text)


@contextmanager
def progress(quiet: bool = False) -> Iterator[Show]:
    """Gives a function of (what, done, total); reading and decoding images are shown with it."""
    from cala.data.progress import progress_to

    bars = Bars(quiet)
    with bars, progress_to(lambda what, *count: bars.show(f"{what} images", *count)):
        yield bars.show


@contextmanager
def busy(text: str, quiet: bool = False) -> Iterator[None]:
    """Say what takes a while and cannot be counted, on a terminal, for as long as it takes."""
    from rich.console import Console

    screen = Console(stderr=True)
    with nullcontext() if quiet or not screen.is_terminal else screen.status(text):
        yield


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


def _duration(seconds: float) -> str:
    """
    >>> _duration(40), _duration(1000), _duration(20_000)
    ('40 s', '17 min', '5.6 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
