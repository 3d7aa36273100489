"""Errors by what a program reads of them, not by their sentences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cala.errors import CalaError, CalaWarning, InputError


@contextmanager
def refused(
    *naming: object, kind: type[CalaError] = InputError, **attributes: object
) -> Iterator[pytest.ExceptionInfo[CalaError]]:
    """An error of this kind with these attributes, whose detail names these values.

    `code` or `field` must be among the attributes: a kind alone does not tell errors apart.
    """
    assert attributes.keys() & {"code", "field"}, "say which error: code=… or field=…"
    with pytest.raises(kind) as caught:
        yield caught
    assert_names(caught.value, *naming, **attributes)


def assert_names(error: object, *naming: object, **attributes: object) -> None:
    """The same of an error that was caught elsewhere, such as by a command."""
    assert isinstance(error, CalaError), error
    found = {name: getattr(error, name) for name in attributes}
    assert found == attributes, error
    for value in naming:
        assert str(value) in error.detail, error


@contextmanager
def warned(code: str, *naming: object) -> Iterator[None]:
    """A warning with this code, whose message names these values."""
    with pytest.warns(CalaWarning) as caught:
        yield
    found = {w.message.code: str(w.message) for w in caught if isinstance(w.message, CalaWarning)}
    assert code in found
    for value in naming:
        assert str(value) in found[code]
