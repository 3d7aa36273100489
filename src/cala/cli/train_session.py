"""From the options of `cala train` to a base session, and its progress on the screen."""

from __future__ import annotations

import math
import signal
import threading
from typing import TYPE_CHECKING, Any

from cala.cli.photos import note
from cala.errors import InputError
from cala.extras import needs
from cala.progress import Bars, busy

if TYPE_CHECKING:
    import torch

    from cala.cli.train import TrainOptions
    from cala.data.images import ImageSet
    from cala.training.devices import Ranks
    from cala.training.loop import Trainer
    from cala.training.recipes import Recipe
    from cala.training.session import BaseSession

PAPER_RECIPES = {
    "cifar100": "paper-cifar100",
    "mini_imagenet": "paper-mini-imagenet",
    "cub200": "paper-cub200",
}
FAST = {"cifar100": "fast-cifar100", "mini_imagenet": "fast-mini-imagenet"}
ADAPTING = {"cub200": "adapt-cub200"}
PRECISIONS = ("auto", "full", "bf16", "fp16")


def make_session(options: TrainOptions) -> BaseSession:
    """What the options ask for; everything that is cheap to check comes before torch."""
    from cala.cli.encode import open_set
    from cala.data.protocol import base_classes
    from cala.encoders.registry import ARCHITECTURES, weights_file
    from cala.registry import check_choice

    options.check_method()
    check_choice("precision", options.precision, PRECISIONS)
    if options.encoder is not None:
        check_choice("architecture", options.encoder, ARCHITECTURES)
    check_choice("selection", options.selection, ("last", "validation"))
    if options.epochs is not None and options.budget is not None:
        detail = "--epochs and --budget both say how long to train"
        raise InputError(detail, "give one of them", field="budget")
    init = None if options.init is None else weights_file(options.init)
    images = open_set(options.data, options.kind, options.test, options.skip_bad, options.quiet)
    n_base = base_classes(images.name, len(images.classes), options.base)

    with busy("starting torch", options.quiet), needs("train"):
        import torch

        from cala.encoders.device import choose_device
        from cala.systems.published import published
        from cala.systems.registry import SYSTEMS
        from cala.training.devices import FabricRanks, make_ranks
        from cala.training.objective import BaseModel
        from cala.training.session import BaseSession

    recipe = choose_recipe(options, images)
    device = choose_device(options.device)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    ranks = make_ranks(options.devices, options.nodes, options.strategy, device)
    if options.threads is not None:
        torch.set_num_threads(options.threads)  # fabric has set its own meanwhile
    device = str(ranks.device) if isinstance(ranks, FabricRanks) else device
    if options.batch is None:
        recipe = _smaller_batch(recipe, images, n_base, options.holdout, ranks)
    method = options.method
    return BaseSession(
        images=images,
        recipe=recipe,
        n_base=n_base,
        out=options.out,
        seed=options.seed,
        holdout=options.holdout,
        selection=options.selection,
        init=init,
        method=method,
        objective=BaseModel if method is None else SYSTEMS[method].objective,
        loss={} if method is None else published(method, images.name).loss,
        budget=options.budget,
        device=device,
        autocast=_autocast(options.precision, device),
        compiled=options.compiled,
        minutes=options.minutes,
        ranks=ranks,
    )


def choose_recipe(options: TrainOptions, images: ImageSet) -> Recipe:
    """The recipe that the options name or imply, with their changes."""
    from cala.systems.published import published
    from cala.systems.registry import SYSTEMS
    from cala.training.recipes import RECIPES

    method, usual = options.method, FAST.get(images.name, "fast-photos")
    if options.init == "efficientnet-lite0":
        usual = ADAPTING.get(images.name, "adapt-photos")
    if options.published:
        assert method is not None
        if images.name not in PAPER_RECIPES:
            detail = f"--published: {method} has no published numbers for {images.name}"
            fix = f"omit it, or train on {', '.join(PAPER_RECIPES)}"
            raise InputError(detail, fix, field="published")
        numbers = published(method, images.name)
        chosen = RECIPES[options.recipe or PAPER_RECIPES[images.name]]
        chosen = chosen.changed(encoder=numbers.encoder, **numbers.base)
    else:
        chosen = RECIPES[options.recipe or usual]
        chosen = chosen.changed(**({} if method is None else SYSTEMS[method].changes))
    chosen = chosen.changed(
        views=options.views, encoder=options.encoder, batch=options.batch, lr=options.lr
    )
    epochs = options.epochs
    if epochs is not None:
        chosen = chosen.changed(epochs=epochs) if epochs <= 0 else chosen.lasting(epochs)
    return chosen.with_settings(options.settings or ())


def _smaller_batch(
    recipe: Recipe, images: ImageSet, n_base: int, holdout: int, ranks: Ranks
) -> Recipe:
    """The recipe with a smaller batch if the set has fewer images than the usual one."""
    count = int((images.train.labels < n_base).sum()) - holdout * n_base
    if count < 2 or recipe.batch <= count:
        return recipe
    batch = max(2, count // 4 // ranks.world) * ranks.world  # each process gets as many
    if ranks.rank == 0:
        note(f"batches of {batch}, not {recipe.batch}: there are {count} images")
    return recipe.changed(batch=batch)


def _autocast(precision: str, device: str) -> torch.dtype | None:
    import torch

    if precision == "auto":
        # On a CPU without matrix units for it, bfloat16 is many times slower.
        good = device.startswith("cuda") and torch.cuda.is_bf16_supported()
        precision = "bf16" if good else "full"
    return {"full": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]


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


class Screen(Bars):
    """Progress on a terminal; one line per epoch elsewhere."""

    def __init__(self, recipe: Recipe, quiet: bool) -> None:
        super().__init__(quiet)
        self.epochs = math.ceil(recipe.epochs)

    def loading(self, done: int, total: int) -> None:
        self.show("reading images", done, total)

    def step(self, trainer: Trainer) -> None:
        progress, steps = trainer.progress, trainer.steps_per_epoch
        self.epochs = -(-trainer.total_steps // steps)  # the last one may be a part of one
        if not self.on_terminal:
            return
        images = max(progress.epoch_images, 1)
        rate = progress.epoch_images / max(progress.epoch_seconds, 1e-9)
        self.show("training", progress.step, trainer.total_steps)
        self.describe(
            "training",
            f"epoch {min(progress.step // steps + 1, self.epochs)}/{self.epochs}  "
            f"loss {progress.epoch_loss / images:.3f}  "
            f"acc {100 * progress.epoch_correct / images:.1f}  {rate:.0f} img/s",
        )

    def epoch(self, line: dict[str, Any]) -> None:
        held = f"  held-out {100 * line['validation']:.1f}" if "validation" in line else ""
        self.print(
            f"epoch {line['epoch']:>3}/{self.epochs}  loss {line['loss']:.3f}  "
            f"acc {100 * line['accuracy']:.1f}{held}  {line['images_per_second']:.0f} img/s"
        )
