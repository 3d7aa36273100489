"""The head that puts an adapter on any host: ẑ = z + [0, γβ + δ] (Eq. 8)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from typing_extensions import Self

from cala.core.adapters import Adapter
from cala.core.cala import ClassContext, Episode, adjusted_logits, normalise, novel_shift
from cala.core.calibration import Temperature
from cala.core.operating_point import pseudo_trade_off
from cala.core.rows import Array
from cala.heads.adapter_training import AdapterRecipe, train_adapter
from cala.heads.base import Head
from cala.heads.base_data import BaseData
from cala.heads.wrapper import BaseReference, HeadWrapper, warn_of_base_queries


class AdaptedHead(HeadWrapper):
    """A host and an adapter trained on the host's own logits.

    β of a novel class is computed only when its prototype is made or changes. Similarity is
    measured to the base prototypes as they were at `fit_base`.

    beta : (C,), zero for base classes
    """

    def fit_base(self, data: BaseData) -> Self:
        fitted = self.blank()
        fitted._host.fit_base(data)
        warn_of_base_queries(data)
        adapter, recipe, judged = train_adapter(fitted._host, self.recipe, data, seed=self.seed)
        fitted._take(adapter, recipe, judged, data)
        return self._become(fitted)

    def _take(
        self, adapter: Adapter, recipe: AdapterRecipe, judged: Sequence[Episode], data: BaseData
    ) -> None:
        """Use a trained adapter; the judging episodes give its trade-off curve and temperature."""
        self.adapter, self.trained_as, self.gamma = adapter, recipe, recipe.gamma
        shifts = [self.gamma * adapter(episode.context) for episode in judged]
        self.curve = pseudo_trade_off(judged, shifts)
        self.temperature = Temperature.of(judged, shifts)
        self._reference = normalise(self._host.prototypes)  # (B, d), for Eq. 6
        self.beta = np.zeros(self.n_base, self.dtype)
        self._kept = BaseReference.of(self._host, data)

    def add_unit(self, unit: Array, labels: Array) -> Self:
        again = set(labels.tolist()).intersection(self.classes)  # most often none
        known = [i for i, label in enumerate(self.classes) if label in again] if again else []
        return self._with_host(self._host.fork().add_unit(unit, labels), known)

    def remove(self, features: Array, label: int) -> Self:
        host = self._host.fork().remove(features, label)
        return self._with_host(host, [self.classes.index(label)])

    def _with_host(self, host: Head, known: Sequence[int]) -> Self:
        """Take a host in which these columns have changed and later ones are new."""
        base, old, now = self.n_base, len(self.beta), len(host.classes)
        changed = np.array([*(i for i in known if i >= base), *range(old, now)], dtype=np.int64)
        beta = np.pad(self.beta, (0, now - old))
        if len(changed):
            prototypes, table = host.prototypes_at(changed), host.table.at(changed)
            beta[changed] = self.adapter(ClassContext.of(prototypes, table, self._reference))
        other = self.fork()
        other._host, other.beta = host, beta
        if any(i < base for i in known):
            other._kept = self._kept.refreshed(host)
        other._follow()
        return self._become(other)

    @property
    def shift(self) -> Array:
        return novel_shift(self.beta, self.n_base, self.gamma, self.delta)

    def unit_logits(self, unit: Array, members: Array | None = None) -> Array:
        return adjusted_logits(self._host.unit_logits(unit, members), self.shift)
