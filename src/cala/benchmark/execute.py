"""A whole run: cells, records, summary, tables and artifacts in one folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cala.benchmark.artifacts import keep_artifact
from cala.benchmark.config import RunConfig, changes_encoder
from cala.benchmark.costs import COSTS_SCHEMA, summarise_costs
from cala.benchmark.encoder_sessions import SessionCache, check_images
from cala.benchmark.headroom import keep_headroom
from cala.benchmark.notes import SILENT, RunNote, Watch
from cala.benchmark.run_folder import RunFolder
from cala.benchmark.runner import CellPlan, Cells, Fit, Fitted, fit_configured, run_cells
from cala.benchmark.sources import host_of
from cala.benchmark.tables import draws_csv, results_table, session_notes
from cala.benchmark.task import BenchTask
from cala.files import counted, write_text
from cala.records import finished
from cala.results import Results
from cala.storage import locked_folder
from cala.table import latex, markdown


@dataclass(frozen=True)
class FinishedRun:
    """The results of a run folder, and the configuration of everything in it."""

    results: Results
    config: dict[str, Any]

    @property
    def full_sessions(self) -> bool:
        return bool(self.config.get("full_sessions"))

    def as_json(self, reference: str | None = None) -> dict[str, Any]:
        """The content of `summary.json`; reference : as for `Results.as_json`"""
        return {"schema": 1, "config": self.config, **self.results.as_json(reference)}


def execute(
    config: RunConfig,
    task: BenchTask,
    *,
    out: Path,
    sessions: Path | None = None,
    fit: Fit = fit_configured,
    cells: Cells = run_cells,
    watch: Watch = SILENT,
) -> FinishedRun:
    """Run what is not there yet, and write everything that follows from the records.

    sessions : folder of session logits that this run shares with others; its own by default
    fit : makes the head of a method and seed
    cells : runs cells, in this process or elsewhere; it writes nothing itself
    """
    for method in config.methods:
        if changes_encoder(method):
            check_images(host_of(method), task.source_of(method))
    for name in config.draws:  # raises for what cannot be drawn, before anything is written
        task.draw(name)
    resolved = config.resolved(task.protocol, task.default, task.per_host)
    with locked_folder(out):
        folder = RunFolder(out, resolved)
        if folder.unreadable:
            lines = counted(folder.unreadable, "line")
            text = f"{lines} of records.jsonl cannot be read; such cells run again"
            watch.note(RunNote("unreadable_lines", text))
        done, wanted = finished(folder.records), config.cells
        cache = SessionCache(sessions or out / "courses", config.full_sessions)
        plan = CellPlan(config, task, cache, done, fit)
        watch.advance(len(wanted & done), len(wanted))
        for found in cells(plan, watch):
            if isinstance(found, Fitted):
                keep_artifact(out / "artifacts", plan, found, watch)
                continue
            folder.append(found.cost, found.records)
            watch.advance(len(wanted & finished(folder.records)), len(wanted))
        keep_headroom(out, config, task, watch.status)
        folder.put_in_order()
        run = FinishedRun(Results(folder.records), folder.config)
        write_summary(out, run)
        costs = summarise_costs(
            folder.costs, run.results.methods, folder.config["draws"], finished(folder.records)
        )
        content = {"schema": COSTS_SCHEMA, "cost": costs}
        write_text(out / "costs.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return run


def write_summary(out: Path, run: FinishedRun) -> None:
    """`summary.json` and the tables; made from records alone."""
    text = json.dumps(run.as_json(), indent=1, ensure_ascii=False)
    write_text(out / "summary.json", text + "\n")
    results, config = run.results, run.config
    random = results.random_draws()
    draws = random or results.draws
    what = f"Mean of {len(random)} random draws" if random else "Canonical draw"
    over = f" ± 95 % interval {results.covered(draws)}." if len(draws) > 1 else ""
    notes = session_notes(results, draws, run.full_sessions)
    caption = " ".join([f"{what}, {config.get('split')} images, percent.{over}", *notes])
    table = results_table(results, draws, caption)
    write_text(out / "table.md", markdown(table))
    write_text(out / "table.tex", latex(table))
    write_text(out / "table.csv", draws_csv(results))
