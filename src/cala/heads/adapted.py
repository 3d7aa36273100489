"""The wrapper that puts an adapter on any head: ẑ = z + [0, γβ + δ] (Eq. 8)."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Self

from cala.core.adapters import Adapter, ScalarAdapter
from cala.core.mixing import FakePool
from cala.core.operating_point import choose_delta
from cala.core.prototypes import PrototypeTable, normalise
from cala.core.similarity import ClassContext
from cala.core.stored_rows import Features
from cala.errors import BaseQueryWarning
from cala.heads.around import AroundHead
from cala.heads.base import Head, Judge, State
from cala.heads.checks import (
    check_fakes,
    check_features,
    check_holdout,
    check_labels,
    check_operating_point,
    check_streams,
)
from cala.heads.fairness import coverage
from cala.heads.pseudo_training import make_adapter, train_adapter
from cala.heads.recipe import AdapterRecipe
from cala.metrics import TradeOff

NO_CURVE = TradeOff(np.full(1, -np.inf), np.full(1, np.nan), np.full(1, np.nan))


class AdaptedHead(AroundHead):
    """A host and an adapter trained on the host's own logits.

    β of a novel class is computed when its prototype is made or changed, and never otherwise;
    similarity is to the base prototypes as they were at `fit_base`.

    beta : (C,), zero for base classes
    gamma, delta : may be set at any time; they act on the next `logits`
    trained_as : the recipe that training came to; LA's where the data allowed no more
    """

    name = "adapted"

    def __init__(self, host: Head, recipe: AdapterRecipe, *, seed: int = 0) -> None:
        self.host = host
        self.recipe = recipe
        self.seed = seed
        self.gamma = recipe.gamma
        self.delta = 0.0
        self.adapter: Adapter = ScalarAdapter()
        self.trained_as = recipe
        self.curve = NO_CURVE
        self.beta = torch.zeros(0)
        self._reference = torch.zeros(0, 0)

    def fit_base(
        self,
        features: Features,
        labels: Tensor,
        *,
        fakes: FakePool | None = None,
        holdout: Tensor | None = None,
    ) -> Self:
        check_streams(self.host, features)
        features = check_features(features)
        labels = check_labels(labels, features)
        fakes = check_fakes(fakes, features.shape[1])
        holdout = check_holdout(holdout, len(features))
        fitted = self.blank()
        fitted.host.fit_base(features, labels, fakes=fakes, holdout=holdout)
        columns = torch.searchsorted(
            torch.tensor(fitted.host.classes, device=labels.device), labels
        )
        _warn_of_base_queries(fitted.host, columns, holdout)
        trained = train_adapter(
            fitted.host,
            self.recipe,
            features,
            columns,
            fakes=fakes,
            holdout=holdout,
            seed=self.seed,
        )
        fitted.adapter, fitted.curve = trained.adapter, trained.curve
        fitted.trained_as, fitted.gamma = trained.recipe, trained.recipe.gamma
        fitted._reference = normalise(fitted.host.prototypes)
        fitted.beta = fitted._reference.new_zeros(fitted.n_base)
        return self._become(fitted)

    def add(self, features: Tensor, labels: Tensor) -> Self:
        host = self.host.fork().add(features, labels)
        return self._grown(host, torch.as_tensor(labels))

    def add_unit(self, unit: Tensor, labels: Tensor) -> Self:
        return self._grown(self.host.fork().add_unit(unit, labels), labels)

    @torch.no_grad()
    def _grown(self, host: Head, labels: Tensor) -> Self:
        base, old, now = self.n_base, len(self.beta), len(host.classes)
        again = set(labels.tolist()).intersection(self.classes[base:])  # most often none
        columns = [i for i in range(base, old) if self.classes[i] in again] if again else []
        columns += range(old, now)
        beta = self.beta.new_zeros(now)
        beta[:old] = self.beta
        if columns:
            at = torch.tensor(columns, device=beta.device)
            context = ClassContext.of(host.prototypes_at(at), host.table.at(at), self._reference)
            beta[at] = self.adapter(context)
        grown = self.fork()
        grown.host, grown.beta = host, beta
        return self._become(grown)

    def logits(self, features: Tensor) -> Tensor:
        return self.host.logits(features).add_(self.shift)

    def unit_logits(self, unit: Tensor, members: Tensor | None = None) -> Tensor:
        return self.host.unit_logits(unit, members).add_(self.shift)

    def linear_form(self) -> tuple[Tensor, Tensor]:
        weights, bias = self.host.linear_form()
        return weights, bias + self.shift

    def linear_at(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        weights, bias = self.host.linear_at(columns)
        return weights, bias + self._shift_at(columns)

    def linear_bias(self) -> Tensor:
        return self.host.linear_bias() + self.shift

    def new_row(self, unit: Tensor) -> tuple[Tensor, Tensor]:
        weights, bias = self.host.new_row(unit)
        table = PrototypeTable.of_one(unit)
        context = ClassContext.of(self.host.new_prototype(unit), table, self._reference)
        beta = self.adapter(context)
        return weights, bias + self.gamma * beta + self.delta

    @property
    def shift(self) -> Tensor:
        """What is added to each column: (C,)."""
        shift = self.gamma * self.beta
        shift[self.n_base :] += self.delta
        return shift

    def _shift_at(self, columns: Tensor) -> Tensor:
        """`shift` of some columns (m,), without a look at the others."""
        shift = self.gamma * self.beta[columns]
        shift[columns >= self.n_base] += self.delta
        return shift

    def set_operating_point(
        self,
        objective: str = "accuracy",
        max_base_loss: float | None = None,
        delta: float | None = None,
    ) -> float:
        """Choose δ from the stored trade-off curve, or set it; returns δ."""
        check_operating_point(objective, max_base_loss, delta)
        chosen = choose_delta(self.curve, objective, max_base_loss) if delta is None else delta
        self.delta = float(chosen)
        return self.delta

    def forget(self, label: int) -> Self:
        column = self.classes.index(label) if label in self.classes else -1
        smaller = self.fork()
        smaller.host = self.host.fork().forget(label)
        smaller.beta = torch.cat([self.beta[:column], self.beta[column + 1 :]])
        return self._become(smaller)

    def judges(
        self, features: Features, columns: Tensor, generator: torch.Generator
    ) -> list[Judge]:
        return self.host.judges(features, columns, generator)

    def blank(self) -> Self:
        return type(self)(self.host.blank(), self.recipe, seed=self.seed)

    def state(self) -> State:
        host = self.host.state()
        curve = {f"curve.{k}": torch.as_tensor(v) for k, v in vars(self.curve).items()}
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
                "trained_as": self.trained_as.to_json(),
                "host": host["meta"],
            },
            "tensors": {
                "beta": self.beta,
                "reference": self._reference,
                **curve,
                **{f"adapter.{k}": v for k, v in self.adapter.state_dict().items()},
                **{f"host.{k}": v for k, v in host["tensors"].items()},
            },
        }

    @classmethod
    def from_state(cls, state: State) -> Self:
        from cala.heads.factory import restore_head

        config, meta, tensors = state["config"], state["meta"], state["tensors"]
        host = restore_head(
            {**config["host"], "meta": meta["host"], "tensors": _part(tensors, "host.")}
        )
        head = cls(host, AdapterRecipe.from_json(config["recipe"]), seed=config["seed"])
        head.gamma, head.delta = meta["gamma"], meta["delta"]
        head.trained_as = AdapterRecipe.from_json(meta["trained_as"])
        head.beta, head._reference = tensors["beta"], tensors["reference"]
        head.curve = TradeOff(**{k: v.numpy() for k, v in _part(tensors, "curve.").items()})
        adapter = make_adapter(head.trained_as, len(head._reference), torch.Generator())
        head.adapter = adapter.to(head.beta.device, host.dtype).requires_grad_(False)
        head.adapter.load_state_dict(_part(tensors, "adapter."))
        return head


def _warn_of_base_queries(host: Head, columns: Tensor, holdout: Tensor | None) -> None:
    """Say which base queries may be rows that trained the encoder."""
    trained = (
        "if the encoder was trained on these rows base looks safer than it is and β comes out "
        "too large"
    )
    if holdout is None:
        warnings.warn(
            f"no hold-out: base queries are scored by leave-one-out, but {trained}; "
            'pass the rows that it was not trained on as `holdout` (holdout="all" in '
            "CalaClassifier if it saw none of them)",
            BaseQueryWarning,
            stacklevel=3,
        )
        return
    covered, classes = coverage(host, columns, holdout)
    if covered < classes:
        warnings.warn(
            f"the hold-out covers {covered} of {classes} base classes: queries of the others are "
            f"scored by leave-one-out, but {trained}; hold out rows of every base class",
            BaseQueryWarning,
            stacklevel=3,
        )


def _part(tensors: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}
