"""What a run is about: embeddings, protocol and draws, from what a user names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from cala.benchmark.config import SPLITS, changes_encoder
from cala.benchmark.encoder_sessions import check_images
from cala.benchmark.notes import RunNote
from cala.benchmark.sources import (
    PerHost,
    Source,
    check_same_queries,
    check_same_rows,
    host_of,
    short_encoder_name,
)
from cala.data.embedding_files import is_embeddings_file
from cala.data.embeddings import Embeddings, load_embeddings
from cala.data.images import ImageSet
from cala.data.progress import Advance
from cala.data.protocol import (
    MANIFESTS,
    Protocol,
    ShotDraw,
    canonical_draw,
    find_shots,
    load_protocol,
    make_protocol,
    random_draw,
    with_rows,
)
from cala.data.sets import locate, open_images
from cala.encoders.leakage import check_novel, seen_among, stated_classes
from cala.errors import InputError
from cala.files import shown
from cala.heads import HEADS
from cala.heads.factory import takes_parts
from cala.registry import check_choice
from cala.shipped import shipped

FEATURES_PREFIX = "features:"
SHIPPED_DATASETS = ("cifar100",)
DEV_QUERIES = 100  # per class
_FEW = 3


@dataclass(frozen=True)
class ProtocolOverrides:
    """Changes to a protocol; None keeps the benchmark's value, or one that fits the classes."""

    base: int | None = None
    way: int | None = None
    shot: int | None = None
    sessions: int | None = None
    order_seed: int | None = None


@dataclass(frozen=True)
class BenchTask:
    """Embeddings, a protocol and its draws.

    Parameters
    ----------
    default : Source
        Embeddings of every method whose host has none of its own.
    protocol : Protocol
    dataset : str
        The data set's name.
    draws : tuple of str
        Names of the draws to run, such as `canonical` and `random:0`.
    notes : tuple of RunNote
        What a user should know about the embeddings and draws.
    per_host : mapping of str to Source
        Embeddings of the same images for the methods of single hosts.
    """

    default: Source
    protocol: Protocol
    dataset: str = ""
    draws: tuple[str, ...] = ()
    notes: tuple[RunNote, ...] = ()
    per_host: PerHost = field(default_factory=dict)
    _made: dict[str, ShotDraw] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def data(self) -> Embeddings:
        return self.default.data

    def source_of(self, method: str) -> Source:
        """The embeddings of a method: its host's own, or those of all others."""
        return self.per_host.get(host_of(method), self.default)

    def draw(self, name: str) -> ShotDraw:
        """A draw by name, made once; the rows are the same in all embeddings."""
        if name not in self._made:
            self._made[name] = make_draw(name, self.protocol, self.default.data)
        return self._made[name]


def parse_draws(text: str) -> list[str]:
    """Names of draws, in order and without repeats.

    >>> parse_draws("canonical,random:3")
    ['canonical', 'random:0', 'random:1', 'random:2']
    """
    names: list[str] = []
    for part in text.replace(" ", "").split(","):
        kind, _, count = part.partition(":")
        if part == "canonical":
            names.append(part)
        elif kind == "random" and count.isdecimal() and int(count) > 0:
            names += [f"random:{seed}" for seed in range(int(count))]
        else:
            raise InputError(
                f"draws {part!r}", "give canonical, random:20, or both with a comma", field="draws"
            )
    return list(dict.fromkeys(names))


def first_draws(draws: Sequence[str]) -> tuple[str, ...]:
    """The canonical draw and three others: for methods whose sessions take minutes.

    >>> first_draws(["canonical", "random:0", "random:1", "random:2", "random:3"])
    ('canonical', 'random:0', 'random:1', 'random:2')
    """
    random = [name for name in draws if name != "canonical"][:_FEW]
    return tuple(name for name in draws if name == "canonical" or name in random)


def make_draw(name: str, protocol: Protocol, data: Embeddings) -> ShotDraw:
    """The draw of a name from the training rows that may be learned from."""
    if name == "canonical":
        return canonical_draw(protocol)
    seed = int(name.removeprefix("random:"))
    return random_draw(protocol, data.y_train, data.learnable(), seed)


def split_runnable(
    task: BenchTask, methods: Sequence[str], metric: str | None = None
) -> tuple[list[str], list[RunNote]]:
    """The methods that this task has everything for, and a note for each other one.

    metric : of the whole run; None for each method's own
    """
    kept, notes = [], []
    for method in methods:
        lacking = _lacks(task, method, metric)
        if lacking:
            notes.append(RunNote("left_out", f"{method} is left out: {lacking}", method))
        else:
            kept.append(method)
    return kept, notes


def _lacks(task: BenchTask, method: str, metric: str | None) -> str:
    """What is missing for a method; empty if nothing is."""
    host = host_of(method)
    source = task.source_of(method)
    try:
        head = HEADS[host]
        if metric is not None and metric not in head.traits.metrics:
            return f"it works in the {' or '.join(head.traits.metrics)} metric"
        if changes_encoder(method):
            check_images(host, source)
        if takes_parts(method):
            made: Any = head(parts=source.data.parts)  # type: ignore[call-arg]
            if hasattr(made, "check_parts"):  # others take parts and need none
                made.check_parts(source.data.x_train.shape[1])
    except InputError as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class Encoding:
    """Embeddings to make from images.

    encoder : its URI; data : folder of the images, where the data set's name does not say it
    kind : the data set whose layout to expect; a benchmark's name brings its protocol along
    test : fraction of each class held out for testing, for a folder of photos without test/
    tta : `flip` averages with mirror images; fakes : fake classes mixed from base images
    shot_views : average each shot over itself, its mirror image and this many crops
    views : at most this many, for an encoder that uses several views of an image
    device : cpu, cuda, mps, or auto for the fastest there is
    engine : what runs the encoder on a processor, see `cala.load_encoder`
    """

    encoder: str = "efficientnet-lite0"
    data: Path | None = None
    kind: str | None = None
    test: float | None = None
    tta: str = "none"
    views: int | None = None
    shot_views: int = 0
    fakes: int = 600
    device: str = "cpu"
    engine: str = "auto"


def load_task(
    dataset: str,
    embeddings: Path | None = None,
    *,
    encoding: Encoding | None = None,
    per_host: Mapping[str, Path | Encoding] | None = None,
    methods: Sequence[str] = (),
    draws: str | None = None,
    split: str = "test",
    overrides: ProtocolOverrides | None = None,
    allow_seen: bool = False,
    advance: Advance = lambda done, total: None,
) -> BenchTask:
    """Read or make the embeddings, and find the protocol and the published shots in them.

    encoding : encode images instead of reading embeddings; a folder as `dataset` means so too
    per_host : embeddings of the same images for single hosts, as files or to be encoded
    methods : of the run; if all of their hosts have their own, no others are looked for
    draws : as `--draws`; by default 20 random ones, and the canonical one where it can be had
    allow_seen : only note it if novel classes trained the encoder
    advance : called with the number of encoded images, and of all images
    """
    check_choice("split", split, SPLITS)
    wanted = None if draws is None else parse_draws(draws)
    loader = _Loader(dataset, overrides or ProtocolOverrides(), split, allow_seen, advance)
    places = per_host or {}
    file_given = embeddings is not None or dataset.startswith(FEATURES_PREFIX)
    if encoding is not None and file_given:
        detail = "both an embeddings file and images are given"
        raise InputError(detail, "give one of them", field="embeddings", code="two_sources")
    given = encoding is not None or file_given
    default: Source | None = None
    if given or not methods or any(host_of(method) not in places for method in methods):
        if not given and Path(dataset).is_dir():
            encoding = Encoding()
        default = loader.default(encoding or embeddings)
    own = {host: loader.for_host(host, place, default) for host, place in places.items()}
    default = default or next(iter(own.values()))
    for host, source in own.items():
        check_same_rows(host, source, default)
    protocol = loader.protocol
    assert protocol is not None
    # The rows are the same in all: the published shots are found wherever rows have names.
    named = next((s for s in (default, *own.values()) if s.data.names_train is not None), default)
    names, labels = named.data.names_train, named.data.y_train
    known = find_shots(names, len(labels), protocol.shots)
    published = list(known.values())  # now: afterwards shots are rows already
    if protocol.canonical and (wanted is None or "canonical" in wanted):
        try:
            protocol = with_rows(protocol, names, labels, named.name)
        except InputError as error:
            if wanted is not None:
                raise
            loader.notes.append(RunNote("no_canonical", f"no canonical draw: {error}"))
        else:
            wanted = wanted or parse_draws("canonical,random:20")
    if split == "dev":
        default = _dev(default, published)
        own = {host: _dev(source, published) for host, source in own.items()}
        for host, source in own.items():
            check_same_queries(host, source, default)
    if not len(default.data.y_test):
        raise InputError(
            f"{shown(default.name)} has no test row of these classes",
            "add some, or score training images with --split dev",
            code="no_test_rows",
        )
    chosen = tuple(wanted or parse_draws("random:20"))
    default = _with_views(default, protocol, chosen)
    own = {host: _with_views(source, protocol, chosen) for host, source in own.items()}
    return BenchTask(default, protocol, loader.name, chosen, tuple(loader.notes), own)


def _with_views(source: Source, protocol: Protocol, draws: Sequence[str]) -> Source:
    """With several looks at the shots of these draws, where images were encoded for such."""
    data, views = source.data, (source.data.provenance or {}).get("shot_views", 0)
    if source.images is None or source.encoder is None or not views:
        return source
    from cala.encoders.embed import embed

    drawn = [make_draw(name, protocol, data) for name in draws]
    rows = np.unique(np.concatenate([part for draw in drawn for part in draw.rows]))
    x_shot = embed(source.images.train, source.encoder, rows=rows, crops=views)
    return replace(source, data=replace(data, x_shot=x_shot, shot_rows=rows))


def _dev(source: Source, keep: list[int]) -> Source:
    return replace(source, data=source.data.dev(DEV_QUERIES, seed=0, keep=keep))


@dataclass
class _Loader:
    """Reads or makes embeddings; the first decide the data set's name and the protocol of all."""

    dataset: str
    overrides: ProtocolOverrides
    split: str
    allow_seen: bool
    advance: Advance
    name: str = ""
    protocol: Protocol | None = None
    notes: list[RunNote] = field(default_factory=list)

    def default(self, place: Path | Encoding | None) -> Source:
        """Those that serve every method without its own."""
        if isinstance(place, Encoding):
            return self._checked(self._encoded(place))
        name, path = split_dataset(self.dataset, place)
        return self._checked(self._read(path, name))

    def for_host(self, host: str, place: Path | Encoding, default: Source | None) -> Source:
        """Those of one host; `default`, where there are some, are of the same images."""
        if isinstance(place, Path):
            return self._checked(self._read(place, self.dataset, f", for {host}"))
        check = None if default is None else (lambda made: check_same_rows(host, made, default))
        try:
            return self._checked(self._encoded(place, check))
        except InputError as error:
            raise _at(f"--encoder {host}=…", error) from error

    def _settle(self, name: str, classes: int) -> Protocol:
        if self.protocol is None:
            self.name, self.protocol = name, _protocol(name, classes, self.overrides)
        return self.protocol

    def _read(self, path: Path, name: str, purpose: str = "") -> Source:
        data = load_embeddings(path)
        protocol = self._settle(name, int(data.y_train.max()) + 1)
        try:
            return Source(data.relabelled(protocol), path.name)
        except InputError as error:
            raise _at(f"{shown(path.name)}{purpose}", error) from error

    def _encoded(self, encoding: Encoding, check: Callable[[Source], None] | None = None) -> Source:
        """check : raises for images that do not fit the others, before any is encoded"""
        path, kind = locate(self.dataset, encoding.data, encoding.kind)
        options: dict[str, Any] = {} if encoding.test is None else {"holdout": encoding.test}
        images = open_images(path, kind, **options)
        if self.split == "test" and not len(images.test):
            fix = "hold some back with --test 0.2" if images.name == "folder" else "add some"
            raise InputError(
                f"{shown(path)} has no test images",
                f"{fix}, or score training images with --split dev",
                field="test",
                code="no_test_images",
            )
        named = (self.dataset, encoding.kind)
        name = next((n for n in named if n in MANIFESTS), None) or shown(path.resolve().name)
        protocol = self._settle(name, len(images.classes))
        # Everything above is cheap.
        from cala.encoders.encode import encode_set
        from cala.encoders.registry import load_encoder

        how = (encoding.device, encoding.views)
        encoder = load_encoder(encoding.encoder, *how, engine=encoding.engine)
        source = f"{name} encoded by {short_encoder_name(encoder.name)}"
        if check is not None:
            check(Source(_labels(images).relabelled(protocol), source))
        if encoding.shot_views and not encoding.fakes:
            raise InputError(
                "--shot-views needs fake classes that are mixed from images",
                "use --fakes 1 or more",
                field="shot_views",
            )
        order = protocol.order or range(protocol.n_classes)
        data = encode_set(
            images,
            encoder,
            base=order[: protocol.base],
            novel=() if self.allow_seen else order[protocol.base : protocol.n_classes],
            tta=encoding.tta,
            pairs=encoding.fakes,
            shot_views=encoding.shot_views,
            advance=self.advance,
        )
        return Source(data.relabelled(protocol), source, images, encoder)

    def _checked(self, source: Source) -> Source:
        """Refuse novel classes that trained the encoder, or note them where they are allowed."""
        assert self.protocol is not None
        data, protocol = source.data, self.protocol
        novel = (data.class_names or ())[protocol.base : protocol.n_classes]
        seen = stated_classes(data.provenance)
        if not self.allow_seen:
            try:
                check_novel(novel, seen)
            except InputError as error:
                raise _at(shown(source.name), error) from error
        if found := seen_among(novel, seen):
            text = f"{shown(source.name)}: {found}, so results on them are too good"
            self.notes.append(RunNote("seen_classes", text))
        return source


def _labels(images: ImageSet) -> Embeddings:
    """What is known of embeddings before anything is encoded."""
    train, test = images.train, images.test
    empty = [np.zeros((len(part), 0), np.float32) for part in (train, test)]
    known = Embeddings(empty[0], train.labels, empty[1], test.labels, class_names=images.classes)
    return replace(known, names_train=train.names, names_test=test.names)


def _at(place: str, error: InputError) -> InputError:
    """The same error, which says where it was found."""
    return InputError(f"{place}: {error.detail}", error.fix, field=error.field, code=error.code)


def split_dataset(dataset: str, embeddings: Path | None) -> tuple[str, Path]:
    """Name and file: `features:my.npz` is short for the data set `my` in the file my.npz."""
    if dataset.startswith(FEATURES_PREFIX):
        file = dataset.removeprefix(FEATURES_PREFIX)
        if not file or embeddings is not None:
            raise InputError(
                f"{shown(dataset)} must name the only embeddings file",
                "write features:FILE without --embeddings, or NAME --embeddings FILE",
                field="dataset",
            )
        return Path(file).stem, Path(file)
    if embeddings is not None:
        return dataset, embeddings
    if dataset in SHIPPED_DATASETS:
        return dataset, shipped(f"{dataset}/embeddings.npz")
    instead = f"; or did you mean features:{shown(dataset)}?" * is_embeddings_file(dataset)
    raise InputError(
        f"no embeddings of {shown(dataset)}",
        "give --embeddings FILE (.npz with x_train, y_train, x_test, y_test), or images with "
        f"--data DIR --encoder NAME{instead}",
        field="dataset",
        code="no_embeddings",
    )


def _protocol(name: str, classes: int, overrides: ProtocolOverrides) -> Protocol:
    given = {key: value for key, value in asdict(overrides).items() if value is not None}
    if name not in MANIFESTS:
        return make_protocol(classes, **given, name=name)
    known = load_protocol(name)
    if not given:
        return known
    assert known.expected is not None
    # A benchmark with a change: the rest stays as published, but for how many sessions fit.
    usual = {"base": known.base, "way": known.way, "shot": known.shot}
    if "base" not in given and "way" not in given:
        usual["sessions"] = known.sessions
    changed = make_protocol(len(known.expected.classes), **{**usual, **given}, name=name)
    return replace(changed, expected=known.expected)
