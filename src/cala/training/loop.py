"""The training loop: one place where weights change.

Order and augmentation of every step follow from the seed and the step's number alone, so a run
that was interrupted ends with the same weights as one that was not.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cala.encoders.transform import Transform
from cala.errors import InputError
from cala.training.augment import augmentation
from cala.training.devices import Ranks
from cala.training.layers import at_rates, hold, layer_rates
from cala.training.objective import Objective
from cala.training.recipes import Recipe
from cala.training.run_dir import TrainingState

EVAL_BATCH = 500  # images of up to EVAL_SIDE pixels, fewer of larger ones
EVAL_SIDE = 84


@dataclass(frozen=True)
class BaseImages:
    """The base classes as whole tensors.

    train, holdout : (n, s, s, 3) uint8; train_labels, holdout_labels : (n,)
    """

    train: Tensor
    train_labels: Tensor
    holdout: Tensor
    holdout_labels: Tensor


class Diverged(InputError):
    """The loss or a weight is not finite."""


class Trainer:
    """Trains a model on base images by a recipe.

    warm : the encoder starts from trained weights, so its class means say something
    autocast : bfloat16 or float16 where the device has it, None for full precision
    """

    def __init__(
        self,
        model: Objective,
        data: BaseImages,
        recipe: Recipe,
        *,
        seed: int = 0,
        warm: bool = False,
        device: torch.device | str = "cpu",
        autocast: torch.dtype | None = None,
        compiled: bool = False,
        ranks: Ranks | None = None,
    ) -> None:
        self.recipe, self.seed, self.warm = recipe, seed, warm
        self.augmentation = augmentation(recipe)
        self.ranks = ranks or Ranks()
        if self.ranks.world > 1 and not model.divisible:
            raise InputError(
                "this method trains on episodes, which several devices cannot share",
                "use one device",
                field="devices",
            )
        self.device = torch.device(device)
        self.autocast = autocast
        self.model = model.to(self.device)
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        own = layer_rates(model.encoder, recipe)
        self.optimiser = torch.optim.SGD(
            at_rates(model.groups(recipe), own),
            lr=recipe.lr,
            momentum=recipe.momentum,
            nesterov=recipe.momentum > 0,
        )
        hold(model.encoder, recipe)
        self.start = {p: p.detach().clone() for p in own} if recipe.keep else {}
        self.net = self.ranks.wrap(self.model)
        if compiled:
            self.net = torch.compile(self.net)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=autocast == torch.float16)
        self.data = BaseImages(*(t.to(self.device) for t in vars(data).values()))
        self._labels = data.train_labels.cpu()
        self.progress = TrainingState()
        self.best: dict[str, Tensor] = {}
        self.average: dict[str, Tensor] = {}

    @property
    def steps_per_epoch(self) -> int:
        return len(self.data.train) // self.recipe.batch

    @property
    def total_steps(self) -> int:
        return max(1, round(self.steps_per_epoch * self.recipe.epochs))

    def run(
        self,
        *,
        after_step: Callable[[Trainer], bool] = lambda trainer: False,
        after_epoch: Callable[[Trainer], None] = lambda trainer: None,
    ) -> bool:
        """Train to the end, or until `after_step` returns True; says whether it is the end."""
        progress, total = self.progress, self.total_steps
        if progress.step == 0:
            self.begin()
        while progress.step < total:
            self._timed(lambda: self._step(progress.step))
            progress.step += 1
            if progress.step % self.steps_per_epoch == 0 or progress.step == total:
                self._end_epoch()
                after_epoch(self)
            if after_step(self):
                return progress.step >= total
        return True

    def begin(self) -> None:
        """What comes before the first step."""
        if self.warm and (self.model.wants_means or self.recipe.means):
            self._timed(lambda: self.model.begin(self.class_means()))

    def rehearse(self, steps: int) -> float:
        """Do some steps, to see how long one takes on average: in seconds of processor time."""
        waits = self.model.waits if self.warm else 0.0
        end = self.total_steps
        each = 0.0
        for share, first in ((waits, 0), (1 - waits, math.ceil(waits * end))):
            if share <= 0:
                continue
            wanted = [min(first + i, end - 1) for i in range(steps)]
            self._step(wanted[0])  # the first one of a kind takes longer
            before = self.progress.cpu_seconds
            for step in wanted:
                self._timed(partial(self._step, step))
            each += share * (self.progress.cpu_seconds - before) / steps
        return each

    def _timed(self, work: Callable[[], None]) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        self.progress.cpu_seconds += time.process_time() - cpu
        spent = time.perf_counter() - wall
        self.progress.seconds += spent
        self.progress.epoch_seconds += spent

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Augmented, normalised images (views · b, 3, s, s) and labels (b,) of this rank."""
        epoch, place = divmod(step, self.steps_per_epoch)
        order = torch.randperm(len(self.data.train), generator=seeded(self.seed, "order", epoch))
        size = self.recipe.batch
        rows = order[place * size : (place + 1) * size]
        rows = self.model.rows(rows, self._labels, seeded(self.seed, "rows", step))
        views = self.model.views
        u = self.augmentation.draw(views * len(rows), seeded(self.seed, "augment", step))
        mine = slice(self.ranks.rank, None, self.ranks.world)
        rows = rows[mine].to(self.device)
        u = u.unflatten(0, (views, -1))[:, mine].flatten(0, 1).to(self.device)
        images = self.augmentation(self.data.train[rows.repeat(views)], u)
        side = self.recipe.size_at(step / self.steps_per_epoch)
        return self._input(images, side), self.data.train_labels[rows]

    def _input(self, images: Tensor, size: int) -> Tensor:
        inputs = resized(self.recipe.transform.normalise(images), size)
        return inputs.contiguous(memory_format=torch.channels_last)

    def _step(self, step: int) -> None:
        images, labels = self.batch(step)
        for group in self.optimiser.param_groups:
            factor = group.get("factor", 1.0)
            group["lr"] = factor * self.recipe.lr_at(step, self.steps_per_epoch)
        self.net.train()
        self.model.reached(step / self.total_steps)
        waits = self.warm and step < self.model.waits * self.total_steps
        self.model.encoder.requires_grad_(not waits)
        if waits:
            self.model.encoder.eval()
        hold(self.model.encoder, self.recipe)
        with (
            own_random(seeded(self.seed, f"step {self.ranks.rank}", step)),
            torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None),
        ):
            loss, logits = self.net(images, labels)
        self.optimiser.zero_grad(set_to_none=True)
        self.ranks.backward(self.scaler.scale(loss))
        self.scaler.step(self.optimiser)
        self.scaler.update()
        self._pull_back()
        self._follow(step)
        shown = labels[: len(logits)]  # of an episode, the queries come first
        correct = (logits.argmax(1) == shown).sum()
        sums = self.ranks.total(torch.stack([loss.detach() * len(shown), correct]).double())
        if not sums[0].isfinite():  # the sum, so that all processes stop here
            raise self._diverged(step, f"the loss is {float(sums[0])}")
        self.progress.epoch_loss += float(sums[0])
        self.progress.epoch_correct += int(sums[1])
        self.progress.epoch_images += len(shown) * self.ranks.world

    @torch.no_grad()
    def _pull_back(self) -> None:
        """The step of the penalty `keep`, taken implicitly: stable however strong it is."""
        if self.start:
            for group in self.optimiser.param_groups:
                pull = group["lr"] * self.recipe.keep
                for parameter in group["params"]:
                    if parameter in self.start:
                        parameter.lerp_(self.start[parameter], pull / (1 + pull))

    @torch.no_grad()
    def _follow(self, step: int) -> None:
        """Move the average; of the first steps it is the plain mean."""
        if not self.recipe.average:
            return
        share = max(1 - self.recipe.average, 1 / (step + 1))
        for name, tensor in self.model.state_dict().items():
            if name not in self.average or not tensor.is_floating_point():
                self.average[name] = tensor.detach().clone()
            else:
                self.average[name].lerp_(tensor, share)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The model with the weights that are validated and written."""
        if not self.average:
            yield
            return
        own = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        self.model.load_state_dict(self.average)
        try:
            yield
        finally:
            self.model.load_state_dict(own)

    def _end_epoch(self) -> None:
        progress = self.progress
        epoch = -(-progress.step // self.steps_per_epoch)
        images = max(progress.epoch_images, 1)
        line: dict[str, Any] = {
            "epoch": epoch,
            "step": progress.step,
            "loss": progress.epoch_loss / images,
            "accuracy": progress.epoch_correct / images,
            "lr": self.recipe.lr_at(progress.step - 1, self.steps_per_epoch),
            "scale": self.model.scale,
            "size": self.recipe.size_at(epoch - 1),
            "seconds": round(progress.epoch_seconds, 3),
            "images_per_second": round(images / max(progress.epoch_seconds, 1e-9), 1),
        }
        if len(self.data.holdout):
            with self.averaged():
                line["validation"] = self.validate()
                if line["validation"] > progress.best:
                    progress.best, progress.best_epoch = line["validation"], epoch
                    self.best = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
        progress.log.append(line)
        progress.epoch_loss, progress.epoch_correct, progress.epoch_images = 0.0, 0, 0
        progress.epoch_seconds = 0.0

    @torch.no_grad()
    def validate(self) -> float:
        """Accuracy of the classifier on the held-out base images, plain test transform."""
        self.model.eval()
        correct = 0
        for inputs, labels in self._plain(self.data.holdout, self.data.holdout_labels):
            correct += int((self.model.logits(inputs).argmax(1) == labels).sum())
        return correct / len(self.data.holdout)

    @torch.no_grad()
    def class_means(self) -> Tensor:
        """Means of unit embeddings of the training images, as unit vectors: (B, d)."""
        self.model.eval()
        sums = torch.zeros(self.model.n_base, self.model.dim, device=self.device)
        for inputs, labels in self._plain(self.data.train, self.data.train_labels):
            sums.index_add_(0, labels, F.normalize(self.model.encoder(inputs), dim=1))
        return F.normalize(sums, dim=1)

    def _plain(self, images: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches as the encoder sees images at test time, and their labels."""
        transform = self.recipe.transform
        most = max(1, EVAL_BATCH * EVAL_SIDE**2 // max(EVAL_SIDE, transform.size) ** 2)
        for some, own in zip(images.split(most), labels.split(most), strict=True):
            yield self._input(centre(some, transform), transform.size), own

    def check_finite(self) -> None:
        """Raise if a weight is NaN or infinite, as after a step that was far too long."""
        for name, tensor in self.model.state_dict().items():
            if not tensor.isfinite().all():
                raise self._diverged(self.progress.step - 1, f"{name} is not finite")

    def _diverged(self, step: int, what: str) -> Diverged:
        return Diverged(
            f"training diverged at step {step + 1} of {self.total_steps}: {what}",
            f"start again in another folder with a lower --lr (it is {self.recipe.lr:g})",
            field="lr",
        )

    def tensors(self) -> dict[str, Tensor]:
        """Everything a checkpoint needs."""
        found = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            buffer = self.optimiser.state[parameter].get("momentum_buffer")
            if buffer is not None:
                found[f"momentum.{name}"] = buffer
        for what, weights in (("best", self.best), ("average", self.average)):
            found.update({f"{what}.{k}": v for k, v in weights.items()})
        state = self.scaler.state_dict()  # empty without half precision
        found.update({f"scaler.{k}": torch.tensor(float(v)) for k, v in state.items()})
        return found

    def restore(self, tensors: dict[str, Tensor], progress: TrainingState) -> None:
        """Continue from a checkpoint's content."""

        def part(prefix: str) -> dict[str, Tensor]:
            return {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}

        self.model.load_state_dict(part("model."))
        self.best, self.average = (
            {k: v.to(self.device) for k, v in part(what).items()} for what in ("best.", "average.")
        )
        momentum = part("momentum.")
        for name, parameter in self.model.named_parameters():
            if name in momentum:
                buffer = torch.empty_like(parameter).copy_(momentum[name])
                self.optimiser.state[parameter]["momentum_buffer"] = buffer
        scaler = {k: float(v) for k, v in part("scaler.").items()}
        if scaler:
            counts = ("growth_interval", "_growth_tracker")
            self.scaler.load_state_dict({**scaler, **{k: int(scaler[k]) for k in counts}})
        self.progress = progress


def centre(images: Tensor, transform: Transform) -> Tensor:
    """The middle `size` × `size` of images stored larger."""
    top, left = ((side - transform.size) // 2 for side in images.shape[1:3])
    return images[:, top : top + transform.size, left : left + transform.size]


def resized(inputs: Tensor, size: int) -> Tensor:
    """(n, 3, s, s) -> (n, 3, size, size)"""
    if inputs.shape[-1] == size:
        return inputs
    return F.interpolate(inputs, size=(size, size), mode="bilinear", antialias=True)


def seeded(seed: int, what: str, number: int) -> torch.Generator:
    """A generator for one purpose at one place of the run."""
    digest = hashlib.sha256(f"{seed}/{what}/{number}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


@contextmanager
def own_random(generator: torch.Generator) -> Iterator[None]:
    """torch's own random numbers (dropout, mixing) follow from a generator's seed here."""
    devices = range(torch.cuda.device_count())
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(generator.initial_seed())
        yield
