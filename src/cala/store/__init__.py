"""Durable models on disk: safetensors and JSON, versions, atomic changes, undo."""

from cala.store.content import Content, Entry, Present
from cala.store.store import Store, is_store

__all__ = ["Content", "Entry", "Present", "Store", "is_store"]
