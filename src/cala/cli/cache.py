"""`cala cache info` and `cala cache clear`."""

from __future__ import annotations

import typer

from cala.cli.options import AS_JSON, print_json

app = typer.Typer(help="Show the cache, or clear it.", no_args_is_help=True)


@app.command()
def info(as_json: bool = AS_JSON) -> None:
    """Show where the cache is and what is in it.

    Example: cala cache info
    """
    from cala.data.cache import cache_contents, cache_folder

    root, found = cache_folder(), cache_contents()
    if as_json:
        content = {kind: {"entries": n, "bytes": size} for kind, (n, size) in found.items()}
        print_json({"folder": str(root), "contents": content})
        return
    typer.echo(f"{root}")
    for kind, (count, size) in found.items():
        typer.echo(f"  {kind:<12} {count:>8,} entries  {size / 1e6:>10,.1f} MB")
    if not found:
        typer.echo("  empty")


@app.command()
def clear(
    kind: str | None = typer.Argument(
        None, help="A kind that `cala cache info` lists (default: all)."
    ),
    yes: bool = typer.Option(False, "--yes", "-y", help="Do not ask for confirmation."),
) -> None:
    """Delete what cala can compute or download again.

    Example: cala cache clear embeddings --yes
    """
    from cala.data.cache import cache_contents, clear_cache
    from cala.registry import check_choice

    found = cache_contents()
    if kind is not None:
        check_choice("kind of cache", kind, found, "kind")
    chosen = list(found) if kind is None else [kind]
    size = sum(found[name][1] for name in chosen)
    if not chosen:
        typer.echo("the cache is empty")
        return
    if not yes:
        typer.confirm(f"delete {', '.join(chosen)} ({size / 1e6:,.1f} MB)?", abort=True)
    for name in chosen:
        clear_cache(name)
    typer.echo(f"deleted {size / 1e6:,.1f} MB")
