"""Work beyond one process: where `--on` points, and how tasks get there and back."""

from cala.cluster.address import ClusterAddress, parse_target

__all__ = ["ClusterAddress", "parse_target"]
