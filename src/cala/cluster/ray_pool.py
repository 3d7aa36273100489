"""A pool of Ray actors: each prepares itself once, then takes one piece of work after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable
from typing import Any, TypeVar

from cala.cluster.ray_engine import (
    RETRIES,
    RayCluster,
    Ref,
    finished,
    first_line,
    of_task,
    run_task,
    unhidden,
)
from cala.errors import InputError

W = TypeVar("W")


class Worker:
    """What lives on a node: made once, called for every piece of work."""

    def __init__(self, version: str, make: Callable[..., Callable[[Any], Any]], *arguments: Any):
        self._made_by = version, make, *arguments

    def ready(self) -> None:
        """What goes wrong here is told as an error of a task; in `__init__` it would be a death."""
        self._work = run_task(*self._made_by)

    def work(self, piece: Any) -> Any:
        return self._work(piece)


class Pool:
    """As many workers as there are devices.

    A worker that is lost gives its piece back, to be done by another; a new worker takes its place
    where and when there is room, and until then the others go on.
    """

    def __init__(
        self,
        cluster: RayCluster,
        make: Callable[..., Callable[[Any], Any]],
        *arguments: Any,
        count: int,
        cpus: int = 1,
        gpus: int = 0,
    ) -> None:
        self._ray = cluster.ray
        options = {"num_cpus": cpus, "num_gpus": gpus, "max_restarts": 0}
        actor = self._ray.remote(Worker).options(**options)
        self._start = lambda: actor.remote(cluster.version, make, *arguments)
        self._count = count

    def map(
        self, pieces: Iterable[tuple[Hashable, W]]
    ) -> Generator[tuple[Hashable, Any], None, None]:
        """Every piece's key once, with its result, as they finish; pieces are asked for in time."""
        left = iter(pieces)
        again: deque[tuple[Hashable, W]] = deque()
        tries: dict[Hashable, int] = {}
        busy: dict[Ref, tuple[Any, tuple[Hashable, W] | None]] = {}
        unprepared = 0  # workers in a row that were lost before they could begin
        try:
            for _ in range(self._count):
                self._hire(busy)
            while True:
                working = any(piece is not None for _, piece in busy.values())
                if not again and not working:
                    following = next(left, None)
                    if following is None:
                        return
                    again.append(following)
                for ref in finished(self._ray, list(busy)):
                    worker, piece = busy.pop(ref)
                    try:
                        value = self._value(ref)
                    except Lost as error:
                        self._hire(busy)
                        unprepared += piece is None
                        if unprepared > RETRIES * self._count:
                            raise InputError(
                                f"{unprepared} workers were lost while they prepared ({error}): "
                                "look at the nodes' memory and logs; the same command goes on"
                            ) from error
                        if piece is not None:
                            tries[piece[0]] = tries.get(piece[0], 0) + 1
                            again.append(piece)
                        if piece is not None and tries[piece[0]] > RETRIES:
                            raise InputError(
                                f"{piece[0]} lost its worker {tries[piece[0]]} times ({error}): "
                                "look at the nodes' memory and logs; the same command goes on"
                            ) from error
                        continue
                    unprepared = 0
                    following = again.popleft() if again else next(left, None)
                    if following is not None:
                        busy[worker.work.remote(following[1])] = worker, following
                    if piece is not None:
                        yield piece[0], value
        finally:
            if self._ray.is_initialized():  # else asking for it would start a cluster
                for worker, _ in busy.values():
                    self._ray.kill(worker)

    def _hire(self, busy: dict[Ref, tuple[Any, tuple[Hashable, W] | None]]) -> None:
        worker = self._start()
        busy[worker.ready.remote()] = worker, None  # no piece waits for a worker without a place

    def _value(self, ref: Ref) -> Any:
        errors = self._ray.exceptions
        try:
            with unhidden():
                return self._ray.get(ref)
        except errors.RayTaskError as error:
            raise of_task(error) from error
        except errors.RayActorError as error:
            if "creation task" in str(error):  # what it was to be made of cannot be read there
                raise of_task(error) from error
            raise Lost(first_line(error)) from error
        except errors.RayError as error:
            raise Lost(first_line(error)) from error


class Lost(Exception):
    """A worker is gone."""
