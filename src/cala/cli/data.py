"""`cala data check` and `cala data get`."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from cala.cli.options import AS_JSON, KIND
from cala.cli.progress import progress

app = typer.Typer(
    help="Check image sets and embeddings, or download sets.",
    no_args_is_help=True,
)


@app.command()
def check(
    path: Path = typer.Argument(
        ...,
        help="Folder or archive of a set, or embeddings (FILE.npz, NAME.shards, features:FILE).",
    ),
    dataset: str | None = KIND,
    limit: int = typer.Option(5, "--limit", min=1, help="Names shown per finding."),
    max_pixels: int | None = typer.Option(
        None, "--max-pixels", min=1, help="Refuse images with more pixels."
    ),
    as_json: bool = AS_JSON,
) -> None:
    """Show what is at PATH, and what is wrong with it.

    For images: counts, resolution, what the protocol lacks, unreadable and duplicate ones.

    For embeddings: classes, rows, dimension, scale, held-out rows, fake classes, names.
    The exit code is 1 if images cannot be used or the set cannot be opened.

    Example: cala data check ~/CUB_200_2011
    """
    from cala.data.check import check as look
    from cala.data.check_embeddings import check_embeddings, embeddings_lines, embeddings_path
    from cala.data.check_lines import check_lines

    file = embeddings_path(path, dataset)
    if file is not None:
        found = check_embeddings(file)
        report, lines, ok = found.as_json(), embeddings_lines(found, limit), not found.error
    else:
        options = {} if max_pixels is None else {"max_pixels": max_pixels}
        with progress(as_json):
            images = look(path, dataset, **options)
        report, lines, ok = images.as_json(), check_lines(images, limit), images.ok
    if as_json:
        typer.echo(json.dumps(report, indent=1, ensure_ascii=False))
    else:
        for line in lines:
            typer.echo(line)
    raise typer.Exit(0 if ok else 1)


@app.command()
def get(
    dataset: str = typer.Argument(..., help="cifar100 or cub200."),
    target: Path = typer.Option(Path("data"), "--to", help="Folder to put it in."),
) -> None:
    """Download a set from where its authors publish it, and check it.

    Example: cala data get cifar100 --to data
    """
    from cala.data.download import download

    place = download(dataset, target)
    typer.echo(f"{dataset} is at {place}")
