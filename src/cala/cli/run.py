"""`cala run`: the bench."""

from __future__ import annotations

import json
from dataclasses import replace

import typer

from cala.cli import ablate, bench
from cala.cli.compare import compare, find_method
from cala.cli.options import DATASET, REFERENCE, BenchOptions, comma_separated, with_bench_options
from cala.cli.report import after_run

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
        help="Comma-separated, or all; `cala methods` lists them "
        f"(default: {METHODS.replace(',', ', ')}).",
        show_default=False,
    ),
    reference: str | None = REFERENCE,
    make_report: bool = typer.Option(
        True, "--report/--no-report", help="Make the page with all tables and figures."
    ),
) -> None:
    """Run methods over the same draws of a protocol.

    Means with intervals over draws of shots and test images; differences are paired.
    Stopped at any moment, the same command continues where it was.

    Example: cala run cifar100 --embeddings cifar100.npz --draws canonical,random:20

    Your own: cala run features:my.npz --base 60 --way 5 --sessions 8

    On a cluster: cala run cifar100 --methods all --seeds 5 --on ray:10.0.0.1:6379

    An encoder for one host: cala run --methods cala,alice+cala --embeddings alice=alice.npz
    """
    from cala.benchmark.able import ALL, able
    from cala.cli.terminal import console
    from cala.cluster import read_on
    from cala.heads import method_names

    read_on(options.on)  # what cannot be used is said before anything is read
    whole = methods.strip() == ALL
    listed = method_names() if whole else comma_separated(methods)
    if reference is not None:
        find_method(reference, dict.fromkeys(listed, ()))
    problem = bench.load(dataset, listed, options)
    if whole:
        listed, left_out = able(problem, listed, options.metric)
        if reference is not None:
            find_method(reference, dict.fromkeys(listed, ()))
        problem = replace(problem, notes=(*problem.notes, *left_out))
    config = bench.configured(problem, listed, options)
    place = bench.place(problem, config, options)
    with bench.cells_on(options.on) as cells:
        runner = bench.Runner(problem, options.quiet or options.as_json, cells)
        results = runner(config, place)
    summary = json.loads((place / "summary.json").read_text("utf-8"))
    full = bool(summary["config"].get("full_sessions"))
    if options.as_json:
        found = {**summary, **results.as_json(reference)}
        typer.echo(json.dumps(found, indent=1, ensure_ascii=False))
    else:
        bench.print_results(console(), results, options.split, reference, full)
        typer.echo(f"\nrecords, summary and tables: {place}")
    if make_report:
        typer.echo(after_run(place), err=options.as_json)
