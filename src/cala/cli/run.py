"""`cala run` and `cala ablate`: the bench."""

from __future__ import annotations

from dataclasses import replace

import typer

from cala.cli import bench
from cala.cli.options import (
    DATASET,
    REFERENCE,
    BenchOptions,
    comma_separated,
    print_json,
    with_options,
)
from cala.cli.report import after_run
from cala.registry import check_choice

_METHODS = "nearest-mean,la,cala,cala-plus"


@with_options
def run(
    options: BenchOptions,
    dataset: str = DATASET,
    methods: str = typer.Option(
        _METHODS,
        help="Comma-separated names, or all; see `cala methods` "
        f"(default: {_METHODS.replace(',', ', ')}).",
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
        check_choice("reference", reference, listed)
    task = bench.open_task(dataset, listed, options)
    if every:
        listed, left_out = split_runnable(task, listed, options.metric)
        if reference is not None:
            check_choice("reference", reference, listed)
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
        typer.echo(after_run(out, options.silent), err=options.as_json)


@with_options
def ablate(
    options: BenchOptions,
    what: str = typer.Argument(
        ...,
        help="gamma, mu, rho, tau, shots (or K), sessions, queries, inputs, loss, "
        "optimiser, start, clamp or metric.",
    ),
    values: str = typer.Option(..., help="Comma-separated, such as 0,1,10,100."),
    dataset: str = DATASET,
    method: str = typer.Option("cala", help="The method to vary."),
    retrain: bool = typer.Option(False, "--retrain", help="For gamma: train again for each value."),
) -> None:
    """Vary one setting of an adapter and compare on the same draws.

    \b
    gamma           γ of Eq. 8 at inference, trained once at its usual value,
                    as in the CALA paper; --retrain trains for each value
    mu, rho         μ (with ρ = 1) and ρ of Eq. 9
    tau             τ of softmax inputs
    shots (or K)    K of the pseudo sessions that the adapter learns from;
                    real sessions follow the protocol (--shot)
    sessions        T̃ of the pseudo sessions; for real sessions: --sessions
    queries         base queries per class, with 15 per fake class
    inputs          how the adapter reads the similarities
    loss            the reading of Eq. 9
    optimiser       adam or sgd, for Algorithm 1's steps
    start           the MLP's last layer before training: zero or random
    clamp           keep inputs within the range of the fake classes: yes or no
    metric          cosine or whitened

    Example: cala ablate gamma --values 0,1,10,100 --embeddings cifar100.npz
    """
    from cala.benchmark.ablation import CHOICES, TrainedOnce, ablation_configs, choice_name
    from cala.cli.terminal import console
    from cala.cluster import parse_target
    from cala.results import Results

    target = parse_target(options.on)
    what = choice_name(what)
    task = bench.open_task(dataset, [method], options)
    usual = bench.configured(task, [method], options)
    configs = ablation_configs(usual, what, comma_separated(values), task.protocol, retrain)
    out = bench.run_folder(task, usual, options, f"-{what}{'-retrain' * retrain}")
    fit = TrainedOnce() if what == "gamma" and not retrain else None
    records = []
    with bench.open_runner(task, options.silent, target) as runner:
        for value, config in configs.items():
            title = f"{what}={value}"
            done = runner.run(config, out / title, title, fit, out / "courses")
            records += [replace(r, method=title) for r in done.results.records]
    found = Results(records)
    if options.as_json:
        print_json(found.as_json())
        return
    meaning = "γ of Eq. 8, trained again for each value" if retrain else CHOICES[what].meaning
    screen = console()
    screen.print(f"{what}: {meaning}\n", highlight=False, markup=False)
    bench.print_results(screen, found, options.split)
    typer.echo(f"\nruns: {out}")
