"""Durable models on disk: safetensors and JSON, versions, atomic changes, undo."""

from cala.store.content import Content, Entry
from cala.store.store import Store, is_store

__all__ = ["Content", "Entry", "Store", "is_store"]
