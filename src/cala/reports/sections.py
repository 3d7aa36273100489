"""All sections of one study, in the order of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cala.reports.figures.classes import classes
from cala.reports.figures.confusion import confusion
from cala.reports.figures.curves import curves
from cala.reports.figures.gamma import gamma_curve
from cala.reports.figures.rates import rates
from cala.reports.figures.reliability import reliability_figure
from cala.reports.figures.similarity import Relation, relation, similarity
from cala.reports.figures.softmax import softmax
from cala.reports.figures.swallowed import swallowed_figure
from cala.reports.figures.tradeoff import tradeoff
from cala.reports.figures.tsne import tsne
from cala.reports.images import Photos, examples
from cala.reports.quoted import is_quoted_set
from cala.reports.section import Section, attempt
from cala.reports.study import Study
from cala.reports.tables.calibration import calibration_table
from cala.reports.tables.classes import class_gains, gains_table
from cala.reports.tables.confused import pairs_table, swallowed, swallowed_table
from cala.reports.tables.costs import costs_table
from cala.reports.tables.gamma import gamma_sweep, gamma_table
from cala.reports.tables.headroom import WORDS, headroom_table
from cala.reports.tables.plug import plug_pairs, plug_table
from cala.reports.tables.protocol import protocol_table
from cala.reports.tables.rates import quoted_rates, rate_table
from cala.reports.tables.sessions import quoted_table, sessions_table
from cala.reports.tables.summary import difference_table, summary_table


def make_sections(
    study: Study, relations: list[tuple[str, Relation]], photos: Photos | None, notes: list[str]
) -> Iterator[Section]:
    """Sections that have something to show; what cannot be made goes to `notes`."""
    makers: list[tuple[str, Callable[[Section], None]]] = [
        ("Accuracy in each session", lambda s: _accuracy(s, study)),
        ("Confusion between base and novel", lambda s: _rates(s, study)),
        ("Base/novel trade-off", lambda s: s.show(tradeoff(study))),
        ("Headroom", lambda s: _headroom(s, study)),
        ("γ ablation", lambda s: _gamma(s, study)),
        ("Plug and play", lambda s: _plug(s, study)),
        ("Probability per class", lambda s: _with_artifact(s, study, softmax)),
        ("Confusion matrices", lambda s: _confusion(s, study)),
        ("Swallowed classes", lambda s: _swallowed(s, study, photos)),
        ("Single classes", lambda s: _classes(s, study)),
        ("Decision regions", lambda s: _with_artifact(s, study, tsne)),
        ("β and similarity", lambda s: _similarity(s, study, relations)),
        ("Calibration", lambda s: _calibration(s, study)),
        ("Time and memory", lambda s: _costs(s, study)),
        ("How this was measured", lambda s: _measured(s, study)),
    ]
    for title, make in makers:
        section = Section(anchor=_anchor(title), title=title)
        attempt(title, lambda make=make, section=section: make(section), notes)  # type: ignore[misc]
        if not section.empty:
            yield section


def _accuracy(section: Section, study: Study) -> None:
    section.tables.append(sessions_table(study))
    section.show(curves(study))
    found = difference_table(study)
    section.tables += [found] if found else []
    if study.results.random_draws() and "canonical" in study.results.draws:
        title = "The published (canonical) draw"
        section.folded.append(summary_table(study, ["canonical"], "canonical", title))
    if not is_quoted_set("sessions", study.dataset):
        section.folded.append(quoted_table())


def _rates(section: Section, study: Study) -> None:
    if study.sessions < 1:
        section.words.append("There is no session after the base session, so no novel image.")
        return
    section.show(rates(study))
    section.tables += [rate_table(study, "fpr"), rate_table(study, "fpr_mirror")]
    if not is_quoted_set("fpr", study.dataset):
        section.folded.append(quoted_rates())


def _headroom(section: Section, study: Study) -> None:
    table = headroom_table(study)
    if table is not None:
        section.words += WORDS
        section.tables.append(table)


def _gamma(section: Section, study: Study) -> None:
    sweep = gamma_sweep(study)
    if sweep is None:
        section.words.append("No run here varies γ: `cala ablate gamma` makes them.")
        return
    section.tables.append(gamma_table(study, sweep))
    section.show(gamma_curve(sweep))


def _plug(section: Section, study: Study) -> None:
    if not plug_pairs(study):
        section.words.append(
            "No method was run both with and without an adapter in the same metric. For example: "
            "--methods nearest-mean,nearest-mean+cala."
        )
    section.tables.append(plug_table(study))


def _with_artifact(section: Section, study: Study, draw: Callable[..., object]) -> None:
    if study.focus in study.artifacts:
        section.show(draw(study, study.focus))  # type: ignore[arg-type]


def _confusion(section: Section, study: Study) -> None:
    if study.focus in study.artifacts:
        section.show(confusion(study, study.focus))
        section.tables.append(pairs_table(study, study.focus))


def _swallowed(section: Section, study: Study, photos: Photos | None) -> None:
    artifact = study.artifacts.get(study.focus)
    if artifact is None or artifact.n_base == artifact.n_classes:
        return
    section.show(swallowed_figure(study, study.focus))
    section.tables.append(swallowed_table(study, study.focus))
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
        section.show(classes(study, gains))
        section.tables.append(gains_table(study, gains))


def _similarity(section: Section, study: Study, relations: list[tuple[str, Relation]]) -> None:
    artifact = study.artifacts.get(study.focus)
    found = relation(artifact) if artifact else None
    if found is not None:
        section.show(similarity(study, study.focus, found, relations))
    elif artifact is not None and study.adapter(study.focus):
        section.words.append(
            f"{study.focus} gives every novel class the same β, or there is only one: no relation "
            "can be shown."
        )


def _calibration(section: Section, study: Study) -> None:
    if study.focus in study.artifacts:
        section.show(reliability_figure(study, study.focus))
    table = calibration_table(study)
    section.tables += [table] if table else []


def _costs(section: Section, study: Study) -> None:
    table = costs_table(study)
    section.tables += [table] if table else []


def _measured(section: Section, study: Study) -> None:
    for i, run in enumerate(study.runs):
        name = "protocol" if len(study.runs) == 1 else f"protocol-{i + 1}"
        target = section.tables if i == 0 else section.folded
        target.append(protocol_table(run, name))


def _anchor(title: str) -> str:
    names = {"γ": "gamma", "β": "beta"}
    words = "".join(names.get(c, c if c.isalnum() else " ") for c in title.lower())
    return "-".join(words.split())
