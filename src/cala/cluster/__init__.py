"""Work beyond one process: where `--on` points, and how tasks get there and back."""

from cala.cluster.where import Where, read_on

__all__ = ["Where", "read_on"]
