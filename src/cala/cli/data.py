"""`cala data check` and `cala data get`."""

from __future__ import annotations

import json
from pathlib import Path

import typer

app = typer.Typer(
    help="Look at image sets, and fetch those that may be fetched.", no_args_is_help=True
)


@app.command()
def check(
    path: Path = typer.Argument(..., help="Folder or archive of the set."),
    dataset: str | None = typer.Option(
        None, "--as", help="The set to expect; recognised by its layout if not given."
    ),
    limit: int = typer.Option(5, "--limit", min=1, help="Names shown per finding."),
    as_json: bool = typer.Option(False, "--json", help="Everything found, for machines."),
) -> None:
    """Say what lies at PATH: counts, resolution, what the protocol lacks, bad and double images.

    Exit code 1 if images cannot be used or the set cannot be opened.

    Example: cala data check ~/CUB_200_2011
    """
    from cala.data.check import check as look
    from cala.data.check_lines import check_lines

    report = look(path, dataset)
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=1, ensure_ascii=False))
    else:
        for line in check_lines(report, limit):
            typer.echo(line)
    raise typer.Exit(0 if report.ok else 1)


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
