"""NC-FSCIL (Yang et al., ICLR 2023): a neck turns embeddings to vertices that were fixed before."""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, ClassVar

import torch
from torch import Tensor

from cala.core.mixing import FakePool
from cala.core.neck import NAME, VERTICES, Neck
from cala.core.neck_session import turn_neck
from cala.core.prototypes import chunks, normalise
from cala.core.stored_rows import Features
from cala.errors import InputError
from cala.heads.base import State
from cala.heads.checks import is_number
from cala.heads.fairness import fair_queries
from cala.heads.registry import HEADS
from cala.heads.trained import TrainedHead

STATE = "neck."
FEWEST, SHARE = 5.0, 1 / 3  # how much a new class weighs in its session, chosen on dev queries


@HEADS.register("nc-fscil", "a neck turns embeddings to fixed vertices (own base session)")
class NcFscil(TrainedHead):
    """Logits s·cos(neck(f), m_c) with m_c vertex c of a simplex that never moves.

    Only the neck learns, in every session a few steps from where the session before left it: on
    the means of all classes seen. A new one weighs as much as a third of those known before, at
    least as five of them.
    More shots of a class that is known, or forgetting one, play all sessions again, so the head
    is always what the same classes with the same shots would have made of it.

    `prototypes` are class means: vertices are all equally far apart, and would tell an adapter
    nothing about which classes are alike.

    scale : of the logits, or "auto" for the one that minimises cross-entropy on base rows
    steps, lr : of a session, by gradient descent with a momentum of 0.9
    """

    name = "nc-fscil"
    takes_encoder_scale: ClassVar[bool] = False
    # Its base session mixes images too, and tells the encoder which two classes they are of.
    mixed_images_are_new: ClassVar[bool] = False

    _start: Neck  # as the base session left it
    _neck: Neck
    _vertices: Tensor  # (V, w)
    _base_places: tuple[int, ...]  # which vertex each base class has
    _first: int  # the first vertex of novel classes
    _sessions: tuple[int, ...]  # how many classes each of them brought

    def __init__(
        self,
        *,
        metric: str = "cosine",
        shrinkage: float | str = "auto",
        scale: float | str = "auto",
        steps: int = 100,
        lr: float = 0.25,
        parts: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__(metric=metric, shrinkage=shrinkage, scale=scale, parts=parts)
        if not (is_number(steps) and steps == int(steps) and steps >= 1):
            raise InputError(f"steps is {steps!r}: give a whole number from 1 on")
        if not (is_number(lr) and 0 < float(lr) < float("inf")):
            raise InputError(f"lr is {lr!r}: give a positive number")
        self.steps, self.lr = int(steps), float(lr)

    @classmethod
    def part_shapes(cls, dim: int) -> dict[str, tuple[int | None, ...]]:
        with torch.device("meta"):
            one, two = (Neck(dim, width).state_dict() for width in (1, 2))
        shapes = {
            NAME + k: tuple(
                n if n == m else None for n, m in zip(v.shape, two[k].shape, strict=True)
            )
            for k, v in one.items()
        }
        return {**shapes, VERTICES: (None, None)}

    def _take_parts(self) -> None:
        place = self.table.counts.device
        self._vertices = normalise(self.parts[VERTICES].to(place, self.dtype))
        neck = Neck(self.dim, self._vertices.shape[1])
        neck.load_state_dict(_within(self.parts, NAME, but=VERTICES))
        self._start = neck.to(place, self.dtype).requires_grad_(False)

    @property
    def room(self) -> int:
        return len(self._vertices) - self._first - sum(self._sessions)

    def unit_logits(self, unit: Tensor, members: Tensor | None = None) -> Tensor:
        return self._scaled(self._cosines(unit))

    def _cosines(self, unit: Tensor) -> Tensor:
        """To the vertices of all seen classes: (n, d) -> (n, C)."""
        vertices = self._vertices[self._places(len(self.classes))]
        cosines = unit.new_empty(len(unit), len(vertices))
        for part in chunks(len(unit), self._vertices.shape[1]):
            cosines[part] = normalise(self._neck(unit[part])) @ vertices.T
        return cosines

    def _places(self, columns: int) -> Tensor:
        """The vertices of the first so many columns: (C,)."""
        novel = columns - len(self._base_places)
        places = [*self._base_places, *range(self._first, self._first + novel)]
        return torch.tensor(places, device=self._vertices.device)

    def _fit_base(
        self,
        features: Features,
        columns: Tensor,
        fakes: FakePool | None,
        holdout: Tensor | None,
    ) -> None:
        self._base_places, self._first, self._sessions = tuple(range(self.n_base)), self.n_base, ()
        self._check_room()
        self._neck = self._start
        generator = torch.Generator().manual_seed(0)
        queries = fair_queries(self, features, columns, holdout, generator)
        found = [(self._cosines(self.embed(features[rows])), columns[rows]) for _, rows in queries]
        cosines, own = zip(*found, strict=True)
        self._fit_scale(torch.cat(cosines), torch.cat(own))

    def _add(self, unit: Tensor, columns: Tensor) -> None:
        known = len(self._base_places) + sum(self._sessions)
        new = len(self.classes) - known
        if new or not self._sessions:
            self._sessions = (*self._sessions, new)
        self._check_room()
        if bool((columns < known).any()):
            self._play_all()
        else:
            self._neck = self._after_session(known, new)

    def _forget(self, column: int) -> None:
        base = self._base_places
        if column < len(base):
            self._base_places = base[:column] + base[column + 1 :]
        else:
            self._sessions = _one_less(self._sessions, column - len(base))
        self._play_all()

    def _play_all(self) -> None:
        """All sessions again, from the base session on."""
        self._neck, known = self._start, len(self._base_places)
        for new in self._sessions:
            self._neck = self._after_session(known, new)
            known += new

    def _after_session(self, known: int, new: int) -> Neck:
        """The neck after a session in which some new classes join those known."""
        columns = torch.arange(known + new, device=self._vertices.device)
        weights = torch.ones(known + new, dtype=self.dtype, device=columns.device)
        weights[known:] = max(FEWEST, SHARE * known)
        return turn_neck(
            self._neck,
            normalise(self.prototypes_at(columns)),
            self._vertices[self._places(known + new)],
            weights / weights.sum(),
            steps=self.steps,
            lr=self.lr,
        )

    def _check_room(self) -> None:
        if self.room < 0:
            raise InputError(
                f"this encoder was trained with room for {len(self._vertices)} classes, and now "
                f"they are {len(self._vertices) - self.room}: train one with `cala train DATA -o "
                f"DIR --method {self.name}` on a data set that has all classes to come"
            )

    def config(self) -> dict[str, Any]:
        return {**super().config(), "steps": self.steps, "lr": self.lr}

    def state(self) -> State:
        state = super().state()
        state["meta"].update(
            places=list(self._base_places), first=self._first, sessions=list(self._sessions)
        )
        state["tensors"].update({STATE + k: v for k, v in self._neck.state_dict().items()})
        return state

    def _restore(self, state: State) -> None:
        super()._restore(state)
        meta = state["meta"]
        self._base_places, self._first = tuple(meta["places"]), meta["first"]
        self._sessions = tuple(meta["sessions"])
        self._neck = copy.deepcopy(self._start)
        self._neck.load_state_dict(_within(state["tensors"], STATE))


def _within(tensors: Mapping[str, Tensor], prefix: str, but: str = "") -> dict[str, Tensor]:
    """Those whose name begins with the prefix, without it."""
    found = {k: v for k, v in tensors.items() if k.startswith(prefix) and k != but}
    return {k.removeprefix(prefix): v for k, v in found.items()}


def _one_less(sessions: tuple[int, ...], at: int) -> tuple[int, ...]:
    """Sizes of sessions after the class that came at a place among all was forgotten.

    >>> _one_less((2, 1), 1), _one_less((2, 1), 2)
    ((1, 1), (2,))
    """
    index = bisect_right(list(accumulate(sessions)), at)
    smaller = sessions[index] - 1
    return sessions[:index] + ((smaller,) if smaller else ()) + sessions[index + 1 :]
