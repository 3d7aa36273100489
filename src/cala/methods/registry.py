"""The registry of methods that train a base session of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cala.methods.learner import Learner
from cala.registry import Registry
from cala.training.objective import MakeObjective


@dataclass(frozen=True)
class Method:
    """A whole system: what trains its base; the head of the same name does the sessions.

    objective : what the base session minimises
    changes : what it changes in the recipe of the data set
    continues : whether it starts from an encoder that ordinary base training made
    learner : what its sessions do, where these train the encoder
    """

    objective: MakeObjective
    changes: Mapping[str, Any] = field(default_factory=dict)
    continues: bool = False
    learner: type[Learner] | None = None


METHODS: Registry[Method] = Registry("method with its own base session")
