"""Options that commands share, and how a dataclass becomes options of a command."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import typer
from typing_extensions import dataclass_transform

from cala.errors import InputError

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def options_class(cls: type[T]) -> type[T]:
    """A frozen dataclass from fields declared as typer options, such as `typer.Option(3, help=…)`.

    Its defaults are the options' own, so that programs can make one too.
    """
    for name in cls.__annotations__:
        info = getattr(cls, name)
        default: Any = MISSING if info.default is ... else info.default
        setattr(cls, name, field(default=default, metadata={"cli": info}))
    return dataclass(frozen=True)(cls)


DATASET = typer.Argument(
    "cifar100", help="A benchmark, a folder of photos, features:FILE, or a name for --embeddings."
)
TEST = typer.Option(
    None,
    help="Fraction of each class held out for testing, for a folder of photos without test/.",
)
KIND = typer.Option(
    None, "--as", help="Which image set this is (default: recognised by its layout)."
)
REFERENCE = typer.Option(
    None, metavar="METHOD", help="The method to compare the others with (default: the first)."
)
ALLOW_SEEN = typer.Option(
    False,
    "--allow-seen",
    help="If the encoder was trained on novel classes, print a note instead of stopping.",
)
ENCODER_VIEWS = typer.Option(
    None,
    min=1,
    help="For encoders that use several views of each image (savc): use at most this many; "
    "fewer are faster and less accurate.",
)
SHOT_VIEWS = typer.Option(
    0,
    min=0,
    help="Average each photo of a new class with its mirror image and this many random crops "
    "(default: use it alone).",
)
ON = typer.Option(
    "here",
    metavar="WHERE",
    help="here (this process), ray or ray:HOST:PORT (a Ray cluster), or ray:local (several "
    "processes on this machine); needs the ray extra, see docs/cluster.md.",
)
DEVICE = typer.Option("auto", help="cpu, cuda, cuda:1, mps or auto.")
ENGINE = typer.Option(
    "auto",
    help="Inference engine on the CPU: torch, onnxruntime, openvino, or auto for the "
    "fastest that is installed and agrees with torch.",
)
THREADS = typer.Option(None, min=1, help="Number of processor threads.")
SKIP_BAD_IMAGES = typer.Option(False, help="Skip images that cannot be read.")
BASE_CLASSES = typer.Option(None, help="Number of base classes (default: the benchmark's, or all).")
QUIET = typer.Option(False, "--quiet", "-q", help="Print no progress.")
SUMMARY_AS_JSON = typer.Option(False, "--json", help="Print the summary as JSON.")
AS_JSON = typer.Option(False, "--json", help="Print the result as JSON.")


@options_class
class BenchOptions:
    """What `cala run` and `cala ablate` have in common."""

    embeddings: list[str] | None = typer.Option(
        None,
        metavar="[HOST=]FILE",
        help="Embeddings file (.npz, .safetensors) or folder NAME.shards. Repeat as "
        "HOST=FILE for the methods of one host, such as alice=alice.npz for alice and "
        "alice+cala; the images must be the same.",
    )
    encoder: list[str] | None = typer.Option(
        None,
        metavar="[HOST=]NAME",
        help="Encoder for the images; `cala encoders` lists them. Repeat as HOST=NAME for the "
        "methods of one host.",
    )
    data: Path | None = typer.Option(None, help="Folder with the benchmark's images, to encode.")
    kind: str | None = KIND
    test: float | None = TEST
    tta: str = typer.Option("none", help="flip: average each image with its mirror image.")
    views: int | None = ENCODER_VIEWS
    shot_views: int = SHOT_VIEWS
    fakes: int = typer.Option(600, min=0, help="Number of fake classes to mix when encoding.")
    device: str = typer.Option("auto", help="Where to encode: cpu, cuda, mps or auto.")
    engine: str = ENGINE
    draws: str | None = typer.Option(
        None,
        help="Which shots: canonical (the published list), random:N (N draws), or both with a "
        "comma (default: random:20, and canonical if there is one).",
    )
    seeds: int = typer.Option(1, min=1, help="Number of seeds, for methods that train something.")
    split: str = typer.Option(
        "test",
        help="Which images to score: test, or dev (training images that no method learns from).",
    )
    metric: str | None = typer.Option(None, help="cosine or whitened, for all methods.")
    scale: float | None = typer.Option(None, help="Logit scale, for all methods.")
    base: int | None = typer.Option(None, help="Number of base classes.")
    way: int | None = typer.Option(None, help="Novel classes per session.")
    shot: int | None = typer.Option(None, help="Images (shots) per novel class.")
    sessions: int | None = typer.Option(None, help="Number of sessions after the base session.")
    order_seed: int | None = typer.Option(
        None, min=0, help="Shuffle the classes with this seed; the first ones become base classes."
    )
    full_sessions: bool = typer.Option(
        False,
        "--full-sessions",
        help="For methods that train in every session: train as long as their authors did "
        "(default: shorter).",
    )
    allow_seen: bool = ALLOW_SEEN
    out: Path | None = typer.Option(
        None, help="Run folder (default: runs/…, named after the options)."
    )
    on: str = ON
    as_json: bool = SUMMARY_AS_JSON
    quiet: bool = QUIET

    @property
    def silent(self) -> bool:
        return self.quiet or self.as_json


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameters of an `options_class` are replaced by one option per field."""
    kind = inspect.Parameter.KEYWORD_ONLY
    hints = get_type_hints(command)
    grouped: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        cls = grouped.get(name)
        if cls is None:
            parameters.append(parameter.replace(kind=kind, annotation=hints[name]))
            continue
        types = get_type_hints(cls)
        parameters += [
            inspect.Parameter(f.name, kind, default=f.metadata["cli"], annotation=types[f.name])
            for f in fields(cls)
        ]

    @functools.wraps(command)
    def call(**given: Any) -> None:
        for name, cls in grouped.items():
            given[name] = cls(**{f.name: given.pop(f.name) for f in fields(cls)})
        command(**given)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    return call


def print_json(found: object) -> None:
    """Print a result for programs."""
    typer.echo(json.dumps(found, indent=1, ensure_ascii=False))


def check_test(test: float | None) -> None:
    if test is not None and not 0 < test < 1:
        fix = "use a fraction between 0 and 1, such as 0.2"
        raise InputError(f"--test is {test}", fix, field="test")


def comma_separated(text: str) -> list[str]:
    """Names in order, without repeats."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        detail = f"{text!r} contains no name"
        raise InputError(detail, "give names separated by commas", code="no_names")
    return list(dict.fromkeys(names))
