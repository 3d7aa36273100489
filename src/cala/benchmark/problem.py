"""What a run is about: embeddings, protocol and draws, from what a user names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from cala.benchmark.config import SPLITS
from cala.benchmark.draws import parse_draws
from cala.benchmark.sources import (
    Own,
    Source,
    brief,
    check_same_queries,
    check_same_rows,
    host_of,
    source_of,
)
from cala.data.embedding_files import is_embeddings_file
from cala.data.embeddings import Embeddings, load_embeddings
from cala.data.images import ImageSet
from cala.data.protocol import (
    MANIFESTS,
    Protocol,
    known_rows,
    load_protocol,
    make_protocol,
    with_rows,
)
from cala.data.sets import locate, open_images
from cala.encoders.leakage import check_novel, seen_among, stated_classes
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
    """dataset : its name; usual : embeddings and their name; notes : what a user should know

    own : embeddings of the same images that serve the methods of one host each
    """

    dataset: str
    usual: Source
    protocol: Protocol
    draws: tuple[str, ...]
    notes: tuple[str, ...] = ()
    own: Own = field(default_factory=dict)

    @property
    def data(self) -> Embeddings:
        return self.usual.data

    @property
    def source(self) -> str:
        return self.usual.name

    def of(self, method: str) -> Embeddings:
        """The embeddings of a method: its host's own, or those that serve all others."""
        return source_of(method, self.usual, self.own).data


@dataclass(frozen=True)
class Encoding:
    """Embeddings made from images.

    encoder : its URI; data : folder of the images, where the data set's name does not say it
    kind : the data set whose layout to expect; a benchmark's name brings its protocol along
    test : share of each class that tests, for a folder of photos without test/
    tta : `flip` averages with mirror images; fakes : fake classes mixed from base images
    views : at most so many, for an encoder that looks at several views of an image
    """

    encoder: str = "efficientnet-lite0"
    data: Path | None = None
    kind: str | None = None
    test: float | None = None
    tta: str = "none"
    views: int | None = None
    fakes: int = 600
    device: str = "cpu"


Advance = Callable[[int, int], None]


def load_problem(
    dataset: str,
    embeddings: Path | None = None,
    *,
    encoding: Encoding | None = None,
    own: Mapping[str, Path | Encoding] | None = None,
    methods: Sequence[str] = (),
    draws: str | None = None,
    split: str = "test",
    numbers: Numbers | None = None,
    allow_seen: bool = False,
    advance: Advance = lambda done, total: None,
) -> Problem:
    """Read or make the embeddings, and find the protocol and the published shots in them.

    encoding : encode images instead of reading embeddings; a folder as `dataset` means so too
    own : embeddings of the same images for single hosts, as files or to be encoded
    methods : of the run; where all of their hosts have their own, no others are looked for
    draws : as `--draws`; by default 20 random ones, and the canonical one where it can be had
    allow_seen : only note it if novel classes trained the encoder
    advance : called with the number of encoded images and of all
    """
    check_choice("split", split, SPLITS)
    wanted = None if draws is None else parse_draws(draws)
    loader = _Loader(dataset, numbers or Numbers(), split, allow_seen, advance)
    own = own or {}
    if encoding is not None and (embeddings is not None or dataset.startswith(FEATURES)):
        raise InputError("give an embeddings file, or images with --encoder or --data")
    given = embeddings is not None or encoding is not None or dataset.startswith(FEATURES)
    usual: Source | None = None
    if given or not methods or any(host_of(method) not in own for method in methods):
        if not given and Path(dataset).is_dir():
            encoding = Encoding()
        usual = loader.usual(embeddings if encoding is None else encoding)
    apart = {host: loader.for_host(host, place, usual) for host, place in own.items()}
    usual = usual or next(iter(apart.values()))
    for host, source in apart.items():
        check_same_rows(host, source, usual)
    notes, protocol = loader.notes, loader.protocol
    assert protocol is not None
    # The rows are the same in all: the published shots are found wherever rows have names.
    named = next((s for s in (usual, *apart.values()) if s.data.names_train is not None), usual)
    published = known_rows(protocol, named.data)  # now: afterwards shots are rows already
    if protocol.canonical and (wanted is None or "canonical" in wanted):
        try:
            found = with_rows(protocol, named.data, named.name)
        except InputError as error:
            if wanted is not None:
                raise
            notes.append(f"note: no canonical draw: {error}")
            wanted = parse_draws("random:20")
        else:
            wanted = wanted or parse_draws("canonical,random:20")
            protocol = found
    if split == "dev":
        usual = _dev(usual, published)
        apart = {host: _dev(source, published) for host, source in apart.items()}
        for host, source in apart.items():
            check_same_queries(host, source, usual)
    if not len(usual.data.y_test):
        raise InputError(
            f"{shown(usual.name)} has no test row of these classes: add some, or score training "
            "images with --split dev"
        )
    chosen = tuple(wanted or parse_draws("random:20"))
    return Problem(loader.name, usual, protocol, chosen, tuple(notes), apart)


def _dev(source: Source, keep: list[int]) -> Source:
    return replace(source, data=source.data.dev(DEV_QUERIES, seed=0, keep=keep))


class _Loader:
    """Reads or makes embeddings; the first decide the data set's name and the protocol of all."""

    def __init__(
        self, dataset: str, numbers: Numbers, split: str, allow_seen: bool, advance: Advance
    ) -> None:
        self.dataset, self.numbers, self.split = dataset, numbers, split
        self.allow_seen, self.advance = allow_seen, advance
        self.name = ""
        self.protocol: Protocol | None = None
        self.notes: list[str] = []

    def usual(self, place: Path | Encoding | None) -> Source:
        """Those that serve every method without its own."""
        if isinstance(place, Encoding):
            return self._seen(self._encoded(place))
        name, path = split_dataset(self.dataset, place)
        return self._seen(self._read(path, name))

    def for_host(self, host: str, place: Path | Encoding, usual: Source | None) -> Source:
        """Those of one host; `usual`, where there are some, are of the same images."""
        if isinstance(place, Path):
            return self._seen(self._read(place, self.dataset, f", for {host}"))
        check = None if usual is None else (lambda made: check_same_rows(host, made, usual))
        try:
            return self._seen(self._encoded(place, check))
        except InputError as error:
            raise InputError(f"--encoder {host}=…: {error}") from error

    def _settle(self, name: str, classes: int) -> Protocol:
        if self.protocol is None:
            self.name, self.protocol = name, _protocol(name, classes, self.numbers)
        return self.protocol

    def _read(self, path: Path, name: str, purpose: str = "") -> Source:
        data = load_embeddings(path)
        protocol = self._settle(name, int(data.y_train.max()) + 1)
        try:
            return Source(data.relabelled(protocol), path.name)
        except InputError as error:
            raise InputError(f"{shown(path.name)}{purpose}: {error}") from error

    def _encoded(self, encoding: Encoding, check: Callable[[Source], None] | None = None) -> Source:
        """check : raises for images that do not fit the others, before any is encoded"""
        from cala.encoders.encode import encode_set
        from cala.encoders.registry import load_encoder

        path, kind = locate(self.dataset, encoding.data, encoding.kind)
        encoder = load_encoder(encoding.encoder, encoding.device, encoding.views)
        options: dict[str, Any] = {} if encoding.test is None else {"holdout": encoding.test}
        images = open_images(path, kind, **options)
        if self.split == "test" and not len(images.test):  # encoding takes long: say it before
            fix = "hold some back with --test 0.2" if images.name == "folder" else "add some"
            raise InputError(
                f"{shown(path)} has no test images: {fix}, or score training images with "
                "--split dev"
            )
        named = (self.dataset, encoding.kind)
        name = next((n for n in named if n in MANIFESTS), None) or shown(path.resolve().name)
        protocol = self._settle(name, len(images.classes))
        source = f"{name} encoded by {brief(encoder.name)}"
        if check is not None:
            check(Source(_labels(images).relabelled(protocol), source))
        order = protocol.order or range(protocol.n_classes)
        data = encode_set(
            images,
            encoder,
            base=order[: protocol.base],
            novel=() if self.allow_seen else order[protocol.base : protocol.n_classes],
            tta=encoding.tta,
            pairs=encoding.fakes,
            advance=self.advance,
        )
        return Source(data.relabelled(protocol), source, images, encoder)

    def _seen(self, source: Source) -> Source:
        """Refuse novel classes that trained the encoder, or note them where they are allowed."""
        assert self.protocol is not None
        data, protocol = source.data, self.protocol
        novel = (data.class_names or ())[protocol.base : protocol.n_classes]
        seen = stated_classes(data.provenance)
        if not self.allow_seen:
            try:
                check_novel(novel, seen)
            except InputError as error:
                raise InputError(f"{shown(source.name)}: {error}") from error
        said = seen_among(novel, seen)
        if said:
            note = f"note: {shown(source.name)}: {said}: results on them are too good"
            self.notes.append(note)
        return source


def _labels(images: ImageSet) -> Embeddings:
    """What is known of embeddings before anything is encoded."""
    y_train, y_test = (part.labels for part in (images.train, images.test))
    return Embeddings(
        x_train=np.zeros((len(y_train), 0), np.float32),
        y_train=y_train,
        x_test=np.zeros((len(y_test), 0), np.float32),
        y_test=y_test,
        class_names=images.classes,
        names_train=images.train.names,
        names_test=images.test.names,
    )


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
