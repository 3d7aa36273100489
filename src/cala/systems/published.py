"""What the authors of each system used on each data set: one shape for all of them.

Every file of this room has its own `PUBLISHED`; where a system differs from it here is listed in
docs/method-differences.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cala.registry import Registry

BENCHMARKS = ("cifar100", "mini_imagenet", "cub200")


@dataclass(frozen=True)
class Published:
    """A system's numbers on one data set.

    encoder : the architecture here that is like theirs; empty for any
    base : of the base session, as fields of `cala.training.recipes.Recipe`
    loss : of the base session's loss, as options of the system's objective
    head : of the head, in every `cala run` on the data set
    session : of a session, for `cala run --full-sessions`: options of the head, or `steps` of a
        learner
    missing : what is not known of theirs, and whose numbers these are then
    """

    encoder: str = ""
    base: Mapping[str, Any] = field(default_factory=dict)
    loss: Mapping[str, Any] = field(default_factory=dict)
    head: Mapping[str, Any] = field(default_factory=dict)
    session: Mapping[str, Any] = field(default_factory=dict)
    missing: str = ""


ByDataset = Mapping[str, Published]


def base_session(
    batch: int, lr: float, epochs: int, milestones: tuple[int, ...] = (), **others: Any
) -> dict[str, Any]:
    """Fields of a recipe: the rate falls at the milestones, or along a cosine without any."""
    steps = {"schedule": "milestones", "milestones": milestones}
    schedule = steps if milestones else {"schedule": "cosine", "warmup": 0.0}
    return {"batch": batch, "lr": lr, "epochs": epochs, **schedule, "sizes": (), **others}


PUBLISHED: Registry[ByDataset] = Registry("system with published numbers")
_NAMES = "alice bidist cec fact gkeal icarl icarl-star limit nc-fscil savc teen topic"
for _name in _NAMES.split():
    PUBLISHED.add(_name, f"cala.systems.{_name.replace('-', '_')}:PUBLISHED", "")
PUBLISHED.add("bidist-base", "cala.systems.bidist:PUBLISHED", "")


def published(system: str, dataset: str) -> Published:
    """The numbers of a system on a data set; by default those of CIFAR-100.

    >>> [published("teen", name).head["alpha"] for name in ("cub200", "my-photos")]
    [0.5, 0.1]
    >>> published("nearest-mean", "cub200").head
    {}
    """
    if system not in PUBLISHED:
        return Published(missing="nothing to publish: it has no numbers")
    found = PUBLISHED[system]
    return found.get(dataset, found["cifar100"])
