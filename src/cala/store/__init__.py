"""Durable models on disk: safetensors and JSON, versions, atomic changes, undo."""

from cala.store.store import Content, JournalEntry, Present, Store, is_store

__all__ = ["Content", "JournalEntry", "Present", "Store", "is_store"]
