"""`--on`: this process, or a Ray cluster."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cala.errors import InputError
from cala.files import shown

ADDRESS = re.compile(r"(ray://)?[\w.-]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}|auto|local")


@dataclass(frozen=True)
class ClusterAddress:
    """A Ray cluster.

    Parameters
    ----------
    address : str, optional
        HOST:PORT of its head, or "local" to start one; None for the cluster of this machine.
    """

    address: str | None = None


def parse_target(text: str) -> ClusterAddress | None:
    """The cluster that `--on` names; None for this process.

    >>> parse_target("ray:10.0.0.1:6379"), parse_target("here")
    (ClusterAddress(address='10.0.0.1:6379'), None)
    """
    if text == "here":
        return None
    if text == "ray":
        return ClusterAddress()
    engine, _, address = text.partition(":")
    if engine == "ray" and ADDRESS.fullmatch(address):
        port = address.rpartition(":")[2]
        if port.isdecimal() and int(port) > 65535:
            fix = "use a port up to 65535"
            raise InputError(f"--on {shown(text)}", fix, field="on", code="bad_port")
        return ClusterAddress(None if address == "auto" else address)
    fix = (
        "give HOST:PORT, as in ray:10.0.0.1:6379"
        if engine == "ray"
        else "use here (this process), ray (this machine's cluster, or a new one) or ray:HOST:PORT"
    )
    raise InputError(f"--on {shown(text)}", fix, field="on")
