"""`cala compare`: runs side by side."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cala.cli import bench
from cala.cli.options import REFERENCE, SUMMARY_AS_JSON, print_json
from cala.cli.photos import note
from cala.errors import InputError
from cala.files import shown
from cala.registry import check_choice

SEPARATORS = "-_/=+. "
_LONGEST = 8
SHORTEST = 4

if TYPE_CHECKING:
    from cala.records import StoredRun


def compare(
    runs: list[Path] = typer.Argument(..., help="Run folders."),
    reference: str | None = REFERENCE,
    as_json: bool = SUMMARY_AS_JSON,
) -> None:
    """Show runs side by side, with paired differences.

    Differences are paired over the draws that runs share; a run whose draws or test images differ
    from the reference's shows none. If several runs contain a method, it is named RUN: METHOD, as
    in the table. A folder that `cala ablate` wrote stands for the runs in it.

    Example: cala compare runs/a runs/b --reference "b: cala"
    """
    from dataclasses import replace

    from rich.text import Text

    from cala.cli.terminal import console
    from cala.records import find_runs, read_run
    from cala.results import Results

    called = _called(find_runs(runs))
    short = short_names(list(called))
    stored = {name: read_run(path) for name, path in called.items()}
    known = draws_and_images(stored)
    records, briefly, aliases = [], {}, {}
    images: dict[str, str] = {}  # what draws and test images a method ran on
    for name, run in stored.items():
        for text in run.damage:
            note(f"{shown(name)}: {text}")
        for record in run.records:
            full, brief = (f"{n}: {record.method}" for n in (name, short[name]))
            if len(called) == len(runs) == 1:
                full = brief = record.method
            records.append(replace(record, method=full))
            briefly[full], aliases[full] = brief, (brief, record.method)
            images[full] = known[name]
    if not records:
        raise InputError("these runs have no finished cell", "finish them with cala run")
    chosen = next(iter(images)) if reference is None else find_method(reference, aliases)
    apart = [method for method in images if images[method] != images[chosen]]
    if apart:
        names = ", ".join(briefly[method] for method in apart)
        note(f"other draws or test images than {briefly[chosen]}, so no differences: {names}")
    if as_json:
        found = Results(records).as_json(chosen)
        for methods in found.values():
            for method in methods:
                if method in apart:
                    methods[method] |= {"difference_to": None, "difference": None}
        print_json(found)
        return
    brief_results = Results([replace(r, method=briefly[r.method]) for r in records])
    screen = console()
    without = [briefly[method] for method in apart]
    bench.print_results(screen, brief_results, "the runs'", briefly[chosen], without=without)
    if len(called) > 1:
        screen.print()
        for name, path in called.items():
            screen.print(Text(f"{short[name]}: {shown(path)}"))


def draws_and_images(runs: Mapping[str, StoredRun]) -> dict[str, str]:
    """For each run a text that is the same for runs with the same draws and test images.

    Rows count if all runs state them; older runs are known by numbers of images alone.
    """
    stated = all("rows" in run.config for run in runs.values())
    found = {}
    for name, run in runs.items():
        protocol = {k: v for k, v in run.config["protocol"].items() if k != "name"}
        counts = sorted({(record.session, record.n_images) for record in run.records})
        rows = run.config["rows"] if stated else None
        found[name] = json.dumps([protocol, run.config.get("split"), rows, counts])
    return found


def _called(runs: list[Path]) -> dict[str, Path]:
    """Each run by the name of its folder, by its whole path where names are the same."""
    paths = list(dict.fromkeys(run.resolve() for run in runs))
    names = [path.name for path in paths]
    return {p.name if names.count(p.name) == 1 else str(p): p for p in paths}


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Each name by what tells it apart from the others; a long rest by its beginning.

    >>> short_names(["cifar100-9432708d96", "cifar100-51c2e0a7b3"])
    {'cifar100-9432708d96': '9432', 'cifar100-51c2e0a7b3': '51c2'}
    >>> short_names(["gamma=1", "gamma=10"])
    {'gamma=1': '1', 'gamma=10': '10'}
    """
    start = _common_words(names)
    rests = [name[start:] for name in names]
    end = _common_words([rest[::-1] for rest in rests])
    rests = [rest[: len(rest) - end] for rest in rests]
    found = {n: _beginning(r, rests) for n, r in zip(names, rests, strict=True)}
    if "" in found.values() or len(set(found.values())) < len(found):
        return {name: f"run {i + 1}" for i, name in enumerate(names)}
    return found


def find_method(given: str, aliases: Mapping[str, Sequence[str]]) -> str:
    """The method that a user means by one of its names; aliases : method -> other names."""
    if given in aliases:
        return given
    found = [method for method, names in aliases.items() if given in names]
    if not found:
        check_choice("reference", given, aliases)
    if len(found) > 1:
        fix = f"give one of {', '.join(map(repr, found))}"
        raise InputError(f"reference {given!r} is in several runs", fix, field="reference")
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
    if len(rest) <= _LONGEST:
        return rest
    for end in range(SHORTEST, _LONGEST + 1):
        if sum(other.startswith(rest[:end]) for other in others) == 1:
            return rest[:end].rstrip(SEPARATORS)
    return ""
