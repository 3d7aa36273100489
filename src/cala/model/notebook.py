"""What a notebook shows: progress of long work, and a model as a table with small photos."""

from __future__ import annotations

import base64
import html
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cala.model.thumbnails import thumbnail
from cala.model.version import ModelVersion

SHOWN = 5  # photos of each class
ROWS = 50  # classes

Count = Callable[[int], None]
Advance = Callable[[int, int], None]


def is_notebook() -> bool:
    """Whether someone is waiting in IPython; other programs print nothing unless they ask to."""
    found = sys.modules.get("IPython")
    return found is not None and found.get_ipython() is not None


@contextmanager
def fit_progress(advance: Advance | None) -> Iterator[Advance]:
    """The caller's function of (done, total), or a bar in a notebook, or nothing."""
    if advance is not None or not is_notebook():
        yield advance or (lambda done, total: None)
        return
    from cala.progress import progress_bar

    with progress_bar("photos and mixed images") as show:
        yield show


@contextmanager
def count_progress(total: int, advance: Count | None) -> Iterator[Count]:
    """The same for a function of how many more photos are done, of `total`."""
    if advance is not None or not is_notebook():
        yield advance or (lambda done: None)
        return
    from cala.progress import counting

    with counting("looking at photos", total) as count:
        yield count


def model_html(path: Path, current: ModelVersion) -> str:
    """A table of the classes with some of their photos, as far as small copies are there."""
    faces: dict[int, list[Path]] = defaultdict(list)
    for digest, owner in current.photos.owners().items():
        if len(faces[owner]) < SHOWN:
            faces[owner].append(thumbnail(path, digest.hex()))
    counts, head = current.photos.counts(), current.classifier.head_
    rows = [
        f"<tr><td>{html.escape(name)}</td><td>{current.kind_at(column)}</td>"
        f"<td>{counts[number]:,}</td><td>{''.join(map(_picture, faces[number]))}</td></tr>"
        for column, (name, number) in enumerate(
            zip(current.names[:ROWS], head.classes[:ROWS], strict=True)
        )
    ]
    more = len(current.names) - ROWS
    rest = f"<p>and {more:,} more classes</p>" if more > 0 else ""
    top = "<tr><th>class</th><th>kind</th><th>photos</th><th></th></tr>"
    title = f"<p><b>{html.escape(path.name)}</b>: {len(current.names):,} classes</p>"
    return f"{title}<table>{top}{''.join(rows)}</table>{rest}"


def _picture(path: Path) -> str:
    try:
        data = base64.b64encode(path.read_bytes()).decode()
    except OSError:
        return ""
    return f'<img alt="" style="height:48px;margin:1px" src="data:image/jpeg;base64,{data}">'
