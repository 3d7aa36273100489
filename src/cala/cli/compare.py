"""`cala compare`: runs side by side."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from cala.cli import bench
from cala.cli.options import REFERENCE, SUMMARY_AS_JSON
from cala.errors import InputError
from cala.files import shown


def compare(
    runs: list[Path] = typer.Argument(..., help="Run folders."),
    reference: str | None = REFERENCE,
    as_json: bool = SUMMARY_AS_JSON,
) -> None:
    """Put runs side by side; differences are paired.

    Pairs are the draws that runs share.
    A method that several runs have is named RUN: METHOD, as in the table.
    A folder of `cala ablate` stands for the runs in it.

    Example: cala compare runs/a runs/b --reference "b: cala"
    """
    from dataclasses import replace

    from rich.text import Text

    from cala.benchmark.run_folder import read_run
    from cala.benchmark.side_by_side import find_method, short_names
    from cala.benchmark.terminal import console
    from cala.reports.run import find_runs
    from cala.results import Results

    called = _called(find_runs(runs))
    short = short_names(list(called))
    records, briefly, aliases = [], {}, {}
    for name, path in called.items():
        _, finished = read_run(path)
        for record in finished:
            full, brief = (f"{n}: {record.method}" for n in (name, short[name]))
            if len(called) == len(runs) == 1:
                full = brief = record.method
            records.append(replace(record, method=full))
            briefly[full], aliases[full] = brief, (brief, record.method)
    if not records:
        raise InputError("these runs hold no finished cell")
    chosen = None if reference is None else find_method(reference, aliases)
    if as_json:
        found = Results(records).as_json(chosen)
        typer.echo(json.dumps(found, indent=1, ensure_ascii=False))
        return
    brief_results = Results([replace(r, method=briefly[r.method]) for r in records])
    screen = console()
    bench.print_results(screen, brief_results, "the runs'", briefly[chosen] if chosen else None)
    if len(called) > 1:
        screen.print()
        for name, path in called.items():
            screen.print(Text(f"{short[name]}: {shown(path)}"))


def _called(runs: list[Path]) -> dict[str, Path]:
    """Each run by the name of its folder, by its whole path where names are the same."""
    paths = list(dict.fromkeys(run.resolve() for run in runs))
    names = [path.name for path in paths]
    return {p.name if names.count(p.name) == 1 else str(p): p for p in paths}
