"""The parts of the graph before and after the encoder, as torch modules that can be traced.

The row that shots of a new class add to the table follows the formulas of `Head.new_row`, on
tensors: prototype (Eq. 2), similarity to base (Eq. 6), adapter (Eq. 7) and shift (Eq. 8).
`cala.export.export.check_tail` compares them with the head's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from cala.core.cala import TINY
from cala.core.rows import Array
from cala.encoders.torch_module import pooled
from cala.encoders.transform import Transform
from cala.errors import InputError
from cala.heads import Head

_Step = Callable[[Tensor], Tensor]


def unit_length(x: Tensor) -> Tensor:
    """`cala.core.cala.normalise` of rows (n, d)."""
    return x / x.norm(dim=1, keepdim=True).clamp_min(TINY)


class Front(nn.Module):
    """(n, size, size, 3) uint8 -> the encoder's inputs (n, 3, size, size).

    mirrored : (2n, ...), the mirror images behind the images, for models with `tta` flip
    channels_last, half : for networks that want their input so
    """

    def __init__(
        self, transform: Transform, mirrored: bool, channels_last: bool = False, half: bool = False
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

    def __init__(self, head: Head, mirrored: bool) -> None:
        super().__init__()
        self.dim, self.mirrored = head.dim, mirrored
        self.metric, self.new_class = MetricModule(head), NewClass(head)

    def forward(
        self, features: Tensor, weights: Tensor, bias: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x = pooled(features.float())
        if self.mirrored:
            x = x.reshape(2, -1, self.dim).mean(0)
        unit = self.metric(x)
        return unit @ weights.T + bias, unit, *self.new_class(unit)


class MetricModule(nn.Module):
    """`cala.core.metric`: embeddings (n, d) -> unit vectors (n, d)."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        metric = head.host.metric  # type: ignore[attr-defined]
        if metric.name not in ("cosine", "whitened"):
            detail = f"the metric {metric.name} has no form in ONNX"
            raise InputError(detail, field="metric", code="no_onnx_form")
        self.whitening = [torch.from_numpy(array).float() for array in metric.arrays().values()]

    def forward(self, x: Tensor) -> Tensor:
        if self.whitening:
            mean, matrix = self.whitening
            x = (unit_length(x.sign() * x.abs().sqrt()) - mean) @ matrix
        return unit_length(x)


class NewClass(nn.Module):
    """Unit vectors (K, d) of the shots of one new class -> its weights (1, d) and bias (1,)."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.scale = float(getattr(head.host, "scale", 1.0))
        self.prototype = _prototype(head.host)
        self.shift = Shift(head) if head.adapted else None

    def forward(self, unit: Tensor) -> tuple[Tensor, Tensor]:
        rows = unit.double()
        total = rows.sum(0, keepdim=True)
        shots = torch.ones_like(rows[:, 0]).sum(0, keepdim=True)
        prototype = self.prototype(total / shots)
        shift = 0 * shots if self.shift is None else self.shift(prototype, total, shots)
        return (self.scale * unit_length(prototype)).float(), shift.float()


def _prototype(host: Head) -> _Step:
    """From the mean (1, d) of the shots to the prototype (1, d).

    A head whose prototype is not the mean says so by a method `torch_prototype`.
    """
    own: _Step | None = getattr(host, "torch_prototype", None)
    if own is not None:
        return own
    if host.name == "teen":
        state = host.state()
        anchors = _tensor(state["tensors"]["anchors"])
        alpha, tau = state["config"]["alpha"], state["config"]["tau"]

        def calibrated(mean: Tensor) -> Tensor:
            unit = unit_length(mean)
            near = (tau * unit @ anchors.T).softmax(1) @ anchors
            return (1 - alpha) * unit + alpha * unit_length(near)

        return calibrated
    return lambda mean: mean


class Shift(nn.Module):
    """γβ + δ of a new class (1,), from its prototype (1, d), its sum (1, d) and its shots (1,)."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        state = head.state()
        prefix = "adapter."
        arrays = {
            name.removeprefix(prefix): _tensor(array)
            for name, array in state["tensors"].items()
            if name.startswith(prefix)
        }
        self.recipe: Any = head.trained_as  # type: ignore[attr-defined]
        if self.recipe.adapter not in ADAPTER_FORMULAS:
            detail = f"an adapter of the kind {self.recipe.adapter} has no form in ONNX"
            raise InputError(detail, field="method", code="no_onnx_form")
        self.beta, self.arrays = ADAPTER_FORMULAS[self.recipe.adapter], arrays
        self.base = _tensor(state["tensors"]["reference"])
        self.gamma, self.delta = float(state["meta"]["gamma"]), float(state["meta"]["delta"])

    def forward(self, prototype: Tensor, total: Tensor, shots: Tensor) -> Tensor:
        similarity = unit_length(prototype) @ self.base.T
        return self.gamma * self.beta(self, similarity, total, shots) + self.delta

    def clamped(self, x: Tensor) -> Tensor:
        """The adapter's inputs within the range that it was trained on, where it has one."""
        if "low" not in self.arrays:
            return x
        return torch.minimum(torch.maximum(x, self.arrays["low"]), self.arrays["high"])


def _scalar(shift: Shift, similarity: Tensor, total: Tensor, shots: Tensor) -> Tensor:
    return shift.arrays["alpha"] + 0 * shots  # an output of a graph depends on its inputs


def _none(shift: Shift, similarity: Tensor, total: Tensor, shots: Tensor) -> Tensor:
    return 0 * shots


def _mlp(shift: Shift, similarity: Tensor, total: Tensor, shots: Tensor) -> Tensor:
    x, recipe = similarity, shift.recipe
    if recipe.inputs == "sorted":
        x = x.sort(1, descending=True).values
    elif recipe.inputs == "softmax":
        x = (recipe.tau * x).softmax(1)
    x, last = shift.clamped(x), 2 * len(recipe.hidden)
    for place in range(0, last + 1, 2):
        weight, bias = (shift.arrays[f"layers.{place}.{part}"] for part in ("weight", "bias"))
        x = x @ weight.T + bias
        x = x if place == last else x.relu()
    return x[:, 0]


def _summary(shift: Shift, similarity: Tensor, total: Tensor, shots: Tensor) -> Tensor:
    weight, bias, mean, spread = (shift.arrays[k] for k in ("weight", "bias", "mean", "spread"))
    top = similarity.topk(len(weight) - 3, dim=1).values[0]
    pairs = shots * (shots - 1)
    tightness = (total.square().sum(1) - shots) / pairs.clamp_min(1)
    tightness = torch.where(pairs > 0, tightness, mean[-2:-1])
    values = torch.cat([top, similarity.mean(1), tightness, shots.log()])
    return (shift.clamped((values - mean) / spread) * weight).sum(0, keepdim=True) + bias


ADAPTER_FORMULAS = {"none": _none, "scalar": _scalar, "mlp": _mlp, "summary": _summary}


def _tensor(array: Array) -> Tensor:
    return torch.from_numpy(array).double()
