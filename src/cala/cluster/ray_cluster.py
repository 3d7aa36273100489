"""Ray: connect, run tasks, collect results as they finish.

A task is a function of this package with its arguments. It must return the same result whenever it
runs: Ray repeats a task whose worker or node is lost, and its result is handed out once.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from cala.cluster.address import ClusterAddress
from cala.errors import CalaError, InputError
from cala.extras import needs
from cala.files import first_line, reason, shown
from cala.version import __version__

RETRIES = 10  # how often a task is repeated after its worker or node was lost
ANSWER = 5.0  # seconds within which a cluster's head must answer
_GRACE = 20.0  # seconds that cancelled tasks get to save their state
_LOCAL = "local"
CHECK_LOGS = "check the nodes' memory and logs, then rerun the same command to resume"

Ref = Any
"""Stands for a value in the cluster; tasks take it in the value's place."""
W = TypeVar("W")


class RayCluster:
    """A cluster that this process is connected to."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        self._task = ray.remote(_task_entry())
        self._waiting: dict[Ref, Hashable] = {}
        self._saving: set[Ref] = (
            set()
        )  # of those, tasks to cancel once their results are not needed

    @property
    def cpus(self) -> int:
        """Processors of all nodes."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    @property
    def widest(self) -> int:
        """Processors of the largest node."""
        nodes = (node["Resources"] for node in self.ray.nodes() if node["Alive"])
        return max(1, 1, *(int(resources.get("CPU", 1)) for resources in nodes))

    @property
    def gpus(self) -> int:
        return int(self.ray.cluster_resources().get("GPU", 0))

    def put(self, value: Any) -> Ref:
        """Store a value in the cluster once; tasks read its NumPy arrays without a copy."""
        return self.ray.put(value)

    def submit(
        self,
        key: Hashable,
        task: Callable[..., Any],
        *arguments: Any,
        cpus: int = 1,
        gpus: int = 0,
        saves: bool = False,
    ) -> Ref:
        """Run `task(*arguments)` on some node; `results` yields (key, what it returned).

        Returns a reference to its result; tasks that take it start when it is ready.

        saves : it saves its state when it is cancelled, and is given the time to
        """
        chosen = self._task.options(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES)
        ref = chosen.remote(__version__, task, *arguments)
        self._waiting[ref] = key
        if saves:
            self._saving.add(ref)
        return ref

    def results(self) -> Generator[tuple[Hashable, Any], None, None]:
        """Yield every submitted task once, as they finish; more may be submitted meanwhile."""
        try:
            while self._waiting:
                with _handler_errors():
                    ready = self.ray.wait(list(self._waiting), timeout=1.0)[0]
                for ref in ready:
                    key = self._waiting.pop(ref)
                    self._saving.discard(ref)
                    with self._errors(key):
                        value = self.ray.get(ref)
                    yield key, value
        finally:
            saving = list(self._saving)
            self._waiting, self._saving = {}, set()
            if saving and self.ray.is_initialized():  # else `cancel` would start a cluster
                for ref in saving:
                    self.ray.cancel(ref)
                self.ray.wait(saving, num_returns=len(saving), timeout=_GRACE)

    def map(
        self,
        pieces: Iterable[tuple[Hashable, W]],
        make: Callable[..., Callable[[W], Any]],
        *arguments: Any,
        count: int,
        cpus: int = 1,
        gpus: int = 0,
    ) -> Generator[tuple[Hashable, Any], None, None]:
        """Yield every piece's key once with its result, as they finish.

        Each of `count` workers calls `make(*arguments)` once and applies the result to one piece
        after another. Ray restarts a lost worker and gives it its piece again. Pieces are taken
        from the iterable only when a worker is free.
        """
        from ray.util import ActorPool

        actor = self.ray.remote(_worker_class()).options(
            num_cpus=cpus, num_gpus=gpus, max_restarts=-1, max_task_retries=RETRIES
        )
        workers = [actor.remote() for _ in range(count)]
        made = self.ray.put((__version__, make, arguments))
        pool: Any = ActorPool(workers)
        left = iter(pieces)

        def take() -> bool:
            piece = next(left, None)
            if piece is not None:
                pool.submit(lambda worker, value: worker.work.remote(made, value), piece)
            return piece is not None

        try:
            while pool.has_free() and take():
                pass
            while pool.has_next():
                try:
                    with self._errors("encoding"):
                        found = pool.get_next_unordered(timeout=1.0)
                except TimeoutError:
                    continue
                if not take():
                    self.ray.kill(pool.pop_idle())  # its place may be what another one waits for
                yield found
        finally:
            if self.ray.is_initialized():
                for worker in workers:
                    self.ray.kill(worker)

    @contextmanager
    def _errors(self, key: Hashable) -> Iterator[None]:
        """Raise a task's error as if the task had run here."""
        errors = self.ray.exceptions
        try:
            with _handler_errors():
                yield
        except errors.RayTaskError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, CalaError):
                raise cause from error
            missing = getattr(cause, "client_exc", cause)  # arguments that cannot be loaded
            if isinstance(missing, ImportError):
                raise InputError(
                    f"a node of the cluster cannot load cala ({shown(str(missing))})",
                    "install the same versions of cala and its extras on all nodes",
                    code="node_cannot_load",
                ) from error
            raise RuntimeError(str(error)) from error
        except errors.RayError as error:
            name = " ".join(map(str, key)).strip() if isinstance(key, tuple) else str(key)
            raise InputError(
                f"{name} was not finished after up to {RETRIES + 1} tries ({first_line(error)})",
                CHECK_LOGS,
                code="worker_lost",
            ) from error


@contextmanager
def _handler_errors() -> Iterator[None]:
    """Raise what a signal handler raised inside Ray, which wraps it into an error of its own."""
    try:
        yield
    except SystemError as error:
        raise (error.__cause__ or error.__context__ or error) from None


def run_task(wanted: str, task: Callable[..., Any], *arguments: Any) -> Any:
    """On a node: check the version, then run."""
    if wanted != __version__:
        raise InputError(
            f"node {socket.gethostname()} of the cluster has cala {__version__}, this is {wanted}",
            "install the same version on all nodes",
            code="node_version",
        )
    return task(*arguments)


def _task_entry() -> Callable[..., Any]:
    """What Ray calls on a node. It is pickled by value: the node may lack cala, and say so."""

    def entry(wanted: str, task: Callable[..., Any], *arguments: Any) -> Any:
        from cala.cluster.ray_cluster import run_task

        return run_task(wanted, task, *arguments)

    return entry


def _worker_class() -> type:
    """A worker's class, pickled by value too. It prepares in `work`: an error raised in an actor's
    constructor would kill it and lose its type."""

    class Worker:
        def work(self, made: Any, piece: tuple[Hashable, Any]) -> tuple[Hashable, Any]:
            from cala.cluster.ray_cluster import run_task

            if not hasattr(self, "_apply"):
                version, make, arguments = made
                self._apply = run_task(version, make, *arguments)
            key, content = piece
            return key, self._apply(content)

    return Worker


@contextmanager
def connected(target: ClusterAddress) -> Iterator[RayCluster]:
    """A cluster for as long as the block lasts; one that was started for it ends with it."""
    # No usage statistics unless the user turns them on.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # A cluster started for this command works at its priority; Ray's own is the lowest but four.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # Where one task fails the others are given up, and their errors say nothing more.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    # What does not answer as Ray's head does is given up after seconds, not after minutes.
    os.environ.setdefault("RAY_gcs_rpc_server_connect_timeout_s", "1")
    os.environ.setdefault("RAY_py_gcs_connect_timeout_s", f"{ANSWER:.0f}")
    with needs("ray", "on", "--on ray"):
        import ray
    if ray.is_initialized():
        yield RayCluster(ray)
        return
    if target.address not in (None, _LOCAL):
        _check_answers(str(target.address))
    try:
        ray.init(
            target.address,
            include_dashboard=False if target.address in (None, _LOCAL) else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise InputError(
            f"cannot join the Ray cluster {target.address or 'of this machine'} "
            f"({first_line(error)})",
            "use the same versions of Ray and Python on all nodes, and make this machine one of "
            "them (`ray start --address=HOST:PORT`)",
            field="on",
        ) from error
    try:
        with _sigterm_as_ctrl_c():
            yield RayCluster(ray)
    finally:
        ray.shutdown()  # ends what is still running for us


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
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
    """Raise within seconds if no cluster answers; `ray.init` itself tries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    client = address.startswith("ray://")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), ANSWER):
            pass
    except (OSError, UnicodeError) as error:
        option = "--ray-client-server-port" if client else "--port"
        raise InputError(
            f"no Ray cluster answers at {shown(address)} ({reason(error)})",
            f"start one there with `ray start --head {option}={port}`, or omit the address "
            "(--on ray)",
            field="on",
            code="no_cluster",
        ) from error
    if client:
        return
    import ray
    from ray.exceptions import RayError

    try:
        raylet: Any = ray._raylet
        raylet.GcsClient(address=address)  # as `ray health-check` does
    except (RayError, RuntimeError) as error:
        raise InputError(
            f"what answers at {shown(address)} is not a Ray cluster",
            "give the address that `ray start --head` printed there",
            field="on",
            code="not_a_cluster",
        ) from error
