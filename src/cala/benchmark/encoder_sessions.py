"""Systems that train their encoder in sessions: each draw is played once, for all their methods.

A host's sessions do not depend on the adapter on top of it, so `bidist`, `bidist+la` and
`bidist+cala` share the logits of one course of sessions. Only what a session changed is encoded
again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from cala import storage
from cala.benchmark.sources import Source
from cala.core.rows import Array, loaded, where
from cala.data.protocol import Protocol, ShotDraw
from cala.errors import InputError
from cala.files import clear_leftovers, shown
from cala.heads import Head
from cala.heads.nearest_mean import NearestMean
from cala.systems.published import published
from cala.systems.registry import SYSTEMS

if TYPE_CHECKING:
    from torch import Tensor

    from cala.systems.common.learner import Learner


@dataclass(frozen=True)
class SessionLogits:
    """The logits of a system in every session of one draw, and what they cost.

    logits : per session, (n, C) of the test rows whose classes had arrived
    seconds : of learning, per incremental session; encoding : of encoding test images again, in all
    encoded : how many images that were; bytes : size of the state after the last session
    """

    logits: list[Array]
    seconds: list[float]
    encoding: float
    encoded: int
    bytes: int


def check_images(host: str, source: Source) -> None:
    """Raise if a system that trains its encoder has no images to do so."""
    if source.images is None or source.encoder is None:
        raise InputError(
            f"{host} trains its encoder in every session, so it needs images",
            f"give --data DIR and --encoder {host}=DIR, an encoder that "
            f"`cala train --method {host}` made",
            code="needs_images",
        )
    if (source.data.provenance or {}).get("tta", "none") != "none":
        raise InputError(
            f"{host} encodes test images again after every session, without --tta",
            "omit --tta",
            field="tta",
        )
    if not hasattr(source.encoder.module, "upper") or "recipe" not in source.encoder.about:
        raise InputError(
            f"{host} trains its encoder in every session, and {shown(source.encoder.name)} cannot "
            "be trained further",
            f"give --encoder {host}=DIR, a ResNet that `cala train` made",
            field="encoder",
        )
    side = source.encoder.about["recipe"]["transform"]["size"]
    if source.encoder.transform.size != side:
        raise InputError(
            f"{host} trains its encoder on images of {side} × {side} pixels in every session",
            "omit size:",
            field="encoder",
        )


class SessionPlayer:
    """One host of a run: its base session and its test images, ready for any draw."""

    def __init__(
        self, host: str, head: Head, source: Source, protocol: Protocol, seed: int, full: bool
    ) -> None:
        from cala.systems.common.learner import SessionStart
        from cala.training.augment import augmentation
        from cala.training.images import stored_transform
        from cala.training.recipes import Recipe

        check_images(host, source)
        assert source.images is not None
        assert source.encoder is not None
        self.data, self.protocol, self.images = source.data, protocol, source.images
        recipe = Recipe.from_dict(source.encoder.about["recipe"])
        self.stored = stored_transform(recipe)
        base_branch = head.host.fork()
        assert isinstance(base_branch, NearestMean)
        base = np.flatnonzero((self.data.y_train < protocol.base) & self.data.learnable())
        start = SessionStart(
            encoder=source.encoder.module,
            transform=recipe.transform,
            augmentation=augmentation(recipe),
            features=loaded(where(self.data.x_train, base)),
            columns=self.data.y_train[base],
            pictures=lambda places: self._pictures(base[places]),
            head=base_branch,
            seed=seed,
            steps=published(host, protocol.name).session.get("steps") if full else None,
        )
        learner = SYSTEMS[host].learner
        assert learner is not None
        self.learner: Learner = learner(start)

    def play(
        self, draw: ShotDraw, progress: Callable[[int], None] = lambda session: None
    ) -> SessionLogits:
        """Run the sessions of a draw."""
        learner = self.learner.fork()
        self.views  # noqa: B018  (made before the clock starts)
        base = learner.head.embed(loaded(self.data.x_test))
        first = base[self.data.y_test < self.protocol.base]
        logits = [learner.logits(first, first)]
        seconds, encoding, encoded = [], 0.0, 0
        import torch

        with torch_threads(max(torch.get_num_threads(), session_threads())):
            for session, rows in enumerate(draw.rows, 1):
                progress(session)
                features, columns = self.data.x_train[rows], self.data.y_train[rows]
                pictures = self._pictures(rows)
                start = perf_counter()
                learner.add(pictures, features, columns)
                seconds.append(perf_counter() - start)
                start = perf_counter()
                seen = self.data.y_test < len(learner.head.classes)
                unit = self._encoded(learner, seen)
                encoding += perf_counter() - start
                encoded += len(unit)
                logits.append(learner.logits(unit, base[seen]))
        return SessionLogits(logits, seconds, encoding, encoded, learner.bytes)

    def _encoded(self, learner: Learner, seen: Array) -> Array:
        """Unit embeddings (m, d) of test rows, by a mask (n,), by the encoder as it is now."""
        return learner.encode(self.views[np.flatnonzero(seen)]).numpy()

    @cached_property
    def views(self) -> Tensor:
        """Test images, or what the half of the encoder that never changes makes of them."""
        numbers = self.data.image_test
        assert numbers is not None
        return self.learner.views(self._pictures(numbers))

    def _pictures(self, numbers: Array) -> Tensor:
        """Images (n, s, s, 3) uint8 by their numbers; test images come after training images."""
        import torch

        from cala.encoders.transform import stack_rows

        split, first = self.images.train, 0
        if len(numbers) and numbers.min() >= len(split):
            split, first = self.images.test, len(split)
        return torch.from_numpy(stack_rows(split, numbers - first, self.stored))


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use this many threads, where it is imported."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def session_threads() -> int:
    """Threads that sessions train with."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) > 0 else os.cpu_count() or 1


class SessionCache:
    """The session logits of a run, by host, draw and seed; computed when first asked for.

    They take minutes, so they are kept: in a folder, or in memory if there is none.
    """

    def __init__(self, folder: Path | None, full: bool) -> None:
        self.folder, self.full = folder, full
        self._player: tuple[tuple[str, int], SessionPlayer] | None = None  # the last: it is large
        self._kept: dict[tuple[str, str, int], SessionLogits] = {}

    def of(
        self,
        host: str,
        draw: ShotDraw,
        seed: int,
        make: Callable[[], SessionPlayer],
        progress: Callable[[int], None],
    ) -> SessionLogits:
        """The session logits of a host; make : its player, for a draw that was not played yet"""
        found = self.find(host, draw.name, seed)
        if found is None:
            if self._player is None or self._player[0] != (host, seed):
                self._player = (host, seed), make()
            found = self._player[1].play(draw, progress)
            self.keep(host, draw.name, seed, found)
        return found

    def find(self, host: str, draw: str, seed: int) -> SessionLogits | None:
        """Session logits that were computed before; None if there are none."""
        if self.folder is None:
            return self._kept.get((host, draw, seed))
        try:
            meta, arrays = storage.read(_path(self.folder, host, draw, seed), "session")
            logits = [arrays[f"logits.{t}"] for t in range(int(meta.pop("sessions")))]
            return SessionLogits(logits, **meta)
        except (InputError, ValueError, KeyError, TypeError) as error:
            if getattr(error, "code", "") == "unreadable_file":
                raise
            return None  # missing, damaged, or of an earlier version: compute it again

    def keep(self, host: str, draw: str, seed: int, played: SessionLogits) -> None:
        if self.folder is None:
            self._kept[host, draw, seed] = played
            return
        path = _path(self.folder, host, draw, seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        clear_leftovers(path)
        costs = {name: value for name, value in vars(played).items() if name != "logits"}
        logits = {f"logits.{t}": logits for t, logits in enumerate(played.logits)}
        storage.write(path, "session", {"sessions": len(logits), **costs}, logits)


def _path(folder: Path, host: str, draw: str, seed: int) -> Path:
    return folder / f"{host}-{draw.replace(':', '-')}-{seed}.safetensors"
