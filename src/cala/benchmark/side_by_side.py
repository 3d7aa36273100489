"""Several runs in one table: short names that tell them apart, and which method is meant."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from cala.errors import InputError
from cala.registry import unknown

SEPARATORS = "-_/=+. "
LONGEST = 8
SHORTEST = 4


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Each name by what tells it apart from the others; a long rest by its beginning.

    >>> short_names(["cifar100-9432708d96", "cifar100-51c2e0a7b3"])
    {'cifar100-9432708d96': '9432', 'cifar100-51c2e0a7b3': '51c2'}
    >>> short_names(["gamma=1", "gamma=10"])
    {'gamma=1': '1', 'gamma=10': '10'}
    """
    start = _common_words(names)
    rests = [name[start:] for name in names]
    backwards = [rest[::-1] for rest in rests]
    end = _common_words(backwards)
    rests = [rest[: len(rest) - end] for rest in rests]
    found = {n: _beginning(r, rests) for n, r in zip(names, rests, strict=True)}
    if "" in found.values() or len(set(found.values())) < len(found):
        return {name: f"run {i + 1}" for i, name in enumerate(names)}
    return found


def find_method(given: str, aliases: Mapping[str, Sequence[str]]) -> str:
    """The method that a user means by one of its names; aliases : method -> other names."""
    for method in aliases:
        if given == method:
            return method
    found = [method for method, names in aliases.items() if given in names]
    if len(found) > 1:
        listed = ", ".join(f"'{method}'" for method in found)
        raise InputError(f"reference {given!r} is in several runs: give one of {listed}")
    if not found:
        raise InputError(unknown("reference", given, aliases))
    return found[0]


def _common_words(names: Sequence[str]) -> int:
    """How many letters several names begin with in common, whole words only."""
    if len(names) < 2:
        return 0
    columns = zip(*names, strict=False)
    common = "".join(c[0] for c in itertools.takewhile(lambda c: len(set(c)) == 1, columns))
    return max((i + 1 for i, letter in enumerate(common) if letter in SEPARATORS), default=0)


def _beginning(rest: str, others: Sequence[str]) -> str:
    """The rest of a name, or as much of a long one as no other begins with."""
    if len(rest) <= LONGEST:
        return rest
    for end in range(SHORTEST, LONGEST + 1):
        if sum(other.startswith(rest[:end]) for other in others) == 1:
            return rest[:end].rstrip(SEPARATORS)
    return ""
