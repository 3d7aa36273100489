"""A real Ray cluster on this machine: a head without processors, and two nodes with one each."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
from pathlib import Path

from conftest import missing

STORE = 80 * 1024 * 1024  # bytes of shared memory per node; Ray wants at least 75 MB


class TwoNodes:
    def __init__(self) -> None:
        if importlib.util.find_spec("ray") is None:
            missing("ray", "ray is not installed")
        # Nothing is sent to anyone, and nothing is asked of the user's home.
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        os.environ["RAY_AUTH_MODE"] = "disabled"
        os.environ["RAY_IGNORE_UNHANDLED_ERRORS"] = "1"
        os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  (usually 15)
        # A lost node is given up after seconds, not after a minute.
        for server in ("raylet", "core_worker"):
            os.environ[f"RAY_{server}_rpc_server_reconnect_timeout_base_s"] = "1"
            os.environ[f"RAY_{server}_rpc_server_reconnect_timeout_max_s"] = "5"
        os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
        import ray
        from ray.cluster_utils import Cluster

        self.ray = ray
        self.cluster = Cluster()
        self.cluster.add_node(
            wait=False, num_cpus=0, object_store_memory=STORE, include_dashboard=False
        )
        self.nodes: list = []
        self.mend()
        ray.init(address=self.cluster.address, log_to_driver=False, logging_level="ERROR")

    def mend(self) -> None:
        """Two nodes again, after one was killed."""
        while len(self.nodes) < 2:
            node = self.cluster.add_node(wait=False, num_cpus=1, object_store_memory=STORE)
            self.nodes.append(node)
        self.cluster.wait_for_nodes(timeout=120)

    @property
    def last(self) -> str:
        """The node that is killed next."""
        return self.nodes[-1].node_id

    def kill_one(self) -> None:
        """kill -9 of a node and of its workers, which might else finish what they have begun."""
        node = self.nodes.pop()
        raylet = node.all_processes["raylet"][0].process.pid
        tasks = Path(f"/proc/{raylet}/task").iterdir()
        workers = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
        self.cluster.remove_node(node, allow_graceful=False)
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        self.ray.shutdown()
        with contextlib.suppress(AssertionError):
            self.cluster.shutdown()
