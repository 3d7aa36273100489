"""FACT (Zhou et al., CVPR 2022): base training that leaves room for classes to come."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cala.core.mixing import mix
from cala.core.virtual import draw_guests, mixed_targets, second_best, virtual_prototypes
from cala.errors import InputError
from cala.methods.registry import METHODS, Method
from cala.training.objective import BaseModel, CosineClassifier

BALANCE = 1e-3
ALPHA = 0.5  # of the Beta distribution that λ comes from


class ForwardCompatible(BaseModel):
    """Cross-entropy, and three losses by which images make room for virtual prototypes.

    One pass through the encoder's lower half serves plain and mixed images.
    """

    wants_means: ClassVar[bool] = True

    virtual: Tensor  # (V, d)
    guests: Tensor  # (B, V) bool

    def __init__(
        self, encoder: nn.Module, classifier: CosineClassifier, smoothing: float = 0.0
    ) -> None:
        super().__init__(encoder, classifier, smoothing)
        if not hasattr(encoder, "lower"):
            raise InputError(
                "fact mixes images half way through the encoder: this architecture has no "
                "`lower` and `upper` half"
            )
        dim = classifier.weight.shape[1]
        count = max(1, round(2 * self.n_base / 3))
        self.register_buffer("virtual", virtual_prototypes(self.n_base, count, dim))
        self.register_buffer("guests", draw_guests(self.n_base, count))

    def begin(self, means: Tensor) -> None:
        with torch.no_grad():
            self.classifier.weight.copy_(means)

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        lower, upper = self.encoder.lower, self.encoder.upper
        hidden = lower(images)  # type: ignore[operator]
        logits = self._all(upper(hidden))  # type: ignore[operator]
        loss = self.cross_entropy(logits[:, : self.n_base], labels)
        masked, virtual = second_best(logits, labels, self.guests)
        extra = F.cross_entropy(masked, virtual)

        order = torch.randperm(len(labels)).to(labels.device)
        differ = labels != labels[order]
        if bool(differ.any()):
            lam = float(torch.distributions.Beta(ALPHA, ALPHA).sample())
            mixed = self._all(upper(mix(hidden, hidden[order], lam)[differ]))  # type: ignore[operator]
            virtual, masked, known = mixed_targets(mixed, self.n_base)
            extra = extra + F.cross_entropy(mixed, virtual) + F.cross_entropy(masked, known)
        return loss + BALANCE * extra, logits[:, : self.n_base]

    def _all(self, features: Tensor) -> Tensor:
        """Logits over base and virtual classes: (n, d) -> (n, B + V)."""
        unit = F.normalize(features.float(), dim=1)
        rows = torch.cat([F.normalize(self.classifier.weight, dim=1), self.virtual])
        return self.classifier.scale * (unit @ rows.T).float()

    def parts(self) -> dict[str, Tensor]:
        return {"virtual": self.virtual}


METHODS.register("fact", "virtual prototypes keep room for new classes, and speak at inference")(
    Method(
        ForwardCompatible.make,
        {"batch": 128, "lr": 0.1, "epochs": 600, "schedule": "cosine", "warmup": 0.0, "sizes": ()},
    )
)
