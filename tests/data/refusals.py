"""Errors by what a program reads of them, not by their sentences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cala.errors import InputError


@contextmanager
def refused(keyword: str = "", **attributes: str) -> Iterator[None]:
    """An `InputError` with these attributes, such as `code` and `field`."""
    with pytest.raises(InputError, match=keyword or None) as caught:
        yield
    for name, value in attributes.items():
        assert getattr(caught.value, name) == value, caught.value
