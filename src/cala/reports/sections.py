"""All sections of one study, in the order of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from cala.files import reason
from cala.reports.class_figures import (
    classes,
    confusion,
    reliability_figure,
    softmax,
    swallowed_figure,
)
from cala.reports.class_tables import (
    calibration_table,
    class_gains,
    gains_table,
    pairs_table,
    swallowed,
    swallowed_table,
)
from cala.reports.decision_regions import tsne
from cala.reports.drawing import Picture
from cala.reports.example_images import Example, Photos, examples
from cala.reports.paper_numbers import (
    in_paper,
    paper_gamma,
    paper_plug,
    paper_rates,
    paper_sessions,
)
from cala.reports.result_figures import curves, gamma_curve, rates, tradeoff
from cala.reports.result_tables import (
    difference_table,
    gamma_sweep,
    gamma_table,
    plug_pairs,
    plug_table,
    rate_table,
    sessions_table,
    summary_table,
)
from cala.reports.run_tables import WORDS, costs_table, headroom_table, protocol_table
from cala.reports.similarity import Relation, relation, similarity
from cala.reports.study import Study
from cala.table import Table

T = TypeVar("T")


@dataclass
class Section:
    """Words, pictures and tables under one heading.

    anchor : its id in the page; folded : tables that are closed at first
    """

    anchor: str
    title: str
    words: list[str] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    folded: list[Table] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)

    def show(self, *parts: Picture | Table | None) -> None:
        """Add what there is of some pictures and tables."""
        for part in parts:
            if isinstance(part, Picture):
                self.pictures.append(part)
            elif part is not None:
                self.tables.append(part)

    @property
    def empty(self) -> bool:
        return not (self.words or self.pictures or self.tables or self.folded)


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
    makers: dict[str, Callable[[Section], None]] = {
        "Accuracy in each session": lambda s: _accuracy(s, study),
        "Confusion between base and novel": lambda s: _rates(s, study),
        "Base/novel trade-off": lambda s: s.show(tradeoff(study)),
        "Headroom": lambda s: _headroom(s, study),
        "γ ablation": lambda s: _gamma(s, study),
        "Plug and play": lambda s: _plug(s, study),
    }
    if study.focus in study.artifacts:
        makers |= {
            "Probability per class": lambda s: s.show(softmax(study, study.focus)),
            "Confusion matrices": lambda s: s.show(
                confusion(study, study.focus), pairs_table(study, study.focus)
            ),
            "Swallowed classes": lambda s: _swallowed(s, study, photos),
            "Single classes": lambda s: _classes(s, study),
            "Decision regions": lambda s: s.show(tsne(study, study.focus)),
            "β and similarity": lambda s: _similarity(s, study, relations),
            "Calibration": lambda s: s.show(
                reliability_figure(study, study.focus), calibration_table(study)
            ),
        }
    makers |= {
        "Time and memory": lambda s: s.show(costs_table(study)),
        "How this was measured": lambda s: _measured(s, study),
    }
    for title, make in makers.items():
        section = Section(anchor=_anchor(title), title=title)
        attempt(title, lambda make=make, section=section: make(section), notes)  # type: ignore[misc]
        if not section.empty:
            yield section


def _accuracy(section: Section, study: Study) -> None:
    section.show(sessions_table(study), curves(study), difference_table(study))
    if study.results.random_draws() and "canonical" in study.results.draws:
        title = "The published (canonical) draw"
        section.folded.append(summary_table(study, ["canonical"], "canonical", title))
    _fold_paper(section, study, "sessions", paper_sessions)


def _rates(section: Section, study: Study) -> None:
    if study.sessions < 1:
        section.words.append("There is no session after the base session, so no novel image.")
        return
    section.show(rates(study), rate_table(study, "fpr"), rate_table(study, "fpr_mirror"))
    _fold_paper(section, study, "fpr", paper_rates)


def _headroom(section: Section, study: Study) -> None:
    table = headroom_table(study)
    if table is not None:
        section.words += WORDS
        section.show(table)


def _gamma(section: Section, study: Study) -> None:
    sweep = gamma_sweep(study)
    if sweep is None:
        section.words.append("No run here varies γ; `cala ablate gamma` makes such runs.")
        return
    section.show(gamma_table(study, sweep), gamma_curve(sweep))
    _fold_paper(section, study, "gamma", paper_gamma)


def _plug(section: Section, study: Study) -> None:
    if plug_pairs(study) or in_paper("plug", study.dataset):
        section.show(plug_table(study))
    else:
        section.words.append(
            "No method was run both with and without an adapter in the same metric. For example: "
            "`--methods nearest-mean,nearest-mean+cala`."
        )
    _fold_paper(section, study, "plug", paper_plug)


def _fold_paper(section: Section, study: Study, part: str, make: Callable[[], Table]) -> None:
    """The paper's table on another data set, closed at first."""
    if not in_paper(part, study.dataset):
        section.folded.append(make())


def _swallowed(section: Section, study: Study, photos: Photos | None) -> None:
    artifact = study.artifacts[study.focus]
    if artifact.n_base == artifact.n_classes:
        return
    section.show(swallowed_figure(study, study.focus), swallowed_table(study, study.focus))
    if photos is not None:
        section.examples = examples(photos, swallowed(artifact), artifact.names())
        if not section.examples:
            section.words.append(
                f"No folder below {photos.folder.name} is named like one of these classes, so no "
                "example image is shown."
            )


def _classes(section: Section, study: Study) -> None:
    gains = class_gains(study)
    if gains is not None:
        section.show(classes(study, gains), gains_table(study, gains))


def _similarity(section: Section, study: Study, relations: list[tuple[str, Relation]]) -> None:
    found = relation(study.artifacts[study.focus])
    if found is not None:
        section.show(similarity(study, study.focus, found, relations))
    elif study.adapter(study.focus):
        section.words.append(
            f"{study.focus} gives every novel class the same β, or there is only one: no relation "
            "can be shown."
        )


def _measured(section: Section, study: Study) -> None:
    for i, run in enumerate(study.runs):
        name = "protocol" if len(study.runs) == 1 else f"protocol-{i + 1}"
        (section.folded if i else section.tables).append(protocol_table(run, name))


def _anchor(title: str) -> str:
    names = {"γ": "gamma", "β": "beta"}
    words = "".join(names.get(c, c if c.isalnum() else " ") for c in title.lower())
    return "-".join(words.split())
