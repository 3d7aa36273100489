"""All sections of one study, in the order of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from cala.files import reason
from cala.reports import class_figures, class_tables, result_figures, result_tables, run_tables
from cala.reports.decision_regions import tsne
from cala.reports.drawing import Picture
from cala.reports.example_images import Example, Photos, find_examples
from cala.reports.paper_numbers import elsewhere
from cala.reports.similarity import Relation, relation, similarity_figure
from cala.reports.study import Study
from cala.table import Table

T = TypeVar("T")


@dataclass(frozen=True)
class Folded:
    """A table that is closed at first."""

    table: Table


Item = str | Picture | Table | Folded | list[Example] | None


@dataclass(frozen=True)
class Section:
    """The items under one heading, in order."""

    title: str
    items: list[Item]

    @property
    def anchor(self) -> str:
        names = {"γ": "gamma", "β": "beta"}
        words = "".join(names.get(c, c if c.isalnum() else " ") for c in self.title.lower())
        return "-".join(words.split())


def attempt(what: str, make: Callable[[], T], notes: list[str]) -> T | None:
    """`make()`, or a note where it fails: one figure must not take the others with it."""
    try:
        return make()
    except Exception as error:
        notes.append(f"{what} could not be made ({type(error).__name__}: {reason(error)}).")
        return None


def make_sections(
    study: Study, relations: list[tuple[str, Relation]], photos: Photos | None, notes: list[str]
) -> Iterator[Section]:
    """Sections that have something to show; what cannot be made goes to `notes`."""
    makers: dict[str, Callable[[], Iterable[Item]]] = {
        "Accuracy in each session": lambda: _accuracy(study),
        "Confusion between base and novel": lambda: _rates(study),
        "Base/novel trade-off": lambda: [result_figures.tradeoff(study)],
        "Headroom": lambda: _headroom(study),
        "γ ablation": lambda: _gamma(study),
        "Plug and play": lambda: _plug(study),
    }
    method = study.focus
    if method in study.artifacts:
        makers |= {
            "Probability per class": lambda: [class_figures.softmax(study, method)],
            "Confusion matrices": lambda: [
                class_figures.confusion(study, method),
                class_tables.pairs_table(study, method),
            ],
            "Swallowed classes": lambda: _swallowed(study, method, photos),
            "Single classes": lambda: _classes(study),
            "Decision regions": lambda: [tsne(study, method)],
            "β and similarity": lambda: _similarity(study, method, relations),
            "Calibration": lambda: [
                class_figures.reliability_figure(study, method),
                class_tables.calibration_table(study),
            ],
        }
    makers |= {
        "Time and memory": lambda: [run_tables.costs_table(study)],
        "How this was measured": lambda: _measured(study),
    }
    for title, make in makers.items():
        items = attempt(title, lambda make=make: list(make()), notes)  # type: ignore[misc]
        if shown := [item for item in items or () if item is not None]:
            yield Section(title, shown)


def _accuracy(study: Study) -> Iterator[Item]:
    yield result_figures.curves(study)
    yield result_tables.sessions_table(study)
    yield result_tables.difference_table(study)
    if study.results.random_draws() and "canonical" in study.results.draws:
        title = "The published (canonical) draw"
        yield Folded(result_tables.summary_table(study, ["canonical"], "canonical", title))
    yield _elsewhere(study, "sessions")


def _rates(study: Study) -> Iterator[Item]:
    if study.sessions < 1:
        yield "There is no session after the base session, so no novel image."
        return
    yield result_figures.rates(study)
    yield result_tables.rate_table(study, "fpr")
    yield result_tables.rate_table(study, "fpr_mirror")
    yield _elsewhere(study, "fpr")


def _headroom(study: Study) -> Iterator[Item]:
    table = run_tables.headroom_table(study)
    if table is not None:
        yield from run_tables.ORACLES_MEAN
        yield table


def _gamma(study: Study) -> Iterator[Item]:
    sweep = result_tables.gamma_sweep(study)
    if sweep is None:
        yield "No run here varies γ; `cala ablate gamma` makes such runs."
        return
    yield result_figures.gamma_curve(sweep)
    yield result_tables.gamma_table(study, sweep)
    yield _elsewhere(study, "gamma")


def _plug(study: Study) -> Iterator[Item]:
    table = result_tables.plug_table(study)
    if table.rows:
        yield table
    else:
        yield (
            "No method was run both with and without an adapter in the same metric. For example: "
            "`--methods nearest-mean,nearest-mean+cala`."
        )
    yield _elsewhere(study, "plug")


def _elsewhere(study: Study, part: str) -> Folded | None:
    table = elsewhere(part, study.dataset)
    return Folded(table) if table else None


def _swallowed(study: Study, method: str, photos: Photos | None) -> Iterator[Item]:
    artifact = study.artifacts[method]
    if artifact.n_base == artifact.n_classes:
        return
    yield class_figures.swallowed_figure(study, method)
    yield class_tables.swallowed_table(study, method)
    if photos is not None:
        found = find_examples(photos, class_tables.swallowed(artifact), artifact.names())
        yield found or f"{photos.folder.name} has no folder named like one of these classes."


def _classes(study: Study) -> Iterator[Item]:
    gains = class_tables.class_gains(study)
    if gains is not None:
        yield class_figures.classes(study, gains)
        yield class_tables.gains_table(study, gains)


def _similarity(study: Study, method: str, others: list[tuple[str, Relation]]) -> Iterator[Item]:
    found = relation(study)
    if found is not None:
        yield similarity_figure(study, method, found, others)
    elif study.adapter(method):
        yield f"{method} gives every novel class the same β, or there is only one."


def _measured(study: Study) -> Iterator[Item]:
    for i, run in enumerate(study.runs):
        table = run_tables.protocol_table(
            run, f"protocol-{i + 1}" if study.runs[1:] else "protocol"
        )
        yield Folded(table) if i else table
