"""What stands before and behind the encoder in the graph, as modules that can be traced."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cala.encoders.onnx_loader import pooled
from cala.encoders.transform import Transform
from cala.errors import InputError
from cala.export.new_class import NewClass, unit_length
from cala.heads import Head


class Front(nn.Module):
    """(n, size, size, 3) uint8 -> the encoder's inputs (n, 3, size, size).

    mirrored : (2n, ...), the mirror images behind the images, for models with `tta` flip
    channels_last, half : for networks that want their input so
    """

    def __init__(
        self,
        transform: Transform,
        *,
        mirrored: bool,
        channels_last: bool = False,
        half: bool = False,
    ) -> None:
        super().__init__()
        self.transform, self.mirrored = transform, mirrored
        self.channels_last, self.half_precision = channels_last, half

    def forward(self, images: Tensor) -> Tensor:
        x = self.transform.normalise(images)
        if self.mirrored:
            x = torch.cat([x, x.flip(-1)])
        if self.channels_last:
            x = x.permute(0, 2, 3, 1)
        return x.half() if self.half_precision else x


class Tail(nn.Module):
    """The encoder's output and a table -> logits, embedding, and the row of a new class.

    weights : (C, d), bias : (C,), see `Head.linear_form`; the last two outputs read the whole
    batch as shots of one new class, see `Head.new_row`
    """

    def __init__(self, head: Head, *, mirrored: bool) -> None:
        super().__init__()
        self.dim, self.mirrored = head.dim, mirrored
        self.metric, self.new_class = Metric(head), NewClass(head)

    def forward(
        self, features: Tensor, weights: Tensor, bias: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x = pooled(features.float())
        if self.mirrored:
            x = x.reshape(2, -1, self.dim).mean(0)
        unit = self.metric(x)
        return unit @ weights.T + bias, unit, *self.new_class(unit)


class Metric(nn.Module):
    """`cala.core.metric`: embeddings (n, d) -> unit vectors (n, d)."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        metric = head.host.metric  # type: ignore[attr-defined]
        if metric.name not in ("cosine", "whitened"):
            raise InputError(f"the metric {metric.name} has no form in ONNX")
        self.whitening = [torch.from_numpy(array).float() for array in metric.arrays().values()]

    def forward(self, x: Tensor) -> Tensor:
        if self.whitening:
            mean, matrix = self.whitening
            x = (unit_length(x.sign() * x.abs().sqrt()) - mean) @ matrix
        return unit_length(x)
