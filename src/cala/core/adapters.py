"""Adapters g: what is known of a class -> its balance factor β_c (Eq. 7)."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from cala.core.similarity import ClassContext
from cala.registry import check_choice

INPUTS = ("raw", "sorted", "softmax")


class Adapter(nn.Module, ABC):
    """Maps the context of F classes to β (F,). `linear` says that β is linear in the weights."""

    linear = False

    def calibrate(self, context: ClassContext) -> None:
        """Learn the scale of the inputs from the fake classes; nothing by default."""

    @abstractmethod
    def inputs(self, context: ClassContext) -> Tensor:
        """The numbers that the adapter reads: (F, n_inputs)."""

    @abstractmethod
    def score(self, inputs: Tensor) -> Tensor:
        """β (F,) from inputs (F, n_inputs)."""

    def forward(self, context: ClassContext) -> Tensor:
        return self.score(self.inputs(context))


class ScalarAdapter(Adapter):
    """LA (Eq. 5): one α for every class, whatever it looks like."""

    linear = True

    def __init__(self) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(1))

    def inputs(self, context: ClassContext) -> Tensor:
        return context.shots.new_ones(len(context), 1)

    def score(self, inputs: Tensor) -> Tensor:
        return inputs[:, 0] * self.alpha


class MLPAdapter(Adapter):
    """The paper's adapter (Eq. 7): B -> 64 -> 64 -> 1 with ReLU on the similarities to base.

    inputs : `raw`; `sorted` in descending order, which makes the adapter blind to the order of
        the base classes; `softmax` of τ·S (τ=1 is the paper to the letter, and nearly blind:
        softmax over raw cosines is almost uniform)

    The last layer starts at zero, so that training starts from the plain classifier.
    """

    def __init__(
        self,
        n_base: int,
        *,
        generator: torch.Generator,
        inputs: str = "sorted",
        tau: float = 1.0,
        hidden: tuple[int, ...] = (64, 64),
    ) -> None:
        super().__init__()
        check_choice("adapter input", inputs, INPUTS)
        self.kind, self.tau = inputs, tau
        sizes = (n_base, *hidden, 1)
        layers: list[nn.Module] = []
        for n_in, n_out in itertools.pairwise(sizes):
            layers += [_linear(n_in, n_out, generator), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])
        last = self.layers[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def inputs(self, context: ClassContext) -> Tensor:
        return adapter_inputs(context.similarity, self.kind, self.tau)

    def score(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)[:, 0]


def adapter_inputs(similarity: Tensor, kind: str, tau: float = 1.0) -> Tensor:
    """The input transform σ of Eq. 7: (F, B) -> (F, B)."""
    if kind == "sorted":
        return similarity.sort(1, descending=True).values
    if kind == "softmax":
        return (tau * similarity).softmax(1)
    return similarity


class SummaryAdapter(Adapter):
    """A linear adapter on a few numbers that every class has, whatever B is.

    Top similarities to base, mean similarity, tightness of the shots and log K, standardised on
    the fake classes. One shot has no tightness: the fake classes' mean stands in for it.
    """

    linear = True

    def __init__(self, n_base: int, *, top: int = 5) -> None:
        super().__init__()
        self.top = min(top, n_base)
        width = self.top + 3
        self.weight = nn.Parameter(torch.zeros(width))
        self.bias = nn.Parameter(torch.zeros(1))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))

    def calibrate(self, context: ClassContext) -> None:
        values = self._summary(context)
        known = ~values.isnan()
        count = known.sum(0).clamp_min(1)
        mean = values.nan_to_num(0.0).sum(0) / count
        deviation = torch.where(known, values - mean, 0.0)
        spread = (deviation.square().sum(0) / count).sqrt()
        self.mean = mean
        self.spread = torch.where(spread > 1e-6, spread, math.inf)  # a constant input is no input

    def inputs(self, context: ClassContext) -> Tensor:
        standard = (self._summary(context) - self.mean) / self.spread
        return standard.nan_to_num(0.0)

    def score(self, inputs: Tensor) -> Tensor:
        return inputs @ self.weight + self.bias

    def _summary(self, context: ClassContext) -> Tensor:
        top = context.similarity.topk(self.top, dim=1).values
        rest = [context.similarity.mean(1), context.tightness, context.shots.log()]
        return torch.cat([top, torch.stack(rest, 1)], 1)


def _linear(n_in: int, n_out: int, generator: torch.Generator) -> nn.Linear:
    """torch's usual initialisation, drawn from an explicit generator."""
    layer = nn.utils.skip_init(nn.Linear, n_in, n_out)
    bound = 1 / math.sqrt(n_in)
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=generator)
        layer.bias.uniform_(-bound, bound, generator=generator)
    return layer
