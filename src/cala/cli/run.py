"""`cala run`, `cala compare` and `cala ablate`: the bench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cala.cli.report import after_run
from cala.errors import InputError

if TYPE_CHECKING:
    from cala.data.embeddings import Embeddings
    from cala.data.protocol import Protocol
    from cala.results import Results

METHODS = "nearest-mean,la,cala,cala-plus"

DATASET = typer.Argument("cifar100", help="A benchmark, or a name for your own embeddings.")
EMBEDDINGS = typer.Option(None, help="Embeddings file (.npz).", show_default=False)
DRAWS = typer.Option(
    None, help="canonical, random:N, or both (default: random:20, and canonical if published)."
)
SEEDS = typer.Option(1, min=1, help="Seeds of the adapters' training.")
SPLIT = typer.Option("test", help="test, or dev: training images that nothing is learned from.")
METRIC = typer.Option(None, help="cosine or whitened, for all methods.", show_default=False)
SCALE = typer.Option(None, help="Logit scale, for all methods.", show_default=False)
OUT = typer.Option(None, help="Run folder (default: runs/…, named after the options).")
AS_JSON = typer.Option(False, "--json", help="Print the summary for machines.")
REPORT = typer.Option(True, "--report/--no-report", help="Make RUN/report/report.html.")
QUIET = typer.Option(False, "--quiet", "-q", help="No progress.")
BASE = typer.Option(None, help="Base classes (own sets).", show_default=False)
WAY = typer.Option(None, help="Classes per session (own sets).", show_default=False)
SHOT = typer.Option(5, help="Shots per class (own sets).")
SESSIONS = typer.Option(None, help="Sessions (own sets).", show_default=False)
ORDER = typer.Option(None, "--order-seed", help="Shuffle the classes.", show_default=False)


def register(app: typer.Typer) -> None:
    for command in (run, compare, ablate):
        app.command()(command)


def run(
    dataset: str = DATASET,
    methods: str = typer.Option(METHODS, help="Comma-separated; `cala methods` lists them."),
    embeddings: Path | None = EMBEDDINGS,
    draws: str | None = DRAWS,
    seeds: int = SEEDS,
    split: str = SPLIT,
    metric: str | None = METRIC,
    scale: float | None = SCALE,
    base: int | None = BASE,
    way: int | None = WAY,
    shot: int = SHOT,
    sessions: int | None = SESSIONS,
    order_seed: int | None = ORDER,
    out: Path | None = OUT,
    make_report: bool = REPORT,
    as_json: bool = AS_JSON,
    quiet: bool = QUIET,
) -> None:
    """Run methods over the same draws of a protocol, with intervals and paired differences.

    Stopped at any moment, the same command continues where it was.

    Example: cala run cifar100 --embeddings cifar100.npz --draws canonical,random:20
    """
    from cala.benchmark.config import RunConfig
    from cala.benchmark.draws import parse_draws
    from cala.benchmark.terminal import console

    data, protocol, source = _load(
        dataset, embeddings, split, base, way, shot, sessions, order_seed
    )
    config = RunConfig(
        dataset=dataset,
        methods=tuple(_names(methods)),
        draws=tuple(parse_draws(draws or _usual_draws(protocol))),
        seeds=tuple(range(seeds)),
        split=split,
        metric=metric,
        scale=scale,
    )
    place = out or Path("runs") / f"{dataset}-{config.digest}"
    results = _execute(config, data, protocol, source, place, quiet or as_json)
    if as_json:
        typer.echo((place / "summary.json").read_text("utf-8"))
    else:
        screen = console()
        _print_results(screen, results, split)
        typer.echo(f"\nrecords, summary and tables: {place}")
    if make_report:
        line = after_run(place)
        typer.echo(line, err=as_json)


def compare(
    runs: list[Path] = typer.Argument(..., help="Run folders."),
    as_json: bool = AS_JSON,
) -> None:
    """Put runs side by side; differences are paired where runs share draws.

    Example: cala compare runs/a runs/b
    """
    from dataclasses import replace

    from cala.benchmark.folder import read_run
    from cala.benchmark.terminal import console
    from cala.results import Results

    records = []
    for path in runs:
        _, found = read_run(path)
        prefix = f"{path.name}: " if len(runs) > 1 else ""
        records += [replace(r, method=f"{prefix}{r.method}") for r in found]
    if not records:
        raise InputError("these runs hold no finished cell")
    results = Results(records)
    if as_json:
        typer.echo(json.dumps(results.as_json(), indent=1, ensure_ascii=False))
        return
    _print_results(console(), results, "the runs'")


def ablate(
    what: str = typer.Argument(
        ..., help="gamma, mu, rho, tau, shots, sessions, queries, inputs or metric."
    ),
    values: str = typer.Option(..., help="Comma-separated, such as 0,1,10,100."),
    dataset: str = DATASET,
    method: str = typer.Option("cala", help="The method to vary."),
    retrain: bool = typer.Option(False, help="γ only: train anew for each value."),
    embeddings: Path | None = EMBEDDINGS,
    draws: str | None = DRAWS,
    seeds: int = SEEDS,
    split: str = SPLIT,
    out: Path | None = OUT,
    as_json: bool = AS_JSON,
    quiet: bool = QUIET,
) -> None:
    """Vary one choice of an adapter and compare on the same draws.

    γ is varied at inference, trained once at its usual value, as in the paper; --retrain is the
    other reading.

    Example: cala ablate gamma --values 0,1,10,100 --embeddings cifar100.npz
    """
    from dataclasses import replace

    from cala.benchmark.ablation import ablation_configs
    from cala.benchmark.config import RunConfig
    from cala.benchmark.draws import parse_draws
    from cala.benchmark.terminal import console
    from cala.results import Results

    data, protocol, source = _load(dataset, embeddings, split, None, None, 5, None, None)
    usual = RunConfig(
        dataset,
        (method,),
        tuple(parse_draws(draws or _usual_draws(protocol))),
        tuple(range(seeds)),
        split,
    )
    records = []
    place = out or Path("runs") / f"{dataset}-{what}-{usual.digest}"
    for value, config in ablation_configs(usual, what, _names(values), protocol, retrain).items():
        folder = place / f"{what}={value}"
        title = f"{what}={value}"
        results = _execute(config, data, protocol, source, folder, quiet or as_json, title)
        records += [replace(r, method=title) for r in results.records]
    found = Results(records)
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=1, ensure_ascii=False))
        return
    screen = console()
    _print_results(screen, found, split)
    screen.print(f"\nruns: {place}")


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError(f"{text!r} names nothing: give names separated by commas")
    return list(dict.fromkeys(names))


def _usual_draws(protocol: Protocol) -> str:
    return "canonical,random:20" if protocol.canonical else "random:20"


def _load(
    dataset: str,
    embeddings: Path | None,
    split: str,
    base: int | None,
    way: int | None,
    shot: int,
    sessions: int | None,
    order_seed: int | None,
) -> tuple[Embeddings, Protocol, str]:
    from cala.benchmark.config import SPLITS
    from cala.data.embeddings import load_embeddings
    from cala.data.protocol import MANIFESTS, load_protocol, make_protocol
    from cala.registry import check_choice

    check_choice("split", split, SPLITS)
    if embeddings is None:
        raise InputError(
            f"no embeddings of {dataset}: give --embeddings FILE (.npz with x_train, y_train, "
            "x_test, y_test)"
        )
    data = load_embeddings(embeddings)
    own = (base, way, sessions, order_seed) != (None, None, None, None)
    if dataset in MANIFESTS and not own:
        protocol = load_protocol(dataset)
    else:
        n_classes = int(data.y_train.max()) + 1
        protocol = make_protocol(n_classes, base, way, shot, sessions, order_seed, name=dataset)
    data = data.relabelled(protocol)
    if split == "dev":
        kept = [row for rows in protocol.canonical for row in rows if isinstance(row, int)]
        data = data.dev(100, seed=0, keep=kept)
    return data, protocol, embeddings.name


def _execute(
    config: Any,
    data: Embeddings,
    protocol: Protocol,
    source: str,
    place: Path,
    quiet: bool,
    title: str = "",
) -> Results:
    import torch
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from cala.benchmark.execute import execute

    torch.set_num_threads(1)  # the tensors are small: threads cost more than they bring
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), transient=True, disable=quiet) as bar:
        task = bar.add_task(title or "starting", total=None)

        def progress(line: str) -> None:
            if line.startswith("note: "):
                bar.console.print(line)
            else:
                bar.update(task, description=f"{title} {line}".strip())

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        return execute(
            config, data, protocol, source=source, out=place, progress=progress, advance=advance
        )


def _print_results(screen: Any, results: Results, split: str) -> None:
    from cala.benchmark.terminal import differences_table, results_table

    if "canonical" in results.draws:
        title = f"Canonical draw, {split} images, percent"
        screen.print(results_table(results, ["canonical"], title))
        screen.print()
    random = results.random_draws()
    if not random:
        return
    title = f"Mean of {len(random)} random draws, {split} images (± 95 % interval over draws)"
    screen.print(results_table(results, random, title))
    first, *others = results.methods
    pairs = [(m, first) for m in others if results.shared_draws([m, first], random)]
    if pairs:
        screen.print()
        title = "Difference on the same draws (≈: the interval includes 0)"
        screen.print(differences_table(results, random, pairs, title))
