"""A check report as plain lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from cala.data.against import AgainstProtocol
from cala.data.check import CheckReport
from cala.files import counted, shown


def check_lines(report: CheckReport, limit: int = 5) -> list[str]:
    """At most `limit` names per finding; the report itself holds all of them."""
    return list(_lines(report, limit))


def _lines(report: CheckReport, limit: int) -> Iterator[str]:
    yield f"{shown(report.path)}: {report.dataset or 'no known image set'}"
    if report.error:
        yield f"  error: {report.error}"
        return
    yield (
        f"  {counted(report.classes, 'class')}, {report.train:,} training and {report.test:,} test "
        f"images{_resolution(report)}"
    )
    if report.protocol is not None:
        yield from _protocol_lines(report.protocol, limit)
    yield from _unreadable_lines(report, limit)
    yield from _duplicate_lines(report, limit)
    for note in report.notes[:limit]:
        yield f"  note: {note}"
    if len(report.notes) > limit:
        yield f"  and {len(report.notes) - limit:,} more notes"
    yield f"  {_verdict(report)}"


def _resolution(report: CheckReport) -> str:
    if not report.sizes:
        return ""
    if len(report.sizes) == 1:
        (height, width), _ = report.sizes[0]
        return f", {width}×{height} pixels"
    heights, widths = zip(*(size for size, _ in report.sizes), strict=True)
    return f", {min(widths)} to {max(widths)} pixels wide and {min(heights)} to {max(heights)} high"


def _protocol_lines(p: AgainstProtocol, limit: int) -> Iterator[str]:
    yield f"  protocol {p.name}: {p.base} base + {p.sessions} × ({p.way}-way {p.shot}-shot)"
    for kind, found, wanted in zip(
        ("base", "novel"), p.classes_found, p.classes_expected, strict=True
    ):
        images = ", ".join(
            f"{part.found:,} of {part.expected:,} {part.split} images"
            for part in p.parts
            if part.kind == kind
        )
        yield f"    {kind}: {found} of {wanted} classes, {images}"
    there = p.shots_expected - len(p.missing_shots)
    yield f"    published shots: {there} of {p.shots_expected}"
    for what, names in (
        ("classes without an image", p.missing),
        ("classes that the protocol does not have", p.unknown),
        ("missing shots", p.missing_shots),
    ):
        if names:
            yield f"    {what} ({len(names):,}): {_some(names, limit)}"
    for part in p.parts:
        if part.short:
            each = [f"{name} {n:,}" for name, n in part.short.items()]
            total = sum(part.short.values())
            yield (
                f"    missing {part.kind} {part.split} images ({total:,} in "
                f"{counted(len(each), 'class')}): {_some(each, limit)}"
            )
        elif part.found != part.expected:
            yield (
                f"    missing {part.kind} {part.split} images: "
                f"{max(part.expected - part.found, 0):,} in all"
            )


def _unreadable_lines(report: CheckReport, limit: int) -> Iterator[str]:
    if report.unreadable:
        yield f"  images that cannot be used ({len(report.unreadable):,}):"
    for bad in report.unreadable[:limit]:
        yield f"    {shown(bad.name)}: {bad.why}"
    if len(report.unreadable) > limit:
        yield f"    and {len(report.unreadable) - limit:,} more"


def _duplicate_lines(report: CheckReport, limit: int) -> Iterator[str]:
    if report.duplicates:
        classes = sum(d.across_classes for d in report.duplicates)
        parts = sum(d.across_parts for d in report.duplicates)
        yield (
            f"  the same image several times ({len(report.duplicates):,}): {classes:,} across "
            f"classes, {parts:,} across train and test"
        )
    for duplicate in report.duplicates[:limit]:
        pairs = zip(duplicate.names, duplicate.classes, strict=True)
        yield "    " + " = ".join(f"{name} ({shown(called)})" for name, called in pairs)
    if len(report.duplicates) > limit:
        yield f"    and {len(report.duplicates) - limit:,} more"
    if report.repeats:
        yield f"  further copies within their own class and part: {report.repeats:,}"


def _verdict(report: CheckReport) -> str:
    if not report.ok:
        return "not in order: mend or remove the images above, or skip them"
    if report.complete is None:
        return "in order"
    return "in order and complete" if report.complete else "in order, but only a part of the set"


def _some(names: tuple[str, ...] | list[str], limit: int) -> str:
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(shown(name) for name in names[:limit]) + more
