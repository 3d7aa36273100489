"""The wrapper that puts an adapter on any head: ẑ = z + [0, γβ + δ] (Eq. 8)."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from typing_extensions import Self

from cala.core.adapters import Adapter, ScalarAdapter
from cala.core.cala import ClassContext, PrototypeTable, adjusted_logits, normalise, novel_shift
from cala.core.calibration import Temperature
from cala.core.operating_point import choose_delta
from cala.core.rows import Array
from cala.errors import BaseQueryWarning
from cala.heads.adapter_training import train_adapter
from cala.heads.base import Head, State
from cala.heads.base_data import BaseData
from cala.heads.base_reference import BaseReference
from cala.heads.checks import check_operating_point
from cala.heads.recipe import AdapterRecipe
from cala.heads.wrapper import HeadWrapper
from cala.metrics import TradeOff

NO_CURVE = TradeOff(np.full(1, -np.inf), np.full(1, np.nan), np.full(1, np.nan))


class AdaptedHead(HeadWrapper):
    """A host and an adapter trained on the host's own logits.

    β of a novel class is computed when its prototype is made or changed, and never otherwise;
    similarity is to the base prototypes as they were at `fit_base`.

    beta : (C,), zero for base classes
    gamma, delta : may be set at any time; they act on the next `logits`
    max_base_loss : what base may lose; while it is set, δ follows the classes that are added
    trained_as : the recipe that training came to; LA's where the data allowed no more
    report : how that was decided, for people to read
    """

    name = "adapted"
    beta: Array = np.zeros(0)
    temperature: Temperature = Temperature()

    def __init__(self, host: Head, recipe: AdapterRecipe, *, seed: int = 0) -> None:
        self._host = host
        self.recipe = recipe
        self.seed = seed
        self.gamma = recipe.gamma
        self.delta = 0.0
        self.adapter: Adapter = ScalarAdapter()
        self.trained_as = recipe
        self.curve = NO_CURVE
        self.beta = np.zeros(0)
        self.max_base_loss: float | None = None
        self._kept = BaseReference.none()
        self._reference = np.zeros((0, 0))  # (B, d) unit base prototypes
        self.report: dict[str, Any] = {}

    @property
    def adapted(self) -> bool:
        return True

    def fit_base(self, data: BaseData) -> Self:
        fitted = self.blank()
        fitted._host.fit_base(data)
        warn_of_base_queries(data)
        trained = train_adapter(fitted._host, self.recipe, data, seed=self.seed)
        fitted.adapter, fitted.curve = trained.adapter, trained.curve
        fitted.trained_as, fitted.gamma = trained.recipe, trained.recipe.gamma
        fitted.temperature = trained.temperature
        fitted._reference = normalise(fitted._host.prototypes)
        fitted.beta = np.zeros(fitted.n_base, fitted.dtype)
        fitted._kept = BaseReference.of(fitted._host, data)
        return self._become(fitted)

    def add_unit(self, unit: Array, labels: Array) -> Self:
        host = self._host.fork().add_unit(unit, labels)
        base, old, now = self.n_base, len(self.beta), len(host.classes)
        again = set(labels.tolist()).intersection(self.classes[base:])  # most often none
        columns = [i for i in range(base, old) if self.classes[i] in again] if again else []
        columns += range(old, now)
        beta = np.zeros(now, self.dtype)
        beta[:old] = self.beta
        if columns:
            at = np.array(columns)
            context = ClassContext.of(host.prototypes_at(at), host.table.at(at), self._reference)
            beta[at] = self.adapter(context)
        grown = self.fork()
        grown._host, grown.beta = host, beta
        grown._follow()
        return self._become(grown)

    def unit_logits(self, unit: Array, members: Array | None = None) -> Array:
        return adjusted_logits(self._host.unit_logits(unit, members), self.shift)

    @property
    def shift(self) -> Array:
        return novel_shift(self.beta, self.n_base, self.gamma, self.delta)

    def linear_form(self) -> tuple[Array, Array]:
        weights, bias = self._host.linear_form()
        return weights, bias + self.shift

    def new_row(self, unit: Array) -> tuple[Array, Array]:
        weights, bias = self._host.new_row(unit)
        table = PrototypeTable.empty(0, unit.shape[1]).extended(unit, np.zeros(len(unit), np.int64))
        prototype = self._host.new_prototype(unit)  # type: ignore[attr-defined]
        beta = self.adapter(ClassContext.of(prototype, table, self._reference))
        return weights, bias + novel_shift(beta, 0, self.gamma, self.delta)

    def set_operating_point(
        self,
        objective: str = "accuracy",
        max_base_loss: float | None = None,
        delta: float | None = None,
    ) -> float:
        """Choose δ from the stored trade-off curve, or set it; returns δ."""
        check_operating_point(objective, max_base_loss, delta)
        chosen = choose_delta(self.curve, objective, max_base_loss) if delta is None else delta
        self.delta, self.max_base_loss = float(chosen), max_base_loss
        self._follow()
        return self.delta

    def _follow(self) -> None:
        """Keep what was promised of base, now that other classes are there."""
        if self.max_base_loss is not None and len(self._kept.rows) and len(self.beta) > self.n_base:
            shift = self.gamma * self.beta[self.n_base :]
            self.delta = self._kept.delta(self._host, shift, self.max_base_loss)

    def forget(self, label: int) -> Self:
        column = self.classes.index(label) if label in self.classes else -1
        smaller = self.fork()
        smaller._host = self._host.fork().forget(label)
        smaller.beta = np.delete(self.beta, column)
        if column < self.n_base:
            smaller._kept = self._kept.without(column)
        smaller._follow()
        return self._become(smaller)

    def blank(self) -> Self:
        return type(self)(self._host.blank(), self.recipe, seed=self.seed)

    def state(self) -> State:
        host = self._host.state()
        return {
            "name": self.name,
            "config": {
                "recipe": self.recipe.to_json(),
                "seed": self.seed,
                "host": {"name": host["name"], "config": host["config"]},
            },
            "meta": {
                "gamma": self.gamma,
                "delta": self.delta,
                "max_base_loss": self.max_base_loss,
                "temperature": [self.temperature.base, self.temperature.novel],
                "trained_as": self.trained_as.to_json(),
                "report": self.report,
                "host": host["meta"],
            },
            "tensors": {
                "beta": self.beta,
                "reference": self._reference,
                **{f"kept.{k}": v for k, v in vars(self._kept).items()},
                **{f"curve.{k}": v for k, v in vars(self.curve).items()},
                **{f"adapter.{k}": v for k, v in self.adapter.arrays().items()},
                **{f"host.{k}": v for k, v in host["tensors"].items()},
            },
        }

    @classmethod
    def from_state(cls, state: State) -> AdaptedHead:
        from cala.heads.factory import restore_head

        config, meta, tensors = state["config"], state["meta"], state["tensors"]
        host = restore_head(
            {**config["host"], "meta": meta["host"], "tensors": _part(tensors, "host.")}
        )
        head = AdaptedHead(host, AdapterRecipe.from_json(config["recipe"]), seed=config["seed"])
        head.gamma, head.delta = meta["gamma"], meta["delta"]
        head.trained_as = AdapterRecipe.from_json(meta["trained_as"])
        head.report = meta.get("report", {})
        head.temperature = Temperature(*meta.get("temperature", ()))
        head.max_base_loss = meta.get("max_base_loss")
        kept = _part(tensors, "kept.")
        if "own" in kept:
            head._kept = BaseReference(**kept)
        head.beta, head._reference = tensors["beta"], tensors["reference"]
        head.curve = TradeOff(**_part(tensors, "curve."))
        head.adapter = head.trained_as.make(len(head._reference), np.random.default_rng(0))
        head.adapter.load(_part(tensors, "adapter."))
        return head


def warn_of_base_queries(data: BaseData) -> None:
    """Say which base queries may be rows that trained the encoder."""
    trained = (
        "if the encoder was trained on these rows base looks safer than it is and β comes out "
        "too large"
    )
    if data.holdout is None:
        message = (
            f"no hold-out: base queries are scored by leave-one-out, but {trained}; "
            'pass the rows that it was not trained on as `holdout` (holdout="all" in '
            "CalaClassifier if it saw none of them)"
        )
        warnings.warn(BaseQueryWarning(message, "no_holdout"), stacklevel=3)
        return
    covered, classes = data.coverage()
    if covered < classes:
        message = (
            f"the hold-out covers {covered} of {classes} base classes: queries of the others are "
            f"scored by leave-one-out, but {trained}; hold out rows of every base class"
        )
        warnings.warn(BaseQueryWarning(message, "partial_holdout"), stacklevel=3)


def _part(tensors: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}
