"""What the weights that a base session starts from have seen already."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cala.data.images import ImageSet
from cala.encoders.weights import stated_training
from cala.errors import InputError
from cala.files import shown
from cala.training.images import BaseRows


@dataclass(frozen=True)
class Inherited:
    """classes : of this kind of set; trained : some of their images, see `Encoder.trained`"""

    classes: tuple[str, ...] = ()
    trained: frozenset[str] = frozenset()


def inherited_from(init: Path | None, images: ImageSet, rows: BaseRows) -> Inherited:
    """Read before training, since the file may be gone at its end.

    A hold-out with images that trained the weights to start from is refused.
    """
    if init is None:
        return Inherited()
    about, trained, unseen = stated_training(init)
    same_kind = about.get("dataset") == images.name
    if len(rows.holdout):
        seen = (digest[:32] in trained for digest in images.train.digests(rows.train))
        same = any(seen) if trained else same_kind  # early encoders remember no image
        kept = sum(digest in unseen for digest in images.train.digests(rows.holdout))
        if same and kept < len(rows.holdout):
            raise InputError(
                f"{len(rows.holdout) - kept} of the {len(rows.holdout)} images to hold out "
                f"trained the weights in {shown(init.name)}: use its --seed {about.get('seed')} "
                f"and --holdout {about.get('holdout')}, or --holdout 0"
            )
    return Inherited(tuple(about.get("classes", ())) if same_kind else (), trained)
