"""`cala ablate`: one choice of an adapter, varied."""

from __future__ import annotations

import typer

from cala.cli import bench
from cala.cli.options import DATASET, BenchOptions, comma_separated, print_json, with_options


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
                    as in the paper; --retrain trains for each value
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
    from dataclasses import replace

    from cala.benchmark.ablation import CHOICES, TrainedOnce, ablation_configs, choice_name
    from cala.cli.terminal import console
    from cala.cluster import parse_target
    from cala.results import Results

    target = parse_target(options.on)
    what = choice_name(what)
    task = bench.load(dataset, [method], options)
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
