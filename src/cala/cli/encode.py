"""`cala encode`: images to an embeddings file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from cala.cli.options import ALLOW_SEEN, KIND, ON, TEST, VIEWS


def register(app: typer.Typer) -> None:
    app.command()(encode)


def encode(
    dataset: str = typer.Argument(..., help="A folder of images, or a benchmark's name."),
    out: Path = typer.Option(
        ...,
        "-o",
        "--out",
        help="Embeddings file (.npz, .safetensors), or a folder NAME.shards that is "
        "written part by part, for collections of any size.",
    ),
    encoder: str = typer.Option(
        "efficientnet-lite0",
        help="`cala encoders` lists them; or a file of `cala train`. Default: efficientnet-lite0",
        show_default=False,
    ),
    data: Path | None = typer.Option(
        None, help="Folder of the benchmark's images.", show_default=False
    ),
    base: int | None = typer.Option(
        None, help="Base classes (default: the benchmark's, or all).", show_default=False
    ),
    tta: str = typer.Option("none", help="flip averages each image with its mirror image."),
    views: int | None = VIEWS,
    fakes: int = typer.Option(
        600,
        min=0,
        help="Fake classes mixed from base images, 0 for none; more, of fewer images each, where "
        "classes have few images.",
    ),
    fake_images: int = typer.Option(25, min=1, help="Images per fake class, at the most."),
    seed: int = typer.Option(0, min=0, help="Seed of the fake classes."),
    kind: str | None = KIND,
    test: float | None = TEST,
    allow_seen: bool = ALLOW_SEEN,
    half: bool = typer.Option(False, help="Store half precision."),
    shard_rows: int = typer.Option(
        4096, min=1, help="NAME.shards: images per shard, and lost at most when stopped."
    ),
    on: str = ON,
    skip_bad: bool = typer.Option(False, help="Leave out images that cannot be read."),
    device: str = typer.Option("auto", help="cpu, cuda, cuda:1, mps or auto."),
    threads: int | None = typer.Option(None, min=1, help="Processor threads.", show_default=False),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="No progress."),
) -> None:
    """Encode every image of a set once, and write an embeddings file.

    Stopped at any moment, the same command goes on: what was encoded before comes from the cache,
    or is in NAME.shards already.

    Example: cala encode photos/ --encoder efficientnet-lite0 --test 0.2 -o photos.npz

    Many: cala encode photos/ -o photos.shards --half --on ray:10.0.0.1:6379
    """
    from contextlib import ExitStack

    from cala.cli.devices import choose_device
    from cala.cli.progress import progress, progress_bar
    from cala.cluster import read_on
    from cala.cluster.ray_engine import connected
    from cala.data.embedding_files import check_target
    from cala.data.embeddings import save_embeddings
    from cala.data.protocol import base_classes
    from cala.data.sets import locate, open_images
    from cala.data.shards import is_shards
    from cala.encoders.encode import encode_set
    from cala.encoders.encode_shards import encode_shards
    from cala.encoders.ray_shards import on_ray
    from cala.encoders.registry import load_encoder, located
    from cala.errors import InputError
    from cala.files import counted, shown

    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    where = read_on(on)
    if where is not None and not is_shards(out):
        raise InputError(
            f"--on {on} writes shards: give -o NAME.shards instead of {shown(out.name)}"
        )
    if not is_shards(out):
        check_target(out)
    model = load_encoder(encoder, choose_device(device), views)
    path, kind = locate(dataset, data, kind)
    options: dict[str, Any] = {} if test is None else {"holdout": test}
    with progress(quiet):
        images = open_images(path, kind, on_bad="skip" if skip_bad else "raise", **options)
    for bad in images.skipped:
        typer.echo(f"left out: {bad.name} ({bad.why})", err=True)
    if not len(images.test):
        share = "; --test 0.2 holds some back" if images.name == "folder" else ""
        note = f"note: {shown(path)} has no test images, which `cala run` needs{share}"
        typer.echo(note, err=True)
    settings: dict[str, Any] = {
        "base": range(base_classes(images.name, len(images.classes), base)),
        "novel": () if allow_seen else None,
        "tta": tta,
        "pairs": fakes,
        "fake_images": fake_images,
        "seed": seed,
    }
    with ExitStack() as around:
        around.enter_context(_bad_images(is_shards(out)))
        advance = around.enter_context(
            progress_bar(f"encoding {shown(path.resolve().name)}", quiet)
        )
        if is_shards(out):
            work = None
            if where is not None:
                cluster = around.enter_context(connected(where))
                work = on_ray(cluster, located(encoder), model, views, threads)
            encode_shards(
                images, model, out, half=half, rows=shard_rows, work=work, advance=advance,
                **settings,
            )  # fmt: skip
            typer.echo(
                f"{out}: {len(images.train):,} training and {len(images.test):,} test images, "
                f"{counted(len(images.classes), 'class')}, {model.dim} dimensions"
            )
            return
        found = encode_set(images, model, advance=advance, **settings)
    save_embeddings(out, found, half=half)
    typer.echo(
        f"{out}: {len(found.x_train):,} training and {len(found.x_test):,} test images, "
        f"{counted(len(images.classes), 'class')}, {model.dim} dimensions"
    )


@contextmanager
def _bad_images(shards: bool) -> Iterator[None]:
    """Say what to do about an image that cannot be read."""
    from cala.data.decoding import ImageError
    from cala.errors import InputError

    try:
        yield
    except ImageError as error:
        kept = ", which begins the folder anew: delete it first" if shards else ""
        raise InputError(
            f"{error}. Mend it, or leave out such images with --skip-bad{kept}"
        ) from error
