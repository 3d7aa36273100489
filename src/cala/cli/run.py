"""`cala run` and `cala compare`: the bench."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from cala.cli import ablate, bench
from cala.cli.options import AS_JSON, DATASET, BenchOptions, comma_separated, with_bench_options
from cala.cli.report import after_run
from cala.errors import InputError

METHODS = "nearest-mean,la,cala,cala-plus"


def register(app: typer.Typer) -> None:
    for command in (run, compare, ablate.ablate):
        app.command()(command)


@with_bench_options
def run(
    options: BenchOptions,
    dataset: str = DATASET,
    methods: str = typer.Option(
        METHODS,
        help=f"Comma-separated; `cala methods` lists them (default: {METHODS.replace(',', ', ')}).",
        show_default=False,
    ),
    make_report: bool = typer.Option(
        True, "--report/--no-report", help="Make RUN/report/report.html."
    ),
) -> None:
    """Run methods over the same draws of a protocol, with intervals and paired differences.

    Stopped at any moment, the same command continues where it was.

    Example: cala run cifar100 --embeddings cifar100.npz --draws canonical,random:20

    Your own: cala run features:my.npz --base 60 --way 5 --sessions 8
    """
    from cala.benchmark.terminal import console

    problem = bench.load(dataset, options)
    config = bench.configured(problem, comma_separated(methods), options)
    place = bench.place(problem, config, options)
    results = bench.Runner(problem, options.quiet or options.as_json)(config, place)
    if options.as_json:
        typer.echo((place / "summary.json").read_text("utf-8"))
    else:
        bench.print_results(console(), results, options.split)
        typer.echo(f"\nrecords, summary and tables: {place}")
    if make_report:
        typer.echo(after_run(place), err=options.as_json)


def compare(
    runs: list[Path] = typer.Argument(..., help="Run folders."),
    as_json: bool = AS_JSON,
) -> None:
    """Put runs side by side; differences are paired where runs share draws.

    A folder of `cala ablate` stands for the runs in it.

    Example: cala compare runs/a runs/b
    """
    from dataclasses import replace

    from cala.benchmark.folder import read_run
    from cala.benchmark.terminal import console
    from cala.reports.run import find_runs
    from cala.results import Results

    records = []
    ablation = len(runs) == 1 and find_runs(runs) != [runs[0].resolve()]
    for name, path in _called(find_runs(runs)).items():
        _, found = read_run(path)
        prefix = f"{name}: " if len(runs) > 1 or ablation else ""
        records += [replace(r, method=f"{prefix}{r.method}") for r in found]
    if not records:
        raise InputError("these runs hold no finished cell")
    results = Results(records)
    if as_json:
        typer.echo(json.dumps(results.as_json(), indent=1, ensure_ascii=False))
        return
    bench.print_results(console(), results, "the runs'")


def _called(runs: list[Path]) -> dict[str, Path]:
    """Each run by the name of its folder, by its whole path where names are the same."""
    paths = list(dict.fromkeys(run.resolve() for run in runs))
    names = [path.name for path in paths]
    return {p.name if names.count(p.name) == 1 else str(p): p for p in paths}
