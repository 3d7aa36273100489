"""Optional libraries: what is missing, and the command that installs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from cala.errors import InputError

DISTRIBUTION = "cala-learn"


def install(extra: str) -> str:
    """The command that installs an extra beside this cala, from where this cala came from.

    >>> install("ray")
    "pip install ...[ray]..."
    """
    folder = Path(__file__).parents[2]
    if (folder / "pyproject.toml").is_file():  # a checkout, which stays editable
        return f"pip install -c constraints.txt -e '.[{extra}]', in {folder}"
    source = _source()
    pins = Path(source.rpartition("file://")[2], "constraints.txt")
    held = f"-c {pins} " if source and pins.is_file() else ""  # an unpinned torch is gigabytes
    return f"pip install {held}'{DISTRIBUTION}[{extra}]{source}'"


def _source() -> str:
    """Where pip took cala from, if that was a file or a folder and no index (PEP 610)."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        url = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}").get("url")
    except (PackageNotFoundError, ValueError):
        url = None
    return f" @ {url}" if url else ""


@contextmanager
def needs(extra: str | None, field: str | None = None, what: str = "this") -> Iterator[None]:
    """Turn a missing library into an error that names the extra to install.

    For imports alone: a module that is missing elsewhere is another mistake.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if extra is None or error.name is None or error.name.startswith("cala."):
            raise
        detail = f"{what} needs {error.name.partition('.')[0]}, which is not installed"
        raise InputError(detail, install(extra), field=field, code="missing_extra") from error


def import_extra(module: str, extra: str) -> Any:
    """Import an optional library, or raise an error that names the extra to install."""
    try:
        with needs(extra):
            return import_module(module)
    except InputError:
        raise
    except Exception as error:  # a broken installation can raise anything
        fix = "reinstall it; torch and torchvision must come from the same source"
        why = (str(error).splitlines() or [type(error).__name__])[0][:200]
        detail = f"{module} cannot be imported ({why})"
        raise InputError(detail, fix, code="broken_extra") from error
