"""BiDist (Zhao et al., CVPR 2023): a cosine classifier with a learned scale."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from cala.methods.bidist_session import BidistLearner
from cala.methods.registry import METHODS, Method
from cala.training.objective import BaseModel


class Bilateral(BaseModel):
    """Cross-entropy over s·cos(f, w); with weights to start from, w starts at the class means."""

    wants_means: ClassVar[bool] = True

    def begin(self, means: Tensor) -> None:
        with torch.no_grad():
            self.classifier.weight.copy_(means)


METHODS.register("bidist", "the base branch stays, a copy is fine-tuned and distilled; both vote")(
    Method(
        Bilateral.make,
        {
            "batch": 256,
            "lr": 0.1,
            "epochs": 200,
            "schedule": "milestones",
            "milestones": (120, 160),
            "scale": 10.0,
            "policy": 2,
            "sizes": (),
        },
        learner=BidistLearner,
    )
)
