"""What the commands of the bench share: load a task, run it with progress, print tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cala.cli.options import BenchOptions, check_test
from cala.errors import InputError
from cala.progress import Bars

if TYPE_CHECKING:
    from cala.benchmark.config import RunConfig
    from cala.benchmark.execute import FinishedRun
    from cala.benchmark.notes import RunNote
    from cala.benchmark.runner import Cells, Fit
    from cala.benchmark.sources import HostOption
    from cala.benchmark.task import BenchTask
    from cala.cluster import ClusterAddress
    from cala.results import Results


def open_task(dataset: str, methods: list[str], options: BenchOptions) -> BenchTask:
    """The task that the options describe; what cannot be used is refused before it is read."""
    from cala.benchmark.sources import parse_host_option
    from cala.benchmark.task import Encoding, ProtocolOverrides, load_task
    from cala.encoders.registry import ENGINES
    from cala.progress import progress_bar
    from cala.registry import check_choice

    check_test(options.test)
    check_choice("engine", options.engine, ENGINES)
    files = parse_host_option("--embeddings", options.embeddings or (), methods)
    encoders = parse_host_option("--encoder", options.encoder or (), methods)
    both = [host for host in files.per_host if host in encoders.per_host]
    if both:
        detail = f"{both[0]}=… is given to --embeddings and to --encoder"
        raise InputError(detail, "give one of them", field="encoder")

    how = {f.name: getattr(options, f.name) for f in fields(Encoding) if f.name != "encoder"}
    named = encoders.default
    if named is None and _implies_encoding(dataset, methods, files, encoders, options):
        named = Encoding.encoder
    if options.shot_views and named is None and not encoders.per_host:
        detail = "--shot-views is for images to encode"
        fix = "give it to `cala encode`, which writes it into the embeddings file"
        raise InputError(detail, fix, field="shot_views")
    per_host: dict[str, Path | Encoding] = {h: Path(file) for h, file in files.per_host.items()}
    per_host |= {h: Encoding(encoder, **how) for h, encoder in encoders.per_host.items()}
    with progress_bar("encoding", options.silent) as advance:
        return load_task(
            dataset,
            None if files.default is None else Path(files.default),
            encoding=None if named is None else Encoding(named, **how),
            per_host=per_host,
            methods=methods,
            draws=options.draws,
            split=options.split,
            overrides=ProtocolOverrides(
                options.base, options.way, options.shot, options.sessions, options.order_seed
            ),
            allow_seen=options.allow_seen,
            advance=advance,
        )


def _implies_encoding(
    dataset: str,
    methods: list[str],
    files: HostOption,
    encoders: HostOption,
    options: BenchOptions,
) -> bool:
    """Whether images are encoded for methods without their own, though no encoder is named."""
    from cala.benchmark.sources import host_of
    from cala.benchmark.task import FEATURES_PREFIX, SHIPPED_DATASETS

    own = {**files.per_host, **encoders.per_host}
    needed = any(host_of(method) not in own for method in methods)
    if encoders.per_host:  # --data is for these
        given = (
            files.default is not None
            or dataset.startswith(FEATURES_PREFIX)
            or dataset in SHIPPED_DATASETS
        )
        return needed and not given
    asked = options.data is not None or options.kind is not None
    if asked and not needed:
        detail = "--data and --as are for images, but every method has its own embeddings file"
        raise InputError(detail, "omit them", field="data")
    return asked or (needed and files.default is None and Path(dataset).is_dir())


def configured(task: BenchTask, methods: list[str], options: BenchOptions) -> RunConfig:
    from cala.benchmark.config import RunConfig
    from cala.benchmark.task import first_draws

    return RunConfig(
        dataset=task.dataset,
        methods=tuple(methods),
        draws=task.draws,
        seeds=tuple(range(options.seeds)),
        split=options.split,
        metric=options.metric,
        scale=options.scale,
        few_draws=None if options.draws is not None else first_draws(task.draws),
        full_sessions=options.full_sessions,
    )


def run_folder(task: BenchTask, config: RunConfig, options: BenchOptions, what: str = "") -> Path:
    """The run folder: as given, or named after everything that decides the results."""
    from cala.benchmark.config import digest

    if options.out is not None:
        return options.out
    resolved = config.resolved(task.protocol, task.default, task.per_host)
    name = re.sub(r"[^\w.+-]+", "_", f"{task.dataset}{what}").lstrip(".")
    return Path("runs") / f"{name}-{digest(resolved)}"


@contextmanager
def open_runner(
    task: BenchTask, quiet: bool, target: ClusterAddress | None = None
) -> Iterator[Runner]:
    """A runner in this process, or on a cluster that it is connected to meanwhile."""
    if target is None:
        yield Runner(task, quiet)
        return
    from cala.benchmark.ray_cells import RayCells
    from cala.cluster.ray_cluster import connected

    with connected(target) as cluster:
        yield Runner(task, quiet, RayCells(cluster))


@dataclass
class Runner:
    """Runs configurations of one task; each note is printed once.

    Progress and notes go to stderr: stdout is for results.
    """

    task: BenchTask
    quiet: bool
    cells: Cells | None = None
    noted: set[RunNote] = field(default_factory=set)

    def run(
        self,
        config: RunConfig,
        out: Path,
        title: str = "",
        fit: Fit | None = None,
        sessions: Path | None = None,
    ) -> FinishedRun:
        """fit : for this process alone, since a head that it keeps is of no use elsewhere"""
        from cala.benchmark.execute import execute
        from cala.benchmark.notes import Watch
        from cala.benchmark.runner import fit_configured, run_cells
        from cala.data.progress import progress_to

        with _CellBar(title, self.quiet) as bar, progress_to(bar.read):

            def note(found: RunNote) -> None:
                if found not in self.noted:
                    bar.print(f"note: {found.text}")
                self.noted.add(found)

            for found in self.task.notes:
                note(found)
            return execute(
                config,
                self.task,
                out=out,
                sessions=sessions,
                fit=(None if self.cells else fit) or fit_configured,
                cells=self.cells or run_cells,
                watch=Watch(note, bar.status, bar.advance),
            )


class _CellBar(Bars):
    """Finished cells of one run, and what is being done."""

    def __init__(self, title: str, quiet: bool) -> None:
        super().__init__(quiet)
        self._cells, self._title, self._doing = f"{title or 'running'}, cells", title, ""

    def status(self, doing: str) -> None:
        self._doing = doing
        self.describe(self._cells, f"{self._title} {doing}".strip())

    def advance(self, done: int, total: int) -> None:
        self.show(self._cells, done, total)

    def read(self, what: str, done: int, total: int) -> None:
        """Rows of shards that a pass over them has read."""
        if not self.on_terminal:
            self.show(f"{what} rows", done, total)
        reading = f"{self._doing}, reading {100 * done // max(total, 1)} %"
        self.describe(self._cells, f"{self._title} {reading}".strip())


def print_results(
    screen: Any,
    results: Results,
    split: str,
    reference: str | None = None,
    full_sessions: bool | None = None,
    without: Sequence[str] = (),
) -> None:
    """Print every table of some results; differences are to `reference`, or to the first method.

    without : methods whose draws or images differ, so that differences mean nothing
    """
    from rich.text import Text

    from cala.benchmark.tables import LEGEND, differences_table, results_table, session_notes
    from cala.cli.terminal import TerminalTable

    tables = []
    if "canonical" in results.draws:
        title = f"Canonical draw, {split} images, percent"
        tables.append(results_table(results, ["canonical"], title))
    random = results.random_draws()
    if random:
        title = f"Mean of {len(random)} random draws, {split} images"
        title += f" (± 95 % interval {results.covered(random)})" * (len(random) > 1)
        tables.append(results_table(results, random, title))
        chosen = reference or results.methods[0]
        others = [m for m in results.methods if m != chosen and m not in without]
        pairs = [(m, chosen) for m in others if results.shared_draws([m, chosen], random)]
        if pairs:
            meaning = "≈: not distinguishable, the interval includes 0"
            title = f"Difference to {chosen} on the same draws and images ({meaning})"
            tables.append(differences_table(results, random, pairs, title))
    for table in tables:
        screen.print(TerminalTable(table))
        screen.print()
    for note in session_notes(results, random or results.draws, full_sessions):
        screen.print(Text(note))
    screen.print(Text(LEGEND))
