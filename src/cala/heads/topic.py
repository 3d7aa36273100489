"""TOPIC (Tao et al., CVPR 2020) before its first session."""

from __future__ import annotations

from typing import ClassVar

from cala.heads.icarl_star import IcarlStar
from cala.heads.registry import HEADS


@HEADS.register("topic", "a neural gas holds the embeddings while a session trains them (images)")
class Topic(IcarlStar):
    """TOPIC's base branch: softmax rows over frozen embeddings.

    `cala.methods.topic_session` trains the encoder in sessions.
    """

    name = "topic"
    changes_encoder: ClassVar[bool] = True
