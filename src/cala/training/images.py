"""From an image set to the whole tensors that training works on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from cala.data.images import ImageSet
from cala.data.progress import Advance
from cala.encoders.transform import Transform, stack_rows
from cala.encoders.weights import stated_training
from cala.errors import InputError
from cala.files import shown
from cala.training.loop import BaseImages
from cala.training.recipes import Recipe


@dataclass(frozen=True)
class BaseRows:
    """Which training rows of a set train the encoder and which are held out.

    labels : (n,) of all training rows, base classes being 0..B-1
    """

    train: NDArray[np.int64]
    holdout: NDArray[np.int64]
    labels: NDArray[np.int64]


def base_rows(images: ImageSet, n_base: int, holdout: int, seed: int) -> BaseRows:
    """Choose `holdout` images of every base class that training does not see."""
    labels = images.train.labels
    if n_base < 2:
        raise InputError(f"base is {n_base}", "use 2 or more", field="base")
    if n_base > len(images.classes):
        most = f"use at most {len(images.classes)}"
        raise InputError(f"the set has fewer than {n_base} classes", most, field="base")
    draw = np.random.default_rng([seed, 25])
    train, held = [], []
    for label in range(n_base):
        own = np.flatnonzero(labels == label)
        if len(own) <= holdout:
            raise InputError(
                f"class {shown(images.classes[label])} has {len(own)} training images, of which "
                f"{holdout} are to be held out",
                "lower --holdout or add images",
                field="holdout",
                code="too_few_images",
            )
        mixed = draw.permutation(own)
        held.append(np.sort(mixed[:holdout]))
        train.append(np.sort(mixed[holdout:]))
    rows = BaseRows(np.concatenate(train), np.concatenate(held), labels)
    if not holdout:
        return rows
    # A copy of a held-out image, under whatever name and class, does not train either.
    unseen = set(images.train.digests(rows.holdout))
    free = np.array([digest not in unseen for digest in images.train.digests(rows.train)])
    left = np.bincount(labels[rows.train[free]], minlength=n_base)
    if not left.all():
        raise InputError(
            f"class {shown(images.classes[int(left.argmin())])} has no training image that is not "
            "a copy of a held-out one",
            "lower --holdout or add images",
            field="holdout",
            code="only_copies",
        )
    return replace(rows, train=rows.train[free])


def load_base(
    images: ImageSet, rows: BaseRows, recipe: Recipe, advance: Advance = lambda done, total: None
) -> BaseImages:
    """Decode the chosen rows into tensors of the recipe's side."""
    stored = stored_transform(recipe)
    every, first = np.concatenate([rows.train, rows.holdout]), len(rows.train)
    found = stack_rows(images.train, every, stored, lambda done: advance(done, len(every)))
    pixels = torch.from_numpy(found)
    labels = torch.from_numpy(rows.labels[every])
    return BaseImages(pixels[:first], labels[:first], pixels[first:], labels[first:])


def stored_transform(recipe: Recipe) -> Transform:
    """How images are stored in memory: larger than the encoder sees them if they are cropped."""
    side = max(recipe.store, recipe.transform.size)
    return replace(recipe.transform, size=side, resize=max(recipe.transform.resize, side))


@dataclass(frozen=True)
class InitProvenance:
    """What the weights that a base session starts from were trained on.

    classes : of the same kind of set; trained : some of their images, see `Encoder.trained`
    """

    classes: tuple[str, ...] = ()
    trained: frozenset[str] = frozenset()


def init_provenance(init: Path | None, images: ImageSet, rows: BaseRows) -> InitProvenance:
    """Read before training, since the file may be gone at its end.

    Refuses to hold out images that trained the weights.
    """
    if init is None:
        return InitProvenance()
    about, trained, unseen = stated_training(init)
    same_kind = about.get("dataset") == images.name
    if len(rows.holdout):
        seen = (digest[:32] in trained for digest in images.train.digests(rows.train))
        same = any(seen) if trained else same_kind  # early encoders remember no image
        kept = sum(digest in unseen for digest in images.train.digests(rows.holdout))
        if same and kept < len(rows.holdout):
            raise InputError(
                f"{len(rows.holdout) - kept} of the {len(rows.holdout)} images to hold out "
                f"trained the weights in {shown(init.name)}",
                f"use its --seed {about.get('seed')} and --holdout {about.get('holdout')}, or "
                "--holdout 0",
                field="holdout",
                code="holdout_trained",
            )
    return InitProvenance(tuple(about.get("classes", ())) if same_kind else (), trained)
