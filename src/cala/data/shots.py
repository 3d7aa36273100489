"""The published shots of a protocol in a copy of its image set."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

import torch

from cala.data.images import ImageSet, ImageSplit
from cala.data.protocol import Protocol, Shot, ShotDraw
from cala.errors import InputError
from cala.files import shown


def find_shots(train: ImageSplit, shots: Iterable[Shot]) -> dict[Shot, int]:
    """Rows of the published shots that are there; names are compared from the end of the path."""
    wanted = list(shots)
    depth = max((len(PurePosixPath(s).parts) for s in wanted if isinstance(s, str)), default=0)
    rows: dict[Shot, int] = {}
    if depth:
        ends = {"/".join(PurePosixPath(n).parts[-depth:]): row for row, n in enumerate(train.names)}
        rows = {s: ends[s] for s in wanted if isinstance(s, str) and s in ends}
    rows.update({s: s for s in wanted if isinstance(s, int) and 0 <= s < len(train)})
    return rows


def canonical_rows(protocol: Protocol, images: ImageSet) -> ShotDraw:
    """The published shots as rows of the training part; missing ones are named."""
    if not protocol.canonical:
        raise InputError(f"{protocol.name} has no published shot list: use random draws")
    wanted = [shot for session in protocol.canonical for shot in session]
    rows = find_shots(images.train, wanted)
    lost = [str(shot) for shot in wanted if shot not in rows]
    if lost:
        raise InputError(
            f"{len(lost)} of {len(wanted)} published shots of {protocol.name} are not in "
            f"{shown(images.source)}, such as {', '.join(shown(s) for s in lost[:3])}: complete "
            "the set, or use random draws"
        )
    sessions = []
    for session, shots in enumerate(protocol.canonical, start=1):
        found = torch.tensor([rows[shot] for shot in shots])
        labels = images.train.labels[found.numpy()].tolist()
        allowed = protocol.session_labels(session)
        wrong = next((s for s, y in zip(shots, labels, strict=True) if y not in allowed), None)
        if wrong is not None:
            raise InputError(
                f"shot {shown(wrong)} of session {session} has another class in "
                f"{shown(images.source)}: its rows or labels are not those of {protocol.name}"
            )
        sessions.append(found)
    return ShotDraw("canonical", tuple(sessions))
