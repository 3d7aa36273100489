"""Eq. 7, adapters g: what is known of a class -> its balance factor β_c, with gradients."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from cala.core.rows import Array
from cala.registry import Registry, check_choice

if TYPE_CHECKING:
    from cala.core.cala import ClassContext

INPUTS = ("raw", "sorted", "softmax")


class Adapter(ABC):
    """Maps the context of F classes to β (F,).

    parameters : (p,) float64, all that training changes
    linear : β is linear in the parameters, the last of which is an offset
    low, high : (n_inputs,) the range of inputs that the training classes covered: what lies
        outside is clamped, since nothing was learned there
    """

    linear: ClassVar[bool] = False
    parameters: Array
    low: Array | float = -np.inf
    high: Array | float = np.inf

    def calibrate(self, contexts: Sequence[ClassContext]) -> None:
        """Learn the range of the inputs from the classes that it will be trained on."""
        values = np.concatenate([self.read(context) for context in contexts])
        self.low, self.high = values.min(0), values.max(0)

    def inputs(self, context: ClassContext) -> Array:
        """What the adapter works on: (F, n_inputs), within the range it was trained on."""
        return self.read(context).clip(self.low, self.high)

    @abstractmethod
    def read(self, context: ClassContext) -> Array:
        """The numbers that are known of each class: (F, n_inputs)."""

    @abstractmethod
    def score(self, inputs: Array) -> Array:
        """β (F,) from inputs (F, n_inputs)."""

    @abstractmethod
    def gradient(self, inputs: Array, by_beta: Array) -> Array:
        """Derivative by the parameters (p,), given that by β (F,)."""

    def arrays(self) -> dict[str, Array]:
        """Everything learned, by name, as a model on disk keeps it."""
        clamped = isinstance(self.low, np.ndarray)
        return {"low": np.asarray(self.low), "high": np.asarray(self.high)} if clamped else {}

    def load(self, arrays: dict[str, Array]) -> None:
        """Take over what `arrays` gave; a range is missing where none was learned."""
        self.low, self.high = arrays.get("low", -np.inf), arrays.get("high", np.inf)

    def __call__(self, context: ClassContext) -> Array:
        return self.score(self.inputs(context))


class NoAdapter(Adapter):
    """β = 0: the host as it is."""

    def __init__(self) -> None:
        self.parameters = np.zeros(0)

    def calibrate(self, contexts: Sequence[ClassContext]) -> None:
        """It reads nothing."""

    def read(self, context: ClassContext) -> Array:
        return np.zeros((len(context), 0), context.shots.dtype)

    def score(self, inputs: Array) -> Array:
        return np.zeros(len(inputs), inputs.dtype)

    def gradient(self, inputs: Array, by_beta: Array) -> Array:
        return self.parameters


class ScalarAdapter(Adapter):
    """LA (Eq. 5): one α for every class, whatever it looks like."""

    linear = True

    def __init__(self) -> None:
        self.parameters = np.zeros(1)

    def calibrate(self, contexts: Sequence[ClassContext]) -> None:
        """It reads nothing."""

    def read(self, context: ClassContext) -> Array:
        return np.ones((len(context), 1), context.shots.dtype)

    def score(self, inputs: Array) -> Array:
        return inputs[:, 0] * inputs.dtype.type(self.parameters[0])

    def gradient(self, inputs: Array, by_beta: Array) -> Array:
        return np.array([by_beta.sum()])

    def arrays(self) -> dict[str, Array]:
        return {"alpha": self.parameters}

    def load(self, arrays: dict[str, Array]) -> None:
        self.parameters = arrays["alpha"].astype(np.float64)


def adapter_inputs(similarity: Array, kind: str, tau: float = 1.0) -> Array:
    """The input transform σ of Eq. 7: (F, B) -> (F, B).

    kind : `raw`; `sorted` in descending order, which makes the adapter blind to the order of the
        base classes; `softmax` of τ·S (τ=1 is the paper to the letter, and nearly blind: softmax
        over raw cosines is almost uniform)
    """
    if kind == "sorted":
        return -np.sort(-similarity, axis=1)
    if kind == "softmax":
        powers = np.exp(tau * (similarity - similarity.max(1, keepdims=True)))
        return powers / powers.sum(1, keepdims=True)
    return similarity


class MLPAdapter(Adapter):
    """The paper's adapter (Eq. 7): B -> 64 -> 64 -> 1 with ReLU on the similarities to base.

    rng : draws the first weights, uniform within ±1/√n_in
    inputs, tau : see `adapter_inputs`
    zero_start : the last layer starts at zero, so that training starts from the plain classifier
    """

    def __init__(
        self,
        n_base: int,
        *,
        rng: np.random.Generator,
        inputs: str = "sorted",
        tau: float = 1.0,
        hidden: tuple[int, ...] = (64, 64),
        zero_start: bool = True,
    ) -> None:
        check_choice("adapter input", inputs, INPUTS)
        self.kind, self.tau = inputs, tau
        self.sizes = list(itertools.pairwise((n_base, *hidden, 1)))
        layers = [
            rng.uniform(-1, 1, (n_in + 1) * n_out) / math.sqrt(n_in) for n_in, n_out in self.sizes
        ]
        if zero_start:
            layers[-1][:] = 0
        self.parameters = np.concatenate(layers)

    def read(self, context: ClassContext) -> Array:
        return adapter_inputs(context.similarity, self.kind, self.tau)

    def score(self, inputs: Array) -> Array:
        return self._forward(inputs)[-1][:, 0]

    def _forward(self, inputs: Array) -> list[Array]:
        """The inputs of every layer, and the output of the last."""
        values = [inputs]
        for index, (weight, bias) in enumerate(self._layers(inputs.dtype)):
            out = values[-1] @ weight.T + bias
            values.append(out if index == len(self.sizes) - 1 else np.maximum(out, 0))
        return values

    def gradient(self, inputs: Array, by_beta: Array) -> Array:
        values = self._forward(inputs)
        error = by_beta[:, None]
        parts: list[Array] = []
        for index in reversed(range(len(self.sizes))):
            parts += [error.sum(0), (error.T @ values[index]).ravel()]
            if index:
                weight = self._layers(inputs.dtype)[index][0]
                error = (error @ weight) * (values[index] > 0)
        return np.concatenate(parts[::-1])

    def _layers(self, dtype: np.dtype[np.floating] | None = None) -> list[tuple[Array, Array]]:
        """Weight (out, in) and bias (out,) of every layer, as views of the parameters."""
        found, start = [], 0
        parameters = self.parameters if dtype is None else self.parameters.astype(dtype)
        for n_in, n_out in self.sizes:
            middle, end = start + n_in * n_out, start + (n_in + 1) * n_out
            found.append((parameters[start:middle].reshape(n_out, n_in), parameters[middle:end]))
            start = end
        return found

    def arrays(self) -> dict[str, Array]:
        found = super().arrays()
        for index, (weight, bias) in enumerate(self._layers()):
            found[f"layers.{2 * index}.weight"], found[f"layers.{2 * index}.bias"] = weight, bias
        return found

    def load(self, arrays: dict[str, Array]) -> None:
        super().load(arrays)
        names = [
            f"layers.{2 * i}.{part}" for i in range(len(self.sizes)) for part in ("weight", "bias")
        ]
        self.parameters = np.concatenate([arrays[name].ravel() for name in names]).astype(
            np.float64
        )


class SummaryAdapter(Adapter):
    """A linear adapter on a few numbers that every class has, whatever B is (ours).

    Top similarities to base, mean similarity, tightness of the shots and log K, standardised on
    the fake classes. One shot has no tightness: the fake classes' mean stands in for it.
    """

    linear = True

    def __init__(self, n_base: int, *, top: int = 5) -> None:
        self.top = min(top, n_base)
        width = self.top + 3
        self.parameters = np.zeros(width + 1)
        self.mean, self.spread = np.zeros(width), np.ones(width)

    def calibrate(self, contexts: Sequence[ClassContext]) -> None:
        values = np.concatenate([self._summary(c) for c in contexts]).astype(np.float64)
        known = ~np.isnan(values)
        count = np.maximum(known.sum(0), 1)
        self.mean = np.where(known, values, 0).sum(0) / count
        spread = np.sqrt((np.where(known, values - self.mean, 0) ** 2).sum(0) / count)
        self.spread = np.where(spread > 1e-6, spread, np.inf)  # a constant input is no input
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
        few = np.minimum(np.arange(self.top), ordered.shape[1] - 1)  # the last one stands in
        top = ordered[:, few]
        rest = [context.similarity.mean(1), context.tightness, np.log(context.shots)]
        return np.column_stack([top, *rest])

    def arrays(self) -> dict[str, Array]:
        offset = self.parameters[-1:]
        return {
            **super().arrays(),
            "weight": self.parameters[:-1],
            "bias": offset,
            "mean": self.mean,
            "spread": self.spread,
        }

    def load(self, arrays: dict[str, Array]) -> None:
        super().load(arrays)
        parts = [arrays["weight"], arrays["bias"]]
        self.parameters = np.concatenate(parts).astype(np.float64)
        self.top = len(self.parameters) - 4
        self.mean, self.spread = (arrays[k].astype(np.float64) for k in ("mean", "spread"))


def adam(lr: float) -> Callable[[Array, Array], Array]:
    """An Adam step: gradient (p,), parameters (p,) -> parameters (p,)."""
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


def sgd(lr: float, momentum: float = 0.9) -> Callable[[Array, Array], Array]:
    """A step of gradient descent with momentum: gradient (p,), parameters (p,) -> (p,)."""
    velocity: Array | float = 0.0

    def step(gradient: Array, parameters: Array) -> Array:
        nonlocal velocity
        velocity = momentum * velocity + gradient
        return parameters - lr * velocity

    return step


OPTIMISERS: dict[str, Callable[[float], Callable[[Array, Array], Array]]] = {
    "adam": adam,
    "sgd": sgd,
}
#: Kinds of adapter: a function (recipe, B, rng) -> an untrained one.
KINDS: Registry[Callable[..., Adapter]] = Registry("adapter kind")
