"""An encoder: a frozen map from images to embeddings that knows all about itself."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cala.data.decoding import Pixels
from cala.encoders.transform import Transform


@dataclass(frozen=True, eq=False)
class Encoder:
    """A frozen encoder and how it wants to see images.

    name : its URI; dim : d
    forward : (n, 3, size, size) normalised -> (n, d), on the encoder's device
    fingerprint : SHA-256 of the weights and the architecture
    scale : the logit scale of base training, where it was trained with one
    holdout : digests of base images that were kept out of its training
    trained : first halves of the digests of some images that it was trained on, to notice when
        these are to be test images
    parts : what was trained together with it, for the head of the method that trained it
    pretrained : trained on other images than the user's, so all of these are fair queries
    about : where it comes from, for provenance
    """

    name: str
    dim: int
    transform: Transform
    forward: Callable[[Tensor], Tensor]
    fingerprint: str
    scale: float | None = None
    holdout: frozenset[str] = frozenset()
    trained: frozenset[str] = frozenset()
    parts: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    pretrained: bool = False
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    about: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """What embeddings depend on beside the image: weights and transform."""
        fields = sorted(self.transform.as_dict().items())
        return hashlib.sha256(f"{self.fingerprint} {fields}".encode()).hexdigest()

    def inputs(self, images: Sequence[Pixels] | Pixels) -> Tensor:
        """(h, w, 3) uint8 images of any size -> (n, 3, size, size) on the encoder's device."""
        return self.transform.normalise(self.transform.stack(images).to(self.device))

    @torch.no_grad()
    def encode(self, inputs: Tensor) -> Tensor:
        """(n, 3, size, size) -> (n, d) on the CPU, in single precision."""
        return self.forward(inputs).detach().float().cpu()

    def __call__(self, images: Sequence[Pixels] | Pixels) -> NDArray[np.float32]:
        """(h, w, 3) uint8 images of any size -> (n, d)."""
        return self.encode(self.inputs(images)).numpy()


def from_module(
    name: str,
    module: nn.Module,
    transform: Transform,
    *,
    architecture: str,
    device: torch.device | str = "cpu",
    **about: Any,
) -> Encoder:
    """An encoder from a module with a `dim`; the module is frozen and set to evaluation."""
    module = module.eval().requires_grad_(False).to(device)
    module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Encoder(
        name=name,
        dim=int(module.dim),  # type: ignore[arg-type]
        transform=transform,
        forward=module,
        fingerprint=fingerprint(module, architecture),
        device=torch.device(device),
        **about,
    )


def fingerprint(module: nn.Module, architecture: str) -> str:
    """SHA-256 of an architecture's name and the module's weights."""
    digest = hashlib.sha256(architecture.encode())
    for name, tensor in sorted(module.state_dict().items()):
        if name.endswith("num_batches_tracked"):  # counts steps, decides nothing
            continue
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        digest.update(values.reshape(-1).view(torch.uint8).numpy().tobytes())  # bfloat16 as well
    return digest.hexdigest()
