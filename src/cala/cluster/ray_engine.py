"""Ray: connect, hand out tasks, take results as they come.

A task is a function of this package and its arguments. It must give the same result whenever it
is run: one whose worker or node is lost is run again, and its result is handed out once.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from cala.cluster.where import Where
from cala.errors import CalaError, InputError, install
from cala.files import reason, shown
from cala.version import __version__

AHEAD = 2  # tasks in the cluster for each of its processors
RETRIES = 10  # times that a task is run again after its worker or node was lost
ANSWER = 5.0  # seconds in which a cluster's head must answer
GRACE = 20.0  # seconds for tasks that are no longer wanted to end in good order
LOCAL = "local"
SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # length, kind, flags and stream of a frame

Ref = Any
"""What stands for a value that lies in the cluster; tasks take it in the value's place."""


class RayCluster:
    """A cluster that this process is connected to."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        self._task = ray.remote(run_task)
        self._later: deque[tuple[Hashable, Callable[[], Ref], bool]] = deque()
        self._waiting: dict[Ref, Hashable] = {}
        self._told: set[Ref] = set()  # of those, the ones to be told when they are not wanted

    @property
    def version(self) -> str:
        """Of cala, which must be the same on all nodes."""
        return __version__

    @property
    def cpus(self) -> int:
        """Processors of all nodes."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    @property
    def widest(self) -> int:
        """Processors of the node that has most."""
        nodes = (node["Resources"] for node in self.ray.nodes() if node["Alive"])
        return max(1, *(int(resources.get("CPU", 1)) for resources in nodes), 1)

    @property
    def gpus(self) -> int:
        return int(self.ray.cluster_resources().get("GPU", 0))

    def put(self, value: Any) -> Ref:
        """Lay a value into the cluster once; NumPy arrays are read there without a copy."""
        return self.ray.put(value)

    def submit(
        self,
        key: Hashable,
        task: Callable[..., Any],
        *arguments: Any,
        cpus: int = 1,
        gpus: int = 0,
        saves: bool = False,
    ) -> None:
        """Have `task(*arguments)` run somewhere; `results` hands out (key, what it returned).

        saves : it keeps what it has done when it is interrupted, and is given the time
        """
        chosen = self._task.options(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES)
        self._later.append((key, lambda: chosen.remote(__version__, task, *arguments), saves))

    def results(self) -> Generator[tuple[Hashable, Any], None, None]:
        """Every submitted task once, as they finish; more may be submitted meanwhile."""
        try:
            while self._later or self._waiting:
                self._hand_out()
                for ref in finished(self.ray, list(self._waiting)):
                    key = self._waiting.pop(ref)
                    self._told.discard(ref)
                    yield key, self._value(key, ref)
        finally:  # nobody waits for the rest any more
            told = list(self._told)
            self._later.clear()
            self._waiting, self._told = {}, set()
            if told and self.ray.is_initialized():  # else asking for it would start a cluster
                for ref in told:
                    self.ray.cancel(ref)
                self.ray.wait(told, num_returns=len(told), timeout=GRACE)

    def _hand_out(self) -> None:
        """Keep the cluster busy and no more: what lies here need not be cancelled there.

        Ray ends the process if a task is cancelled in the moment in which it finishes, which of
        many short ones some always do.
        """
        most = AHEAD * self.cpus
        while self._later and len(self._waiting) < most:
            key, start, saves = self._later.popleft()
            ref = start()
            self._waiting[ref] = key
            if saves:
                self._told.add(ref)

    def _value(self, key: Hashable, ref: Ref) -> Any:
        errors = self.ray.exceptions
        try:
            with unhidden():
                return self.ray.get(ref)
        except errors.RayTaskError as error:
            raise of_task(error) from error
        except errors.RayError as error:
            raise InputError(
                f"{_said(key)} was not finished in {RETRIES + 1} tries or fewer "
                f"({first_line(error)}): look at the nodes' memory and logs; the same command "
                "goes on with what is left"
            ) from error


def finished(ray: Any, refs: list[Ref]) -> list[Ref]:
    """One of them that is done, if any is within a second."""
    with unhidden():
        ready: list[Ref] = ray.wait(refs, num_returns=1, timeout=1.0)[0]
        return ready


@contextmanager
def unhidden() -> Iterator[None]:
    """What the handler of a signal raised inside Ray, which wraps it into an error of its own."""
    try:
        yield
    except SystemError as error:
        raise (error.__cause__ or error.__context__ or error) from None


def run_task(wanted: str, task: Callable[..., Any], *arguments: Any) -> Any:
    """What runs on a node."""
    if wanted != __version__:
        raise InputError(
            f"node {socket.gethostname()} of the cluster has cala {__version__}, and this is "
            f"{wanted}: install the same version on all nodes"
        )
    return task(*arguments)


@contextmanager
def connected(where: Where) -> Iterator[RayCluster]:
    """A cluster for as long as the block lasts; one that was started for it ends with it."""
    # Nothing is to be sent to anyone who was not asked.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # A cluster started for this command works at its priority; Ray's own is the lowest but four.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # Where one task fails the others are given up, and their errors say nothing more.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    try:
        import ray
    except ImportError as error:
        raise InputError(
            f"--on ray needs Ray, which is not installed ({reason(error)}): {install('ray')}, on "
            "all nodes"
        ) from error
    if ray.is_initialized():
        yield RayCluster(ray)
        return
    if where.address not in (None, LOCAL):
        _check_answers(str(where.address))
    try:
        ray.init(
            where.address,
            include_dashboard=False if where.address in (None, LOCAL) else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise InputError(
            f"the Ray cluster {where.address or 'of this machine'} cannot be joined "
            f"({first_line(error)}): the same versions of Ray and Python must be on all nodes, "
            "and this machine must be one of them (`ray start --address=HOST:PORT`)"
        ) from error
    try:
        with _ending_in_good_order():
            yield RayCluster(ray)
    finally:
        ray.shutdown()  # ends what is still running for us


@contextmanager
def _ending_in_good_order() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does; Ray's own handlers, set on connecting, end in a stack dump."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ctrl_c = signal.getsignal(signal.SIGINT)
    handler = ctrl_c if callable(ctrl_c) else signal.default_int_handler
    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _check_answers(address: str) -> None:
    """Say at once that nobody is there, or somebody else; Ray itself tries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if int(port) > 65535:
        raise InputError(f"--on ray:{shown(address)}: ports end at 65535")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), ANSWER) as line:
            # Ray speaks HTTP/2, whose servers begin with a frame of settings.
            line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS)
            kind = line.recv(len(SETTINGS), socket.MSG_WAITALL)[3:4]
    except (OSError, UnicodeError) as error:
        start = f"`ray start --head --port={port}`"
        if address.startswith("ray://"):
            start = f"`ray start --head --ray-client-server-port={port}`"
        raise InputError(
            f"no Ray cluster answers at {shown(address)} ({reason(error)}): start one there with "
            f"{start}, or leave the address out (--on ray)"
        ) from error
    if kind != SETTINGS[3:4] and os.environ.get("RAY_USE_TLS", "0") == "0":
        raise InputError(
            f"what answers at {shown(address)} is no Ray cluster: give the address that "
            "`ray start --head` printed there"
        )


def of_task(error: Any) -> Exception:
    """What a task raised, as if it had run here."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, CalaError):
        return cause
    text = str(error)
    if "No module named" in text:
        missing = text[text.rindex("No module named") :].splitlines()[0]
        return InputError(
            f"a node of the cluster cannot load cala ({shown(missing)}): install the same "
            "versions of cala and its extras on all nodes"
        )
    return RuntimeError(text)


def first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return shown(lines[0])[:200] if lines else type(error).__name__


def _said(key: Hashable) -> str:
    return " ".join(map(str, key)).strip() if isinstance(key, tuple) else str(key)
