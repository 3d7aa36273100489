"""Whole systems with a base session of their own, one per file."""

from cala.methods import alice, bidist, cec, fact, icarl, limit, savc, topic  # noqa: F401
from cala.methods.registry import METHODS, Method

__all__ = ["METHODS", "Method"]
