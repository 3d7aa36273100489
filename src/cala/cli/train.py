"""`cala train`: the base session."""

from __future__ import annotations

import math
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cala.cli.options import KIND, ON, TEST
from cala.cli.train_many import train_many

if TYPE_CHECKING:
    from cala.data.images import ImageSet
    from cala.training.devices import Ranks
    from cala.training.recipes import Recipe
    from cala.training.session import BaseSession

PAPER = {
    "cifar100": "paper-cifar100",
    "mini_imagenet": "paper-mini-imagenet",
    "cub200": "paper-cub200",
}
USUAL = {"cifar100": "fast-cifar100", "mini_imagenet": "fast-mini-imagenet"}
ADAPTING = {"cub200": "adapt-cub200"}
PRECISIONS = ("full", "bf16", "fp16")


def register(app: typer.Typer) -> None:
    app.command()(train)


def train(
    data: Path = typer.Argument(..., help="An image set: a benchmark, or one folder per class."),
    out: Path = typer.Option(..., "-o", "--out", help="Folder for checkpoint, log and encoder."),
    recipe: str | None = typer.Option(
        None, help="How to train (default: the fast recipe of the set).", show_default=False
    ),
    method: str | None = typer.Option(
        None,
        help="Train as this method does, such as cec; `cala methods` marks those that do. Several, "
        "as alice,fact: one encoder each.",
        show_default=False,
    ),
    published: bool = typer.Option(
        False,
        help="Encoder, length, batch and rates as the authors of --method used them on this data "
        "set (default: what suits a processor).",
    ),
    views: int | None = typer.Option(
        None,
        help="Versions of each image that become classes of their own, for savc: 1, 2, 4 or 12.",
        show_default=False,
    ),
    encoder: str | None = typer.Option(
        None, help="Architecture, instead of the recipe's.", show_default=False
    ),
    base: int | None = typer.Option(
        None, help="Base classes (default: the benchmark's, or all).", show_default=False
    ),
    holdout: int = typer.Option(
        0, min=0, help="Images per base class kept out, for validation and fair base queries."
    ),
    kind: str | None = KIND,
    test: float | None = TEST,
    selection: str = typer.Option("last", help="last or validation; never test."),
    epochs: float | None = typer.Option(None, help="Epochs, instead of the recipe's."),
    budget: float | None = typer.Option(
        None, help="Minutes of processor time: as many epochs as fit.", show_default=False
    ),
    batch: int | None = typer.Option(None, min=1, help="Images per step, instead of the recipe's."),
    lr: float | None = typer.Option(None, help="Learning rate, instead of the recipe's."),
    settings: list[str] = typer.Option(
        [], "--set", help="Other numbers of the recipe, such as cutout=8, jitter=0.4, policy=2."
    ),
    init: str | None = typer.Option(
        None,
        help="Weights to start from: a file, efficientnet-lite0 or resnet20-cifar100.",
        show_default=False,
    ),
    seed: int = typer.Option(0, min=0, help="Seed of weights, order, augmentation and hold-out."),
    seeds: int = typer.Option(
        1,
        min=1,
        help="Train so many encoders, from --seed on, into seed-0, seed-1 and so on of --out; of "
        "several methods, into alice/seed-0 and so on.",
    ),
    on: str = ON,
    resume: bool = typer.Option(False, help="Continue the run in the folder."),
    minutes: float = typer.Option(5.0, min=0.0, help="Minutes between checkpoints."),
    device: str = typer.Option("auto", help="cpu, cuda, cuda:1, mps or auto."),
    devices: int = typer.Option(
        1, min=1, help="Devices of each node; more than one needs the extra train."
    ),
    nodes: int = typer.Option(
        1, min=1, help="Machines that train together; torchrun starts the command on each of them."
    ),
    strategy: str = typer.Option("ddp", help="How several devices share the work, such as ddp."),
    tensorboard: bool = typer.Option(False, help="Also write TensorBoard events."),
    precision: str = typer.Option("auto", help="full, bf16, fp16 or auto."),
    threads: int | None = typer.Option(None, min=1, help="Processor threads.", show_default=False),
    compiled: bool = typer.Option(False, "--compile", help="Use torch.compile."),
    skip_bad: bool = typer.Option(False, help="Leave out images that cannot be read."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="No progress."),
) -> None:
    """Train an encoder on the base classes of an image set.

    Ctrl-C writes a checkpoint; --resume continues, and ends with the same weights.

    Example: cala train photos/ -o base --base 20 --test 0.2 --holdout 5

    A grid on a cluster: cala train photos/ -o bases --method alice,fact --seeds 5 --on ray

    Two machines: torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint HOST:29400 -m cala
    train photos/ -o base, on both of them (docs/cluster.md)
    """
    from cala.cluster import read_on

    given = dict(locals())
    where, given = read_on(given.pop("on")), {k: v for k, v in given.items() if k != "read_on"}
    if seeds == 1 and where is None and "," not in (method or ""):
        train_one(given)
    else:
        train_many(given, where)


def train_one(given: dict[str, Any]) -> None:
    """One training in this process; given : the command's options"""
    from cala.training.events import epoch_events
    from cala.training.session import train_base

    out, quiet = given["out"], given["quiet"]
    session = make_session(given)
    first = session.ranks.rank == 0
    events = epoch_events(out) if given["tensorboard"] and first else None
    with Stop() as stop, _Screen(session.recipe, quiet or not first) as screen:

        def after_epoch(line: dict[str, Any]) -> None:
            screen.epoch(line)
            if events is not None:
                events(line)

        path = train_base(
            session,
            resume=given["resume"],
            stop=stop.asked,
            loading=screen.loading,
            after_step=screen.step,
            after_epoch=after_epoch,
        )
    if not first:
        return
    if path is None:
        typer.echo(f"stopped; the same command with --resume continues from {out}", err=True)
        raise typer.Exit(130)
    typer.echo(f"encoder: {path}")


def check_method(given: dict[str, Any]) -> None:
    """Raise where --method does not go with --init, --published or --views."""
    from cala.errors import InputError
    from cala.systems.registry import SYSTEMS

    method, views = given["method"], given["views"]
    system = None if method is None else SYSTEMS[method]
    if given["published"] and system is None:
        raise InputError("--published is about the numbers of a method: add --method")
    if system is not None and system.continues and given["init"] is None:
        raise InputError(
            f"{method} continues an ordinary base session: train one with `cala train` first, "
            "and give its encoder as --init"
        )
    if views is not None and (system is None or "views" not in system.changes):
        able = [name for name in SYSTEMS if "views" in SYSTEMS[name].changes]
        raise InputError(
            f"--views {views}: only {', '.join(able)} makes classes of an image's versions; "
            "leave it out, or choose that --method"
        )


def make_session(given: dict[str, Any]) -> BaseSession:
    """What the command's options ask for."""
    import torch

    from cala.cli.devices import choose_device
    from cala.cli.progress import progress
    from cala.data.protocol import base_classes
    from cala.data.sets import open_images
    from cala.encoders.registry import weights_file
    from cala.errors import InputError
    from cala.systems.published import published
    from cala.systems.registry import SYSTEMS
    from cala.training.devices import FabricRanks, make_ranks
    from cala.training.objective import BaseModel
    from cala.training.session import BaseSession

    check_method(given)
    method, views, holdout = given["method"], given["views"], given["holdout"]
    epochs, budget, batch = given["epochs"], given["budget"], given["batch"]
    if given["threads"] is not None:
        torch.set_num_threads(given["threads"])
    options: dict[str, Any] = {} if given["test"] is None else {"holdout": given["test"]}
    with progress(given["quiet"]):
        on_bad = "skip" if given["skip_bad"] else "raise"
        images = open_images(given["data"], given["kind"], on_bad=on_bad, **options)
    for bad in images.skipped:
        typer.echo(f"left out: {bad.name} ({bad.why})", err=True)
    n_base = base_classes(images.name, len(images.classes), given["base"])
    system = None if method is None else SYSTEMS[method]
    numbers = None if method is None else published(method, images.name)
    if given["published"]:
        assert numbers is not None
        if images.name not in PAPER:
            raise InputError(
                f"--published: {method} has no published numbers for {images.name}: leave it out, "
                f"or train on {', '.join(PAPER)}"
            )
        chosen = _recipe(images, given["recipe"] or PAPER[images.name], given["init"])
        chosen = chosen.changed(encoder=numbers.encoder, **numbers.base)
    else:
        chosen = _recipe(images, given["recipe"], given["init"])
        chosen = chosen.changed(**({} if system is None else system.changes))
    if views is not None:
        chosen = chosen.changed(views=views)
    if epochs is not None and budget is not None:
        raise InputError("--epochs and --budget both say how long to train: give one of them")
    chosen = chosen.changed(encoder=given["encoder"], batch=batch, lr=given["lr"])
    if epochs is not None:
        chosen = chosen.changed(epochs=epochs) if epochs <= 0 else chosen.lasting(epochs)
    chosen = chosen.with_settings(given["settings"])
    place = choose_device(given["device"])
    ranks = make_ranks(given["devices"], given["nodes"], given["strategy"], place)
    if given["threads"] is not None:
        torch.set_num_threads(given["threads"])  # fabric has set its own meanwhile
    place = str(ranks.device) if isinstance(ranks, FabricRanks) else place
    if batch is None:
        chosen = _fitting(chosen, images, n_base, holdout, ranks)
    return BaseSession(
        images=images,
        recipe=chosen,
        n_base=n_base,
        out=given["out"],
        seed=given["seed"],
        holdout=holdout,
        selection=given["selection"],
        init=None if given["init"] is None else weights_file(given["init"]),
        method=method,
        objective=BaseModel.make if system is None else system.objective,
        loss={} if numbers is None else numbers.loss,
        budget=budget,
        device=place,
        autocast=_precision(given["precision"], place),
        compiled=given["compiled"],
        minutes=given["minutes"],
        ranks=ranks,
    )


def _recipe(images: ImageSet, name: str | None, init: str | None) -> Recipe:
    from cala.training.recipes import RECIPES

    if init == "efficientnet-lite0":
        return RECIPES[name or ADAPTING.get(images.name, "adapt-photos")]
    return RECIPES[name or USUAL.get(images.name, "fast-photos")]


def _fitting(recipe: Recipe, images: ImageSet, n_base: int, holdout: int, ranks: Ranks) -> Recipe:
    """The recipe with a smaller batch where the set has fewer images than the usual one."""
    count = int((images.train.labels < n_base).sum()) - holdout * n_base
    if count < 2 or recipe.batch <= count:
        return recipe
    batch = max(2, count // 4 // ranks.world) * ranks.world  # each process gets as many
    if ranks.rank == 0:
        note = f"note: batches of {batch}, not {recipe.batch}: there are {count} images"
        typer.echo(note, err=True)
    return recipe.changed(batch=batch)


def _precision(name: str, device: str) -> Any:
    import torch

    from cala.registry import check_choice

    check_choice("precision", name, ("auto", *PRECISIONS))
    if name == "auto":
        # On a CPU without matrix units for it, bfloat16 is many times slower.
        good = device.startswith("cuda") and torch.cuda.is_bf16_supported()
        name = "bf16" if good else "full"
    return {"full": None, "bf16": torch.bfloat16, "fp16": torch.float16}[name]


class Stop:
    """Ctrl-C and SIGTERM ask for an orderly end; a second Ctrl-C ends at once."""

    def __enter__(self) -> Stop:
        self._asked = threading.Event()
        self._before = {s: signal.signal(s, self._ask) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: object) -> None:
        if self._asked.is_set():
            raise KeyboardInterrupt
        self._asked.set()

    def asked(self) -> bool:
        return self._asked.is_set()


def whole(trainer: Any) -> int:
    """Epochs of a run; the last one may be a part of one."""
    return -(-trainer.total_steps // trainer.steps_per_epoch)


class _Screen:
    """Progress on a terminal; one line per epoch elsewhere."""

    def __init__(self, recipe: Recipe, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        from cala.cli.progress import Lines

        self.quiet, self.epochs = quiet, math.ceil(recipe.epochs)
        self.console = Console(stderr=True)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=quiet or not self.console.is_terminal,
        )
        self.task = self.bar.add_task("reading images", total=None)
        self.lines = Lines(lambda line: self.console.print(line, highlight=False))

    def __enter__(self) -> _Screen:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def loading(self, done: int, total: int) -> None:
        self.bar.update(self.task, completed=done, total=total)
        if self.bar.disable and not self.quiet:
            self.lines("reading images", done, total)

    def step(self, trainer: Any) -> None:
        progress = trainer.progress
        self.epochs = whole(trainer)
        images = max(progress.epoch_images, 1)
        epoch = min(progress.step // trainer.steps_per_epoch + 1, whole(trainer))
        rate = progress.epoch_images / max(progress.epoch_seconds, 1e-9)
        text = (
            f"epoch {epoch}/{whole(trainer)}  loss {progress.epoch_loss / images:.3f}  "
            f"acc {100 * progress.epoch_correct / images:.1f}  {rate:.0f} img/s"
        )
        self.bar.update(
            self.task, description=text, completed=progress.step, total=trainer.total_steps
        )

    def epoch(self, line: dict[str, Any]) -> None:
        if self.quiet:
            return
        held = f"  held-out {100 * line['validation']:.1f}" if "validation" in line else ""
        self.console.print(
            f"epoch {line['epoch']:>3}/{self.epochs}  loss {line['loss']:.3f}  "
            f"acc {100 * line['accuracy']:.1f}{held}  {line['images_per_second']:.0f} img/s",
            highlight=False,
        )
