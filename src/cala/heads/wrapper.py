"""What surrounds the adapter of a wrapped head: its host, its operating point δ, and its state."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import Self

from cala.core.adapters import Adapter, ScalarAdapter
from cala.core.cala import ClassContext, PrototypeTable, novel_shift
from cala.core.calibration import Temperature
from cala.core.operating_point import choose_delta, losses_within
from cala.core.rows import Array
from cala.errors import BaseQueryWarning
from cala.heads.adapter_training import AdapterRecipe
from cala.heads.base import Head, State
from cala.heads.base_data import BaseData, Scorer
from cala.heads.checks import check_operating_point
from cala.heads.table import part_of
from cala.metrics import NO_CURVE, TradeOff

if TYPE_CHECKING:
    from cala.heads.auto import AutoReport

MOST_ROWS, MOST_NUMBERS = 2000, 2**20
_MARGIN = 1e-4  # of a logit, above rounding


@dataclass(frozen=True)
class BaseReference:
    """Base rows that a head keeps, to see what novel classes take from the base classes.

    Those count that are right where there are base classes alone.

    rows : (R, e) as the head embeds them; own : (R,) their base columns
    best : (R,) their largest base logit, -inf where it is not that of their own class
    queries : (B,) how many of each base class were asked
    """

    rows: Array
    best: Array
    own: Array
    queries: Array

    @classmethod
    def none(cls) -> BaseReference:
        nothing = np.zeros(0, np.int64)
        return cls(np.zeros((0, 0), np.float32), np.zeros(0, np.float32), nothing, nothing)

    @classmethod
    def of(cls, host: Head, data: BaseData) -> BaseReference:
        """None where rows cannot be left out of what the host learned from them."""
        scorers = data.scorers(host)
        if len(scorers) > 1 or not scorers[0].leave_out:
            return cls.none()
        rng = np.random.default_rng(0)
        most = max(1, min(MOST_ROWS, MOST_NUMBERS // data.dim))
        asked = scorers[0].rows.where(data.queries)
        asked = asked.draw(-(-most // data.n_base), rng).thinned(most, rng)
        if not len(asked):
            return cls.none()
        rows = host.embed(data.features[asked.order])
        return cls(rows, rows[:, 0], asked.columns, asked.counts).refreshed(host)

    def refreshed(self, host: Head) -> BaseReference:
        """After base classes have learned more: their logits are others."""
        if not len(self.rows):
            return self
        logits = host.unit_logits(self.rows, self.own)[:, : host.n_base]
        right = logits.argmax(1) == self.own
        return replace(self, best=np.where(right, logits.max(1), -np.inf).astype(logits.dtype))

    def without(self, column: int) -> BaseReference:
        """After a base class was forgotten: none of its rows is kept or promised anything."""
        if column >= len(self.queries):
            return self
        stay = self.own != column
        own = self.own[stay]
        queries = np.delete(self.queries, column)
        return BaseReference(self.rows[stay], self.best[stay], own - (own > column), queries)

    def delta(self, host: Head, shift: Array, max_base_loss: float) -> float:
        """The largest δ that loses no more than the asked share of base queries.

        host : with its novel classes; shift : (F,) what is added to these already
        """
        right = self.best > -np.inf
        novel = host.unit_logits(self.rows[right])[:, host.n_base :] + shift
        switches = np.sort(self.best[right] - novel.max(1))
        lost = losses_within(max_base_loss, int(self.queries.sum()))
        if lost >= len(switches):
            return float(switches[-1]) + 1.0
        return float(switches[lost]) - _MARGIN  # this one and all after it stay


class HeadWrapper(Head):
    """A head around another one, its host, whose novel columns it shifts.

    gamma, delta : may be set at any time; they act on the next `logits`
    max_base_loss : what base may lose; while it is set, δ follows the classes that are added
    curve : the trade-off of held-out pseudo sessions, which δ is read off
    trained_as : the recipe that training came to; LA's where the data allowed no more
    report : how that was decided; empty where there was no choice
    """

    name = "adapted"
    adapted = True
    beta: Array = np.zeros(0)
    temperature: Temperature = Temperature()

    def __init__(self, host: Head, recipe: AdapterRecipe, *, seed: int = 0) -> None:
        self._host, self.recipe, self.seed = host, recipe, seed
        self.gamma, self.delta = recipe.gamma, 0.0
        self.adapter: Adapter = ScalarAdapter()
        self.trained_as = recipe
        self.curve = NO_CURVE
        self.max_base_loss: float | None = None
        self._kept = BaseReference.none()
        self._reference = np.zeros((0, 0))
        self.report: AutoReport | dict[str, Any] = {}

    # The host's own.

    classes = property(attrgetter("_host.classes"))
    n_base = property(attrgetter("_host.n_base"))
    dim = property(attrgetter("_host.dim"))
    dtype = property(attrgetter("_host.dtype"))
    table = property(attrgetter("_host.table"))
    room = property(attrgetter("_host.room"))
    host = property(attrgetter("_host"))

    def prototypes_at(self, columns: Array) -> Array:
        return self._host.prototypes_at(columns)

    def embed(self, features: Array) -> Array:
        return self._host.embed(features)

    def scorers(self, data: BaseData) -> list[Scorer]:
        return self._host.scorers(data)

    def blank(self) -> Self:
        return type(self)(self._host.blank(), self.recipe, seed=self.seed)

    # The operating point.

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
        """Keep what was promised of base, now that the classes are others."""
        loss, novel = self.max_base_loss, self.beta[self.n_base :]
        if loss is not None and len(novel) and (self._kept.best > -np.inf).any():
            self.delta = self._kept.delta(self._host, self.gamma * novel, loss)

    # Forgetting, and exports.

    def forget(self, label: int) -> Self:
        column = self.classes.index(label) if label in self.classes else -1
        smaller = self.fork()
        smaller._host = self._host.fork().forget(label)
        smaller.beta = np.delete(self.beta, column)
        if column < self.n_base:
            smaller._kept = self._kept.without(column)
        smaller._follow()
        return self._become(smaller)

    def linear_form(self) -> tuple[Array, Array]:
        weights, bias = self._host.linear_form()
        return weights, bias + self.shift

    def new_row(self, unit: Array) -> tuple[Array, Array]:
        weights, bias = self._host.new_row(unit)
        table = PrototypeTable.empty(0, unit.shape[1]).extended(unit, np.zeros(len(unit), np.int64))
        prototype = self._host.new_prototype(unit)  # type: ignore[attr-defined]
        beta = self.adapter(ClassContext.of(prototype, table, self._reference))
        return weights, bias + novel_shift(beta, 0, self.gamma, self.delta)

    # On disk.

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
    def from_state(cls, state: State) -> Self:
        from cala.heads.factory import restore_head

        config, meta, tensors = state["config"], state["meta"], state["tensors"]
        inner, arrays = config["host"], part_of(tensors, "host.")
        host = restore_head(
            State(name=inner["name"], config=inner["config"], meta=meta["host"], tensors=arrays)
        )
        head = cls(host, AdapterRecipe.from_json(config["recipe"]), seed=config["seed"])
        head.gamma, head.delta = meta["gamma"], meta["delta"]
        head.trained_as = AdapterRecipe.from_json(meta["trained_as"])
        head.report = meta.get("report", {})
        head.temperature = Temperature(*meta.get("temperature", ()))
        head.max_base_loss = meta.get("max_base_loss")
        kept = part_of(tensors, "kept.")
        if "own" in kept:  # not in version 0.1
            head._kept = BaseReference(**kept)
        head.beta, head._reference = tensors["beta"], tensors["reference"]
        head.curve = TradeOff(**part_of(tensors, "curve."))
        head.adapter = head.trained_as.make(len(head._reference), np.random.default_rng(0))
        head.adapter.load(part_of(tensors, "adapter."))
        return head


def warn_of_base_queries(data: BaseData) -> None:
    """Warn where base queries may be rows that trained the encoder."""
    covered, classes = data.coverage()
    if data.holdout is None:
        code, found = "no_holdout", "no rows are held out"
    elif covered < classes:
        code, found = "partial_holdout", f"the hold-out covers {covered} of {classes} base classes"
    else:
        return
    message = (
        f"{found}: if the encoder was trained on these rows, base classes look easier than they "
        "are and β becomes too large; pass a mask of rows that it was not trained on, some of "
        'every base class, as `holdout` ("all" if it saw none of them)'
    )
    warnings.warn(BaseQueryWarning(message, code), stacklevel=3)
