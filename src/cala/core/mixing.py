"""Fake novel classes: each mixes the images, or the embeddings, of two base classes (Eq. 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cala.core.prototypes import PrototypeTable, chunks, normalise, parts_of
from cala.core.stored_rows import Features

LAMBDA_RANGE = (0.4, 0.6)
LISTED_PAIRS = 2**22  # more pairs than that are drawn one by one instead of listed and shuffled


def mix(x_i: Tensor, x_j: Tensor, lam: Tensor | float) -> Tensor:
    """Eq. 1: λ·x_i + (1 − λ)·x_j.

    >>> mix(torch.tensor([1.0]), torch.tensor([0.0]), 0.4)
    tensor([0.4000])
    """
    return lam * x_i + (1 - lam) * x_j


@dataclass(frozen=True)
class FakePool:
    """Embeddings of fake classes, made once and drawn from by every pseudo session.

    features : (P, M, d), M images of each of P fake classes
    pairs : (P, 2) int64, the two base columns each one mixes, unordered and distinct
    """

    features: Tensor
    pairs: Tensor

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def images(self) -> int:
        return self.features.shape[1]

    def split(self, share: float, generator: torch.Generator) -> tuple[FakePool, FakePool]:
        """Two pools without a common pair; the second holds `share` of them, at least one."""
        order = torch.randperm(len(self), generator=generator)
        held = min(max(round(share * len(self)), 1), len(self) - 1)
        parts = order[held:].sort().values, order[:held].sort().values
        first, second = (FakePool(self.features[i], self.pairs[i]) for i in parts)
        return first, second


def draw_pairs(n_base: int, limit: int, generator: torch.Generator) -> Tensor:
    """At most `limit` distinct unordered pairs of base classes, in random order: (P, 2)."""
    possible = n_base * (n_base - 1) // 2
    if possible > LISTED_PAIRS and 2 * limit < possible:
        return _draw_few_pairs(n_base, limit, generator)
    first, second = torch.triu_indices(n_base, n_base, offset=1)
    order = torch.randperm(len(first), generator=generator)[:limit]
    return torch.stack([first[order], second[order]], 1)


def _draw_few_pairs(n_base: int, limit: int, generator: torch.Generator) -> Tensor:
    """Like `draw_pairs` in memory that grows with `limit` only: draw, and draw again if known."""
    codes = np.empty(0, dtype=np.int64)
    while len(codes) < limit:
        drawn = torch.randint(n_base, (2 * limit, 2), generator=generator).sort(1).values
        distinct = drawn[drawn[:, 0] != drawn[:, 1]]
        codes = np.concatenate([codes, (distinct[:, 0] * n_base + distinct[:, 1]).numpy()])
        codes = codes[np.sort(np.unique(codes, return_index=True)[1])]
    kept = torch.from_numpy(codes[:limit])
    return torch.stack([kept // n_base, kept % n_base], 1)


def draw_parents(
    columns: Tensor, pairs: Tensor, images: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Which rows to mix, and how: row indices (P, M) of both parents and λ (P, M).

    Within a fake class no row is mixed twice as long as its parents have M rows: some of its
    images will be shots and others queries, and queries made of the shots' own rows are too easy.

    columns : (n,) base class of each row
    """
    order = columns.argsort(stable=True).cpu()
    counts = torch.bincount(columns).cpu()
    starts = counts.cumsum(0) - counts
    wanted = torch.arange(images)

    def some(parent: int) -> Tensor:
        count = int(counts[parent])
        return starts[parent] + torch.randperm(count, generator=generator)[wanted % count]

    places = [some(parent) for pair in pairs.tolist() for parent in pair]
    rows = order[torch.stack(places)] if places else order.new_empty(0, images)
    low, high = LAMBDA_RANGE
    lam = low + (high - low) * torch.rand(len(pairs), images, generator=generator)
    return rows[::2], rows[1::2], lam


def pool_shape(columns: Tensor, pairs: int, images: int) -> tuple[int, int]:
    """Fake classes and images of each that rows (n,) can make, within pairs × images in all.

    A fake class has no more images than half of the base classes have rows; more fake classes
    make up for it.

    >>> pool_shape(torch.arange(30).repeat(5), 80, 25)
    (400, 5)
    """
    counts = torch.bincount(columns)
    n_base = len(counts)
    usual = int(counts.sort().values[(n_base - 1) // 2])
    each = max(1, min(images, max(usual, 2)))
    return min(pairs * images // each, n_base * (n_base - 1) // 2), each


def mix_images(
    images: Tensor,
    columns: Tensor,
    pairs: Tensor,
    encode: Callable[[Tensor], Tensor],
    *,
    count: int,
    generator: torch.Generator,
    batch: int = 256,
) -> FakePool:
    """The paper's fake classes: mix images, then pass them through the frozen encoder.

    images : (n, ...) floating point, as the encoder takes them; columns : (n,);
    pairs : (P, 2); encode : (b, ...) -> (b, d) -> features (P, count, d)
    """
    left, right, lam = (t.flatten() for t in draw_parents(columns, pairs, count, generator))
    shape = (-1,) + (1,) * (images.ndim - 1)
    batches = [t.split(batch) for t in (left, right, lam.to(images))]
    parts = [
        encode(mix(images[i], images[j], factor.reshape(shape)))
        for i, j, factor in zip(*batches, strict=True)
    ]
    return FakePool(torch.cat(parts).unflatten(0, (len(pairs), count)), pairs)


def mix_features(
    features: Features,
    columns: Tensor,
    pairs: Tensor,
    *,
    count: int,
    generator: torch.Generator,
    keep_spread: bool = True,
) -> FakePool:
    """Fake classes for users who only have embeddings: mix unit embeddings instead of images.

    Eq. 1 averages the deviations of two images as well as their classes, so a fake class would
    scatter only about 0.7 times as much as a real one, and look safer than it is.
    `keep_spread` mixes class means as Eq. 1 says, and scales the mixed deviations back up.

    features : (n, d); columns : (n,); pairs : (P, 2) -> features (P, count, d)
    """
    left, right, lam = draw_parents(columns, pairs, count, generator)
    lam = lam.to(features.device, features.dtype)[..., None]
    dim = features.shape[1]
    units = ((normalise(part), own) for part, own in parts_of(features, columns))
    means = PrototypeTable.of(units, int(columns.max()) + 1, dim).means.to(features.dtype)
    mixed = lam.new_empty(len(pairs), count, dim)
    for part in chunks(len(pairs), count * dim):
        share = lam[part]
        mixed[part] = mix(normalise(features[left[part]]), normalise(features[right[part]]), share)
        if keep_spread:
            both = means[pairs[part].to(means.device)]
            centres = mix(both[:, :1], both[:, 1:], share)
            spread = (share**2 + (1 - share) ** 2).sqrt()
            mixed[part] = centres + (mixed[part] - centres) / spread
    return FakePool(mixed, pairs)
