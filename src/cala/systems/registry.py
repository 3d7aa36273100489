"""Systems that train a base session of their own (`cala train --method NAME`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cala.registry import Registry

if TYPE_CHECKING:
    from cala.systems.common.learner import Learner
    from cala.training.objective import MakeObjective


@dataclass(frozen=True)
class System:
    """What trains a system's base session; the head of the same name does the sessions.

    objective : what the base session minimises
    changes : what it changes in the recipe of any data set; `cala.systems.published` has what its
        authors used on each
    continues : whether it starts from an encoder that ordinary base training made
    learner : what its sessions do, where these train the encoder
    """

    objective: MakeObjective
    changes: Mapping[str, Any] = field(default_factory=dict)
    continues: bool = False
    learner: type[Learner] | None = None


SYSTEMS: Registry[System] = Registry("method with its own base session", group="cala.systems")
for _name, _summary in (
    ("alice", "angular penalty with class fusion; base prototypes of 5 images each"),
    ("bidist", "the base branch stays, a copy is fine-tuned and distilled; both vote"),
    ("cec", "pseudo sessions with turned classes; prototypes attend to each other"),
    ("fact", "virtual prototypes keep room for new classes, and speak at inference"),
    ("icarl", "herded exemplars, distillation, nearest mean of exemplars"),
    ("limit", "many pseudo sessions per step; classifiers calibrated to the query"),
    ("nc-fscil", "a fixed simplex with a vertex for every class; only a neck learns"),
    ("savc", "virtual classes of turned images, contrast with a queue; views vote"),
    ("topic", "a neural gas keeps the shape of the embeddings while they move"),
):
    SYSTEMS.add(_name, f"cala.systems.{_name.replace('-', '_')}:SYSTEM", _summary, extra="train")
