"""`cala serve`: a page and an HTTP service for one model."""

from __future__ import annotations

from pathlib import Path

import typer

from cala.cli.own import DEVICE, TRUST


def register(app: typer.Typer) -> None:
    app.command()(serve)


def serve(
    model: Path = typer.Argument(..., help="The model: a folder, which the page can make too."),
    host: str = typer.Option("127.0.0.1", help="Address to listen on; others need a token."),
    port: int = typer.Option(8000, min=0, max=65535, help="0 takes any that is free."),
    token: str = typer.Option(
        "",
        envvar="CALA_TOKEN",
        help="Who has it may ask and teach. Other users see options: better set CALA_TOKEN.",
        show_default=False,
        show_envvar=True,
    ),
    read_token: str = typer.Option(
        "",
        envvar="CALA_READ_TOKEN",
        help="Who has it may ask and not teach.",
        show_default=False,
        show_envvar=True,
    ),
    allow_host: list[str] = typer.Option(
        [], help="A name under which browsers reach it, such as birds.example."
    ),
    thumbnails: bool = typer.Option(
        True, help="Keep small copies of taught photos beside the model, for the page."
    ),
    encoder: str | None = typer.Option(
        None, help="Where the model's encoder is; or the one of a first model.", show_default=False
    ),
    trust_encoder: str | None = TRUST,
    device: str = DEVICE,
) -> None:
    """Open a page where anyone can teach a class, and a REST API.

    Where there is no model yet, the page asks for photos of its first classes and makes one.
    Nobody but this machine can reach it unless --host says otherwise; then a token is needed.
    Ctrl-C finishes what was accepted, then ends. `/docs` lists what programs can ask for.

    Examples: cala serve birds · CALA_TOKEN=… cala serve birds --host 0.0.0.0 --port 80
    """
    from cala.cli.devices import choose_device
    from cala.encoders.base import import_extra
    from cala.model import load

    for module in ("fastapi", "python_multipart", "prometheus_client", "uvicorn"):
        import_extra(module, "serve")
    from cala.app.server import run_service, run_setup
    from cala.app.settings import Settings
    from cala.store import is_store

    settings = Settings(host, token, read_token, tuple(allow_host), thumbnails)
    place = choose_device(device)
    if is_store(model):
        opened = load(model, encoder=encoder, device=place, trust_encoder=trust_encoder)
        run_service(opened, settings, port, typer.echo)
    else:
        run_setup(model, settings, port, typer.echo, encoder, place)
