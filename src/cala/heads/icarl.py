"""iCaRL (Rebuffi et al., CVPR 2017): nearest mean of exemplars."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from cala.core.herding import herd
from cala.heads.picked import PickedMean
from cala.heads.registry import HEADS

EXEMPLARS = 20  # per base class


@HEADS.register("icarl", "exemplars, distillation, nearest mean of exemplars (images, own base)")
class Icarl(PickedMean):
    """iCaRL before its first session: base prototypes are means of herded exemplars.

    `cala.methods.icarl_session` trains the encoder in sessions.
    """

    name = "icarl"
    metrics: ClassVar[tuple[str, ...]] = ("cosine",)
    changes_encoder: ClassVar[bool] = True

    def _pick(self, unit: Tensor) -> Tensor:
        return herd(unit, EXEMPLARS)
