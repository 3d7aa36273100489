"""`cala compare`: runs side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cala.cli import bench
from cala.cli.options import REFERENCE, SUMMARY_AS_JSON
from cala.cli.photos import note
from cala.errors import InputError
from cala.files import shown

if TYPE_CHECKING:
    from cala.records import Record


def compare(
    runs: list[Path] = typer.Argument(..., help="Run folders."),
    reference: str | None = REFERENCE,
    as_json: bool = SUMMARY_AS_JSON,
) -> None:
    """Show runs side by side; differences are paired over the draws that runs share.

    Runs with other draws or test images than the reference are shown without differences. A method
    that several runs have is named RUN: METHOD, as in the table. A folder of `cala ablate` stands
    for the runs in it.

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
    images: dict[str, str] = {}
    for name, path in called.items():
        config, finished = read_run(path)
        for record in finished:
            full, brief = (f"{n}: {record.method}" for n in (name, short[name]))
            if len(called) == len(runs) == 1:
                full = brief = record.method
            records.append(replace(record, method=full))
            briefly[full], aliases[full] = brief, (brief, record.method)
            images.setdefault(full, draws_and_images(config, finished))
    if not records:
        raise InputError("these runs hold no finished cell")
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
        typer.echo(json.dumps(found, indent=1, ensure_ascii=False))
        return
    brief_results = Results([replace(r, method=briefly[r.method]) for r in records])
    screen = console()
    without = [briefly[method] for method in apart]
    bench.print_results(screen, brief_results, "the runs'", briefly[chosen], without=without)
    if len(called) > 1:
        screen.print()
        for name, path in called.items():
            screen.print(Text(f"{short[name]}: {shown(path)}"))


def draws_and_images(config: dict[str, Any], records: Sequence[Record]) -> str:
    """A text that is the same for runs with the same draws and test images.

    Runs of versions that did not state their rows are told apart by numbers of images.
    """
    protocol = {k: v for k, v in config["protocol"].items() if k != "name"}
    counts = sorted({(record.session, record.n_images) for record in records})
    return json.dumps([protocol, config.get("split"), config.get("rows"), counts])


def _called(runs: list[Path]) -> dict[str, Path]:
    """Each run by the name of its folder, by its whole path where names are the same."""
    paths = list(dict.fromkeys(run.resolve() for run in runs))
    names = [path.name for path in paths]
    return {p.name if names.count(p.name) == 1 else str(p): p for p in paths}
