"""The published shots of a protocol in a copy of its images, or of their embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

import numpy as np

from cala.data.embeddings import Embeddings
from cala.data.images import ImageSet
from cala.data.protocol import Protocol, Shot, ShotDraw
from cala.errors import InputError
from cala.files import shown


def find_shots(names: Sequence[str] | None, rows: int, shots: Iterable[Shot]) -> dict[Shot, int]:
    """Rows of the published shots that are there.

    names : of the training rows, compared from the end of the path; None if they are not known
    rows : how many there are; a shot that is a number is a row of the whole set, by which
        rows are called where some of the set were left out
    """
    wanted = list(shots)
    depth = max((len(PurePosixPath(s).parts) for s in wanted if isinstance(s, str)), default=0)
    found: dict[Shot, int] = {}
    if depth and names is not None:
        ends = {"/".join(PurePosixPath(n).parts[-depth:]): row for row, n in enumerate(names)}
        found = {s: ends[s] for s in wanted if isinstance(s, str) and s in ends}
    place = _numbered(names) or range(rows)
    found.update({s: place[s] for s in wanted if isinstance(s, int) and s in place})
    return found


def _numbered(names: Sequence[str] | None) -> dict[int, int]:
    """Number -> row, where the names of all rows are numbers, such as `train/123`."""
    ends = [PurePosixPath(name).name for name in names or ()]
    if not all(end.isascii() and end.isdigit() for end in ends):
        return {}
    return {int(end): row for row, end in enumerate(ends)}


def canonical_rows(protocol: Protocol, images: ImageSet) -> ShotDraw:
    """The published shots as rows of the training part; missing ones are named."""
    train = images.train
    return _draw(protocol, train.names, train.labels.tolist(), shown(images.source))


def with_rows(protocol: Protocol, data: Embeddings, source: str) -> Protocol:
    """The protocol with its published shots as rows of these embeddings; missing ones are named."""
    if data.names_train is None and _named(protocol):
        raise InputError(
            f"the published shots of {protocol.name} are file names, and {shown(source)} has no "
            "names_train: add the file names of its training rows, or use random draws"
        )
    draw = _draw(protocol, data.names_train, data.y_train.tolist(), shown(source))
    return replace(protocol, canonical=tuple(tuple(rows.tolist()) for rows in draw.rows))


def known_rows(protocol: Protocol, data: Embeddings) -> list[int]:
    """Rows of those published shots that these embeddings have, in no particular order."""
    wanted = [shot for session in protocol.canonical for shot in session]
    return list(find_shots(data.names_train, len(data.y_train), wanted).values())


def _named(protocol: Protocol) -> bool:
    return any(isinstance(shot, str) for session in protocol.canonical for shot in session)


def _draw(
    protocol: Protocol, names: Sequence[str] | None, labels: Sequence[int], source: str
) -> ShotDraw:
    if not protocol.canonical:
        raise InputError(f"{protocol.name} has no published shot list: use random draws")
    wanted = [shot for session in protocol.canonical for shot in session]
    rows = find_shots(names, len(labels), wanted)
    lost = [str(shot) for shot in wanted if shot not in rows]
    if lost:
        raise InputError(
            f"{len(lost)} of {len(wanted)} published shots of {protocol.name} are not in "
            f"{source}, such as {', '.join(shown(s) for s in lost[:3])}: complete "
            "the set, or use random draws"
        )
    sessions = []
    for session, shots in enumerate(protocol.canonical, start=1):
        found = [rows[shot] for shot in shots]
        allowed = protocol.session_labels(session)
        wrong = next((s for s, r in zip(shots, found, strict=True) if labels[r] not in allowed), "")
        if wrong != "":
            raise InputError(
                f"shot {shown(wrong)} of session {session} has another class in {source}: its rows "
                f"or labels are not those of {protocol.name}"
            )
        sessions.append(np.array(found, np.int64))
    return ShotDraw("canonical", tuple(sessions))
