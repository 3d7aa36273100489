"""What a run is about: embeddings, protocol and draws, from what a user names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cala.benchmark.config import SPLITS
from cala.benchmark.draws import parse_draws
from cala.data.embedding_files import is_embeddings_file
from cala.data.embeddings import Embeddings, load_embeddings
from cala.data.locate import locate
from cala.data.protocol import MANIFESTS, Protocol, load_protocol, make_protocol
from cala.data.sets import open_images
from cala.data.shots import known_rows, with_rows
from cala.encoders.encode import encode_set
from cala.encoders.registry import load_encoder
from cala.encoders.seen import check_novel, seen_among, stated_classes
from cala.errors import InputError
from cala.files import shown
from cala.registry import check_choice
from cala.shipped import shipped

FEATURES = "features:"
SHIPPED = ("cifar100",)
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


@dataclass(frozen=True)
class Encoding:
    """Embeddings made from images.

    encoder : its URI; data : folder of the images, where the data set's name does not say it
    kind : the data set whose layout to expect; a benchmark's name brings its protocol along
    test : share of each class that tests, for a folder of photos without test/
    tta : `flip` averages with mirror images; fakes : fake classes mixed from base images
    """

    encoder: str = "efficientnet-lite0"
    data: Path | None = None
    kind: str | None = None
    test: float | None = None
    tta: str = "none"
    fakes: int = 600
    device: str = "cpu"


Advance = Callable[[int, int], None]


def load_problem(
    dataset: str,
    embeddings: Path | None = None,
    *,
    encoding: Encoding | None = None,
    draws: str | None = None,
    split: str = "test",
    numbers: Numbers | None = None,
    allow_seen: bool = False,
    advance: Advance = lambda done, total: None,
) -> Problem:
    """Read or make the embeddings, and find the protocol and the published shots in them.

    encoding : encode images instead of reading embeddings; a folder as `dataset` means so too
    draws : as `--draws`; by default 20 random ones, and the canonical one where it can be had
    allow_seen : only note it if novel classes trained the encoder
    advance : called with the number of encoded images and of all
    """
    check_choice("split", split, SPLITS)
    wanted = None if draws is None else parse_draws(draws)
    numbers = numbers or Numbers()
    if embeddings is None and encoding is None and Path(dataset).is_dir():
        encoding = Encoding()
    if encoding is not None:
        if embeddings is not None or dataset.startswith(FEATURES):
            raise InputError("give an embeddings file, or images with --encoder or --data")
        name, protocol, data, source = _encoded(
            dataset, encoding, numbers, split, allow_seen, advance
        )
    else:
        name, path = split_dataset(dataset, embeddings)
        data, source = load_embeddings(path), path.name
        protocol = _protocol(name, int(data.y_train.max()) + 1, numbers)
    data = data.relabelled(protocol)
    notes = _seen_notes(data, protocol, allow_seen)
    if protocol.canonical and (wanted is None or "canonical" in wanted):
        try:
            found = with_rows(protocol, data, source)
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
            f"{shown(source)} has no test row of these classes: add some, or score training images "
            "with --split dev"
        )
    chosen = tuple(wanted or parse_draws("random:20"))
    return Problem(name, data, protocol, chosen, source, tuple(notes))


def _seen_notes(data: Embeddings, protocol: Protocol, allow_seen: bool) -> list[str]:
    """Refuse novel classes that trained the encoder, or note them where they are allowed."""
    novel = (data.class_names or ())[protocol.base : protocol.n_classes]
    seen = stated_classes(data.provenance)
    if not allow_seen:
        check_novel(novel, seen)
    said = seen_among(novel, seen)
    return [f"note: {said}: results on them are too good"] if said else []


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
    if embeddings is not None:
        return dataset, embeddings
    if dataset in SHIPPED:
        return dataset, shipped(f"{dataset}/embeddings.npz")
    named = is_embeddings_file(dataset)
    instead = f"; or did you mean features:{shown(dataset)}?" if named else ""
    raise InputError(
        f"no embeddings of {shown(dataset)}: give --embeddings FILE (.npz with x_train, "
        f"y_train, x_test, y_test), or images with --data DIR --encoder NAME{instead}"
    )


def _encoded(
    dataset: str,
    encoding: Encoding,
    numbers: Numbers,
    split: str,
    allow_seen: bool,
    advance: Advance,
) -> tuple[str, Protocol, Embeddings, str]:
    path, kind = locate(dataset, encoding.data, encoding.kind)
    encoder = load_encoder(encoding.encoder, encoding.device)
    options: dict[str, Any] = {} if encoding.test is None else {"holdout": encoding.test}
    images = open_images(path, kind, **options)
    if split == "test" and not len(images.test):  # encoding takes long: say it before
        fix = "hold some back with --test 0.2" if images.name == "folder" else "add some"
        raise InputError(
            f"{shown(path)} has no test images: {fix}, or score training images with --split dev"
        )
    named = (dataset, encoding.kind)
    name = next((n for n in named if n in MANIFESTS), None) or shown(path.resolve().name)
    protocol = _protocol(name, len(images.classes), numbers)
    order = protocol.order or range(protocol.n_classes)
    data = encode_set(
        images,
        encoder,
        base=order[: protocol.base],
        novel=() if allow_seen else order[protocol.base : protocol.n_classes],
        tta=encoding.tta,
        pairs=encoding.fakes,
        advance=advance,
    )
    return name, protocol, data, f"{name} encoded by {encoder.name}"


def _protocol(name: str, classes: int, numbers: Numbers) -> Protocol:
    if name not in MANIFESTS:
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
