"""Eq. 7, adapters g: what is known about a class -> its balance factor β_c, with gradients."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.random import Generator

from cala.core.rows import Array
from cala.registry import Registry

if TYPE_CHECKING:
    from cala.core.cala import ClassContext

INPUTS = ("raw", "sorted", "softmax")
Step: TypeAlias = Callable[[Array, Array], Array]
"""An optimiser's step: gradient (p,), parameters (p,) -> parameters (p,)."""


class Adapter(ABC):
    """Maps the context of F classes to β (F,).

    parameters : (p,) float64, everything that training changes
    layout : names and shapes of the arrays that make up the parameters, in order
    linear : whether β is linear in the parameters, the last of which is an offset
    low, high : (n_inputs,) the range of inputs that the training classes covered; inputs outside it
        are clamped, since nothing was learned there
    """

    linear: ClassVar[bool] = False
    layout: Mapping[str, tuple[int, ...]] = {}
    parameters: Array
    low: Array | float = -np.inf
    high: Array | float = np.inf

    def calibrate(self, contexts: Sequence[ClassContext]) -> None:
        """Learn the range of the inputs from the classes that the adapter will be trained on."""
        values = np.concatenate([self.read(context) for context in contexts])
        self.low, self.high = values.min(0), values.max(0)

    def inputs(self, context: ClassContext) -> Array:
        """What the adapter works on: (F, n_inputs), within the range it was trained on."""
        return self.read(context).clip(self.low, self.high)

    @abstractmethod
    def read(self, context: ClassContext) -> Array:
        """The numbers that describe each class: (F, n_inputs)."""

    @abstractmethod
    def score(self, inputs: Array) -> Array:
        """β (F,) from inputs (F, n_inputs)."""

    @abstractmethod
    def gradient(self, inputs: Array, by_beta: Array) -> Array:
        """Derivative by the parameters (p,), given the derivative by β (F,)."""

    def parts(self, dtype: Any = np.float64) -> dict[str, Array]:
        """The parameters as named arrays."""
        rest, found = self.parameters.astype(dtype, copy=False), {}
        for name, shape in self.layout.items():
            size = math.prod(shape)
            found[name], rest = rest[:size].reshape(shape), rest[size:]
        return found

    def arrays(self) -> dict[str, Array]:
        """Everything learned, by name, as stored in a model on disk."""
        clamped = isinstance(self.low, np.ndarray)
        bounds = {"low": np.asarray(self.low), "high": np.asarray(self.high)} if clamped else {}
        return {**self.parts(), **bounds}

    def load(self, arrays: dict[str, Array]) -> None:
        """Load what `arrays` returned; the range is missing if none was learned."""
        self.low, self.high = arrays.get("low", -np.inf), arrays.get("high", np.inf)
        if self.layout:
            self.layout = {name: arrays[name].shape for name in self.layout}
            parts = [arrays[name].ravel() for name in self.layout]
            self.parameters = np.concatenate(parts).astype(np.float64)

    def __call__(self, context: ClassContext) -> Array:
        return self.score(self.inputs(context))


class ScalarAdapter(Adapter):
    """LA (Eq. 5): the same α for every class."""

    linear = True

    def __init__(self) -> None:
        self.layout, self.parameters = {"alpha": (1,)}, np.zeros(1)

    def calibrate(self, contexts: Sequence[ClassContext]) -> None:
        """Do nothing: this adapter reads no inputs."""

    def read(self, context: ClassContext) -> Array:
        return np.ones((len(context), 1), context.shots.dtype)

    def score(self, inputs: Array) -> Array:
        return inputs[:, 0] * inputs.dtype.type(self.parameters[0])

    def gradient(self, inputs: Array, by_beta: Array) -> Array:
        return np.array([by_beta.sum()])


class NoAdapter(ScalarAdapter):
    """β = 0: the host is not changed."""

    linear = False

    def __init__(self) -> None:
        self.parameters = np.zeros(0)

    def score(self, inputs: Array) -> Array:
        return np.zeros(len(inputs), inputs.dtype)

    def gradient(self, inputs: Array, by_beta: Array) -> Array:
        return self.parameters


def adapter_inputs(similarity: Array, kind: str, tau: float = 1.0) -> Array:
    """The input transform σ of Eq. 7: (F, B) -> (F, B).

    kind : `raw`; `sorted` in descending order, which hides the order of the base classes from the
        adapter; `softmax` of τ·S (τ=1 is the paper to the letter, but hardly distinguishes
        classes: softmax over raw cosines is almost uniform)
    """
    if kind == "sorted":
        return -np.sort(-similarity, axis=1)
    if kind == "softmax":
        powers = np.exp(tau * (similarity - similarity.max(1, keepdims=True)))
        return powers / powers.sum(1, keepdims=True)
    return similarity


class MLPAdapter(Adapter):
    """The paper's adapter (Eq. 7): B -> 64 -> 64 -> 1 with ReLU on the similarities to base.

    rng : draws the initial weights, uniform within ±1/√n_in
    inputs, tau : see `adapter_inputs`
    zero_start : start the last layer at zero, so that training starts from the plain classifier
    """

    def __init__(
        self,
        n_base: int,
        *,
        rng: Generator,
        inputs: str = "sorted",
        tau: float = 1.0,
        hidden: tuple[int, ...] = (64, 64),
        zero_start: bool = True,
    ) -> None:
        self.kind, self.tau = inputs, tau
        layers, sizes = [], itertools.pairwise((n_base, *hidden, 1))
        layout: dict[str, tuple[int, ...]] = {}
        for index, (n_in, n_out) in enumerate(sizes):
            layout[f"layers.{2 * index}.weight"] = (n_out, n_in)
            layout[f"layers.{2 * index}.bias"] = (n_out,)
            layers.append(rng.uniform(-1, 1, (n_in + 1) * n_out) / math.sqrt(n_in))
        if zero_start:
            layers[-1][:] = 0
        self.layout, self.parameters = layout, np.concatenate(layers)

    def read(self, context: ClassContext) -> Array:
        return adapter_inputs(context.similarity, self.kind, self.tau)

    def score(self, inputs: Array) -> Array:
        return self._forward(inputs, self._layers(inputs))[-1][:, 0]

    def _forward(self, inputs: Array, layers: list[tuple[Array, Array]]) -> list[Array]:
        """The inputs of every layer, and the output of the last."""
        values = [inputs]
        for index, (weight, bias) in enumerate(layers, start=1):
            out = values[-1] @ weight.T + bias
            values.append(out if index == len(layers) else np.maximum(out, 0))
        return values

    def gradient(self, inputs: Array, by_beta: Array) -> Array:
        layers = self._layers(inputs)
        values, error = self._forward(inputs, layers), by_beta[:, None]
        parts: list[Array] = []
        for index in reversed(range(len(layers))):
            parts += [error.sum(0), (error.T @ values[index]).ravel()]
            if index:
                error = (error @ layers[index][0]) * (values[index] > 0)
        return np.concatenate(parts[::-1])

    def _layers(self, inputs: Array) -> list[tuple[Array, Array]]:
        """Weight (out, in) and bias (out,) of every layer, in the precision of the inputs."""
        parts = list(self.parts(inputs.dtype).values())
        return list(zip(parts[::2], parts[1::2], strict=True))


class SummaryAdapter(Adapter):
    """A linear adapter on a few numbers per class, the same for any B (ours).

    The inputs are the top similarities to base, mean similarity, tightness of the shots and log K,
    standardised on the fake classes. A single shot has no tightness; the mean of the fake classes
    is used instead.
    """

    linear = True

    def __init__(self, n_base: int, *, top: int = 5) -> None:
        self.top = min(top, n_base)
        width = self.top + 3
        self.layout, self.parameters = {"weight": (width,), "bias": (1,)}, np.zeros(width + 1)
        self.mean, self.spread = np.zeros(width), np.ones(width)

    def calibrate(self, contexts: Sequence[ClassContext]) -> None:
        values = np.concatenate([self._summary(c) for c in contexts]).astype(np.float64)
        known = ~np.isnan(values)
        count = np.maximum(known.sum(0), 1)
        self.mean = np.where(known, values, 0).sum(0) / count
        spread = np.sqrt((np.where(known, values - self.mean, 0) ** 2).sum(0) / count)
        self.spread = np.where(spread > 1e-6, spread, np.inf)  # ignore a constant input
        super().calibrate(contexts)

    def read(self, context: ClassContext) -> Array:
        standard = (self._summary(context) - self.mean) / self.spread
        return np.nan_to_num(standard).astype(context.shots.dtype)

    def score(self, inputs: Array) -> Array:
        weight = self.parameters.astype(inputs.dtype)
        return inputs @ weight[:-1] + weight[-1]

    def gradient(self, inputs: Array, by_beta: Array) -> Array:
        return np.append(by_beta @ inputs, by_beta.sum())

    def _summary(self, context: ClassContext) -> Array:
        ordered = -np.sort(-context.similarity, axis=1)
        top = ordered[:, np.minimum(np.arange(self.top), ordered.shape[1] - 1)]  # repeat the last
        rest = [context.similarity.mean(1), context.tightness, np.log(context.shots)]
        return np.column_stack([top, *rest])

    def arrays(self) -> dict[str, Array]:
        return {**super().arrays(), "mean": self.mean, "spread": self.spread}

    def load(self, arrays: dict[str, Array]) -> None:
        super().load(arrays)
        self.top = len(self.parameters) - 4
        self.mean, self.spread = (arrays[k].astype(np.float64) for k in ("mean", "spread"))


def adam(lr: float) -> Step:
    """Adam with its usual constants."""
    first: Array | float = 0.0
    second: Array | float = 0.0
    count = 0

    def step(gradient: Array, parameters: Array) -> Array:
        nonlocal first, second, count
        count += 1
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        rate = lr * math.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        eps = 1e-8 * math.sqrt(1 - 0.999**count)
        return parameters - rate * first / (np.sqrt(second) + eps)

    return step


def sgd(lr: float, momentum: float = 0.9) -> Step:
    """Gradient descent with momentum."""
    velocity: Array | float = 0.0

    def step(gradient: Array, parameters: Array) -> Array:
        nonlocal velocity
        velocity = momentum * velocity + gradient
        return parameters - lr * velocity

    return step


OPTIMISERS: dict[str, Callable[[float], Step]] = {"adam": adam, "sgd": sgd}
#: Kinds of adapter: a function (recipe, B, rng) -> an untrained one.
ADAPTER_KINDS: Registry[Callable[..., Adapter]] = Registry("adapter kind")
ADAPTER_KINDS.register("none", "no shift")(lambda recipe, n_base, rng: NoAdapter())
ADAPTER_KINDS.register("scalar", "one for all")(lambda recipe, n_base, rng: ScalarAdapter())
ADAPTER_KINDS.register("summary", "linear")(lambda recipe, n_base, rng: SummaryAdapter(n_base))


@ADAPTER_KINDS.register("mlp", "the CALA paper's network on similarity to base")
def _mlp(recipe: Any, n_base: int, rng: Generator) -> Adapter:
    options = {name: getattr(recipe, name) for name in ("inputs", "tau", "hidden", "zero_start")}
    return MLPAdapter(n_base, rng=rng, **options)
