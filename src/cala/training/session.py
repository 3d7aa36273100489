"""The base session from start to end: train, checkpoint, resume, write the encoder."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cala.data.images import ImageSet
from cala.data.progress import Advance
from cala.encoders.registry import ARCHITECTURES, ENCODERS
from cala.encoders.weights import load_weights, read_weights, save_encoder
from cala.errors import InputError
from cala.files import reason, sha256, shown, write_text
from cala.registry import check_choice
from cala.training import run_dir
from cala.training.devices import Ranks
from cala.training.images import (
    BaseRows,
    InitProvenance,
    base_rows,
    init_provenance,
    load_base,
)
from cala.training.loop import BaseImages, Diverged, Trainer, own_random, seeded
from cala.training.objective import BaseModel, MakeObjective, Objective
from cala.training.recipes import Recipe

SELECTIONS = ("last", "validation")
TIMED_STEPS = 8
TRAINED = 512  # training images that an encoder remembers


@dataclass(frozen=True)
class BaseSession:
    """What to train.

    n_base : number of base classes, the first of the set
    holdout : images per base class that training never sees
    selection : which weights become the encoder: the last, or the best on held-out images
    init : weight file to start from
    method, objective : the method whose base session this is, and what that minimises
    loss : numbers of the objective, by name
    budget : minutes of processor time; as many epochs as fit into it
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
    method: str | None = None
    objective: MakeObjective = BaseModel
    loss: Mapping[str, Any] = field(default_factory=dict)
    budget: float | None = None
    device: str = "cpu"
    autocast: torch.dtype | None = None
    compiled: bool = False
    minutes: float = 5.0
    ranks: Ranks = field(default_factory=Ranks)

    def __post_init__(self) -> None:
        check_choice("selection", self.selection, SELECTIONS)
        recipe, budget, world = self.recipe, self.budget, self.ranks.world
        shared = -(-recipe.batch // world) * world
        known = recipe.encoder in ENCODERS
        file = recipe.encoder if known else f"FILE, such as torchvision's {recipe.encoder} weights"
        checks = (
            (self.holdout >= 0, "holdout", f"holdout is {self.holdout}", "use 0 or more"),
            (self.selection != "validation" or self.holdout, "holdout",
             "selection by validation needs held-out images", "add --holdout 25"),
            (budget is None or 0 < budget < float("inf"), "budget", f"budget is {budget}",
             "give minutes above 0"),
            (budget is None or world == 1, "budget", "a budget is for one process",
             "with several devices give --epochs"),
            (recipe.batch == shared, "batch",
             f"a batch of {recipe.batch} cannot be shared by {world} processes",
             f"use a multiple of {world}, such as --batch {shared}"),
            (self.init or not recipe.pretrained, "init",
             f"recipe {recipe.name} starts from pretrained weights", f"give --init {file}"),
            (self.init or not (recipe.keep or recipe.blend < 1), "init",
             "keep and blend need weights that training starts from", "give --init"),
        )  # fmt: skip
        for good, name, detail, fix in checks:
            if not good:
                raise InputError(detail, fix, field=name)

    def lasting(self, epochs: float) -> BaseSession:
        """The same course in another number of epochs."""
        return replace(self, recipe=self.recipe.lasting(epochs))

    @cached_property
    def config(self) -> dict[str, Any]:
        """What must be equal for a run to be continued."""
        options = {"method": self.method, "loss": dict(self.loss) or None, "budget": self.budget}
        return {
            **{name: value for name, value in options.items() if value is not None},
            "recipe": self.recipe.as_dict(),
            "dataset": self.images.name,
            "images": self.images.fingerprint,
            "base": self.n_base,
            "holdout": self.holdout,
            "seed": self.seed,
            "init": None if self.init is None else _named(self.init),
            "precision": str(self.autocast or torch.float32).removeprefix("torch."),
            "devices": self.ranks.world,
            "compiled": self.compiled,
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
    rows = base_rows(session.images, session.n_base, session.holdout, session.seed)
    if session.recipe.batch > len(rows.train):
        raise InputError(
            f"a batch of {session.recipe.batch} is larger than the {len(rows.train)} training "
            "images",
            f"use --batch {min(32, len(rows.train))}",
            field="batch",
        )
    make_model(session)  # fails before anything is read or written
    with run_dir.locked_run(session.out) if session.ranks.rank == 0 else nullcontext():
        begun = _begun(session, resume)
        if begun is not None:
            if session.budget is not None:  # decided once
                session = session.lasting(begun.config["recipe"]["epochs"])
            run_dir.check_same(begun.config, session.config, session.out / run_dir.CHECKPOINT)
        _check_same_start(session, begun)
        provenance = init_provenance(session.init, session.images, rows)
        data = load_base(session.images, rows, session.recipe, loading)
        if session.budget is not None and begun is None:
            session = session.lasting(epochs_within(session, data))
        trainer = make_trainer(session, data)
        if begun is not None:
            trainer.restore(begun.tensors, begun.progress)
        writer = _Writer(session, trainer, provenance)

        def each_step(trainer: Trainer) -> bool:
            after_step(trainer)
            stopping = bool(session.ranks.total(torch.tensor(float(stop()))) > 0)
            if stopping or writer.due():
                writer.save()
            return stopping

        try:
            with session.ranks.together():
                whole = trainer.run(
                    after_step=each_step, after_epoch=lambda t: after_epoch(t.progress.log[-1])
                )
            if not whole:
                return None
            writer.save()
        except Diverged as error:
            raise InputError(
                error.detail, f"{error.fix}; {writer.kept()}", field="lr", code="diverged"
            ) from None
        writer.encoder(rows)
    session.ranks.wait()
    return session.out / run_dir.ENCODER_FILE


def make_trainer(session: BaseSession, data: BaseImages) -> Trainer:
    return Trainer(
        make_model(session),
        data,
        session.recipe,
        seed=session.seed,
        warm=session.init is not None,
        device=session.device,
        autocast=session.autocast,
        compiled=session.compiled,
        ranks=session.ranks,
    )


def epochs_within(session: BaseSession, data: BaseImages) -> float:
    """How many epochs the budget allows, from the processor time of a few steps thrown away."""
    assert session.budget is not None
    trainer = make_trainer(session, data)
    trainer.begin()
    left = 60 * session.budget - trainer.progress.cpu_seconds
    each = 0.0
    for share, side in session.recipe.spans:  # small images take less time
        recipe = session.recipe.changed(sizes=((1.0, side),))
        each += share * make_trainer(replace(session, recipe=recipe), data).rehearse(TIMED_STEPS)
    return max(1.0, left // max(each, 1e-6)) / trainer.steps_per_epoch


def _begun(session: BaseSession, resume: bool) -> run_dir.Checkpoint | None:
    """The run in the folder, None where there is none."""
    checkpoint = session.out / run_dir.CHECKPOINT
    if not checkpoint.exists():
        return None
    if not resume:
        raise run_dir.begun_error(session.out)
    begun = run_dir.load_checkpoint(checkpoint)
    # A setting that the run did not know yet has its default, which changes nothing.
    begun.config["recipe"] = Recipe.from_dict(begun.config["recipe"]).as_dict()
    return begun


def _check_same_start(session: BaseSession, begun: run_dir.Checkpoint | None) -> None:
    """Raise on all processes unless all of them continue at the same step."""
    step = 0 if begun is None else begun.progress.step
    found = session.ranks.total(torch.tensor([step, step**2], dtype=torch.float64))
    world = session.ranks.world
    if float(found[0]) ** 2 != world * float(found[1]):
        raise InputError(
            f"not all processes see the same checkpoint in {shown(session.out)} (this one: step "
            f"{step})",
            "with several nodes --out must be a folder that all of them share",
            field="out",
            code="other_checkpoints",
        )


class _Writer:
    """Writes what a run leaves in its folder; of several processes, the first one does."""

    def __init__(self, session: BaseSession, trainer: Trainer, provenance: InitProvenance) -> None:
        self.session, self.trainer, self.provenance = session, trainer, provenance
        self.first = session.ranks.rank == 0
        self.written = time.monotonic()
        self.step = trainer.progress.step  # of the checkpoint in the folder, 0 for none
        if self.first:
            write_text(
                session.out / run_dir.CONFIG_FILE, json.dumps(session.config, indent=1) + "\n"
            )

    def due(self) -> bool:
        return time.monotonic() - self.written > 60 * self.session.minutes

    def save(self) -> None:
        """Checkpoint and log; weights that are NaN or infinite never replace good ones."""
        self.trainer.check_finite()
        self.written = time.monotonic()
        if not self.first:
            return
        out, progress = self.session.out, self.trainer.progress
        run_dir.save_checkpoint(
            out / run_dir.CHECKPOINT, self.trainer.tensors(), self.session.config, progress
        )
        self.step = progress.step
        lines = [json.dumps(line, allow_nan=False) + "\n" for line in progress.log]
        write_text(out / run_dir.LOG_FILE, "".join(lines))

    def kept(self) -> str:
        if not self.step:
            return "no checkpoint was written"
        return f"the checkpoint of step {self.step} is still there"

    def encoder(self, rows: BaseRows) -> None:
        """Write the encoder with all that is known about its training."""
        if not self.first:
            return
        session, trainer = self.session, self.trainer
        model = trainer.model
        chosen = trainer.best if session.selection == "validation" else trainer.average
        if chosen:
            model.load_state_dict(chosen)
        if session.recipe.blend < 1:
            start = make_model(session).encoder.state_dict()
            for name, weights in model.encoder.state_dict().items():
                if weights.is_floating_point():
                    weights.lerp_(start[name].to(weights), 1 - session.recipe.blend)
        train = session.images.train
        order = torch.randperm(len(rows.train), generator=seeded(session.seed, "trained", 0))
        some = train.digests(rows.train[order[:TRAINED].numpy()])
        classes = [*session.images.classes[: session.n_base], *self.provenance.classes]
        save_encoder(
            session.out / run_dir.ENCODER_FILE,
            model.encoder,
            architecture=session.recipe.encoder,
            transform=session.recipe.transform,
            scale=model.scale,
            parts=model.parts(),
            holdout=frozenset(train.digests(rows.holdout)),
            trained=self.provenance.trained | {digest[:32] for digest in some},
            about={
                **session.config,
                "classes": list(dict.fromkeys(classes)),
                "selection": session.selection,
                "epochs": trainer.recipe.epochs,
                "validation": trainer.progress.log[-1].get("validation"),
                "minutes": round(trainer.progress.seconds / 60, 1),
                "cpu_minutes": round(trainer.progress.cpu_seconds / 60, 1),
            },
        )


def make_model(session: BaseSession) -> Objective:
    """The encoder and what is trained with it at the start, by the seed alone."""
    with own_random(seeded(session.seed, "weights", 0)):
        encoder: nn.Module = ARCHITECTURES[session.recipe.encoder]()
        n_classes = len(session.images.classes)
        objective = session.objective(
            encoder, session.n_base, session.recipe, n_classes, **session.loss
        )
    if session.init is not None:
        tensors = read_weights(session.init)
        load_weights(encoder, tensors, shown(session.init), session.recipe.encoder)
    return objective


def _named(init: Path) -> dict[str, str]:
    try:
        return {"file": init.name, "sha256": sha256(init)}
    except OSError as error:
        detail = f"cannot read weights from {shown(init)} ({reason(error)})"
        raise InputError(detail, "give another file", field="init") from error
