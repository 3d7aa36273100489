"""A whole run: cells, records, summary, tables and artifacts in one folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cala.benchmark.artifacts import describe_artifact, make_artifact, save_artifact
from cala.benchmark.config import RunConfig
from cala.benchmark.costs import SCHEMA as COSTS_SCHEMA
from cala.benchmark.costs import summarise
from cala.benchmark.course_files import Courses
from cala.benchmark.courses import check_images
from cala.benchmark.draws import make_draw
from cala.benchmark.folder import RunFolder
from cala.benchmark.headroom_file import keep_headroom
from cala.benchmark.runner import Cells, Fit, run_cells, say_session
from cala.benchmark.sources import Own, Source, host_of, source_of
from cala.benchmark.tables import draws_csv, results_table, session_notes
from cala.benchmark.threads import one_thread
from cala.data.protocol import Protocol
from cala.files import counted, write_text
from cala.heads import HEADS, Head
from cala.records import finished
from cala.results import Results
from cala.table import latex, markdown


def execute(
    config: RunConfig,
    usual: Source,
    protocol: Protocol,
    *,
    own: Own | None = None,
    out: Path,
    courses: Path | None = None,
    fit: Fit | None = None,
    cells: Cells = run_cells,
    progress: Callable[[str], None] = lambda line: None,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> Results:
    """Run what is not there yet, and write everything that follows from the records.

    fit, own : as for `run_cells`
    cells : what plays cells, in this process or elsewhere; it writes nothing itself
    courses : folder of courses that this run shares with others; its own by default
    advance : called with the number of finished cells and of all cells
    """
    for method in config.methods:
        if HEADS[host_of(method)].traits.changes_encoder:
            check_images(host_of(method), source_of(method, usual, own or {}))
    data = usual.data
    for name in config.draws:  # what cannot be drawn is said before anything is written
        make_draw(name, protocol, data.y_train, data.learnable())
    own = own or {}
    with RunFolder(out, config.resolved(protocol, usual, own)) as folder:
        if folder.unreadable:
            lines = counted(folder.unreadable, "line")
            progress(f"note: {lines} of records.jsonl cannot be read; such cells run again")
        done = finished(folder.records)
        wanted = config.cells
        played = Courses(courses or out / "courses", config.full_sessions)
        advance(len(wanted & done), len(wanted))

        def keep_artifact(method: str, seed: int, head: Head) -> None:
            path = out / "artifacts" / f"{method}.safetensors"
            if seed == config.seeds[0] and not path.exists():
                mine = source_of(method, usual, own)
                _save(path, head, config, method, mine, protocol, played, progress)

        played_cells = cells(
            config,
            usual,
            protocol,
            own=own,
            courses=played,
            done=done,
            fit=fit,
            fitted=keep_artifact,
            costs=folder.append_cost,
            progress=progress,
        )
        for cell in played_cells:
            folder.append(cell)
            advance(len(wanted & finished(folder.records)), len(wanted))
        keep_headroom(out, config, usual, own, protocol, progress)
        folder.put_in_order()
        results = Results(folder.records)
        write_summary(out, folder.config, results)
        draws = folder.config["draws"]
        found = summarise(folder.costs, results.methods, draws, finished(folder.records))
        costs = {"schema": COSTS_SCHEMA, "cost": found}
        write_text(out / "costs.json", json.dumps(costs, indent=1, ensure_ascii=False) + "\n")
    return results


def write_summary(out: Path, config: dict[str, object], results: Results) -> None:
    """`summary.json` and the tables; made from records alone."""
    summary = {"schema": 1, "config": config, **results.as_json()}
    write_text(out / "summary.json", json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    random = results.random_draws()
    draws = random or results.draws
    what = f"Mean of {len(random)} random draws" if random else "Canonical draw"
    over = f" ± 95 % interval {results.covered(draws)}." if len(draws) > 1 else ""
    notes = session_notes(results, draws, bool(config.get("full_sessions")))
    caption = " ".join([f"{what}, {config.get('split')} images, percent.{over}", *notes])
    table = results_table(results, draws, caption)
    write_text(out / "table.md", markdown(table))
    write_text(out / "table.tex", latex(table))
    write_text(out / "table.csv", draws_csv(results))


def _save(
    path: Path,
    head: Head,
    config: RunConfig,
    method: str,
    source: Source,
    protocol: Protocol,
    courses: Courses,
    progress: Callable[[str], None],
) -> None:
    data, names = source.data, config.draws_of(method)
    name = config.shown_draw(method)
    draws = [make_draw(d, protocol, data.y_train, data.learnable()) for d in names]
    meta = {
        **describe_artifact(method, head, data, protocol, draws),
        "method": method,
        "draw": name,
        "seed": config.seeds[0],
        "split": config.split,
        "n_base": protocol.base,
    }
    shown = draws[names.index(name)]
    said = partial(say_session, progress, f"{method}, seed {config.seeds[0]}: {name}")
    with one_thread():
        course = courses.of(method, head, source, protocol, shown, config.seeds[0], said)
        found = make_artifact(head, data, protocol, shown, draws, course)
    save_artifact(path, found, meta)
