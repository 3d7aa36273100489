"""Encoders: frozen maps from images to embeddings, and what all loaders of them need."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.data.decoding import Pixels
from cala.encoders.transform import Transform
from cala.errors import InputError
from cala.files import first_line

Float32Array = NDArray[np.float32]


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
        Normalised images (n, 3, size, size) -> embeddings (n, d), both NumPy arrays; several
        threads may call it at once. `cala.encoders.engines` replaces it by one that runs the same
        network on another engine.
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
    device : str, default="cpu"
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
    forward: Callable[[Float32Array], Float32Array]
    fingerprint: str
    scale: float | None = None
    holdout: frozenset[str] = frozenset()
    trained: frozenset[str] = frozenset()
    parts: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    pretrained: bool = False
    device: str = "cpu"
    about: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """SHA-256 of what embeddings depend on besides the image: weights and transform."""
        fields = sorted(self.transform.as_dict().items())
        return hashlib.sha256(f"{self.fingerprint} {fields}".encode()).hexdigest()

    @property
    def module(self) -> Any:
        """The torch module of the network, None where it has none; it may have to be loaded."""
        return getattr(self.forward, "module", None)

    def inputs(self, images: Sequence[Pixels] | Pixels) -> Float32Array:
        """(h, w, 3) uint8 images of any size -> (n, 3, size, size)."""
        return self.transform.normalise(self.transform.stack(images))

    def encode(self, inputs: Float32Array, tta: str = "none") -> Float32Array:
        """(n, 3, size, size) -> finite (n, d), in single precision.

        tta : `flip` averages the embedding of each image and of its mirror image
        """
        found = self.forward(inputs)
        if tta == "flip":
            found = (found + self.encode(inputs[..., ::-1])) / np.float32(2)
        if not np.isfinite(found).all():
            raise InputError(
                f"encoder {self.name} returned NaN or infinity",
                "its weights are damaged; get them again",
                code="not_finite",
            )
        return found

    def __call__(self, images: Sequence[Pixels] | Pixels) -> Float32Array:
        """(h, w, 3) uint8 images of any size -> (n, d)."""
        return self.encode(self.inputs(images))


@contextmanager
def wrap_errors(
    detail: str, fix: str | None = None, code: str | None = None, field: str | None = None
) -> Iterator[None]:
    """Turn whatever another library raises into an `InputError` with this detail."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        what = f"{detail} ({first_line(error)})"
        raise InputError(what, fix, code=code, field=field) from error
