"""`cala data check` and `cala data get`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cala.cli.options import AS_JSON, KIND, print_json
from cala.files import counted, preview, shown
from cala.progress import progress

if TYPE_CHECKING:
    from cala.data.check import Coverage, DataReport

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
    limit: int = typer.Option(5, min=1, help="How many names to show per finding."),
    max_pixels: int | None = typer.Option(None, min=1, help="Refuse images with more pixels."),
    as_json: bool = AS_JSON,
) -> None:
    """Show what PATH contains, and what is wrong with it.

    For images: counts, resolution, what is missing for the protocol, unreadable files, duplicates.

    For embeddings: classes, rows, dimension, scale, held-out rows, fake classes, names.
    The exit code is 1 if images cannot be used or the set cannot be opened.

    Example: cala data check ~/CUB_200_2011
    """
    from cala.data.check import check_data

    with progress(as_json):
        report = check_data(
            path, dataset, **({} if max_pixels is None else {"max_pixels": max_pixels})
        )
    if as_json:
        print_json(report.as_json())
    else:
        typer.echo("\n".join(report_lines(report, limit)))
    raise typer.Exit(0 if report.ok else 1)


@app.command("get")
def get_data(
    dataset: str = typer.Argument(..., help="cifar100 or cub200."),
    target: Path = typer.Option(Path("data"), "--to", help="Folder to put it in."),
) -> None:
    """Download a set from where its authors publish it, and check it.

    Example: cala data get cifar100 --to data
    """
    from cala.data.download import download

    place = download(dataset, target)
    typer.echo(f"{dataset} is at {place}")


def report_lines(report: DataReport, limit: int = 5) -> list[str]:
    """Return a report as lines for a terminal, with at most `limit` names per finding."""
    features = report.dataset == "features"
    kind = "embeddings" if features else report.dataset or "no known image set"
    lines = _embedding_lines(report, limit) if features else _image_lines(report, limit)
    if report.error:
        lines = iter([f"error: {report.error}"])
    return [f"{shown(report.path)}: {kind}", *(f"  {line}" for line in lines)]


def _image_lines(r: DataReport, limit: int) -> Iterator[str]:
    images = f"{r.train:,} training and {r.test:,} test images"
    heights, widths = ([size[axis] for size, _ in r.sizes] for axis in (0, 1))
    if len(r.sizes) == 1:
        images += f", {widths[0]}×{heights[0]} pixels"
    elif r.sizes:
        images += f", {min(widths)} to {max(widths)} pixels wide and "
        images += f"{min(heights)} to {max(heights)} high"
    yield f"{counted(r.classes, 'class')}, {images}"
    if r.protocol is not None:
        yield from _coverage_lines(r.protocol, limit)
    bad = [f"{shown(image.name)}: {image.why}" for image in r.unreadable]
    yield from _listed("images that cannot be used", bad, limit)
    double = [
        " = ".join(f"{n} ({shown(c)})" for n, c in zip(d.names, d.classes, strict=True))
        for d in r.duplicates
    ]
    classes = sum(d.across_classes for d in r.duplicates)
    parts = sum(d.across_parts for d in r.duplicates)
    across = f"{classes:,} across classes, {parts:,} across train and test"
    yield from _listed(f"the same image several times, {across}", double, limit)
    if r.repeats:
        yield f"duplicates within one class and part: {r.repeats:,}"
    yield from _listed("notes", r.notes, limit)
    if not r.ok:
        yield "not in order: fix or remove the images above, or skip them"
    else:
        verdict = {None: "", True: " and complete", False: ", but only a part of the set"}
        yield f"in order{verdict[r.complete]}"


def _coverage_lines(c: Coverage, limit: int) -> Iterator[str]:
    yield f"protocol {c.name}: {c.base} base + {c.sessions} × ({c.way}-way {c.shot}-shot)"
    for what, (there, wanted) in c.found.items():
        yield f"  {what}: {there:,} of {wanted:,}"
    for what, names in (
        ("classes without an image", c.missing),
        ("classes that the protocol does not have", c.unknown),
        ("missing shots", c.missing_shots),
    ):
        if names:
            yield f"  {what} ({len(names):,}): {preview(names, limit)}"
    for part, short in c.short.items():
        if short:
            total, classes = f"{sum(short.values()):,}", counted(len(short), "class")
            each = [f"{name} {n:,}" for name, n in short.items()]
            yield f"  missing {part} ({total} in {classes}): {preview(each, limit)}"


def _embedding_lines(r: DataReport, limit: int) -> Iterator[str]:
    def each(span: tuple[int, int]) -> str:
        return " to ".join(f"{n:,}" for n in sorted(set(span))) + " per class"

    held = "not given (base queries may be rows that trained the encoder)"
    if r.holdout is not None:
        held = f"{r.holdout[0]:,} in {counted(r.holdout[1], 'class')}"
    fakes = "none (they are mixed from the embeddings)"
    if r.fakes is not None:
        fakes = f"{r.fakes[0]:,} of {counted(r.fakes[1], 'image')}"
    yield f"{counted(r.classes, 'class')}, {counted(r.dimension, 'dimension')} ({r.dtype})"
    yield f"{r.train:,} training rows ({each(r.train_each)})"
    yield f"{r.test:,} test rows" + (f" ({each(r.test_each)})" if r.test else "")
    yield f"scale: {'not given' if r.scale is None else f'{r.scale:g}'}"
    yield f"held-out rows: {held}"
    yield f"fake classes: {fakes}"
    yield f"class names: {preview(r.class_names or (), limit) or 'none'}"
    yield f"file names: {' and '.join(r.names) or 'none'}"
    yield from _provenance_lines(r.provenance or {}, limit)
    if r.ignored:
        yield f"ignored, unknown to cala: {preview(r.ignored, limit)}"
    yield "in order"


def _provenance_lines(values: Mapping[str, Any], limit: int, indent: str = "") -> Iterator[str]:
    """One entry per line, the values of an inner mapping behind its name; long lines wrap."""
    for key, value in values.items():
        inner: dict[str, Any] = {}
        text = _text(value, limit)
        if isinstance(value, Mapping):
            inner = {k: v for k, v in value.items() if isinstance(v, Mapping)}
            flat = (f"{shown(k)}={_text(v, limit)}" for k, v in value.items() if k not in inner)
            text = ", ".join(flat)
        yield from textwrap.wrap(
            f"{shown(key)}: {text}".rstrip(),
            78,
            initial_indent=indent,
            subsequent_indent=f"{indent}    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        yield from _provenance_lines(inner, limit, f"{indent}  ")


def _text(value: Any, limit: int) -> str:
    if isinstance(value, list | tuple):
        parts = [_text(v, limit) for v in value[:limit]]
        inner = [isinstance(v, list | tuple) for v in value]
        more = f"/… ({len(value):,})" if len(value) > limit else ""
        listed = (f"({p})" if i else p for p, i in zip(parts, inner, strict=False))
        return ("/".join(listed) or "none") + more
    if isinstance(value, Mapping):
        return " ".join(f"{shown(k)}={_text(v, limit)}" for k, v in value.items()) or "none"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return shown(value)


def _listed(title: str, lines: Sequence[str], limit: int) -> Iterator[str]:
    if lines:
        yield f"{title} ({len(lines):,}):"
    yield from (f"  {line}" for line in lines[:limit])
    if len(lines) > limit:
        yield f"  and {len(lines) - limit:,} more"
