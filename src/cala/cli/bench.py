"""What the commands of the bench do with a problem: run it with progress, and print tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cala.cli.options import BenchOptions
from cala.errors import InputError

if TYPE_CHECKING:
    from cala.benchmark.config import RunConfig
    from cala.benchmark.problem import Problem
    from cala.benchmark.runner import Cells, Fit
    from cala.benchmark.sources import Choices
    from cala.results import Results

READING = ", reading "


def load(dataset: str, methods: list[str], options: BenchOptions) -> Problem:
    from cala.benchmark.problem import Encoding, Numbers, load_problem
    from cala.benchmark.sources import read_choices
    from cala.cli.devices import choose_device
    from cala.cli.progress import progress_bar

    numbers = Numbers(options.base, options.way, options.shot, options.sessions, options.order_seed)
    files = read_choices("--embeddings", options.embeddings or (), methods)
    encoders = read_choices("--encoder", options.encoder or (), methods)
    both = [host for host in files.own if host in encoders.own]
    if both:
        raise InputError(f"{both[0]}=… is given to --embeddings and to --encoder: give one of them")

    def encoded(encoder: str) -> Encoding:
        return Encoding(
            encoder=encoder,
            data=options.data,
            kind=options.kind,
            test=options.test,
            tta=options.tta,
            views=options.views,
            shot_views=options.shot_views,
            fakes=options.fakes,
            device=choose_device(options.device),
        )

    named = encoders.usual
    if named is None and _implied(dataset, methods, files, encoders, options):
        named = Encoding.encoder
    if options.shot_views and named is None and not encoders.own:
        raise InputError(
            "--shot-views is for images to encode",
            "give it to `cala encode`, which writes it into the embeddings file",
            field="shot_views",
        )
    own: dict[str, Path | Encoding] = {host: Path(file) for host, file in files.own.items()}
    own |= {host: encoded(encoder) for host, encoder in encoders.own.items()}
    with progress_bar("encoding", options.quiet or options.as_json) as advance:
        return load_problem(
            dataset,
            None if files.usual is None else Path(files.usual),
            encoding=None if named is None else encoded(named),
            own=own,
            methods=methods,
            draws=options.draws,
            split=options.split,
            numbers=numbers,
            allow_seen=options.allow_seen,
            advance=advance,
        )


def _implied(
    dataset: str, methods: list[str], files: Choices, encoders: Choices, options: BenchOptions
) -> bool:
    """Whether images are encoded for methods without their own, though no encoder is named."""
    from cala.benchmark.problem import FEATURES, SHIPPED
    from cala.benchmark.sources import host_of

    needed = any(host_of(method) not in {**files.own, **encoders.own} for method in methods)
    if encoders.own:  # --data is for these
        given = files.usual is not None or dataset.startswith(FEATURES) or dataset in SHIPPED
        return needed and not given
    asked = options.data is not None or options.kind is not None
    if asked and not needed:
        raise InputError(
            "--data and --as are for images to encode, and every method has an embeddings file of "
            "its own: leave them out"
        )
    return asked or (needed and files.usual is None and Path(dataset).is_dir())


def configured(problem: Problem, methods: list[str], options: BenchOptions) -> RunConfig:
    from cala.benchmark.config import RunConfig
    from cala.benchmark.draws import few

    return RunConfig(
        dataset=problem.dataset,
        methods=tuple(methods),
        draws=problem.draws,
        seeds=tuple(range(options.seeds)),
        split=options.split,
        metric=options.metric,
        scale=options.scale,
        few_draws=None if options.draws is not None else few(problem.draws),
        full_sessions=options.full_sessions,
    )


def place(problem: Problem, config: RunConfig, options: BenchOptions, what: str = "") -> Path:
    """The run folder: as given, or named after everything that decides the numbers."""
    from cala.benchmark.config import digest

    if options.out is not None:
        return options.out
    resolved = config.resolved(problem.protocol, problem.usual, problem.own)
    name = re.sub(r"[^\w.+-]+", "_", f"{problem.dataset}{what}").lstrip(".")
    return Path("runs") / f"{name}-{digest(resolved)}"


class Runner:
    """Runs configurations of one problem; what is noted twice is said once.

    cells : plays them elsewhere than in this process
    Progress and notes go to stderr: stdout is for results.
    """

    def __init__(self, problem: Problem, quiet: bool, cells: Cells | None = None) -> None:
        self.problem, self.quiet, self.cells = problem, quiet, cells
        self._said: set[str] = set()

    def __call__(
        self,
        config: RunConfig,
        place: Path,
        title: str = "",
        fit: Fit | None = None,
        courses: Path | None = None,
    ) -> Results:
        from cala.benchmark.execute import execute
        from cala.benchmark.noting import noting
        from cala.benchmark.runner import fit_configured, run_cells
        from cala.cli.progress import Lines
        from cala.data.progress import progress_to

        with ExitStack() as shown:
            bar, task = shown.enter_context(_bar(title or "starting", self.quiet))

            def note(line: str) -> None:
                if not self.quiet and line not in self._said:
                    bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
                self._said.add(line)

            lines = Lines(lambda line: bar.console.print(line, markup=False, highlight=False))
            plain = not self.quiet and bar.disable

            def progress(line: str) -> None:
                if line.startswith("note: "):
                    note(line)
                else:
                    bar.update(task, description=f"{title} {line}".strip())

            def advance(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)
                if plain:
                    lines(f"{title or 'running'}, cells", done, total)

            def read(what: str, done: int, total: int) -> None:
                """Rows of shards that a pass over them has read."""
                said = bar.tasks[0].description.partition(READING)[0]
                bar.update(task, description=f"{said}{READING}{100 * done // max(total, 1)} %")
                if plain:
                    lines(f"{what} rows", done, total)

            shown.enter_context(progress_to(read))
            for line in self.problem.notes:
                note(line)
            return execute(
                config,
                self.problem.usual,
                self.problem.protocol,
                own=self.problem.own,
                out=place,
                courses=courses,
                # Elsewhere notes come back as lines, and a head that was kept here is of no use.
                fit=None if self.cells else noting(fit or fit_configured, note),
                cells=self.cells or run_cells,
                progress=progress,
                advance=advance,
            )


@contextmanager
def cells_on(on: str) -> Iterator[Cells | None]:
    """What plays cells where `--on` says; None for this process."""
    from cala.cluster import read_on

    where = read_on(on)
    if where is None:
        yield None
        return
    from cala.benchmark.ray_cells import RayCells
    from cala.cluster.ray_engine import connected

    with connected(where) as cluster:
        yield RayCells(cluster)


@contextmanager
def _bar(title: str, quiet: bool) -> Iterator[tuple[Any, Any]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    screen = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    hidden = quiet or not screen.is_terminal
    with Progress(
        *columns, TimeElapsedColumn(), console=screen, transient=True, disable=hidden
    ) as bar:
        yield bar, bar.add_task(title, total=None)


def print_results(
    screen: Any,
    results: Results,
    split: str,
    reference: str | None = None,
    full_sessions: bool | None = None,
) -> None:
    """Every table of some results; reference : what differences are to, the first by default"""
    from rich.text import Text

    from cala.benchmark.tables import LEGEND, differences_table, results_table, session_notes
    from cala.cli.terminal import TerminalTable

    if "canonical" in results.draws:
        title = f"Canonical draw, {split} images, percent"
        screen.print(TerminalTable(results_table(results, ["canonical"], title)))
        screen.print()
    random = results.random_draws()
    if random:
        title = f"Mean of {len(random)} random draws, {split} images"
        title += f" (± 95 % interval {results.covered(random)})" * (len(random) > 1)
        screen.print(TerminalTable(results_table(results, random, title)))
        screen.print()
        chosen = reference or results.methods[0]
        others = [m for m in results.methods if m != chosen]
        pairs = [(m, chosen) for m in others if results.shared_draws([m, chosen], random)]
        if pairs:
            title = (
                f"Difference to {chosen} on the same draws and images (≈: not distinguishable, the "
                "interval includes 0)"
            )
            screen.print(TerminalTable(differences_table(results, random, pairs, title)))
            screen.print()
    for note in session_notes(results, random or results.draws, full_sessions):
        screen.print(Text(note))
    screen.print(Text(LEGEND))
