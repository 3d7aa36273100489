"""A copy of a benchmark's image set against what its protocol needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cala.data.images import ImageSet, ImageSplit
from cala.data.protocol import Protocol
from cala.data.shots import find_shots

KINDS = ("base", "novel")


@dataclass(frozen=True)
class Part:
    """One of base/novel × train/test: how many images there are and should be.

    short : number of images that a class lacks, by class, where the number per class is known
    """

    kind: str
    split: str
    found: int
    expected: int
    short: dict[str, int]


@dataclass(frozen=True)
class AgainstProtocol:
    """What of a protocol's set is there.

    missing : classes without any image; unknown : classes the protocol does not have
    """

    name: str
    base: int
    way: int
    shot: int
    sessions: int
    classes_found: tuple[int, int]
    classes_expected: tuple[int, int]
    missing: tuple[str, ...]
    unknown: tuple[str, ...]
    parts: tuple[Part, ...]
    shots_expected: int
    missing_shots: tuple[str, ...]

    @property
    def complete(self) -> bool:
        return (
            not self.missing
            and not self.unknown
            and not self.missing_shots
            and all(part.found == part.expected and not part.short for part in self.parts)
        )


def against_protocol(protocol: Protocol, images: ImageSet) -> AgainstProtocol:
    """Compare classes, images per part and the published shots; classes are compared by name."""
    expected = protocol.expected
    assert expected is not None, protocol.name
    counts = [_counts(images, split) for split in (images.train, images.test)]
    there = {name for count in counts for name in count}
    groups = (expected.classes[: protocol.base], expected.classes[protocol.base :])
    parts = []
    for split, count, totals, each in (
        ("train", counts[0], expected.train, expected.train_each),
        ("test", counts[1], expected.test, expected.test_each),
    ):
        for kind, group, total, per_class in zip(KINDS, groups, totals, each, strict=True):
            short = {} if per_class is None else _short(group, count, per_class)
            found = sum(count.get(name, 0) for name in group)
            parts.append(Part(kind, split, found, total, short))
    wanted = [shot for session in protocol.canonical for shot in session]
    rows = find_shots(images.train.names, len(images.train), wanted)
    return AgainstProtocol(
        name=protocol.name,
        base=protocol.base,
        way=protocol.way,
        shot=protocol.shot,
        sessions=protocol.sessions,
        classes_found=tuple(sum(n in there for n in group) for group in groups),  # type: ignore[arg-type]
        classes_expected=(len(groups[0]), len(groups[1])),
        missing=tuple(name for name in expected.classes if name not in there),
        unknown=tuple(name for name in images.classes if name not in expected.classes),
        parts=tuple(parts),
        shots_expected=len(wanted),
        missing_shots=tuple(str(shot) for shot in wanted if shot not in rows),
    )


def _counts(images: ImageSet, split: ImageSplit) -> dict[str, int]:
    counted = np.bincount(split.labels, minlength=len(images.classes))
    return {name: n for name, n in zip(images.classes, counted.tolist(), strict=True) if n}


def _short(group: tuple[str, ...], count: dict[str, int], per_class: int) -> dict[str, int]:
    lacking = {name: per_class - count.get(name, 0) for name in group}
    return {name: n for name, n in lacking.items() if n > 0}
