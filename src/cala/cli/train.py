"""`cala train`: base sessions, one or a grid of methods × seeds, here or on a cluster."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cala.cli import options as shared
from cala.cli.options import options_class, with_options
from cala.errors import InputError
from cala.extras import needs
from cala.files import shown

if TYPE_CHECKING:
    from cala.cluster import ClusterAddress


@options_class
class TrainOptions:
    """The options of `cala train`: one training, or what all trainings of a grid share."""

    data: Path = typer.Argument(..., help="An image set: a benchmark, or one folder per class.")
    out: Path = typer.Option(..., "-o", "--out", help="Folder for checkpoint, log and encoder.")
    recipe: str | None = typer.Option(None, help="How to train (default: the set's fast recipe).")
    method: str | None = typer.Option(
        None,
        help="Train as this method does, such as cec; `cala methods` marks those that can. "
        "Several, such as alice,fact, give one encoder each.",
    )
    published: bool = typer.Option(
        False,
        help="Use the encoder, length, batch and rates of --method's authors on this data "
        "set (default: settings that suit a CPU).",
    )
    views: int | None = typer.Option(
        None,
        help="For savc: versions of each image that become classes of their own: 1, 2, 4 or 12.",
    )
    encoder: str | None = typer.Option(None, help="Architecture, instead of the recipe's.")
    base: int | None = shared.BASE_CLASSES
    holdout: int = typer.Option(
        0,
        min=0,
        help="Images per base class to keep out of training; they validate the encoder, and "
        "adapters use them as unseen base images.",
    )
    kind: str | None = shared.KIND
    test: float | None = shared.TEST
    selection: str = typer.Option(
        "last", help="last, or validation: keep the weights that do best on held-out images."
    )
    epochs: float | None = typer.Option(None, help="Number of epochs, instead of the recipe's.")
    budget: float | None = typer.Option(
        None, help="Minutes of processor time: train as many epochs as fit."
    )
    batch: int | None = typer.Option(None, min=1, help="Images per step, instead of the recipe's.")
    lr: float | None = typer.Option(None, help="Learning rate, instead of the recipe's.")
    settings: list[str] | None = typer.Option(
        None, "--set", help="Other settings of the recipe, such as cutout=8, jitter=0.4, policy=2."
    )
    init: str | None = typer.Option(
        None, help="Weights to start from: a file, efficientnet-lite0 or resnet20-cifar100."
    )
    seed: int = typer.Option(0, min=0, help="Seed of weights, order, augmentation and hold-out.")
    seeds: int = typer.Option(
        1,
        min=1,
        help="Train this many encoders, from --seed on, into seed-0, seed-1, … of --out; "
        "with several methods, into alice/seed-0, ….",
    )
    on: str = shared.ON
    resume: bool = typer.Option(False, help="Resume the run in --out.")
    minutes: float = typer.Option(5.0, min=0.0, help="Minutes between checkpoints.")
    device: str = shared.DEVICE
    devices: int = typer.Option(
        1, min=1, help="Devices per node; more than one needs the train extra."
    )
    nodes: int = typer.Option(
        1, min=1, help="Number of machines that train together; start each with torchrun."
    )
    strategy: str = typer.Option("ddp", help="How several devices share the work, such as ddp.")
    tensorboard: bool = typer.Option(False, help="Also write TensorBoard events.")
    precision: str = typer.Option("auto", help="full, bf16, fp16 or auto.")
    threads: int | None = shared.THREADS
    compiled: bool = typer.Option(False, "--compile", help="Use torch.compile.")
    skip_bad: bool = shared.SKIP_BAD_IMAGES
    quiet: bool = shared.QUIET

    def check_method(self) -> None:
        """Raise if --method does not go with --init, --published or --views."""
        from cala.systems.registry import SYSTEMS

        system = None if self.method is None else SYSTEMS[self.method]
        if self.published and system is None:
            detail = "--published needs a method, whose numbers it uses"
            raise InputError(detail, "add --method", field="published")
        if system is not None and system.continues and self.init is None:
            detail = f"{self.method} starts from an encoder that is already trained"
            fix = "train one with `cala train` first, and give its encoder as --init"
            raise InputError(detail, fix, field="init", code="needs_init")
        if self.views is not None and self.method not in (able := _methods_with_views()):
            only = f"only {', '.join(able)} uses several versions of each image"
            fix = "omit it, or choose that --method"
            raise InputError(f"--views {self.views}: {only}", fix, field="views")

    def located(self) -> TrainOptions:
        """The options for a process elsewhere: paths are absolute."""
        init, out, data = self.init, self.out.absolute(), self.data.absolute()
        if init is not None and Path(init).exists():
            init = str(Path(init).absolute())
        return replace(self, quiet=True, out=out, data=data, init=init)

    def jobs(self) -> dict[str, TrainOptions]:
        """The trainings of a grid by name; one alone has the folder to itself."""
        methods: list[str | None] = [None]
        if self.method is not None:
            methods = list(dict.fromkeys(name.strip() for name in self.method.split(",")))
            if not all(methods):
                fix = "give names with a comma between them, as alice,fact"
                raise InputError(f"--method {self.method}", fix, field="method")
        with_views = set() if self.views is None else {*methods} & {*_methods_with_views()}
        jobs = {}
        for method in methods:
            # Views are for those that have them, if one has.
            views = None if with_views and method not in with_views else self.views
            for seed in range(self.seed, self.seed + self.seeds):
                out = self.out
                if method is not None and len(methods) > 1:
                    out /= method
                if self.seeds > 1:
                    out /= f"seed-{seed}"
                name = f"{method}, seed {seed}" if method else f"seed {seed}"
                jobs[name] = replace(self, method=method, views=views, seed=seed, out=out)
        return jobs


def _methods_with_views() -> list[str]:
    from cala.systems.registry import SYSTEMS

    return [name for name in SYSTEMS if "views" in SYSTEMS[name].changes]


@with_options
def train(options: TrainOptions) -> None:
    """Train an encoder on the base classes of an image set.

    Ctrl-C writes a checkpoint; --resume continues from it and ends with the same weights.

    Example: cala train photos/ -o base --base 20 --test 0.2 --holdout 5

    A grid on a cluster: cala train photos/ -o bases --method alice,fact --seeds 5 --on ray

    Two machines: torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint HOST:29400 -m cala
    train photos/ -o base, on both of them (docs/cluster.md)
    """
    from cala.cluster import parse_target

    target = parse_target(options.on)
    jobs = options.jobs()
    several = len(jobs) > 1
    if several or target is not None:
        _check_grid(options, jobs)
    if target is not None:
        train_on_cluster(options, jobs, target)
        return
    for name, job in jobs.items():
        if several and not options.quiet:
            typer.echo(name, err=True)
        train_one(job)


def _check_grid(options: TrainOptions, jobs: dict[str, TrainOptions]) -> None:
    """Raise for what cannot be trained before the first training takes its hours."""
    from cala.training.run_dir import CHECKPOINT, begun_error

    if options.devices * options.nodes > 1:
        detail = "--devices and --nodes share one training; this is a grid of several"
        raise InputError(detail, "omit them, or train one at a time", field="devices")
    for job in jobs.values():
        job.check_method()
    begun = [job.out for job in jobs.values() if (job.out / CHECKPOINT).exists()]
    if begun and not options.resume:
        raise begun_error(begun[0])


def train_one(options: TrainOptions) -> None:
    """One training in this process."""
    from cala.cli.train_session import Screen, Stop, make_session
    from cala.training.run_dir import epoch_events

    session = make_session(options)
    from cala.training.session import train_base  # imports torch: after all checks

    first = session.ranks.rank == 0
    events = epoch_events(options.out) if options.tensorboard and first else lambda line: None
    with Stop() as stop, Screen(session.recipe, options.quiet or not first) as screen:

        def after_epoch(line: dict[str, Any]) -> None:
            screen.epoch(line)
            events(line)

        path = train_base(
            session,
            resume=options.resume,
            stop=stop.asked,
            loading=screen.loading,
            after_step=screen.step,
            after_epoch=after_epoch,
        )
    if not first:
        return
    if path is None:
        raise _stopped(options.out)
    typer.echo(f"encoder: {path}")


def _stopped(out: Path) -> typer.Exit:
    typer.echo(f"stopped; add --resume to the same command to continue {shown(out)}", err=True)
    return typer.Exit(130)


def train_on_cluster(
    options: TrainOptions, jobs: dict[str, TrainOptions], target: ClusterAddress
) -> None:
    from cala.cli import Stopped
    from cala.cluster.ray_cluster import connected
    from cala.progress import progress_bar

    try:
        with connected(target) as cluster, progress_bar("training", options.quiet) as advance:
            for name, job in jobs.items():
                cpus, gpus = min(job.threads or 1, cluster.widest), int(cluster.gpus > 0)
                cluster.submit(name, train_task, job.located(), cpus=cpus, gpus=gpus, saves=True)
            advance(0, len(jobs))
            for done, (key, (path, messages)) in enumerate(cluster.results(), 1):
                advance(done, len(jobs))
                for line in messages:
                    typer.echo(f"{key}: {line}", err=True)
                typer.echo(f"encoder: {path}")
    except Stopped:
        raise _stopped(options.out) from None


def train_task(options: TrainOptions) -> tuple[str, list[str]]:
    """On a node: train, from the checkpoint that a lost worker left, if there is one.

    Returns the encoder's path and the lines that were printed.
    """
    with needs("train"):
        import torch

    from cala.cli.train_session import Stop, make_session
    from cala.training.run_dir import epoch_events
    from cala.training.session import train_base

    torch.set_num_threads(options.threads or 1)
    with redirect_stderr(io.StringIO()) as printed, Stop() as stop:  # Ray asks as Ctrl-C does
        session = make_session(options)
        events = epoch_events(options.out) if options.tensorboard else lambda line: None
        path = train_base(session, resume=True, stop=stop.asked, after_epoch=events)
    if path is None:
        raise InputError(
            f"the training in {shown(options.out)} was stopped on its node",
            "add --resume to the same command",
        )
    return str(path), printed.getvalue().splitlines()
