"""`cala methods`, `cala datasets` and `cala encoders`: what is registered, one line each."""

from __future__ import annotations

import shutil
import textwrap

import typer

from cala.cli.options import AS_JSON, print_json


def methods(as_json: bool = AS_JSON) -> None:
    """List the methods that `cala run` knows."""
    from cala.heads import ADAPTERS, HEADS

    found = {name: HEADS.summary(name) for name in HEADS}
    found.update({name: ADAPTERS.summary(name) for name in ADAPTERS})
    _print(found, as_json)
    if not as_json:
        adapters = ", ".join(f"+{name}" for name in ADAPTERS)
        said = f"Any head can carry an adapter ({adapters}): nearest-mean+cala-plus"
        typer.echo("\n" + textwrap.fill(said, _columns()))


def datasets(as_json: bool = AS_JSON) -> None:
    """List the data sets that cala reads."""
    from cala.data.sets import DATASETS

    found = {name: DATASETS.summary(name) for name in DATASETS}
    found["features:FILE"] = "embeddings of any set, as .npz or .safetensors"
    _print(found, as_json)


def encoders(as_json: bool = AS_JSON) -> None:
    """List encoders, and architectures that can be trained."""
    from cala.encoders.registry import ARCHITECTURES, ENCODERS, LOADERS

    ready = {name: ENCODERS.summary(name) for name in ENCODERS}
    loaders = {f"{name}:…": LOADERS.summary(name) for name in LOADERS}
    shapes = {name: ARCHITECTURES.summary(name) for name in ARCHITECTURES}
    if as_json:
        found = {"encoders": ready, "loaders": loaders, "architectures": shapes}
        print_json(found)
        return
    for title, part in (("", ready), ("\nFrom elsewhere", loaders), ("\nTo train", shapes)):
        if title:
            typer.echo(f"{title}:")
        _print(part, as_json)
    typer.echo("\nA file or folder that `cala train` wrote is an encoder too.")


def _print(found: dict[str, str], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    width = max(len(name) for name in found)
    for name, summary in found.items():
        lines = textwrap.wrap(summary, max(_columns() - width - 2, 20))
        for start, line in zip((name, *[""] * len(lines)), lines, strict=False):
            typer.echo(f"{start:<{width}}  {line}")


def _columns() -> int:
    """The terminal's; 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns
