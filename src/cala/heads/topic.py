"""TOPIC (Tao et al., CVPR 2020) before its first session."""

from __future__ import annotations

from typing import ClassVar

from cala.heads.nearest_mean import NearestMean
from cala.heads.registry import HEADS


@HEADS.register("topic", "a neural gas holds embeddings that sessions train (images, own base)")
class Topic(NearestMean):
    """TOPIC's base branch: rows that are class means, as its sessions start from.

    `cala.methods.topic_session` trains the encoder in sessions.
    """

    name = "topic"
    changes_encoder: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = ("cosine",)
