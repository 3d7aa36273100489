"""What `--on` says: this process, or a Ray cluster."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cala.errors import InputError
from cala.files import shown

HERE, RAY = "here", "ray"
ADDRESS = re.compile(r"(ray://)?[\w.-]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}|auto|local")


@dataclass(frozen=True)
class Where:
    """address : of a cluster's head, as HOST:PORT; None for the one that this machine belongs to"""

    engine: str
    address: str | None = None


def read_on(text: str) -> Where | None:
    """The cluster that `--on` names; None for this process.

    >>> read_on("ray:10.0.0.1:6379"), read_on("here")
    (Where(engine='ray', address='10.0.0.1:6379'), None)
    """
    engine, colon, address = text.partition(":")
    if engine == HERE and not colon:
        return None
    if engine == RAY and not colon:
        return Where(RAY)
    if engine == RAY and ADDRESS.fullmatch(address):
        return Where(RAY, None if address == "auto" else address)
    if engine == RAY:
        raise InputError(
            f"--on {shown(text)}: {shown(address) or 'nothing'} is no address of a cluster: give "
            "HOST:PORT, as in ray:10.0.0.1:6379"
        )
    raise InputError(
        f"--on {shown(text)}: use here (this process), ray (the cluster of this machine, or one "
        "started for the occasion) or ray:HOST:PORT"
    )
