"""Encoders: frozen maps from images to embeddings, and what all loaders of them need."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cala.data.decoding import Pixels
from cala.encoders.transform import Transform
from cala.errors import InputError, install
from cala.files import reason


@dataclass(frozen=True, eq=False)
class Encoder:
    """A frozen encoder and the images it takes.

    Parameters
    ----------
    name : str
        Its URI.
    dim : int
        d, the number of values of an embedding.
    transform : Transform
        How images are prepared.
    forward : callable
        (n, 3, size, size) normalised -> (n, d), on the encoder's device.
    fingerprint : str
        SHA-256 of the weights and the architecture.
    scale : float, optional
        The logit scale of base training, if it was trained with one.
    holdout : frozenset of str
        Digests of base images that were kept out of its training.
    trained : frozenset of str
        First halves of the digests of some training images, to notice them among test images.
    parts : dict
        What was trained together with it, for the head of the method that trained it.
    pretrained : bool
        Whether it was trained on images other than the user's, so that all of these are fair
        queries.
    device : torch.device
        Where it runs.
    about : dict
        Where it comes from, for provenance.

    Examples
    --------
    >>> from cala.encoders import load_encoder
    >>> load_encoder("resnet20-cifar100")(np.zeros((2, 32, 32, 3), np.uint8)).shape
    (2, 64)
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
        """SHA-256 of what embeddings depend on besides the image: weights and transform."""
        fields = sorted(self.transform.as_dict().items())
        return hashlib.sha256(f"{self.fingerprint} {fields}".encode()).hexdigest()

    def inputs(self, images: Sequence[Pixels] | Pixels) -> Tensor:
        """(h, w, 3) uint8 images of any size -> (n, 3, size, size) on the encoder's device."""
        return self.transform.normalise(self.transform.stack(images).to(self.device))

    @torch.no_grad()
    def encode(self, inputs: Tensor, tta: str = "none") -> Tensor:
        """(n, 3, size, size) -> finite (n, d) on the CPU, in single precision.

        tta : `flip` averages the embedding of each image and of its mirror image
        """
        found = self.forward(inputs).detach().float().cpu()
        if tta == "flip":
            found = (found + self.encode(inputs.flip(-1))) / 2
        if not found.isfinite().all():
            raise InputError(
                f"encoder {self.name} returned NaN or infinity",
                "its weights are damaged; get them again",
                code="not_finite",
            )
        return found

    def __call__(self, images: Sequence[Pixels] | Pixels) -> NDArray[np.float32]:
        """(h, w, 3) uint8 images of any size -> (n, d)."""
        return self.encode(self.inputs(images)).numpy()


def from_module(
    name: str,
    module: nn.Module,
    transform: Transform,
    architecture: str,
    device: torch.device | str = "cpu",
    **about: Any,
) -> Encoder:
    """Make an encoder of a module with a `dim`; freezes the module in evaluation mode."""
    module = module.eval().requires_grad_(False).to(device)
    module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Encoder(
        name=name,
        dim=int(module.dim),  # type: ignore[arg-type]
        transform=transform,
        forward=module,
        fingerprint=module_fingerprint(module, architecture),
        device=torch.device(device),
        **about,
    )


def module_fingerprint(module: nn.Module, architecture: str) -> str:
    """SHA-256 of an architecture's name and the module's weights."""
    digest = hashlib.sha256(architecture.encode())
    for name, tensor in sorted(module.state_dict().items()):
        if name.endswith("num_batches_tracked"):  # counts steps, decides nothing
            continue
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        digest.update(values.reshape(-1).view(torch.uint8).numpy().tobytes())  # bfloat16 as well
    return digest.hexdigest()


def import_extra(module: str, extra: str) -> Any:
    """Import an optional library, or raise an error that names the extra to install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        detail = f"this needs {module}, which is not installed ({reason(error)})"
        raise InputError(detail, install(extra), code="missing_extra") from error
    except Exception as error:  # a broken installation can raise anything
        torchvision = "torchvision does not match torch; install both from the same source"
        fix = torchvision if "torchvision" in str(error) else None
        raise InputError(f"{module} cannot be imported ({one_line(error)})", fix) from error


def one_line(error: BaseException) -> str:
    """Return the first line of another library's message, at most 200 characters."""
    return reason(error).split("\\n")[0][:200] or type(error).__name__


@contextmanager
def wrap_errors(detail: str, fix: str | None = None, code: str | None = None) -> Iterator[None]:
    """Turn whatever another library raises into an `InputError` with this detail."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{detail} ({one_line(error)})", fix, code=code) from error


def pooled(values: Tensor) -> Tensor:
    """(n, d) as it is; a map (n, d, h, w) or tokens (n, t, d) -> their mean (n, d)."""
    if values.ndim == 4:
        return values.mean((2, 3))
    return values.mean(1) if values.ndim == 3 else values


@torch.no_grad()
def probe(module: nn.Module, size: int, name: str) -> int:
    """Return the dimension of a module's embeddings, from one pass over a black image."""
    with wrap_errors(f"{name} does not take 1×3×{size}×{size} images"):
        found = module.eval()(torch.zeros(1, 3, size, size))
    if not isinstance(found, Tensor) or found.ndim != 2 or found.shape[0] != 1:
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise InputError(f"{name} returns {shape} for one image, not (1, d) embeddings")
    return int(found.shape[1])
