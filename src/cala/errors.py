"""Errors and warnings that name the bad value and the fix."""

from __future__ import annotations


class CalaError(Exception):
    """Base of every error that cala raises on purpose."""


class InputError(CalaError, ValueError):
    """A value given by the user cannot be used; the message says which one and what to do."""


class UnknownNameError(InputError, LookupError):
    """A name that no registry knows."""


class StateError(CalaError, RuntimeError):
    """A call that comes too early, such as `add` before `fit_base`."""


def install(extra: str) -> str:
    """How to get the libraries of an extra; from the sources, since an index may know others.

    >>> install("ray")
    "pip install -c constraints.txt '.[ray]', in cala's folder"
    """
    return f"pip install -c constraints.txt '.[{extra}]', in cala's folder"


class BaseQueryWarning(UserWarning):
    """Base queries may be images that trained the encoder, so base looks safer than it is."""


class DivergenceWarning(UserWarning):
    """An adapter was trained with a loss that has no minimum; its shifts mean nothing."""


class FallbackWarning(UserWarning):
    """Something smaller than what was asked for was trained; the message says what and why."""
