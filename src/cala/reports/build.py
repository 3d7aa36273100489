"""Making a report: read the runs, make the sections, write tables, figures and the page."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cala.errors import InputError
from cala.extras import needs
from cala.files import read_whole, reason, shown, stamp, write_text
from cala.records import find_runs
from cala.reports.runs import load_run

_FOLDERS = ("figures", "tables")


@dataclass
class Report:
    """page : report.html; notes : what is missing; files : beside the page, relative to it

    headlines : the main result of each data set in one sentence
    """

    page: Path
    notes: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    headlines: list[str] = field(default_factory=list)
    seconds: float = 0.0
    reused: bool = False


def make_report(paths: list[Path], out: Path, images: Path | None = None) -> Report:
    """Write the report of some runs into a folder; nothing is done if it is there already."""
    start = time.monotonic()
    runs = find_runs(paths)
    digest = _digest(runs, images)
    before = _read_manifest(out)
    files = [str(f) for f in before.get("files", [])]
    if before.get("inputs") == digest and all((out / f).is_file() for f in files):
        notes, headlines = (list(before.get(key, [])) for key in ("notes", "headlines"))
        return Report(out / "report.html", notes, files, headlines, reused=True)
    with needs("report", what="a report"):
        from cala.reports.assemble import assemble
    try:
        for name in _FOLDERS:
            (out / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = f"the folder {shown(out)} cannot be created ({reason(error)})"
        raise InputError(why, "choose another --out", field="out") from error
    notes, files_now, headlines = assemble([load_run(path) for path in runs], out, images)
    report = Report(out / "report.html", notes, files_now, headlines)
    for stale in set(files) - set(report.files):
        folder = Path(stale).parent  # never outside, whatever report.json says
        if str(folder) in _FOLDERS and not (out / folder).is_symlink():
            (out / stale).unlink(missing_ok=True)
    report.seconds = time.monotonic() - start
    manifest = {"inputs": digest, "files": files_now, "notes": notes, "headlines": headlines}
    write_text(out / "report.json", json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")
    return report


def _digest(runs: list[Path], images: Path | None) -> str:
    """What a report depends on: runs, images and the code that makes it."""
    found = hashlib.sha256(str(images).encode())
    names = ("config.json", "records.jsonl", "costs.json", "headroom.json", "artifacts/*")
    inputs = [file for path in runs for name in names for file in sorted(path.glob(name))]
    if images is not None:
        inputs += sorted(images.rglob("*"))
    for file in inputs:
        if file.is_file():
            found.update(f"{file}{stamp(file)}".encode())
    here = Path(__file__).parent
    for file in sorted([*here.rglob("*"), *here.parent.glob("*.py")]):
        if file.suffix in (".py", ".html", ".css", ".json", ".mplstyle"):
            found.update(file.read_bytes())
    return found.hexdigest()


def _read_manifest(out: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_whole(out / "report.json"))
    except (OSError, ValueError, RecursionError):
        return {}
    lists = ("files", "notes", "headlines")
    fit = isinstance(found, dict) and all(isinstance(found.get(key), list) for key in lists)
    return found if fit else {}
