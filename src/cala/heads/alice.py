"""ALICE (Peng et al., ECCV 2022): base prototypes of as few images as novel ones have."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from cala.core.prototypes import normalise
from cala.heads.picked import PickedMean
from cala.heads.registry import HEADS

BALANCED = 5


@HEADS.register("alice", "nearest mean; base prototypes of 5 images each (own base session)")
class Alice(PickedMean):
    """Nearest mean with balanced testing: a base prototype is the mean of the five images
    nearest to its class mean, so that base and novel classes rest on equally many.

    Its own base session is that of `cala train --method alice`; any other encoder will do too.
    """

    name = "alice"
    # Its base session has made a class of every pair of classes, from images mixed in this way.
    mixed_images_are_new: ClassVar[bool] = False

    def _pick(self, unit: Tensor) -> Tensor:
        nearness = unit @ normalise(unit.mean(0))
        return nearness.topk(min(BALANCED, len(unit))).indices
