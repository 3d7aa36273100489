"""What a run is about: embeddings, protocol and draws, from what a user names."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from cala.benchmark.config import SPLITS
from cala.benchmark.draws import parse_draws
from cala.data.embedding_files import is_embeddings_file
from cala.data.embeddings import Embeddings, load_embeddings
from cala.data.protocol import MANIFESTS, Protocol, load_protocol, make_protocol
from cala.data.shots import known_rows, with_rows
from cala.errors import InputError
from cala.files import shown
from cala.registry import check_choice

FEATURES = "features:"
DEV_QUERIES = 100  # per class


@dataclass(frozen=True)
class Numbers:
    """A protocol of one's own; what is None is the benchmark's, or follows from the classes."""

    base: int | None = None
    way: int | None = None
    shot: int | None = None
    sessions: int | None = None
    order_seed: int | None = None

    @property
    def given(self) -> bool:
        return any(value is not None for value in asdict(self).values())


@dataclass(frozen=True)
class Problem:
    """dataset : its name; source : the file's name; notes : what a user should know"""

    dataset: str
    data: Embeddings
    protocol: Protocol
    draws: tuple[str, ...]
    source: str
    notes: tuple[str, ...] = ()


def split_dataset(dataset: str, embeddings: Path | None) -> tuple[str, Path]:
    """Name and file: `features:my.npz` is short for the data set `my` in the file my.npz."""
    if dataset.startswith(FEATURES):
        file = dataset.removeprefix(FEATURES)
        if not file or embeddings is not None:
            raise InputError(
                f"{shown(dataset)}: give one embeddings file, as features:FILE or as "
                "NAME --embeddings FILE"
            )
        return Path(file).stem, Path(file)
    if embeddings is None:
        named = is_embeddings_file(dataset)
        instead = f"; or did you mean features:{shown(dataset)}?" if named else ""
        raise InputError(
            f"no embeddings of {shown(dataset)}: give --embeddings FILE (.npz with x_train, "
            f"y_train, x_test, y_test){instead}"
        )
    return dataset, embeddings


def load_problem(
    dataset: str,
    embeddings: Path | None = None,
    *,
    draws: str | None = None,
    split: str = "test",
    numbers: Numbers | None = None,
) -> Problem:
    """Read the embeddings, and find the protocol and the published shots in them.

    draws : as `--draws`; by default 20 random ones, and the canonical one where it can be had
    """
    check_choice("split", split, SPLITS)
    wanted = None if draws is None else parse_draws(draws)
    name, path = split_dataset(dataset, embeddings)
    data = load_embeddings(path)
    protocol = _protocol(name, data, numbers or Numbers())
    data = data.relabelled(protocol)
    notes = []
    if protocol.canonical and (wanted is None or "canonical" in wanted):
        try:
            found = with_rows(protocol, data, path.name)
        except InputError as error:
            if wanted is not None:
                raise
            notes.append(f"note: no canonical draw: {error}")
            wanted = parse_draws("random:20")
        else:
            wanted = wanted or parse_draws("canonical,random:20")
            protocol = found
    if split == "dev":
        data = data.dev(DEV_QUERIES, seed=0, keep=known_rows(protocol, data))
    if not len(data.y_test):
        raise InputError(
            f"{shown(path)} has no test row of these classes: add some, or score training images "
            "with --split dev"
        )
    chosen = tuple(wanted or parse_draws("random:20"))
    return Problem(name, data, protocol, chosen, path.name, tuple(notes))


def _protocol(name: str, data: Embeddings, numbers: Numbers) -> Protocol:
    if name not in MANIFESTS:
        classes = int(data.y_train.max()) + 1
        given = replace(numbers, shot=5 if numbers.shot is None else numbers.shot)
        return make_protocol(classes, **asdict(given), name=name)
    known = load_protocol(name)
    if not numbers.given:
        return known
    assert known.expected is not None
    # A benchmark with a change: the rest stays as published, but for how many sessions fit.
    usual = Numbers(known.base, known.way, known.shot)
    if numbers.base is None and numbers.way is None:
        usual = replace(usual, sessions=known.sessions)
    own = {k: v for k, v in asdict(numbers).items() if v is not None}
    changed = {**asdict(usual), **own}
    classes = len(known.expected.classes)
    return replace(make_protocol(classes, **changed, name=name), expected=known.expected)
