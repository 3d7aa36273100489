"""The version, in a module of its own, so that every room can name it."""

__version__ = "0.2.0.dev0"
