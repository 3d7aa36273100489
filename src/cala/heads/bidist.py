"""BiDist (Zhao et al., CVPR 2023): the base branch, which is what a session starts from."""

from __future__ import annotations

from typing import ClassVar

from cala.heads.nearest_mean import NearestMean
from cala.heads.registry import HEADS


@HEADS.register("bidist-base", "BiDist's base branch alone: nearest mean (BiDist's base session)")
class BidistBase(NearestMean):
    """Means of unit embeddings, and the scale that base training learned.

    This is what the CALA paper's row for BiDist is, by all signs: no session changes anything.
    """

    name = "bidist-base"
    metrics: ClassVar[tuple[str, ...]] = ("cosine",)


@HEADS.register("bidist", "base branch, and one that sessions fine-tune (images, own base)")
class Bidist(NearestMean):
    """The base branch of BiDist; `cala.methods.bidist_session` has the other one."""

    name = "bidist"
    metrics: ClassVar[tuple[str, ...]] = ("cosine",)
    changes_encoder: ClassVar[bool] = True
