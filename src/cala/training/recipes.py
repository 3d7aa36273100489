"""How to train, as data: the CALA paper's recipes and fast ones."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from cala.encoders.efficientnet_lite0 import TRANSFORM as LITE
from cala.encoders.transform import CIFAR_MEAN, CIFAR_STD, Transform
from cala.errors import InputError
from cala.registry import Registry, check_choice

SCHEDULES = ("milestones", "one-cycle", "cosine")
AUGMENTATIONS = ("none", "crop", "resized-crop")
NORMS = ("train", "slow", "frozen")
MOST_CHANGES = 20  # operations of the policy per image
MOST_STORED = 8  # times the side that the encoder sees
SETTINGS = (
    "augment", "pad", "jitter", "jittered", "grey", "cutout", "policy", "smoothing",
    "weight_decay", "momentum", "schedule", "warmup", "factor", "scale", "store",
    "layer_decay", "freeze", "norms", "average", "keep", "blend",
)  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights, but the images and the seed.

    encoder : an architecture, or an encoder to start from
    batch : images per step over all devices
    lr, schedule : the peak of the learning rate and how it moves; `milestones` in epochs, each
        multiplies by `factor`; `one-cycle` rises for `warmup` of all steps and falls to 0 in
        a straight line, `cosine` falls along a cosine
    scale : of the cosine classifier at the start; it is learned
    augment, pad, jitter, cutout, policy : `crop` pads and shifts, `resized-crop` cuts a random
        part; strength of colour jitter; side of the black square; operations of the policy per
        image
    jittered, grey : shares of the images that get jitter, and that lose their colours
    sizes : (share of the epochs, side) steps of progressive resizing; empty keeps the full side
    views : versions of an image that are classes of their own, for methods that make such
    store : side at which the images wait in memory, for `resized-crop`
    pretrained : needs weights to start from
    means : the classifier starts at the class means of these weights
    layer_decay : the rate of each layer of the encoder as a fraction of that of the one above it,
        and of the last one as a fraction of the classifier's
    freeze : number of first layers that are not trained
    norms : batch norms `train`, are `slow` (their statistics stay, the rest learns at a tenth of
        the rate) or `frozen`
    average : the encoder is a moving average of the weights, in which those of a step count so
        many times less one step later; 0 for the last weights
    keep : how strongly the encoder's weights w are pulled back to those that it started from, a
        penalty of keep/2 · ‖w - w_start‖²
    blend : the encoder's weights are so far on the way from those of the start to the trained ones
        (Wortsman et al., 2022); 1 for the trained ones
    """

    name: str
    encoder: str
    transform: Transform
    epochs: float
    batch: int = 128
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: str = "milestones"
    milestones: tuple[float, ...] = ()
    factor: float = 0.1
    warmup: float = 0.2
    scale: float = 16.0
    smoothing: float = 0.0
    augment: str = "crop"
    pad: int = 4
    area: tuple[float, float] = (0.08, 1.0)
    jitter: float = 0.0
    jittered: float = 1.0
    grey: float = 0.0
    cutout: int = 0
    policy: int = 0
    sizes: tuple[tuple[float, int], ...] = ()
    views: int = 1
    store: int = 0
    pretrained: bool = False
    means: bool = False
    layer_decay: float = 1.0
    freeze: int = 0
    norms: str = "train"
    average: float = 0.0
    keep: float = 0.0
    blend: float = 1.0

    def __post_init__(self) -> None:
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("augmentation", self.augment, AUGMENTATIONS, "augment")
        check_choice("norms", self.norms, NORMS)
        side = self.transform.size
        above_0, share = (0, math.inf, "()"), (0, 1, "[]")
        ranges: dict[str, tuple[float, float, str]] = {
            "batch": (1, math.inf, "[)"), "epochs": above_0, "lr": above_0, "scale": above_0,
            "factor": above_0, "momentum": (0, 1, "[)"), "smoothing": (0, 1, "[)"),
            "average": (0, 1, "[)"), "freeze": (0, math.inf, "[)"), "keep": (0, math.inf, "[)"),
            "layer_decay": (0, 1, "(]"), "blend": (0, 1, "(]"), "weight_decay": share,
            "warmup": share, "jitter": share, "jittered": share, "grey": share,
            "policy": (0, MOST_CHANGES, "[]"), "pad": (0, side, "[]"), "cutout": (0, side, "[]"),
            "store": (0, MOST_STORED * side, "[]"),
        }  # fmt: skip
        for name, (low, high, ends) in ranges.items():
            value = getattr(self, name)
            over = value >= low if ends[0] == "[" else value > low
            under = value <= high if ends[1] == "]" else value < high
            if not (over and under):
                first = f"{'at least' if ends[0] == '[' else 'more than'} {low}"
                last = f"{'at most' if ends[1] == ']' else 'less than'} {high}"
                fix = f"use {first}" + (f" and {last}" if high < math.inf else "")
                raise InputError(f"{name} is {value}", fix, field=name)

    def changed(self, **changes: Any) -> Recipe:
        """A copy with other values; None leaves a value as it is."""
        given = {name: value for name, value in changes.items() if value is not None}
        return replace(self, **given)

    def lasting(self, epochs: float) -> Recipe:
        """The same course in another number of epochs."""
        ratio = epochs / self.epochs
        return replace(self, epochs=epochs, milestones=tuple(ratio * m for m in self.milestones))

    def with_settings(self, settings: Sequence[str]) -> Recipe:
        """A copy changed by texts such as `cutout=8`, for numbers and names of a recipe.

        >>> RECIPES["fast-cifar100"].with_settings(["cutout=8", "jitter=0.4"]).cutout
        8
        """
        changes: dict[str, Any] = {}
        kinds = {n: type(getattr(self, n)) for n in SETTINGS}
        for text in settings:
            name, equals, value = text.partition("=")
            if not equals:
                raise InputError(
                    f"setting {text!r}", "write NAME=VALUE, such as cutout=8", field="settings"
                )
            check_choice("setting", name, SETTINGS, "settings")
            try:
                changes[name] = kinds[name](value)
            except ValueError:
                raise InputError(
                    f"setting {text!r}", f"{name} is a number", field="settings"
                ) from None
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it: lists for tuples."""
        found: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return found

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Recipe:
        """The inverse of `as_dict`; settings that are not given have their defaults."""
        known = {field.name for field in fields(cls)}
        given = {k: _tuples(v) for k, v in content.items() if k in known}
        return cls(**{**given, "transform": Transform.from_dict(content["transform"])})

    @property
    def spans(self) -> list[tuple[float, int]]:
        """Share of all epochs that each side of the images gets."""
        ends = [min(share, 1.0) for share, _ in self.sizes] + [1.0]
        sides = [side for _, side in self.sizes] + [self.transform.size]
        starts = [0.0, *ends[:-1]]
        pairs = zip(starts, ends, sides, strict=True)
        return [(end - start, side) for start, end, side in pairs if end > start]

    def lr_at(self, step: int, steps_per_epoch: int) -> float:
        """The learning rate of a step, counted from 0 over all epochs."""
        total = max(1, round(self.epochs * steps_per_epoch))
        if self.schedule == "milestones":
            passed = sum(step >= m * steps_per_epoch for m in self.milestones)
            return self.lr * self.factor**passed
        return self.lr * _share(self.schedule, step, total, max(1, round(self.warmup * total)))

    def size_at(self, epoch: float) -> int:
        """The side of the images after a number of epochs."""
        for share, size in self.sizes:
            if epoch < share * self.epochs:
                return size
        return self.transform.size


def _share(schedule: str, step: int, total: int, warm: int) -> float:
    if step < warm:
        return (step + 1) / warm
    done = (step + 1 - warm) / max(total - warm + 1, 1)
    return 1 - done if schedule == "one-cycle" else (1 + math.cos(math.pi * done)) / 2


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


RECIPES: Registry[Recipe] = Registry("recipe")

CIFAR = Transform(32, 32, CIFAR_MEAN, CIFAR_STD)
MINI = Transform(84, 92, fit="squeeze")
CUB = Transform(224, 256)


def _enter(summary: str, recipe: Recipe) -> None:
    RECIPES.register(recipe.name, summary)(recipe)


_paper = Recipe(
    "paper-cifar100", "resnet18-small", CIFAR, 200, batch=256, milestones=(120, 160), scale=10.0
)
_enter("CALA paper, CIFAR-100: 200 epochs, lr 0.1, ×0.1 after 120 and 160", _paper)
_crops: dict[str, Any] = {"augment": "resized-crop", "store": 92}
_enter(
    "CALA paper, mini-ImageNet: 200 epochs, lr 0.1, ×0.1 after 120 and 160",
    replace(_paper, name="paper-mini-imagenet", transform=MINI, **_crops),
)
_enter(
    "CALA paper, CUB-200: 120 epochs, lr 0.01, ×0.1 after 50, 70 and 90, from ImageNet weights",
    replace(
        _paper, name="paper-cub200", encoder="resnet18", transform=CUB, epochs=120, lr=0.01,
        milestones=(50, 70, 90), pretrained=True, **{**_crops, "store": 256},
    ),
)  # fmt: skip
_fast = Recipe(
    "fast-cifar100", "resnet20", CIFAR, 60, batch=64, schedule="one-cycle",
    sizes=((0.4, 24), (0.65, 28)),
)  # fmt: skip
_enter("CIFAR-100 in about an hour on a CPU: ResNet-20, one cycle, small images first", _fast)
_enter(
    "CIFAR-100 in about ten hours on a CPU: ResNet-18, one cycle, small images first",
    replace(
        _fast, name="fast-cifar100-resnet18", encoder="resnet18-small", epochs=50, lr=0.06,
        cutout=8, sizes=((0.45, 20), (0.7, 26)),
    ),
)  # fmt: skip
_crops["area"] = (0.25, 1.0)
_enter(
    "mini-ImageNet in hours on a CPU: ResNet-18, one cycle, small images first",
    replace(
        _fast, name="fast-mini-imagenet", encoder="resnet18", transform=MINI, epochs=40,
        smoothing=0.1, sizes=((0.4, 48), (0.7, 64)), **_crops,
    ),
)  # fmt: skip
_enter(
    "your own photos: ResNet-18 at 84 pixels, one cycle",
    replace(
        _fast, name="fast-photos", encoder="resnet18", transform=Transform(84, 96), epochs=30,
        batch=32, lr=0.05, sizes=(), **{**_crops, "store": 96},
    ),
)  # fmt: skip
_adapt = Recipe(
    "adapt-photos", "efficientnet-lite0", LITE, 5, batch=32, lr=0.02, weight_decay=0.0,
    schedule="cosine", warmup=0.1, smoothing=0.1, augment="resized-crop", area=(0.3, 1.0),
    jitter=0.3, sizes=((0.6, 160),), store=256, pretrained=True, means=True, layer_decay=0.9,
    freeze=6, norms="frozen", average=0.98, blend=0.5,
)  # fmt: skip
_enter("your own photos, from the weights of EfficientNet-Lite0", _adapt)
_enter("CUB-200, from the weights of EfficientNet-Lite0", _adapt.changed(name="adapt-cub200"))
