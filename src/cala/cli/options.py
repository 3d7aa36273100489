"""Options that commands of the bench share, declared once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

import typer

DATASET = typer.Argument(
    "cifar100", help="A benchmark, a folder of photos, features:FILE, or a name for --embeddings."
)
TEST = typer.Option(
    None,
    "--test",
    help="Share of each class that tests, for a folder of photos without test/.",
    show_default=False,
)
KIND = typer.Option(
    None,
    "--as",
    help="The set to expect; recognised by its layout if not given.",
    show_default=False,
)
REFERENCE = typer.Option(
    None,
    metavar="METHOD",
    help="What paired differences are to (default: the first method).",
    show_default=False,
)
ALLOW_SEEN = typer.Option(
    False, "--allow-seen", help="Only note it if novel classes trained the encoder."
)
VIEWS = typer.Option(
    None,
    "--views",
    min=1,
    help="At most so many views of each image, for encoders that look at several (savc): fewer are "
    "quicker and less accurate.",
    show_default=False,
)
SHOT_VIEWS = typer.Option(
    0,
    "--shot-views",
    min=0,
    help="Average each shot over itself, its mirror image and so many random crops.",
)
ON = typer.Option(
    "here",
    "--on",
    metavar="WHERE",
    help="here (this process), ray or ray:HOST:PORT: spread the work over a Ray cluster, or "
    "ray:local: over processes of this machine (needs the extra ray: docs/cluster.md).",
)
AS_JSON = typer.Option(False, "--json", help="Print the summary for machines.")


@dataclass(frozen=True)
class BenchOptions:
    """What `cala run` and `cala ablate` have in common."""

    embeddings: list[str] | None = typer.Option(
        None,
        metavar="[HOST=]FILE",
        help="Embeddings file (.npz, .safetensors) or folder NAME.shards. Again as "
        "HOST=FILE: for that host's methods, of the same images, such as alice=alice.npz for "
        "alice and alice+cala.",
        show_default=False,
    )
    encoder: list[str] | None = typer.Option(
        None,
        metavar="[HOST=]NAME",
        help="Encode images with it; `cala encoders` lists them. Again as HOST=NAME: for that "
        "host's methods.",
        show_default=False,
    )
    data: Path | None = typer.Option(
        None, help="Folder of the benchmark's images, to encode.", show_default=False
    )
    kind: str | None = KIND
    test: float | None = TEST
    tta: str = typer.Option("none", help="flip: average each image with its mirror image.")
    views: int | None = VIEWS
    shot_views: int = SHOT_VIEWS
    fakes: int = typer.Option(600, min=0, help="Fake classes mixed when encoding.")
    device: str = typer.Option("auto", help="Where to encode: cpu, cuda, mps or auto.")
    draws: str | None = typer.Option(
        None, help="canonical, random:N, or both (default: random:20, and canonical if published)."
    )
    seeds: int = typer.Option(1, min=1, help="Seeds of adapters, and of sessions that train.")
    split: str = typer.Option(
        "test", help="test, or dev: training images that nothing is learned from."
    )
    metric: str | None = typer.Option(
        None, help="cosine or whitened, for all methods.", show_default=False
    )
    scale: float | None = typer.Option(
        None, help="Logit scale, for all methods.", show_default=False
    )
    base: int | None = typer.Option(None, help="Base classes.", show_default=False)
    way: int | None = typer.Option(None, help="Classes per session.", show_default=False)
    shot: int | None = typer.Option(None, help="Shots per class.", show_default=False)
    sessions: int | None = typer.Option(None, help="Sessions.", show_default=False)
    order_seed: int | None = typer.Option(
        None, "--order-seed", help="Shuffle which classes are base.", show_default=False
    )
    full_sessions: bool = typer.Option(
        False,
        "--full-sessions",
        help="Sessions that train something have their published length and rate (default: short).",
    )
    allow_seen: bool = ALLOW_SEEN
    out: Path | None = typer.Option(
        None, help="Run folder (default: runs/…, named after the options)."
    )
    on: str = ON
    as_json: bool = AS_JSON
    quiet: bool = typer.Option(False, "--quiet", "-q", help="No progress.")


def with_bench_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command with a parameter `options: BenchOptions`, as one with an option per field."""
    hints = get_type_hints(BenchOptions)
    kind = inspect.Parameter.KEYWORD_ONLY
    shared = [
        inspect.Parameter(f.name, kind, default=f.default, annotation=hints[f.name])
        for f in fields(BenchOptions)
    ]
    signature = inspect.signature(command, eval_str=True)
    own = [p.replace(kind=kind) for p in signature.parameters.values() if p.name != "options"]

    @functools.wraps(command)
    def call(**given: Any) -> None:
        options = BenchOptions(**{p.name: given.pop(p.name) for p in shared})
        command(**given, options=options)

    parameters = [*own, *shared]
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    return call


def comma_separated(text: str) -> list[str]:
    """Names in order, without repeats."""
    from cala.errors import InputError

    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError(f"{text!r} names nothing: give names separated by commas")
    return list(dict.fromkeys(names))
