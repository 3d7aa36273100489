"""Whole systems with a base session of their own, one per file."""

from cala.methods import (  # noqa: F401  (register themselves)
    alice,
    bidist,
    cec,
    fact,
    icarl,
    limit,
    nc_fscil,
    savc,
    topic,
)
from cala.methods.registry import METHODS, Method

__all__ = ["METHODS", "Method"]
