"""What is in an embeddings file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cala.data.embedding_checks import checked
from cala.data.embedding_files import is_embeddings_file, read_members
from cala.data.embeddings import Embeddings, load_embeddings
from cala.data.provenance_lines import provenance_lines
from cala.data.shard_rows import open_shards
from cala.data.shards import is_shards
from cala.data.watching import announce
from cala.errors import InputError
from cala.files import counted, shown

PREFIX = "features:"


@dataclass(frozen=True)
class EmbeddingsReport:
    """Everything `check_embeddings` found.

    error : why the file cannot be used, empty if it can
    classes : with training rows; train_each, test_each : fewest and most rows of those
    holdout : held-out rows and how many classes have some, None where the file does not say
    fakes : fake classes and images of each
    ignored : members that cala does not know
    """

    path: str
    error: str = ""
    classes: int = 0
    train: int = 0
    test: int = 0
    train_each: tuple[int, int] = (0, 0)
    test_each: tuple[int, int] = (0, 0)
    dimension: int = 0
    dtype: str = ""
    scale: float | None = None
    holdout: tuple[int, int] | None = None
    fakes: tuple[int, int] | None = None
    class_names: tuple[str, ...] | None = None
    names: tuple[str, ...] = ()
    provenance: dict[str, Any] | None = None
    ignored: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "dataset": "features", "ok": not self.error}


def embeddings_path(path: str | Path, dataset: str | None = None) -> Path | None:
    """The embeddings file that a user means, None if it is something else."""
    text = str(path)
    if text.startswith(PREFIX):
        return Path(text.removeprefix(PREFIX))
    if dataset == "features" or (dataset is None and is_embeddings_file(text)):
        return Path(path)
    return None


def check_embeddings(path: str | Path) -> EmbeddingsReport:
    """Read a file and report; what is wrong is in the report, not raised."""
    path = Path(path)
    try:
        if is_shards(path):
            return _checked_shards(path)
        members, ignored = read_members(path)
        data = Embeddings(**checked(path, members))
    except InputError as error:
        return EmbeddingsReport(str(path), str(error))
    return _report(path, data, str(members["x_train"].dtype), ignored)


def _checked_shards(path: Path) -> EmbeddingsReport:
    """A folder of shards, every byte of it compared with its checksum and every row read."""
    shards = open_shards(path)
    shards.verify(lambda done, total: announce("checking", done, total))
    for split in ("train", "test"):
        for _ in shards.blocks(split):
            pass
    report = _report(path, load_embeddings(path), shards.manifest.dtype, ())
    named = (split for split in ("train", "test") if any(shards.names(split)))
    return replace(report, names=tuple(named))


def _report(path: Path, data: Embeddings, dtype: str, ignored: tuple[str, ...]) -> EmbeddingsReport:
    train, test = (np.bincount(y) for y in (data.y_train, data.y_test))
    holdout = data.holdout
    named = {"train": data.names_train, "test": data.names_test}
    return EmbeddingsReport(
        path=str(path),
        classes=int((train > 0).sum()),
        train=len(data.y_train),
        test=len(data.y_test),
        train_each=_range(train),
        test_each=_range(test),
        dimension=data.x_train.shape[1],
        dtype=dtype,
        scale=data.scale,
        holdout=None
        if holdout is None
        else (int(holdout.sum()), len(np.unique(data.y_train[holdout]))),
        fakes=None if data.fakes is None else (len(data.fakes), data.fakes.images),
        class_names=data.class_names,
        names=tuple(part for part, names in named.items() if names is not None),
        provenance=data.provenance,
        ignored=ignored,
    )


def embeddings_lines(report: EmbeddingsReport, limit: int = 5) -> list[str]:
    """The report for a terminal; at most `limit` names."""
    return list(_lines(report, limit))


def _lines(r: EmbeddingsReport, limit: int) -> Iterator[str]:
    yield f"{shown(r.path)}: embeddings"
    if r.error:
        yield f"  error: {r.error}"
        return
    yield f"  {counted(r.classes, 'class')}, {counted(r.dimension, 'dimension')} ({r.dtype})"
    yield f"  {r.train:,} training rows ({_each(r.train_each)} per class)"
    yield f"  {r.test:,} test rows" + (f" ({_each(r.test_each)} per class)" if r.test else "")
    yield f"  scale: {'not given' if r.scale is None else f'{r.scale:g}'}"
    if r.holdout is None:
        yield "  held-out rows: not given (base queries may be rows that trained the encoder)"
    else:
        yield f"  held-out rows: {r.holdout[0]:,} in {counted(r.holdout[1], 'class')}"
    if r.fakes is None:
        yield "  fake classes: none (they are mixed from the embeddings)"
    else:
        yield f"  fake classes: {r.fakes[0]:,} of {counted(r.fakes[1], 'image')}"
    if r.class_names is None:
        yield "  class names: none"
    else:
        more = ", …" if len(r.class_names) > limit else ""
        yield f"  class names: {', '.join(shown(n) for n in r.class_names[:limit])}{more}"
    yield f"  file names: {' and '.join(r.names) or 'none'}"
    yield from provenance_lines(r.provenance or {}, limit)
    if r.ignored:
        yield f"  ignored, not known to cala: {', '.join(shown(n) for n in r.ignored[:limit])}"
    yield "  in order"


def _range(counts: Any) -> tuple[int, int]:
    there = counts[counts > 0]
    return (int(there.min()), int(there.max())) if len(there) else (0, 0)


def _each(span: tuple[int, int]) -> str:
    return f"{span[0]:,}" if span[0] == span[1] else f"{span[0]:,} to {span[1]:,}"
