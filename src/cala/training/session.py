"""The base session from start to end: train, checkpoint, resume, write the encoder."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from filelock import BaseFileLock, FileLock, Timeout
from torch import nn

from cala.data.images import ImageSet
from cala.encoders.architectures import ARCHITECTURES
from cala.encoders.weights import load_weights, read_weights, save_encoder
from cala.errors import InputError
from cala.files import shown, write_text
from cala.registry import check_choice
from cala.training.augment import Augmentation, ColourJitter, Cutout, Flip, PadCrop, ResizedCrop
from cala.training.checkpoint import load_checkpoint, save_checkpoint
from cala.training.devices import Ranks, Single
from cala.training.images import Advance, BaseRows, base_rows, load_base
from cala.training.loop import Trainer, seeded
from cala.training.objective import BaseModel, CosineClassifier
from cala.training.policy import Policy
from cala.training.recipes import Recipe

SELECTIONS = ("last", "validation")
TRAINED = 512  # training images that an encoder remembers
CHECKPOINT, ENCODER, LOG, CONFIG = (
    "checkpoint.safetensors",
    "encoder.safetensors",
    "log.jsonl",
    "config.json",
)


@dataclass(frozen=True)
class BaseSession:
    """What to train.

    n_base : the first so many classes of the set
    holdout : images per base class that training never sees
    selection : which weights become the encoder: the last, or the best on held-out images
    init : weight file to start from
    minutes : between checkpoints
    ranks : the processes that train together; the first of them writes
    """

    images: ImageSet
    recipe: Recipe
    n_base: int
    out: Path
    seed: int = 0
    holdout: int = 0
    selection: str = "last"
    init: Path | None = None
    device: str = "cpu"
    autocast: torch.dtype | None = None
    compiled: bool = False
    minutes: float = 5.0
    ranks: Ranks = field(default_factory=Single)

    def __post_init__(self) -> None:
        check_choice("selection", self.selection, SELECTIONS)
        if self.holdout < 0:
            raise InputError(f"holdout is {self.holdout}: use 0 or more images per class")
        if self.selection == "validation" and not self.holdout:
            raise InputError("selection by validation needs held-out images: add --holdout 25")
        if self.recipe.batch % self.ranks.world:
            raise InputError(
                f"a batch of {self.recipe.batch} cannot be shared by {self.ranks.world} devices: "
                "use a multiple with --batch"
            )
        if self.recipe.pretrained and self.init is None:
            raise InputError(
                f"recipe {self.recipe.name} starts from pretrained weights: give --init FILE, such "
                "as torchvision's resnet18 weights"
            )

    @property
    def config(self) -> dict[str, Any]:
        """What must be equal for a run to be continued."""
        return {
            "recipe": json.loads(json.dumps(self.recipe.as_dict())),
            "dataset": self.images.name,
            "images": self.images.fingerprint,
            "base": self.n_base,
            "holdout": self.holdout,
            "seed": self.seed,
            "init": None if self.init is None else self.init.name,
        }


def train_base(
    session: BaseSession,
    *,
    resume: bool = False,
    stop: Callable[[], bool] = lambda: False,
    loading: Advance = lambda done, total: None,
    after_step: Callable[[Trainer], None] = lambda trainer: None,
    after_epoch: Callable[[dict[str, Any]], None] = lambda line: None,
) -> Path | None:
    """Train, and write the encoder; returns its path, or None when `stop` ended the run early.

    The checkpoint is written every few minutes, at the end, and when `stop` says so.
    """
    out = session.out
    checkpoint = out / CHECKPOINT
    if checkpoint.exists() and not resume:
        raise InputError(
            f"{shown(out)} holds a training run already: add --resume to continue it, or choose "
            "another folder"
        )
    recipe = session.recipe
    rows = base_rows(session.images, session.n_base, session.holdout, session.seed)
    if recipe.batch > len(rows.train):
        raise InputError(
            f"a batch of {recipe.batch} is larger than the {len(rows.train)} training images: "
            f"use --batch {min(32, len(rows.train))}"
        )
    found = None
    if checkpoint.exists():
        found = load_checkpoint(checkpoint)
        _same(found[1], session.config, checkpoint)
    trainer = Trainer(
        make_model(session),
        load_base(session.images, rows, recipe, loading),
        recipe,
        augmentation(recipe),
        seed=session.seed,
        device=session.device,
        autocast=session.autocast,
        compiled=session.compiled,
        ranks=session.ranks,
    )
    if found is not None:
        trainer.restore(found[0], found[2])
    first = session.ranks.rank == 0
    lock = FileLock(out / "lock", timeout=0)
    if first:
        _make_folder(out)
        _hold(lock, out)
        write_text(out / CONFIG, json.dumps(session.config, indent=1) + "\n")
    written = time.monotonic()

    def save() -> None:
        nonlocal written
        written = time.monotonic()
        if not first:
            return
        save_checkpoint(checkpoint, trainer.tensors(), session.config, trainer.progress)
        lines = [json.dumps(line) + "\n" for line in trainer.progress.log]
        write_text(out / LOG, "".join(lines))

    def each_step(trainer: Trainer) -> bool:
        after_step(trainer)
        stopping = bool(session.ranks.total(torch.tensor(float(stop()))) > 0)
        if stopping or time.monotonic() - written > 60 * session.minutes:
            save()
        return stopping

    try:
        if not trainer.run(
            after_step=each_step, after_epoch=lambda t: after_epoch(t.progress.log[-1])
        ):
            return None
        save()
        if first:
            _write_encoder(session, trainer, rows)
    finally:
        lock.release()
    session.ranks.wait()
    return out / ENCODER


def make_model(session: BaseSession) -> BaseModel:
    """Encoder and classifier at the start, by the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seeded(session.seed, "weights", 0).initial_seed())
        encoder: nn.Module = ARCHITECTURES[session.recipe.encoder]()
        dim = int(encoder.dim)  # type: ignore[arg-type]
        classifier = CosineClassifier(dim, session.n_base, session.recipe.scale)
    if session.init is not None:
        tensors = read_weights(session.init)
        load_weights(encoder, tensors, shown(session.init), session.recipe.encoder)
    return BaseModel(encoder, classifier)


def augmentation(recipe: Recipe) -> Augmentation:
    """The recipe's operations, in the order in which the field applies them."""
    operations: list[Any] = []
    if recipe.augment == "crop":
        operations += [PadCrop(recipe.pad), Flip()]
    elif recipe.augment == "resized-crop":
        operations += [ResizedCrop(recipe.transform.size, recipe.area), Flip()]
    if recipe.jitter:
        operations.append(ColourJitter(recipe.jitter, recipe.jitter, recipe.jitter))
    if recipe.policy:
        operations.append(Policy(recipe.policy))
    if recipe.cutout:
        operations.append(Cutout(recipe.cutout))
    return Augmentation(tuple(operations))


def _write_encoder(session: BaseSession, trainer: Trainer, rows: BaseRows) -> None:
    model = trainer.model
    if session.selection == "validation":
        model.load_state_dict(trainer.best)
    train = session.images.train
    order = torch.randperm(len(rows.train), generator=seeded(session.seed, "trained", 0))
    some = train.digests(rows.train[order[:TRAINED].numpy()])
    save_encoder(
        session.out / ENCODER,
        model.encoder,
        architecture=session.recipe.encoder,
        transform=session.recipe.transform,
        scale=float(model.classifier.scale.detach()),
        holdout=frozenset(train.digests(rows.holdout)),
        trained=frozenset(digest[:32] for digest in some),
        about={
            **session.config,
            "classes": list(session.images.classes[: session.n_base]),
            "selection": session.selection,
            "epochs": trainer.recipe.epochs,
            "validation": (trainer.progress.log[-1] if trainer.progress.log else {}).get(
                "validation"
            ),
            "minutes": round(trainer.progress.seconds / 60, 1),
        },
    )


def _same(found: dict[str, Any], wanted: dict[str, Any], path: Path) -> None:
    for key, value in wanted.items():
        if found.get(key) != value:
            raise InputError(
                f"{shown(path)} is of another run: its {key} is {_short(found.get(key))}, not "
                f"{_short(value)}. Use the same options, or another folder"
            )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 100 else f"{text[:97]}…"


def _hold(lock: BaseFileLock, out: Path) -> None:
    try:
        lock.acquire()
    except Timeout:
        raise InputError(
            f"another process is training in {shown(out)}: wait for it, or choose another folder"
        ) from None


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"the folder {shown(out)} cannot be made ({error.strerror})") from error
