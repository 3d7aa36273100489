"""`cala export`: a model for programs without cala and torch."""

from __future__ import annotations

import json
from pathlib import Path

import typer

import cala
from cala.cli.options import AS_JSON
from cala.cli.photos import ENCODER, MODEL, QUIET_HINTS, TRUST
from cala.files import shown


def export(
    model: Path = MODEL,
    onnx: Path = typer.Option(..., "--onnx", help="The file to write, ending in .onnx."),
    force: bool = typer.Option(False, "--force", help="Overwrite existing files."),
    encoder: str | None = ENCODER,
    trust_encoder: str | None = TRUST,
    as_json: bool = AS_JSON,
    quiet: bool = QUIET_HINTS,
) -> None:
    """Write a model with its encoder as one ONNX file.

    The file can still learn new classes; docs/export.md shows how, in ten lines without torch. The
    weights of all classes are written beside it, as .npz.

    Example: cala export birds --onnx birds.onnx
    """
    from cala.progress import busy

    with busy("writing and checking the graph", quiet):
        from cala.export import export_onnx

        opened = cala.load(model, encoder=encoder, trust_encoder=trust_encoder)
        done = export_onnx(opened, onnx, force=force)
    if as_json:
        found = {"model": model, "onnx": done.path, **vars(done)}
        del found["path"]
        typer.echo(json.dumps(found, default=str))
        return
    typer.echo(f"{shown(done.path)}: {done.classes} classes, {done.bytes / 1e6:.1f} MB")
    if not quiet:
        typer.echo(
            f"{shown(done.table)}: weights, bias and names of the classes, to add more; "
            f"opset {done.opset}, logits as cala's within {done.difference:.0e}"
        )
