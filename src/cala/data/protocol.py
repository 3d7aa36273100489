"""Protocols: which classes are base, which arrive when, and which images are their shots."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib import resources

import numpy as np
import torch
from torch import Tensor

from cala.errors import InputError
from cala.registry import check_choice

MANIFESTS = ("cifar100",)


@dataclass(frozen=True)
class Protocol:
    """Base labels first, then `way` labels per session, in label order.

    canonical : one list of training rows per session, the published shots; empty if there are none
    """

    name: str
    base: int
    way: int
    shot: int
    sessions: int
    canonical: tuple[tuple[int, ...], ...] = ()

    @property
    def n_classes(self) -> int:
        return self.base + self.way * self.sessions

    def session_labels(self, session: int) -> range:
        """Labels that arrive in a session; session 0 is the base session."""
        if session == 0:
            return range(self.base)
        start = self.base + self.way * (session - 1)
        return range(start, start + self.way)


@dataclass(frozen=True)
class ShotDraw:
    """Which training rows are the shots: one tensor of row indices per incremental session."""

    name: str
    rows: tuple[Tensor, ...]


def load_protocol(name: str) -> Protocol:
    """A benchmark's protocol from its manifest, checked against its checksum."""
    check_choice("protocol", name, MANIFESTS)
    text = resources.files("cala.data").joinpath(f"manifests/{name}.json").read_text("utf-8")
    manifest = json.loads(text)
    canonical = tuple(tuple(rows) for rows in manifest["canonical"])
    listed = ",".join(str(row) for rows in canonical for row in rows)
    if hashlib.sha256(listed.encode()).hexdigest() != manifest["canonical_sha256"]:
        raise InputError(f"the shot list of {name} does not match its checksum: reinstall cala")
    fields = ("name", "base", "way", "shot", "sessions")
    return Protocol(**{key: manifest[key] for key in fields}, canonical=canonical)


def canonical_draw(protocol: Protocol) -> ShotDraw:
    """The published shots."""
    if not protocol.canonical:
        raise InputError(f"{protocol.name} has no published shot list: use random draws")
    return ShotDraw("canonical", tuple(torch.tensor(rows) for rows in protocol.canonical))


def random_draw(protocol: Protocol, labels: Tensor, usable: Tensor, seed: int) -> ShotDraw:
    """`shot` usable rows of every novel class; a class's shots depend on its label and the seed.

    labels : (n,) of the training rows; usable : (n,) bool
    """
    sessions = []
    for session in range(1, protocol.sessions + 1):
        rows = []
        for label in protocol.session_labels(session):
            candidates = ((labels == label) & usable).nonzero()[:, 0].numpy()
            if len(candidates) < protocol.shot:
                raise InputError(
                    f"class {label} has {len(candidates)} usable training rows, {protocol.shot} "
                    "shots are needed"
                )
            rng = np.random.default_rng([seed, label])
            rows.append(np.sort(rng.choice(candidates, protocol.shot, replace=False)))
        sessions.append(torch.from_numpy(np.concatenate(rows)))
    return ShotDraw(f"random:{seed}", tuple(sessions))
