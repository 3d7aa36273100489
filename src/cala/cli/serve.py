"""`cala serve`: a page and an HTTP service for one model."""

from __future__ import annotations

import secrets
from pathlib import Path

import typer

import cala
from cala.cli.options import DEVICE, ENGINE
from cala.cli.photos import TRUST


def serve(
    model: Path = typer.Argument(..., help="The model's folder; the page can create a new one."),
    host: str = typer.Option(
        "127.0.0.1", help="Address to listen on; one that other machines can reach needs a token."
    ),
    port: int = typer.Option(8000, min=0, max=65535, help="Port to listen on; 0 picks a free one."),
    token: str = typer.Option(
        "",
        envvar="CALA_TOKEN",
        help="Token that allows predicting and teaching. Other users can see options: prefer "
        "CALA_TOKEN.",
        show_default=False,
        show_envvar=True,
    ),
    read_token: str = typer.Option(
        "",
        envvar="CALA_READ_TOKEN",
        help="Token that allows predicting only.",
        show_default=False,
        show_envvar=True,
    ),
    allow_host: list[str] = typer.Option(
        [], help="Host name to accept in requests, such as birds.example (repeatable)."
    ),
    thumbnails: bool = typer.Option(
        True, help="Keep small copies of taught photos beside the model, for the page."
    ),
    share: bool = typer.Option(
        False,
        "--share",
        help="Let other devices on your network use it, such as a phone: the page shows a QR code "
        "of a link with a token, which is made if none is given.",
    ),
    label_studio: str | None = typer.Option(
        None,
        metavar="URL",
        help="Be an ML backend of the Label Studio at this address, see docs/label-studio.md.",
    ),
    label_studio_token: str = typer.Option(
        "",
        envvar="CALA_LABEL_STUDIO_TOKEN",
        help="Access token of Label Studio, to read the photos of its tasks.",
        show_default=False,
        show_envvar=True,
    ),
    label_studio_files: Path | None = typer.Option(
        None,
        exists=True,
        file_okay=False,
        help="The folder of Label Studio's local files, if it is on this machine.",
    ),
    encoder: str | None = typer.Option(
        None, help="Where the model's encoder is, or the encoder for a new model."
    ),
    trust_encoder: str | None = TRUST,
    device: str = DEVICE,
    engine: str = ENGINE,
) -> None:
    """Serve a page where anyone can teach a class, and a REST API.

    If there is no model yet, the page asks for photos of its first classes and creates one. Only
    this machine can reach it, unless you set --host; then a token is required. Ctrl-C finishes
    accepted requests, then stops. `/docs` lists the API.

    Examples: cala serve birds · cala serve birds --share ·
    CALA_TOKEN=… cala serve birds --host 0.0.0.0 --port 80
    """
    from cala.encoders.device import choose_device
    from cala.encoders.registry import ENGINES
    from cala.extras import import_extra
    from cala.progress import busy
    from cala.registry import check_choice

    check_choice("engine", engine, ENGINES)

    with busy("starting"):
        for module in ("fastapi", "python_multipart", "prometheus_client", "uvicorn"):
            import_extra(module, "serve")
        from cala.app.server import run_service, run_setup
        from cala.app.settings import LabelStudioAccess, Settings, is_loopback
        from cala.store import is_store

        if share:
            token = token or secrets.token_urlsafe(24)
            host = "0.0.0.0" if is_loopback(host) else host
        access = None
        if label_studio is not None:
            access = LabelStudioAccess(label_studio, label_studio_token, label_studio_files)
        hosts = tuple(allow_host)
        settings = Settings(host, token, read_token, hosts, thumbnails, share, label_studio=access)
        place = choose_device(device)
        opened = None
        if is_store(model):
            given = {"encoder": encoder, "trust_encoder": trust_encoder}
            opened = cala.load(model, device=place, engine=engine, **given)
    if opened is not None:
        run_service(opened, settings, port, typer.echo)
    else:
        run_setup(model, settings, port, typer.echo, encoder, place, engine)
