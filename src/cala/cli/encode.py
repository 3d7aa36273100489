"""`cala encode`: images to an embeddings file."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cala.cli import options as shared
from cala.cli.options import check_test, options_class, with_options
from cala.cli.photos import note, skip_bad_hint
from cala.errors import InputError
from cala.files import counted, shown

if TYPE_CHECKING:
    from cala.data.images import ImageSet


@options_class
class EncodeOptions:
    """The options of `cala encode`."""

    dataset: str = typer.Argument(..., help="A folder of images, or a benchmark's name.")
    out: Path = typer.Option(
        ...,
        "-o",
        "--out",
        help="Embeddings file (.npz, .safetensors), or a folder NAME.shards, written part "
        "by part, for collections of any size.",
    )
    encoder: str = typer.Option(
        "efficientnet-lite0",
        help="One that `cala encoders` lists, or a file from `cala train` "
        "(default: efficientnet-lite0).",
        show_default=False,
    )
    data: Path | None = typer.Option(None, help="Folder with the benchmark's images.")
    base: int | None = shared.BASE_CLASSES
    tta: str = typer.Option("none", help="flip: average each image with its mirror image.")
    views: int | None = shared.ENCODER_VIEWS
    shot_views: int = shared.SHOT_VIEWS
    fakes: int = typer.Option(
        600,
        min=0,
        help="Number of fake classes to mix from base images, 0 for none; if classes have few "
        "images, cala mixes more fake classes with fewer images each.",
    )
    fake_images: int = typer.Option(25, min=1, help="Maximum number of images per fake class.")
    seed: int = typer.Option(0, min=0, help="Seed of the fake classes.")
    kind: str | None = shared.KIND
    test: float | None = shared.TEST
    allow_seen: bool = shared.ALLOW_SEEN
    half: bool = typer.Option(False, help="Store embeddings in half precision.")
    shard_rows: int = typer.Option(
        4096, min=1, help="For NAME.shards: images per shard; stopping loses at most one shard."
    )
    on: str = shared.ON
    skip_bad: bool = shared.SKIP_BAD_IMAGES
    device: str = shared.DEVICE
    engine: str = shared.ENGINE
    threads: int | None = shared.THREADS
    quiet: bool = shared.QUIET


@with_options
def encode(options: EncodeOptions) -> None:
    """Encode every image of a set once, and write an embeddings file.

    If it is stopped, run the same command again to resume: images that are already encoded
    are in the cache, or in NAME.shards.

    Example: cala encode photos/ --encoder efficientnet-lite0 --test 0.2 -o photos.npz

    A large set: cala encode photos/ -o photos.shards --half --on ray:10.0.0.1:6379
    """
    import numpy as np

    from cala.cluster import parse_target
    from cala.data.embedding_files import check_target
    from cala.data.protocol import base_classes
    from cala.data.sets import locate
    from cala.data.shards import is_shards
    from cala.encoders.registry import ENGINES
    from cala.progress import busy, progress_bar
    from cala.registry import check_choice

    check_choice("engine", options.engine, ENGINES)
    out, shards = options.out, is_shards(options.out)
    target = parse_target(options.on)
    if target is not None and not shards:
        detail = f"--on {options.on} writes shards"
        fix = f"give -o NAME.shards instead of {shown(out.name)}"
        raise InputError(detail, fix, field="out")
    if shards and options.shot_views:
        detail = f"shots of several views cannot be in {shown(out.name)}"
        raise InputError(detail, "write NAME.npz or NAME.safetensors", field="shot_views")
    if not shards:
        check_target(out)
    path, kind = locate(options.dataset, options.data, options.kind)
    images = open_set(path, kind, options.test, options.skip_bad, options.quiet)
    if not len(images.test):
        hint = "; --test 0.2 holds some back" * (images.name == "folder")
        note(f"{shown(path)} has no test images, which `cala run` needs{hint}")
    settings: dict[str, Any] = {
        "base": range(base_classes(images.name, len(images.classes), options.base)),
        "novel": () if options.allow_seen else None,
        "tta": options.tta,
        "pairs": options.fakes,
        "fake_images": options.fake_images,
        "seed": options.seed,
    }
    later = np.flatnonzero(~np.isin(images.train.labels, settings["base"]))
    if options.shot_views and not len(later):
        detail = "every class is a base class, so there are no shots"
        raise InputError(detail, "give --base", field="base")
    # Everything above is cheap.
    from cala.encoders.registry import load_encoder, located

    if options.threads is not None:
        from cala.data.image_scan import use_workers

        use_workers(options.threads)
    engine = options.engine
    with busy("loading the encoder", options.quiet):
        model = load_encoder(options.encoder, options.device, options.views, engine=engine)
    with ExitStack() as around:
        around.enter_context(skip_bad_hint(", after deleting the folder" * shards))
        text = f"encoding {shown(path.resolve().name)}"
        settings["advance"] = around.enter_context(progress_bar(text, options.quiet))
        if shards:
            from cala.encoders.encode_shards import encode_shards, on_ray

            work = None
            if target is not None:
                from cala.cluster.ray_cluster import connected

                cluster = around.enter_context(connected(target))
                uri = located(options.encoder)
                work = on_ray(cluster, uri, model, options.views, options.threads, engine)
            rows, half = options.shard_rows, options.half
            encode_shards(images, model, out, half=half, rows=rows, work=work, **settings)
        else:
            from cala.data.embeddings import save_embeddings
            from cala.encoders.encode import encode_set

            views = options.shot_views
            shots = later if views else ()
            found = encode_set(images, model, shot_views=views, shot_rows=shots, **settings)
            save_embeddings(out, found, half=options.half)
    typer.echo(
        f"{out}: {len(images.train):,} training and {len(images.test):,} test images, "
        f"{counted(len(images.classes), 'class')}, {model.dim} dimensions"
    )


def open_set(
    path: Path, kind: str | None, test: float | None, skip_bad: bool, quiet: bool
) -> ImageSet:
    """Open an image set with progress, and print which images were skipped."""
    from cala.data.sets import open_images
    from cala.progress import progress

    check_test(test)
    options: dict[str, Any] = {} if test is None else {"holdout": test}
    with progress(quiet):
        images = open_images(path, kind, on_bad="skip" if skip_bad else "raise", **options)
    for bad in images.skipped:
        typer.echo(f"left out: {bad.name} ({bad.why})", err=True)
    return images
