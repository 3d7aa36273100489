"""`cala fit --adapt`: the encoder adapted to the known classes, where held-out photos gain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cala.data.images import ImageSet
from cala.errors import InputError
from cala.extras import needs
from cala.heads import BaseData, make_head

if TYPE_CHECKING:  # its engine takes seconds to load
    from cala.encoders.base import Encoder

STARTS = "efficientnet-lite0"
CLASSES, PHOTOS = 5, 10  # fewest known classes, and photos of half of them


def adapt(
    photos: ImageSet, out: Path, *, minutes: float, seed: int = 0, device: str = "cpu"
) -> tuple[Path | None, str]:
    """Train EfficientNet-Lite0 on a set's classes for some minutes of processor time.

    Returns the encoder in `out`, None where nearest mean gained nothing on held-out photos of the
    known classes, and a sentence about that.
    """
    counts = np.bincount(photos.train.labels, minlength=len(photos.classes))
    usual = int(np.median(counts))
    if len(counts) < CLASSES or usual < PHOTOS or counts.min() < 2:
        raise InputError(
            f"{len(counts)} classes of about {usual} photos are too few to adapt an encoder",
            f"give {CLASSES} classes of {PHOTOS} photos or more, 2 of each, or leave out --adapt",
            field="adapt",
            code="too_few",
        )
    from cala.encoders import load_encoder
    from cala.encoders.device import choose_device
    from cala.encoders.registry import weights_file

    with needs("train", "adapt"):
        from cala.training.images import base_rows
        from cala.training.recipes import RECIPES
        from cala.training.session import BaseSession, train_base

    device = choose_device(device)
    holdout = min(max(2, usual // 5), int(counts.min()) - 1)
    rows = base_rows(photos, len(counts), holdout, seed)
    recipe = RECIPES["adapt-photos"]
    session = BaseSession(
        photos,
        recipe.changed(batch=min(recipe.batch, len(rows.train))),
        len(counts),
        out,
        seed=seed,
        holdout=holdout,
        init=weights_file(STARTS),
        budget=minutes,
        device=device,
    )
    path = train_base(session)
    assert path is not None  # nothing asked it to stop
    before, after = (
        _accuracy(photos, load_encoder(uri, device), rows.train, rows.holdout)
        for uri in (STARTS, path)
    )
    said = (
        f"adapting the encoder: {100 * before:.1f} % → {100 * after:.1f} % of "
        f"{len(rows.holdout)} held-out photos of known classes, by nearest mean"
    )
    if after > before:
        return path, said
    return None, f"{said}; the encoder stays as it was"


def _accuracy(
    photos: ImageSet, encoder: Encoder, learned: NDArray[np.int64], asked: NDArray[np.int64]
) -> float:
    from cala.encoders.embed import embed

    labels = photos.train.labels
    head = make_head("nearest-mean")
    head.fit_base(BaseData(embed(photos.train, encoder, rows=learned), labels[learned]))
    answers = head.logits(embed(photos.train, encoder, rows=asked)).argmax(1)
    return float((answers == labels[asked]).mean())
