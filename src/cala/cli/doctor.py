"""`cala doctor`: what is installed here, what works, and how to get the rest."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

import typer

from cala import __version__
from cala.cli.options import AS_JSON, print_json
from cala.extras import install
from cala.files import first_line

#: What every command for photos needs; those that are quick to import are imported.
NEEDED = ("numpy", "onnxruntime", "PIL.Image", "filelock", "platformdirs", "safetensors.numpy")
PRESENT = ("scipy", "pillow_heif", "pooch", "rich", "threadpoolctl", "typing_extensions")
VERSIONS = (
    *("numpy", "scipy", "scikit-learn", "onnxruntime", "pillow", "pillow-heif"),
    *("openvino", "torch"),
)
#: Extras: the modules that they bring, and what for.
EXTRAS: dict[str, tuple[tuple[str, ...], str]] = {
    "serve": (("fastapi", "python_multipart", "prometheus_client", "uvicorn"), "cala serve"),
    "report": (("jinja2", "matplotlib"), "cala report"),
    "onnx": (("onnx",), "encoders from ONNX files (--encoder onnx:FILE)"),
    "export": (("onnx", "onnxscript", "torch"), "cala export"),
    "train": (("lightning_fabric", "tensorboard", "torch"), "cala train, cala fit --adapt"),
    "bench": (("jinja2", "matplotlib", "onnxscript", "torch"), "cala run of systems that train"),
    "timm": (("timm", "torch"), "encoders of timm (--encoder timm:NAME)"),
    "hf": (("transformers", "torch"), "encoders of Hugging Face (--encoder hf:NAME)"),
    "hub": (("huggingface_hub",), "models on the Hugging Face hub (hf://user/name)"),
    "openvino": (("openvino",), "another engine (--engine openvino), faster on some processors"),
    "ray": (("ray",), "work on several machines (--on ray)"),
    "frigate": (("paho",), "cala frigate"),
}


def doctor(as_json: bool = AS_JSON) -> None:
    """Show what is installed, what works, and how to get the rest.

    Versions, engine, threads, cache, photo formats, and extras that are missing.

    The exit code is 1 if something is broken that every installation needs.

    Examples: cala doctor · cala doctor --json
    """
    broken: dict[str, str] = {}

    def attempt(name: str, look: Callable[[], Any]) -> Any:
        try:
            return look()
        except Exception as error:  # a broken installation can raise anything
            broken[name] = first_line(error)
            return None

    for name in NEEDED:
        attempt(name, partial(import_module, name))
    broken |= {name: "not installed" for name in PRESENT if find_spec(name) is None}
    found = {
        "cala": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "versions": {name: _version(name) for name in VERSIONS},
        "engines": attempt("engines", _engines),
        "threads": attempt("threads", _threads),
        "cache": _cache(),
        "formats": attempt("photo formats", _formats),
        "encoder": attempt("bundled encoder", _encoder),
        "missing": {
            extra: {"for": use, "install": install(extra)}
            for extra, (modules, use) in EXTRAS.items()
            if not all(map(find_spec, modules))
        },
        "broken": broken,
    }
    if as_json:
        print_json(found)
    else:
        _print(found)
    if broken:
        raise typer.Exit(1)


def _version(name: str) -> str | None:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return None


def _engines() -> dict[str, Any]:
    from cala.encoders.registry import ENGINES

    there = [name for name in ENGINES if name != "auto" and find_spec(name) is not None]
    graphs = [name for name in there if name != "torch"]
    auto = graphs[0] if len(graphs) == 1 else "the faster one, measured once for each encoder"
    return {"installed": there, "auto": auto if graphs else there[0]}


def _threads() -> int:
    from cala.data.image_scan import worker_count

    return worker_count()


def _cache() -> dict[str, Any]:
    try:
        from cala.data.cache import cache_folder

        folder = cache_folder()
    except Exception as error:  # everything works without one, only slower
        return {"error": first_line(error)}
    size = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # another process may be at work
            size += path.stat().st_size if path.is_file() else 0
    return {"folder": str(folder), "bytes": size, "free": shutil.disk_usage(folder).free}


def _formats() -> dict[str, bool]:
    """Formats of photos, and whether they are read; those of phones are tried."""
    from cala.data.formats import FORMATS

    found = {"HEIC": _decodes("dot.heic"), "AVIF": _decodes("dot.avif")}
    return found | {name: True for name in FORMATS if name not in ("HEIF", "AVIF")}


def _decodes(name: str) -> bool:
    from cala.data.decoding import ImageError, decode
    from cala.shipped import shipped

    try:
        decode(shipped(f"formats/{name}"))
    except ImageError:
        return False
    return True


def _encoder() -> str:
    from cala.encoders.registry import LITE0, installed_weights

    installed_weights()
    return LITE0


def _print(found: dict[str, Any]) -> None:
    typer.echo(f"cala {found['cala']}, Python {found['python']}, {found['system']}")
    typer.echo(", ".join(f"{name} {v or '–'}" for name, v in found["versions"].items()))
    if engines := found["engines"]:
        others = ", ".join(engines["installed"])
        typer.echo(f"engine   {engines['auto']} (installed: {others}); threads {found['threads']}")
    cache = found["cache"]
    if "error" not in cache:
        room = f"{cache['bytes'] / 1e6:,.1f} MB, {cache['free'] / 1e9:,.1f} GB free"
    typer.echo(f"cache    {cache.get('error') or cache['folder'] + ': ' + room}")
    formats = (found["formats"] or {}).items()
    typer.echo("photos   " + ", ".join(name if reads else f"no {name}" for name, reads in formats))
    for extra, about in found["missing"].items():
        typer.echo(f"without  {extra}: {about['for']}\n         {about['install']}")
    for name, why in found["broken"].items():
        typer.echo(f"broken   {name}: {why}", err=True)
    if not found["broken"]:
        typer.echo("all that recognising photos needs works")
