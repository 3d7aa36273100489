"""NC-FSCIL (Yang et al., ICLR 2023): every class, also those to come, has its place beforehand.

A simplex gives each class a vertex. Encoder and neck turn images to the vertices of their classes;
in sessions the neck alone learns. On the embeddings of any other encoder the head trains the neck.
"""

from __future__ import annotations

import copy
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self, Unpack

from cala.core.cala import DEFAULT_SCALE, mix, normalise
from cala.core.rows import Array, chunks
from cala.errors import InputError
from cala.heads.base import State, Traits
from cala.heads.base_data import BaseData
from cala.heads.checks import check_number
from cala.heads.table import ScaledOptions
from cala.systems.common.learner import descend, nesterov
from cala.systems.common.with_parts import HeadWithParts, network
from cala.systems.published import Published, base_session
from cala.systems.registry import System
from cala.training.objective import Objective

NECK_PREFIX = "nc."  # what the names of the neck's tensors begin with, beside an encoder
VERTICES = "nc.vertices"
STATE = "neck."  # the same, in a head's state
WIDTH, SLOPE = 512, 0.1  # of the neck
_WEIGHT = 10.0  # of the dot-regression loss
MOMENTUM = 0.9
LAYER_EPS = 1e-5  # of torch's layer norm
FEWEST, SHARE = 5.0, 0.1  # how much a new class weighs in its session, chosen on dev queries
MIXUP, CUTMIX = 0.8, 1.0  # both parameters of the Beta distribution that λ comes from
SHARES = (0.4, 0.4, 0.2)  # of batches with mixup, with CutMix, left as they are


# How a head trains its neck: as published, but in steps of the rate and until it gains no more.
BATCH, BATCHES = 512, 8  # rows at the most; batches of an epoch at the least
_RATES = (0.25, 0.025)
DECAY = 5e-4
PATIENCE, LONGEST = 3, 60  # epochs: without a gain, and of one rate
HELD_PARTS = 10  # one of them is held out where the encoder held out none
MOST_NUMBERS = 2**27  # that are kept of base rows: 512 MB


# The simplex, and the loss towards its vertices.


def simplex_etf(n_classes: int, dim: int, generator: torch.Generator | None = None) -> Tensor:
    """Vertices (C, d): unit vectors with a cosine of −1/(C−1) between any two.

    Rows of Mᵀ, M = √(C/(C−1))·U(I − 11ᵀ/C), the columns of U (d, C) orthonormal and random.

    generator : decides U; None is torch's own

    >>> vertices = simplex_etf(3, 4, torch.Generator().manual_seed(0))
    >>> (vertices @ vertices.T).mul(2).round().int().tolist()
    [[2, -1, -1], [-1, 2, -1], [-1, -1, 2]]
    """
    if n_classes < 2:
        detail = f"nc-fscil needs two classes or more, not {n_classes}"
        raise InputError(detail, "add classes", code="one_class")
    if dim < n_classes:
        detail = f"{n_classes} classes need as many dimensions, and the neck of nc-fscil has {dim}"
        fix = "make the neck wider, or train with fewer classes"
        raise InputError(detail, fix, code="too_many_classes")
    drawn = torch.randn(dim, n_classes, dtype=torch.float64, generator=generator)
    basis = torch.linalg.qr(drawn).Q
    centred = basis - basis.mean(1, keepdim=True)
    return (math.sqrt(n_classes / (n_classes - 1)) * centred).T.float().contiguous()


def dot_regression(outputs: Tensor, vertices: Tensor) -> Tensor:
    """10·½·(cos(h, m) − 1)² of each row: (n, d), (n, d) unit vertices -> (n,)."""
    cosines = (F.normalize(outputs, dim=1) * vertices).sum(1)
    return _WEIGHT / 2 * (cosines - 1).square()


# The neck, and what a session does to it.


class Neck(nn.Module):
    """Two hidden layers of twice the dimensions and a linear way around them: (n, d) -> (n, w).

    It takes unit embeddings times √d, so that their numbers are about 1: sessions know embeddings
    by their direction alone, and a neck that was trained with lengths would miss them there.
    """

    def __init__(self, dim: int, width: int = WIDTH) -> None:
        super().__init__()
        wide = 2 * dim
        self.body = nn.Sequential(
            nn.Linear(dim, wide),
            nn.LayerNorm(wide),
            nn.LeakyReLU(SLOPE),
            nn.Linear(wide, wide),
            nn.LayerNorm(wide),
            nn.LeakyReLU(SLOPE),
            nn.Linear(wide, width, bias=False),
        )
        self.skip = nn.Linear(dim, width, bias=False)
        self.dim = dim

    def forward(self, unit: Tensor) -> Tensor:
        x = math.sqrt(self.dim) * unit
        return self.body(x) + self.skip(x)


def neck_width(n_classes: int) -> int:
    """As published, or as many as a simplex of that many classes needs."""
    return max(WIDTH, n_classes)


def turn_neck(
    neck: Neck, rows: Tensor, vertices: Tensor, weights: Tensor, *, steps: int, lr: float
) -> Neck:
    """A copy of the neck after some steps towards the vertices, all rows in each of them.

    Nothing here is random. In NumPy: a session has few rows, and torch would spend its time on
    keeping track of a hundred small operations per step.

    rows : (n, d) unit vectors; vertices : (n, w) where each is to go; weights : (n,), sum to one
    """
    turned = copy.deepcopy(neck).requires_grad_(False)
    parameters = [parameter.numpy() for parameter in turned.parameters()]  # they share memory
    speeds = [np.zeros_like(parameter) for parameter in parameters]
    x, towards, weight = math.sqrt(neck.dim) * rows.numpy(), vertices.numpy(), weights.numpy()
    for _ in range(steps):
        slopes = _neck_slopes(parameters, x, towards, weight)
        for parameter, speed, slope in zip(parameters, speeds, slopes, strict=True):
            speed *= MOMENTUM
            speed += slope
            parameter -= lr * speed
    return turned


def _neck_slopes(parameters: list[Array], x: Array, vertices: Array, weight: Array) -> list[Array]:
    """Slopes of Σ weight·`dot_regression` by the parameters of a neck, in their order.

    x : (n, d) its inputs, of length √d; vertices : (n, w); weight : (n,)
    """
    *hidden, out, skip = parameters
    below, layers = x, []
    for w, b, gain, offset in (hidden[:4], hidden[4:]):
        before = below @ w.T + b
        before -= before.mean(1, keepdims=True)
        width = np.sqrt((before**2).mean(1, keepdims=True) + LAYER_EPS)
        normed = before / width
        raw = gain * normed + offset
        layers.append((below, w, gain, width, normed, raw))
        below = np.where(raw > 0, raw, SLOPE * raw)
    outputs = below @ out.T + x @ skip.T
    length = np.linalg.norm(outputs, axis=1, keepdims=True)
    unit = outputs / length
    cosines = (unit * vertices).sum(1)
    slope = ((_WEIGHT * weight * (cosines - 1))[:, None] / length) * (
        vertices - cosines[:, None] * unit
    )
    found = [slope.T @ below, slope.T @ x]
    slope = slope @ out
    for below, w, gain, width, normed, raw in reversed(layers):
        slope = np.where(raw > 0, slope, SLOPE * slope)
        of_norm = [(slope * normed).sum(0), slope.sum(0)]
        slope = gain * slope
        slope = slope - slope.mean(1, keepdims=True)
        slope = (slope - normed * (slope * normed).mean(1, keepdims=True)) / width
        found = [slope.T @ below, slope.sum(0), *of_norm, *found]
        slope = slope @ w
    return found


def train_neck(data: BaseData, embed: Callable[[Array], Array]) -> tuple[Neck, Tensor]:
    """A neck for frozen embeddings, and its vertices: (V, w).

    Held-out base rows decide when it gains no more: those that the encoder has not learned from,
    or a tenth of each class. There is room for as many classes as the neck is wide.

    embed : makes unit vectors of rows
    """
    rng = np.random.default_rng(0)
    rows = data.rows.thinned(max(MOST_NUMBERS // data.dim, data.n_base), rng)
    held = np.zeros(len(data), dtype=bool)
    if data.holdout is not None:
        held[rows.order] = data.holdout[rows.order]
    if not held.any() or (rows.where(~held).counts == 0).any():
        held[:] = False
        held[rows.folds(HELD_PARTS, rng)[0].order] = True
    learned = rows.where(~held)
    parts = [learned, rows.where(held) if held.any() else learned]  # classes of one row each
    inputs, judged = (torch.from_numpy(embed(data.features[part.order])).float() for part in parts)
    targets, expected = (torch.from_numpy(part.columns) for part in parts)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        width = neck_width(2 * data.n_base)
        vertices, neck = simplex_etf(width, width), Neck(data.dim, width)
        best, best_loss = copy.deepcopy(neck), math.inf
        batch = max(1, min(BATCH, len(inputs) // BATCHES))
        for rate in _RATES:
            neck.load_state_dict(best.state_dict())
            optimiser = nesterov(list(neck.parameters()), rate, DECAY)
            without = 0
            for _ in range(LONGEST):
                for chosen in torch.randperm(len(inputs)).split(batch):
                    loss = dot_regression(neck(inputs[chosen]), vertices[targets[chosen]]).mean()
                    descend(optimiser, loss)
                with torch.no_grad():
                    now = float(dot_regression(neck(judged), vertices[expected]).mean())
                without = 0 if now < best_loss else without + 1
                if now < best_loss:
                    best, best_loss = copy.deepcopy(neck), now
                if without == PATIENCE:
                    break
    return best.requires_grad_(False), vertices


class NcFscil(HeadWithParts):
    """Logits s·cos(neck(f), m_c) with m_c vertex c of a simplex that never moves.

    Only the neck learns, in every session a few steps from where the session before left it: on
    the means of all classes seen. A new one weighs as much as a tenth of those known before, at
    least as five of them.
    More shots of a class that is known, or forgetting one, play all sessions again, so the head
    is always what the same classes with the same shots would have made of it.

    `prototypes` are class means: vertices are all equally far apart, and would tell an adapter
    nothing about which classes are alike.

    Without `parts` the neck is trained in `fit_base`, on the base embeddings as they are.

    scale : of the logits, or "auto" for the one that minimises cross-entropy on base rows
    steps, lr : of a session, by gradient descent with a momentum of 0.9; the rate was chosen on dev
        queries, and `PUBLISHED` has those of the authors
    """

    name = "nc-fscil"
    traits: ClassVar[Traits] = HeadWithParts.traits._replace(
        takes_encoder_scale=False,
        needs_parts=False,
        # Its base session mixes images too, and tells the encoder which two classes they are of.
        mixed_images_are_new=False,
    )

    saved_values = ("scale", "_places", "_first", "_sessions")

    # Forks share both necks: a session makes a new one.
    _start: Neck  # as the base session left it
    _neck: Neck
    _vertices: Array  # (V, w)
    _places: Sequence[int]  # which vertex each base class has
    _first: int  # the first vertex of novel classes
    _sessions: Sequence[int]  # how many classes each of them brought

    def __init__(
        self,
        *,
        steps: int = 100,
        lr: float = 0.0025,
        parts: Mapping[str, Array] | None = None,
        **common: Unpack[ScaledOptions],
    ) -> None:
        super().__init__(parts=parts, **common)
        self.steps = int(check_number("steps", steps, 1, whole=True))
        self.lr = check_number("lr", lr, above=True)
        self.config.update(steps=self.steps, lr=self.lr)
        self._trains_neck = not any(name.startswith(NECK_PREFIX) for name in self.parts)

    @classmethod
    def part_shapes(cls, dim: int) -> dict[str, tuple[int | None, ...]]:
        with torch.device("meta"):
            neck = Neck(dim).state_dict()
        shapes: dict[str, tuple[int | None, ...]] = {
            NECK_PREFIX + k: v.shape for k, v in neck.items()
        }
        of_width = {
            NECK_PREFIX + k: (None, neck[k].shape[1]) for k in ("body.6.weight", "skip.weight")
        }
        return {**shapes, **of_width, VERTICES: (None, None)}

    def check_parts(self, dim: int) -> None:
        if not self._trains_neck:
            super().check_parts(dim)

    def blank(self) -> Self:
        """A neck that was trained here belongs to the rows that it was trained on."""
        return type(self)(**self.config, parts=None if self._trains_neck else self.parts)

    def _take_parts(self) -> None:
        if VERTICES not in self.parts:
            return  # `_fit_base` makes them
        self._vertices = normalise(self.parts[VERTICES].astype(self.dtype))
        self._start = self._made_neck(self.parts, NECK_PREFIX)

    def _made_neck(self, arrays: Mapping[str, Array], prefix: str) -> Neck:
        """A neck of the arrays whose names begin with the prefix."""
        width = self._vertices.shape[1]
        return network(lambda: Neck(self.dim, width), arrays, prefix, self.dtype)

    @property
    def room(self) -> int:
        return len(self._vertices) - self._first - sum(self._sessions)

    @torch.no_grad()
    def _scores(self, unit: Array, members: Array | None) -> Array:
        """Cosines to the vertices of all seen classes: (n, d) -> (n, C)."""
        vertices = self._vertices[self._vertices_of(len(self.classes))]
        cosines = np.empty((len(unit), len(vertices)), self.dtype)
        for part in chunks(len(unit), self._vertices.shape[1]):
            outputs = self._neck(torch.from_numpy(unit[part]))
            cosines[part] = normalise(outputs.numpy()) @ vertices.T
        return cosines

    def _vertices_of(self, columns: int) -> list[int]:
        """Which vertex each of the first columns has: (C,)."""
        novel = columns - self.n_base
        return [*self._places, *range(self._first, self._first + novel)]

    def _fit_base(self, data: BaseData) -> None:
        if self._trains_neck:
            neck, vertices = train_neck(data, self.embed)
            trained = {NECK_PREFIX + k: v.numpy() for k, v in neck.state_dict().items()}
            self.parts = {**trained, VERTICES: vertices.numpy()}
            self._take_parts()
        self._places, self._first, self._sessions = list(range(self.n_base)), self.n_base, []
        self._check_room()
        self._neck = self._start
        super()._fit_base(data)

    def _add(self, unit: Array, columns: Array) -> None:
        super()._add(unit, columns)
        known = self.n_base + sum(self._sessions)
        new = len(self.classes) - known
        if new or not self._sessions:
            self._sessions = [*self._sessions, new]
        self._check_room()
        if bool((columns < known).any()):
            self._play_all()
        else:
            self._neck = self._after_session(known, new)

    def _forget(self, column: int) -> None:
        super()._forget(column)
        if column < len(self._places):
            self._places = [*self._places[:column], *self._places[column + 1 :]]
        else:
            self._sessions = _one_less(self._sessions, column - self.n_base)
        self._play_all()

    def _play_all(self) -> None:
        """All sessions again, from the base session on."""
        self._neck, known = self._start, self.n_base
        for new in self._sessions:
            self._neck = self._after_session(known, new)
            known += new

    def _after_session(self, known: int, new: int) -> Neck:
        """The neck after a session in which some new classes join those known."""
        weights = np.ones(known + new, self.dtype)
        weights[known:] = max(FEWEST, SHARE * known)
        return turn_neck(
            self._neck,
            torch.from_numpy(self._weights[: known + new]),
            torch.from_numpy(self._vertices[self._vertices_of(known + new)]),
            torch.from_numpy(weights / weights.sum()),
            steps=self.steps,
            lr=self.lr,
        )

    def _check_room(self) -> None:
        if self.room >= 0:
            return
        what, fix = "neck", "start again with more base classes"
        if not self._trains_neck:
            what, data = "encoder", "on a data set that has all classes to come"
            fix = f"train one with `cala train DATA -o DIR --method {self.name}` {data}"
        most = len(self._vertices)
        detail = f"this {what} was trained with room for {most} classes, and now there are"
        raise InputError(f"{detail} {most - self.room}", fix, code="no_room")

    def state(self) -> State:
        state = super().state()
        state["meta"]["trains_neck"] = self._trains_neck
        neck = self._neck.state_dict()
        state["tensors"].update({STATE + k: v.numpy() for k, v in neck.items()})
        return state

    def _restore(self, state: State) -> None:
        super()._restore(state)
        self._trains_neck = state["meta"].get("trains_neck", False)
        self._neck = self._made_neck(state["tensors"], STATE)


def _one_less(sessions: Sequence[int], at: int) -> tuple[int, ...]:
    """Sizes of sessions after the class that came at a place among all was forgotten.

    >>> _one_less((2, 1), 1), _one_less((2, 1), 2)
    ((1, 1), (2,))
    """
    index = bisect_right(list(accumulate(sessions)), at)
    smaller = sessions[index] - 1
    rest = (smaller, *sessions[index + 1 :]) if smaller else sessions[index + 1 :]
    return (*sessions[:index], *rest)


# The base session: a batch of images blended with itself by mixup or CutMix, two labels for each.


@dataclass(frozen=True)
class Blend:
    """Images of two parents.

    images : (n, 3, h, w); other : (n,) the row that each image was blended with
    share : λ, how much of an image is its own
    """

    images: Tensor
    other: Tensor
    share: float


def blend(images: Tensor) -> Blend:
    """Mixup, CutMix or neither of a batch (n, 3, h, w), drawn from torch's own generator."""
    order = torch.randperm(len(images)).to(images.device)
    kind = float(torch.rand(()))
    if kind < SHARES[0]:
        return mixup(images, order, _beta(MIXUP))
    if kind < SHARES[0] + SHARES[1]:
        return cutmix(images, order, _beta(CUTMIX), *torch.rand(2).tolist())
    return Blend(images, order, 1.0)


def mixup(images: Tensor, other: Tensor, share: float) -> Blend:
    """Every pixel is of both."""
    return Blend(mix(images, images[other], share), other, share)


def cutmix(images: Tensor, other: Tensor, share: float, down: float, right: float) -> Blend:
    """A box of the other image, centred at the fractions `down` and `right` of its sides.

    The box has a share of 1 − λ before the image's borders cut it; λ is then what is left.
    """
    height, width = images.shape[2:]
    side = math.sqrt(1 - share)
    top, bottom = _span(down, side, height)
    left, end = _span(right, side, width)
    cut = images.clone()
    cut[:, :, top:bottom, left:end] = images[other, :, top:bottom, left:end]
    return Blend(cut, other, 1 - (bottom - top) * (end - left) / (height * width))


def _span(place: float, side: float, length: int) -> tuple[int, int]:
    """From where to where a box reaches along one axis."""
    middle, half = int(place * length), int(side * length) // 2
    return max(middle - half, 0), min(middle + half, length)


def _beta(concentration: float) -> float:
    return float(torch.distributions.Beta(concentration, concentration).sample())


class FixedVertices(Objective):
    """Encoder and neck turn each image towards its class's vertex of a simplex that never moves.

    There is a vertex for every class of the data set; where all of these are base classes, as many
    places again are kept. A blended image goes to the vertices of both its parents, to each by its
    share.
    """

    waits: ClassVar[float] = 0.2  # a random neck would undo what a trained encoder knows

    vertices: Tensor  # (C, w), the base classes first

    def build(self) -> None:
        places = self.n_classes if self.n_classes > self.n_base else 2 * self.n_base
        width = neck_width(places)
        self.neck = Neck(self.dim, width)
        self.register_buffer("vertices", simplex_etf(places, width))

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        blended = blend(images)
        outputs = self._outputs(blended.images)
        loss = blended.share * dot_regression(outputs, self.vertices[labels])
        if blended.share < 1:
            others = self.vertices[labels[blended.other]]
            loss = loss + (1 - blended.share) * dot_regression(outputs, others)
        return loss.mean(), self._cosines(outputs).detach()

    def _outputs(self, images: Tensor) -> Tensor:
        return self.neck(F.normalize(self.encoder(images).float(), dim=1)).float()

    def _cosines(self, outputs: Tensor) -> Tensor:
        """To the base vertices: (n, w) -> (n, B)."""
        return (F.normalize(outputs, dim=1) @ self.vertices[: self.n_base].T).float()

    def logits(self, images: Tensor) -> Tensor:
        return DEFAULT_SCALE * self._cosines(self._outputs(images))

    def parts(self) -> dict[str, Tensor]:
        neck = {NECK_PREFIX + k: v for k, v in self.neck.state_dict().items()}
        return {**neck, VERTICES: self.vertices}


_BASE = base_session(512, 0.25, 200, warmup=0.02, jitter=0.4)
_STEPS = {"factor": 0.25, "warmup": 0.02, "jitter": 0.4}
_MINI = base_session(512, 0.25, 500, (200, 300, 350, 400, 450), **_STEPS)
PUBLISHED = {
    "cifar100": Published("resnet12", _BASE, session={"lr": 0.25}),
    "mini_imagenet": Published("resnet12", _MINI, session={"lr": 0.025}),
    "cub200": Published(
        "resnet18",
        {**_BASE, "lr": 0.025, "epochs": 80},
        session={"lr": 0.05},
        missing="how the rate falls; here along a cosine, as on CIFAR-100",
    ),
}
# Short budgets on a processor need the steps, so the batch is a quarter of the published one, and
# with it the rate.
SYSTEM = System(FixedVertices, changes={**_BASE, "batch": 128, "lr": 0.06})
