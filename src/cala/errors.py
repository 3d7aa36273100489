"""Errors and warnings that name the bad value and the fix."""

from __future__ import annotations


class CalaError(Exception):
    """Base class of every error that cala raises on purpose.

    Its text is "detail: fix". Programs should read the attributes, not parse the text.

    Parameters
    ----------
    detail : str
        What is wrong, naming the bad value.
    fix : str, optional
        What to do about it.
    field : str, optional
        The argument, option or part of a request that holds the bad value.
    code : str, optional
        A stable name for this kind of error, for programs and tests; each class has a default.

    Examples
    --------
    >>> error = InputError("shot is 0", "use 1 or more", field="shot")
    >>> str(error), error.code, error.field, error.fix
    ('shot is 0: use 1 or more', 'bad_value', 'shot', 'use 1 or more')
    """

    code = "error"

    def __init__(
        self,
        detail: str,
        fix: str | None = None,
        *,
        field: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(detail if fix is None else f"{detail}: {fix}")
        self.detail, self.fix, self.field = detail, fix, field
        if code is not None:
            self.code = code


class InputError(CalaError, ValueError):
    """A value given by the user cannot be used."""

    code = "bad_value"


class UnknownNameError(InputError, LookupError):
    """A name that is not registered."""

    code = "unknown_name"


class StateError(CalaError, RuntimeError):
    """A call that comes too early, such as `add` before `fit_base`."""

    code = "not_possible_now"


class DamagedFile(InputError):
    """A file that cannot be used: cut short, changed, or not what it should be.

    Parameters
    ----------
    path : Path
        The file.
    why : str
        What is wrong with it.
    fix : str
        How to get a good one.
    """

    code = "damaged_file"

    def __init__(self, path: object, why: str, fix: str) -> None:
        super().__init__(f"{path} is damaged ({why})", fix, field="path")
        self.path, self.why = path, why

    def __reduce__(self) -> tuple[type, tuple[object, str, str | None]]:
        return type(self), (self.path, self.why, self.fix)


class CalaWarning(UserWarning):
    """Base class of every warning from cala; programs should read its `code`, not its text.

    >>> FallbackWarning("6 fake classes are too few", "few_fakes").code
    'few_fakes'
    """

    def __init__(self, message: str, code: str = "warning") -> None:
        super().__init__(message)
        self.code = code


class BaseQueryWarning(CalaWarning):
    """The encoder may have seen the base queries, so base classes may look easier than they are."""


class CacheWarning(CalaWarning):
    """The cache cannot be used, so everything is recomputed."""


class DivergenceWarning(CalaWarning):
    """The training loss of an adapter has no minimum, so its shifts mean nothing."""


class EngineWarning(CalaWarning):
    """An encoder runs on a slower engine than the fastest that is installed."""


class LeftOutWarning(CalaWarning):
    """A folder of photos holds files that are not read, such as videos."""


class FallbackWarning(CalaWarning):
    """Something simpler than requested was trained; the message says what and why."""
