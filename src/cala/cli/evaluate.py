"""`cala eval`: how well a model does on photos it has not learned from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cala.cli.options import with_options
from cala.cli.photos import (
    DETAILS,
    MODEL,
    REJECT,
    SKIP_BAD,
    STRICT,
    LoadOptions,
    about_left_out,
    bad_photo,
    note,
    percent,
    write_csv,
)
from cala.files import counted, preview, shown

if TYPE_CHECKING:
    from cala.data.formats import LeftOut
    from cala.model.evaluation import Evaluation

CSV = ("image", "class", "stranger", "answer", "best", "probability", "right")


@with_options
def evaluate(
    model: Path = MODEL,
    photos: Path = typer.Argument(..., help="A folder with one folder of photos per class."),
    reject: float | None = REJECT,
    mistakes: int = typer.Option(10, min=0, help="How many confusions and photos to list."),
    skip_bad: bool = SKIP_BAD,
    strict: bool = STRICT,
    table: Path | None = typer.Option(None, "--csv", help="Write the answer for each photo there."),
    details: bool = DETAILS,
    *,
    options: LoadOptions,
) -> None:
    """Test a model on labelled photos that it has not learned from.

    A folder named like a class of the model tests that class. All other folders are strangers: they
    test whether the model answers 'unknown'.

    Example: cala eval birds photos/test/
    """
    from cala.model.photos import labelled_files, with_readable
    from cala.model.version import plain_name
    from cala.progress import counting

    opened = options.open(model)
    notes: list[str] = []
    left_out: list[LeftOut] = []
    paths, names = labelled_files(photos, "test", notes, left_out)
    notes += about_left_out(left_out, len(paths), strict)
    if not options.as_json:
        for text in notes:
            note(text)
    label = dict(zip(paths, names, strict=True))
    with counting("looking at photos", len(paths), options.quiet) as count:
        found, bad = with_readable(
            paths,
            lambda good: opened.evaluate(
                good, [label[path] for path in good], reject=reject, advance=count
            ),
        )
    if found is None or (bad and (strict or not skip_bad)):
        path, reason = bad[0]
        raise bad_photo(f"{shown(path)}: {reason}")
    if table is not None:
        write_csv(
            table, CSV, ([*map(str, vars(one).values()), str(one.right)] for one in found.results)
        )
    if options.as_json:
        summary = {"model": str(model), "version": opened.version, **found.to_json()}
        typer.echo(json.dumps({**summary, "notes": notes}))
        return
    for path, reason in bad:
        note(f"left out {shown(path)}: {reason}")
    if not opened.current.can_reject():
        note("the model cannot call anything unknown: fit it again, with more photos")
    former = opened.current.former
    for name, now in sorted(
        (n, former[plain_name(n)]) for n in {*names} if plain_name(n) in former
    ):
        note(f"'{shown(name)}' is called '{shown(now)}' now")
    own = {*opened.classes, *former}
    strangers = sorted({name for name in names if plain_name(name) not in own})
    _print(found, mistakes, strangers, details)
    _print_wrong(found, mistakes)


def _print(found: Evaluation, most: int, strangers: list[str], details: bool) -> None:
    from cala.model.estimate import FEWEST, Share

    if found.learned_from:
        count = found.learned_from
        note(f"the model learned from {count} of these photos: its results on them are too good")
    answered = Share(round(found.answered * found.photos) if found.photos else 0, found.photos)
    rows = [
        ("known classes", found.share("known"), ""),
        ("new classes", found.share("new"), ""),
        ("all", found.share(), ""),
        ("as answered", answered, ", as 'unknown' counts as wrong"),
    ]
    if answered == found.share():
        del rows[-1]
    for text, share, about in rows:
        if share.photos:
            rate = f", {share}" * share.tells  # a rate of few photos says nothing
            typer.echo(
                f"{text:14} {share.right:,} of {counted(share.photos, 'photo')} right{rate}{about}"
            )
    if details and found.hm == found.hm:
        typer.echo(f"{'harmonic mean':14} {percent(found.hm)} of known and new classes")
    if 0 < found.photos < FEWEST:
        note(f"{counted(found.photos, 'photo')}: too few to tell, others may give another result")
    if not found.photos:
        note("no folder is named like a class of the model: all of them are strangers")
    _print_unknown(found, strangers, details)
    wrong = found.mistakes(most)
    if wrong:
        typer.echo("\nmistaken most often:")
    for mistake in wrong:
        of = next(c.photos for c in found.classes if c.name == mistake.true)
        true, other = shown(mistake.true), shown(mistake.taken_for)
        typer.echo(f"  {true} for {other}: {mistake.photos} of {of}")


def _print_wrong(found: Evaluation, most: int) -> None:
    wrong = found.wrong()
    if wrong and most:
        typer.echo("\nwrong photos:")
    for one in wrong[:most]:
        taken = "called unknown" if one.answer == "unknown" else f"taken for {shown(one.answer)}"
        truth = "a stranger" if one.stranger else shown(one.label)
        typer.echo(f"  {shown(one.image)}: {truth}, {taken}")
    if most and len(wrong) > most:
        typer.echo(f"  and {len(wrong) - most:,} more; --csv FILE lists them all")


def _print_unknown(found: Evaluation, strangers: list[str], details: bool) -> None:
    judged = found.rejections
    parts = {"known": judged.known, "new": judged.new}
    shares = [
        f"{_counts(p, found.counted(kind))} of {kind} classes"
        for kind, p in parts.items()
        if p == p
    ]
    if shares:
        rate = f"{100 * judged.rate:.4g} %"
        typer.echo(f"\ncalled unknown by mistake: {', '.join(shares)} (allowed: {rate})")
    if judged.strange_photos:
        typer.echo(f"strangers ({preview(strangers)}):")
        typer.echo(f"  {_counts(judged.strange, judged.strange_photos)} called unknown")
    if details and judged.auroc == judged.auroc:
        passing = percent(judged.fpr95)
        line = f"{passing} of strangers pass where 95 % of the others do (AUROC {judged.auroc:.3f})"
        typer.echo(f"  {line}")


def _counts(rate: float, photos: int) -> str:
    """How many of the photos, and the rate if they are enough for one."""
    from cala.model.estimate import Share

    share = Share(round(rate * photos), photos)
    return f"{share.right:,} of {counted(photos, 'photo')}" + f" ({percent(rate)})" * share.tells
