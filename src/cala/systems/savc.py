"""SAVC (Song et al., CVPR 2023): turned images are virtual classes, and contrast keeps all apart.

At inference there is a prototype for each view of a class, and the views vote. The base session is
heavy, so two savings: the classifier and the global contrast share one large image (the published
code sees two), and each of the four small crops is seen in one view, drawn at random, where the
published code sees it in all: the same loss on average.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self, Unpack

from cala.core._memory import AppendOnly
from cala.core.cala import TINY, PrototypeTable, normalise
from cala.core.metric import CosineMetric
from cala.core.rows import Array, parts_of
from cala.encoders.views import MOST_VIEWS, VIEWS, fantasy
from cala.errors import InputError
from cala.heads.base import State, Traits
from cala.heads.base_data import BaseData
from cala.heads.checks import check_number, is_auto
from cala.heads.nearest_mean import NearestMean
from cala.heads.table import ScaledOptions
from cala.systems.published import Published, base_session
from cala.systems.registry import System
from cala.training.augment import ResizedCrop
from cala.training.objective import CosineClassifier, Objective

RATE, MOMENTUM = 0.1, 0.9  # of the fine-tune in sessions
_CHOICES = (1, 2, 4, 12)  # numbers of views
_TEMPERATURE = 0.07
QUEUE, PER_CLASS = 8192, 128  # keys at the most, in all and of each virtual class on average
EMPTY = -1  # the label of a place that no key has taken yet
_NOTHING = -1e9
SLOWNESS = 0.995  # share of itself that the slow copy keeps in a step, as on CIFAR-100
GLOBAL, SMALL = 0.2, 0.8  # weights of the two contrasts
CROPS, SIDE, AREA = 4, 18 / 32, (0.2, 0.7)  # small crops: number, side, share of the key's area


# The head: rows of views, side by side.


def normalise_views(x: Array, views: int) -> Array:
    """Each view of a row by itself to length 1/√V, so that the row has length 1.

    The dot product of two such rows is the mean cosine over the views. A zero view stays zero.

    x : (n, V · d) -> (n, V · d)

    >>> normalise_views(np.array([[3.0, 4.0, 0.0, 2.0]]), 2) ** 2
    array([[0.18, 0.32, 0.  , 0.5 ]])
    """
    if views == 1:
        return normalise(x)
    return normalise(_apart(x, views)).reshape(x.shape) / views**0.5


def _apart(x: Array, views: int) -> Array:
    """(n, V · d) -> (n, V, d)"""
    return x.reshape(len(x), views, x.shape[1] // views)


def tuned_rows(
    unit: Array,
    own: Array,
    rows: Array,
    moving: Array,
    *,
    scale: float,
    views: int,
    epochs: int,
) -> Array:
    """The moving rows (m, d) after some steps of cross-entropy over all classes.

    All shots are one batch, so their order does not matter.

    unit : (n, d) shots; own : (n,) their columns; rows : (C, d); moving : (m,) columns
    """
    from scipy.special import softmax

    weights, moved = rows.copy(), rows[moving]
    speed = np.zeros_like(moved)
    for _ in range(epochs):
        weights[moving] = normalise_views(moved, views)
        logits = scale * unit @ weights.T
        shares = softmax(logits, axis=1)
        shares[np.arange(len(own)), own] -= 1
        slope = _apart(scale / len(own) * shares[:, moving].T @ unit, views)
        # Of the part of each view that turns it: its length has no effect.
        lengths = np.linalg.norm(_apart(moved, views), axis=2, keepdims=True)
        directions = _apart(moved, views) / np.maximum(lengths, TINY)
        slope = slope - (slope * directions).sum(2, keepdims=True) * directions
        slope /= np.maximum(lengths, TINY) * views**0.5
        speed = MOMENTUM * speed + slope.reshape(moved.shape)
        moved = moved - RATE * speed
    return normalise_views(moved, views)


class ViewMetric(CosineMetric):
    """Unit length for each view by itself."""

    def __init__(self, views: int) -> None:
        self.views = views

    def __call__(self, features: Array) -> Array:
        return normalise_views(features, self.views)


class Savc(NearestMean):
    """Logits s·mean_m cos(f_m, p_cm): view m of an image against view m of class c.

    An encoder of `cala train --method savc` puts the embeddings of the views side by side. With
    one view, as with any other encoder, this is `nearest-mean`.

    views : how many there are; "auto" takes what the encoder's `parts` say, else 1
    fine_tune : epochs in which the rows of new classes learn from their shots; 0 for none, the
        published number is 10. Rows of other classes stay exactly as they are
    """

    name = "savc"
    traits: ClassVar[Traits] = NearestMean.traits._replace(metrics=("cosine",))

    def __init__(
        self,
        *,
        views: int | str = "auto",
        fine_tune: int = 0,
        parts: Mapping[str, Array] | None = None,
        **common: Unpack[ScaledOptions],
    ) -> None:
        super().__init__(**common)
        given: Any = views
        if is_auto(views):
            stated = (parts or {}).get(VIEWS, np.ones(1)).ravel().tolist()
            given = stated[0] if len(stated) == 1 else stated
        self.views = int(check_number("views", given, 1, MOST_VIEWS, whole=True))
        self.fine_tune = int(check_number("fine_tune", fine_tune, whole=True))
        self.config.update(views=self.views, fine_tune=self.fine_tune)
        self.keeps_weights = self.fine_tune > 0  # else they follow from the table
        self.metric = ViewMetric(self.views)

    def fit_base(self, data: BaseData) -> Self:
        if data.dim % self.views:
            detail = f"embeddings have {data.dim} dimensions, not a multiple of {self.views} views"
            fix = "use embeddings of the encoder that savc was trained with"
            raise InputError(detail, fix, field="X", code="wrong_dimensions")
        return super().fit_base(data)

    def _fit_table(self, data: BaseData, rows: Array | None = None) -> None:
        parts = parts_of(data.features, data.columns, rows)
        units = ((self.metric(part), own) for part, own in parts)
        self.table = PrototypeTable.of(units, self.n_base, self.dim)

    def _directions(self, prototypes: Array) -> Array:
        return normalise_views(prototypes, self.views)

    def _without_own(self, cosines: Array, unit: Array, members: Array) -> Array:
        if self.views == 1:
            return super()._without_own(cosines, unit, members)
        rows = np.flatnonzero(members >= 0)
        own, mine = members[rows], unit[rows]
        rest, alone = self._rest(mine, own)
        left = (mine * self._directions(rest)).sum(1)
        result = cosines.copy()
        result[rows, own] = np.where(alone, 0.0, left)
        return result

    def _add(self, unit: Array, columns: Array) -> None:
        super()._add(unit, columns)
        shots = columns >= self.n_base
        if not self.fine_tune or not shots.any():
            return
        moving, weights = np.unique(columns[shots]), self._weights.copy()
        weights[moving] = tuned_rows(
            unit[shots],
            columns[shots],
            self._weights,
            moving,
            scale=self.scale,
            views=self.views,
            epochs=self.fine_tune,
        )
        self._rows = AppendOnly(weights)

    def new_row(self, unit: Array) -> tuple[Array, Array]:
        if self.fine_tune:
            detail = "savc with fine_tune has no formula for the row of a new class"
            raise InputError(detail, "use fine_tune=0", field="fine_tune", code="not_linear")
        return super().new_row(unit)

    def _restore(self, state: State) -> None:
        self.metric = ViewMetric(self.views)
        super()._restore(state)


# The base session: virtual classes, and contrast with a queue of keys.


def fantasies(images: Tensor, views: int) -> Tensor:
    """The first views, one after the other: (n, 3, s, s) -> (views · n, 3, s, s)."""
    return torch.cat([fantasy(images, view) for view in range(views)])


def fantasy_of_each(images: Tensor, views: Tensor) -> Tensor:
    """Each image in a view of its own: (n, 3, s, s) and (n,) -> (n, 3, s, s)."""
    out = torch.empty_like(images)
    for view in views.unique().tolist():
        chosen = views == view
        out[chosen] = fantasy(images[chosen], view)
    return out


def joint_labels(labels: Tensor, views: int) -> Tensor:
    """Labels y·M + m of what `fantasies` gives: (n,) -> (M · n,).

    >>> joint_labels(torch.tensor([0, 5]), 2)
    tensor([ 0, 10,  1, 11])
    """
    each = torch.arange(views, device=labels.device)[:, None]
    return (labels * views + each).flatten()


def over_views(joint: Tensor, views: int) -> Tensor:
    """Joint logits of all views -> logits of the classes: (M · n, C · M) -> (n, C).

    Each view is asked for its own virtual class, and the views vote.
    """
    apart = joint.unflatten(0, (views, -1)).unflatten(2, (-1, views))  # (M, n, C, M)
    return apart.diagonal(dim1=0, dim2=3).mean(-1)


def contrast(
    anchors: Tensor,
    keys: Tensor,
    labels: Tensor,
    queue: Tensor,
    queue_labels: Tensor,
    temperature: float = _TEMPERATURE,
) -> Tensor:
    """Mean over anchors of Σ_pos log(1 + Σ_neg e^{s_neg} · e^{−s_pos}) / #pos, a scalar.

    Positive are an anchor's own key and the keys of its class in the queue, negative all others
    there. Rows are unit vectors, s is their cosine over the temperature.

    anchors, keys : (n, e); labels : (n,); queue : (K, e); queue_labels : (K,)
    """
    own = (anchors * keys).sum(1) / temperature
    others = (anchors @ queue.T).to(own.dtype) / temperature  # autocast gives half precision
    same = labels[:, None] == queue_labels
    no_negative = same | (queue_labels == EMPTY)
    negatives = others.masked_fill(no_negative, _NOTHING).logsumexp(1)
    # Positives are few: only these are looked at one by one.
    row, column = same.nonzero(as_tuple=True)
    each = F.softplus(negatives[row] - others[row, column])
    sums = F.softplus(negatives - own).index_add(0, row, each)
    return (sums / (1 + same.sum(1))).mean()


class KeyQueue(nn.Module):
    """The last K keys and their labels; a new one takes the place of the oldest."""

    keys: Tensor  # (K, e) unit vectors
    labels: Tensor  # (K,), `EMPTY` where there is none
    place: Tensor  # () where the next key goes

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(size, dim))
        self.register_buffer("labels", torch.full((size,), EMPTY))
        self.register_buffer("place", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def put(self, keys: Tensor, labels: Tensor) -> None:
        """Keys (n, e) and labels (n,), in this order."""
        size = len(self.labels)
        keys, labels = keys[-size:], labels[-size:]
        places = (self.place + torch.arange(len(labels), device=labels.device)) % size
        self.keys[places] = keys.to(self.keys)
        self.labels[places] = labels
        self.place.copy_((self.place + len(labels)) % size)

    @property
    def empty(self) -> bool:
        return bool(self.labels[0] == EMPTY)


class VirtualContrast(Objective):
    """Cross-entropy over the virtual classes, and contrast of two sizes with a queue of keys."""

    views: ClassVar[int] = 2  # the query and the key
    waits: ClassVar[float] = 0.1  # a random projector would undo what a trained encoder knows
    wants_means: ClassVar[bool] = True

    def build(self, slowness: float = SLOWNESS) -> None:
        recipe = self.recipe
        if recipe.views not in _CHOICES:
            known = ", ".join(map(str, _CHOICES))
            raise InputError(f"views is {recipe.views}", f"use one of {known}", field="views")
        self.fantasy_views, self.slowness = recipe.views, slowness
        dim, narrow, virtual = self.dim, max(1, min(128, self.dim // 2)), self.n_base * recipe.views
        self.classifier = CosineClassifier(dim, virtual, recipe.scale)
        self.projector = nn.Sequential(
            nn.Linear(dim, dim), nn.ReLU(inplace=True), nn.Linear(dim, narrow)
        )
        self.slow = copy.deepcopy(nn.Sequential(self.encoder, self.projector)).requires_grad_(False)
        self.queue = KeyQueue(min(QUEUE, PER_CLASS * virtual), narrow)

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
        share = 1.0 if self.queue.empty else 1 - self.slowness
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


_BASE = base_session(128, 0.1, 600, scale=16.0, views=2)
_MINI = base_session(128, 0.1, 120, (40, 70, 100), warmup=0.0, scale=16.0, views=12)
_BIRDS = base_session(128, 0.002, 120, (60, 80, 100), warmup=0.0, scale=16.0, views=2)
PUBLISHED = {
    "cifar100": Published("resnet20", _BASE, loss={"slowness": SLOWNESS}),
    "mini_imagenet": Published("resnet18", _MINI, loss={"slowness": 0.999}),
    "cub200": Published("resnet18", _BIRDS, loss={"slowness": 0.999}),
}
SYSTEM = System(VirtualContrast, changes={**_BASE, "batch": 64})
