"""`cala methods` and `cala datasets`: what is registered, one line each."""

from __future__ import annotations

import json

import typer


def register(app: typer.Typer) -> None:
    app.command()(methods)
    app.command()(datasets)


AS_JSON = typer.Option(False, "--json", help="For machines.")


def methods(as_json: bool = AS_JSON) -> None:
    """List the methods that `cala run` knows."""
    from cala.heads import ADAPTERS, HEADS

    found = {name: HEADS.summary(name) for name in HEADS}
    found.update({name: ADAPTERS.summary(name) for name in ADAPTERS})
    _print(found, as_json)
    if not as_json:
        adapters = ", ".join(f"+{name}" for name in ADAPTERS)
        typer.echo(f"\nAny head can carry an adapter ({adapters}): nearest-mean+cala-plus")


def datasets(as_json: bool = AS_JSON) -> None:
    """List the data sets that cala reads."""
    from cala.data.sets import DATASETS

    found = {name: DATASETS.summary(name) for name in DATASETS}
    found["features:FILE"] = "embeddings of any set, as .npz, .safetensors or .parquet"
    _print(found, as_json)


def _print(found: dict[str, str], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(found, indent=1, ensure_ascii=False))
        return
    width = max(len(name) for name in found)
    for name, summary in found.items():
        typer.echo(f"{name:<{width}}  {summary}")
