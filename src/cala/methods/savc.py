"""SAVC (Song et al., CVPR 2023): turned images are virtual classes, and contrast keeps all apart.

It is heavy, so two savings: the classifier and the global contrast share one large image (the
published code sees two), and each of the four small crops is seen in one view, drawn at random,
where the published code sees it in all: the same loss on average.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from cala.core.contrast import KeyQueue, contrast
from cala.core.fantasy import VIEWS, fantasies, fantasy_of_each, joint_labels, over_views
from cala.errors import InputError
from cala.methods.registry import METHODS, Method
from cala.training.augment import ResizedCrop
from cala.training.objective import CosineClassifier, Objective
from cala.training.recipes import Recipe

CHOICES = (1, 2, 4, 12)  # numbers of views
QUEUE, PER_CLASS = 8192, 128  # keys at the most, in all and of each virtual class on average
SLOWNESS = 0.995  # share of itself that the slow copy keeps in a step
GLOBAL, SMALL = 0.2, 0.8  # weights of the two contrasts
CROPS, SIDE, AREA = 4, 18 / 32, (0.2, 0.7)  # small crops: number, side, share of the key's area


class VirtualContrast(Objective):
    """Cross-entropy over the virtual classes, and contrast of two sizes with a queue of keys."""

    views: ClassVar[int] = 2  # the query and the key
    waits: ClassVar[float] = 0.1  # a random projector would undo what a trained encoder knows
    wants_means: ClassVar[bool] = True

    def __init__(self, encoder: nn.Module, n_base: int, fantasy_views: int, scale: float) -> None:
        super().__init__()
        if fantasy_views not in CHOICES:
            known = ", ".join(map(str, CHOICES))
            raise InputError(f"views is {fantasy_views}: use one of {known}")
        dim = int(encoder.dim)  # type: ignore[arg-type]
        narrow = max(1, min(128, dim // 2))
        virtual = n_base * fantasy_views
        self.encoder, self.n_base, self.fantasy_views = encoder, n_base, fantasy_views
        self.classifier = CosineClassifier(dim, virtual, scale)
        self.projector = nn.Sequential(
            nn.Linear(dim, dim), nn.ReLU(inplace=True), nn.Linear(dim, narrow)
        )
        self.slow = copy.deepcopy(nn.Sequential(encoder, self.projector)).requires_grad_(False)
        self.queue = KeyQueue(min(QUEUE, PER_CLASS * virtual), narrow)

    @classmethod
    def make(cls, encoder: nn.Module, n_base: int, recipe: Recipe, n_classes: int) -> Self:
        return cls(encoder, n_base, recipe.views, recipe.scale)

    def begin(self, means: Tensor) -> None:
        """All views of a class start at its mean."""
        with torch.no_grad():
            self.classifier.weight.copy_(means.repeat_interleave(self.fantasy_views, 0))

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        query, key = images.chunk(self.views)
        joint = joint_labels(labels, self.fantasy_views)
        keys = self._keys(key)
        views = deal_views(len(key), self.fantasy_views).to(labels.device)
        with whole_image_statistics(self.encoder):
            small = self.encoder(fantasy_of_each(small_crops(key), views))
        of_crop = views * len(key) + torch.arange(len(key), device=views.device).repeat(CROPS)
        features = self.encoder(fantasies(query, self.fantasy_views))
        logits = self.classifier(features).float()
        loss = F.cross_entropy(logits, joint)
        queue = self.queue.keys.clone()  # backward needs them as they are now
        loss = loss + GLOBAL * self._contrast(features, keys, joint, queue)
        loss = loss + SMALL * self._contrast(small, keys[of_crop], joint[of_crop], queue)
        if self.training:
            self.queue.put(keys, joint)
        return loss, over_views(logits.detach(), self.fantasy_views)

    def _contrast(self, features: Tensor, keys: Tensor, joint: Tensor, queue: Tensor) -> Tensor:
        """Of features (n, d) with their keys (n, e) and virtual classes (n,)."""
        anchors = F.normalize(self.projector(features).float(), dim=1)
        return contrast(anchors, keys, joint, queue, self.queue.labels)

    @torch.no_grad()
    def _keys(self, images: Tensor) -> Tensor:
        """What the slow copy makes of the views: (n, 3, s, s) -> (M · n, e)."""
        if self.training:
            self._follow()
        self.slow[0].train(self.encoder.training)
        projected = self.slow(fantasies(images, self.fantasy_views))
        return F.normalize(projected.float(), dim=1)

    def _follow(self) -> None:
        """Move the slow copy towards the encoder; all the way before the first keys, since
        weights to start from are loaded after the copy was made."""
        share = 1.0 if self.queue.empty else 1 - SLOWNESS
        fast = nn.Sequential(self.encoder, self.projector)
        for slow, parameter in zip(self.slow.parameters(), fast.parameters(), strict=True):
            slow.lerp_(parameter, share)
        for statistic, buffer in zip(self.slow.buffers(), fast.buffers(), strict=True):
            statistic.copy_(buffer)

    def logits(self, images: Tensor) -> Tensor:
        joint = self.classifier(self.encoder(fantasies(images, self.fantasy_views)))
        return over_views(joint, self.fantasy_views)

    def parts(self) -> dict[str, Tensor]:
        return {VIEWS: torch.tensor([float(self.fantasy_views)])}

    @property
    def scale(self) -> float:
        return float(self.classifier.scale.detach())

    def groups(self, recipe: Recipe) -> list[dict[str, Any]]:
        """Weight decay for all but the scale; the slow copy only follows."""
        scale = self.classifier.scale
        moved = (p for p in self.parameters() if p is not scale)
        frozen = {id(p) for p in self.slow.parameters()}
        return [
            {
                "params": [p for p in moved if id(p) not in frozen],
                "weight_decay": recipe.weight_decay,
            },
            {"params": [scale], "weight_decay": 0.0},
        ]


def deal_views(n: int, views: int) -> Tensor:
    """A view for each small crop, as different ones as possible for one image: (4 · n,)."""
    first = torch.randint(views, (n,))
    return ((first + torch.arange(CROPS)[:, None]) % views).flatten()


def small_crops(images: Tensor) -> Tensor:
    """Four random parts of each image, at 18 of 32 pixels: (n, 3, s, s) -> (4 · n, 3, s', s')."""
    crop = ResizedCrop(max(1, round(SIDE * images.shape[-1])), AREA)
    u = torch.rand(CROPS * len(images), crop.draws).to(images.device)
    cut = crop(images.permute(0, 2, 3, 1).repeat(CROPS, 1, 1, 1), u)
    return cut.permute(0, 3, 1, 2)


@contextmanager
def whole_image_statistics(encoder: nn.Module) -> Iterator[None]:
    """Small crops do not enter the running statistics: only whole images are encoded later."""
    norms = [m for m in encoder.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    usual = [norm.momentum for norm in norms]
    try:
        for norm in norms:
            norm.momentum = 0.0
        yield
    finally:
        for norm, momentum in zip(norms, usual, strict=True):
            norm.momentum = momentum


METHODS.register("savc", "virtual classes of turned images, contrast with a queue; views vote")(
    Method(
        VirtualContrast.make,
        {
            "batch": 64,  # published: 128
            "lr": 0.1,
            "epochs": 600,
            "schedule": "cosine",
            "warmup": 0.0,
            "scale": 16.0,
            "sizes": (),
            "views": 2,
        },
    )
)
