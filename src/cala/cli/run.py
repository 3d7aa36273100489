"""`cala run`: the bench."""

from __future__ import annotations

from dataclasses import replace

import typer

from cala.cli import bench
from cala.cli.compare import find_method
from cala.cli.options import (
    DATASET,
    REFERENCE,
    BenchOptions,
    comma_separated,
    print_json,
    with_options,
)
from cala.cli.report import after_run

METHODS = "nearest-mean,la,cala,cala-plus"


@with_options
def run(
    options: BenchOptions,
    dataset: str = DATASET,
    methods: str = typer.Option(
        METHODS,
        help="Comma-separated names, or all; see `cala methods` "
        f"(default: {METHODS.replace(',', ', ')}).",
        show_default=False,
    ),
    reference: str | None = REFERENCE,
    make_report: bool = typer.Option(
        True, "--report/--no-report", help="Make a page with all tables and figures."
    ),
) -> None:
    """Run methods over the same draws of a protocol.

    Prints means with intervals over draws of shots and test images; differences are paired.
    If it is stopped, run the same command again to resume.

    Example: cala run cifar100 --embeddings cifar100.npz --draws canonical,random:20

    Your own embeddings: cala run features:my.npz --base 60 --way 5 --sessions 8

    On a cluster: cala run cifar100 --methods all --seeds 5 --on ray:10.0.0.1:6379

    A separate encoder for one host: cala run --methods cala,alice+cala --embeddings alice=alice.npz
    """
    from cala.benchmark.task import split_runnable
    from cala.cli.terminal import console
    from cala.cluster import parse_target
    from cala.heads import method_names

    target = parse_target(options.on)
    every = methods.strip() == "all"
    listed = method_names() if every else comma_separated(methods)
    if reference is not None:
        find_method(reference, dict.fromkeys(listed, ()))
    task = bench.load(dataset, listed, options)
    if every:
        listed, left_out = split_runnable(task, listed, options.metric)
        if reference is not None:
            find_method(reference, dict.fromkeys(listed, ()))
        task = replace(task, notes=(*task.notes, *left_out))
    config = bench.configured(task, listed, options)
    out = bench.run_folder(task, config, options)
    with bench.open_runner(task, options.silent, target) as runner:
        done = runner.run(config, out)
    if options.as_json:
        print_json(done.as_json(reference))
    else:
        full = done.full_sessions
        bench.print_results(console(), done.results, options.split, reference, full)
        typer.echo(f"\nrecords, summary and tables: {out}")
    if make_report:
        typer.echo(after_run(out), err=options.as_json)
