"""`cala methods`, `cala datasets` and `cala encoders`: what there is, one line each."""

from __future__ import annotations

import shutil
import textwrap
from typing import Any

import typer

from cala.cli.options import AS_JSON, print_json

#: What the index knows about a published encoder, in the order of its line.
UNITS = {"hours": "hours of training", "session_0": "% in session 0", "bytes": "bytes"}


encoders_app = typer.Typer(
    help="List encoders, or fetch a published one.", invoke_without_command=True
)


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


@encoders_app.callback()
def encoders(context: typer.Context, as_json: bool = AS_JSON) -> None:
    """List encoders, and architectures that can be trained."""
    if context.invoked_subcommand:
        return
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


@encoders_app.command("get")
def fetch_encoder(
    name: str | None = typer.Argument(None, help="Name of a published encoder (default: list)."),
    source: str | None = typer.Option(
        None,
        "--from",
        envvar="CALA_ENCODERS",
        help="Folder or URL with index.json and the files, instead of where cala publishes them.",
    ),
    as_json: bool = AS_JSON,
) -> None:
    """Fetch a published encoder into the cache, checked by its SHA-256.

    Then use it by name: `--encoder NAME`. Without NAME, list what is published.

    Example: cala encoders get resnet18-narrow-cifar100 --from mirror/
    """
    from cala.encoders.published import get_encoder, read_index

    if name is not None:
        path = get_encoder(name, source)
        if as_json:
            print_json({"name": name, "file": str(path)})
        else:
            typer.echo(f"{name} is at {path}; use it as `--encoder {name}`")
        return
    _, entries = read_index(source)
    if as_json:
        print_json(entries)
        return
    ready = {name: _described(entry) for name, entry in entries.items() if "sha256" in entry}
    if ready:
        _print(ready, as_json)
    else:
        typer.echo("No encoder is published yet.")
    rest = [entry["train"] for name, entry in entries.items() if name not in ready]
    if rest:
        typer.echo("\n".join(["Not published; to train them:", *rest]))


def _described(entry: dict[str, Any]) -> str:
    facts = [str(entry.get("dataset", "")), str(entry.get("recipe", ""))]
    facts += [f"{entry[key]} {unit}" for key, unit in UNITS.items() if entry.get(key) is not None]
    return ", ".join(fact for fact in facts if fact)


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
