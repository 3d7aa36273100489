"""Tables from artifacts, recomputed by hand: which side, which axis, which session."""

from __future__ import annotations

import numpy as np
import pytest

from cala.reports.build import make_report
from cala.reports.class_tables import artifact_reliability, class_gains, pairs_table, swallowed
from cala.reports.paper_numbers import in_paper
from cala.reports.phrases import over_draws
from cala.reports.result_tables import gamma_sweep
from cala.reports.runs import Artifact, load_run
from cala.reports.study import make_studies
from reports.make_run import make_run

#: Two base classes, one novel: class 2 loses 3 of 4 images to class 1.
AFTER = np.array([[4, 0, 1], [0, 9, 1], [0, 3, 1]])


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    run = make_run(tmp_path_factory.mktemp("tables") / "run", draws=2)
    (found,) = make_studies([load_run(run)])
    return found


@pytest.fixture
def small(study):
    found = Artifact(2, {"confusion": AFTER}, {"class_names": ["ant", "bee", "cat"]})
    study.artifacts["small"] = found
    yield found
    del study.artifacts["small"]


def test_swallowed_are_rows_of_novel_classes(small):
    (found,) = swallowed(small)
    assert (found.column, found.share, found.by) == (2, 0.75, [(1, 0.75)])


def test_pairs_name_true_class_then_what_it_is_taken_for(small, study):
    rows = [
        [c.text or c.value for c in row.cells[:3]] + [row.cells[4].value]
        for row in pairs_table(study, "small").rows
    ]
    assert rows == [
        ["cat", "bee", "novel → base", 75.0],
        ["ant", "cat", "base → novel", 20.0],
        ["bee", "cat", "base → novel", 10.0],
    ]


def test_class_gains_are_after_minus_before(study):
    gains = class_gains(study)
    artifact = study.artifacts[study.focus]
    for column in range(artifact.n_classes):
        rows = artifact["labels"] == column
        before, after = (
            100 * (artifact[f"predicted_{when}"][rows] == column).mean()
            for when in ("before", "after")
        )
        assert gains.gain[column] == pytest.approx(after - before)


def test_calibration_of_base_images_is_theirs(study):
    artifact = study.artifacts[study.focus]
    counts = [artifact_reliability(artifact, "after", s).count.sum() for s in ("base", "novel")]
    assert counts == [12 * 12, 6 * 12]


def test_gamma_from_an_artifact(study):
    artifact = study.artifacts[study.focus]
    accuracy = 100 * artifact["gamma_accuracy"].astype(float)
    point = gamma_sweep(study).points[3]
    assert point.last.mean == pytest.approx(accuracy[3, -1])
    assert point.avg.mean == pytest.approx(accuracy[3].mean())
    assert point.gain.mean == pytest.approx(accuracy[3, -1] - accuracy[0, -1])


def test_figures_show_what_their_titles_say(study):
    from cala.reports.result_figures import curves, rates

    def drawn(axes, place):
        return np.asarray(axes.lines[place].get_ydata(), float)

    place = study.methods.index("cala")
    accuracy, gain = curves(study).figure.axes
    mean = [e.mean for e in study.per_session("cala", "accuracy")]
    first = [e.mean for e in study.per_session(study.reference, "accuracy")]
    np.testing.assert_allclose(drawn(accuracy, place), mean)
    np.testing.assert_allclose(drawn(gain, place), np.subtract(mean, first), atol=1e-9)
    panels = {
        axes.get_title() + axes.get_title(loc="left"): axes for axes in rates(study).figure.axes
    }
    for title, column in (("novel taken for base", "fpr"), ("base taken for novel", "fpr_mirror")):
        axes = next(a for t, a in panels.items() if t.startswith(title))
        wanted = [e.mean for e in study.per_session("cala", column)[1:]]
        np.testing.assert_allclose(drawn(axes, place), wanted)


def test_a_changed_run_is_reported_again(tmp_path, monkeypatch):
    from cala.reports import assemble

    monkeypatch.setattr(assemble, "assemble", lambda *_: ([], ["report.html"], ["h"]))
    run = make_run(tmp_path / "run", ("cala",), draws=1)
    make_report([run], run / "report")
    (run / "report" / "report.html").write_text("")
    assert make_report([run], run / "report").reused
    for name in ("records.jsonl", "costs.json"):
        with (run / name).open("a") as file:
            file.write("\n")
        assert not make_report([run], run / "report").reused, name
        assert make_report([run], run / "report").reused


def test_changed_images_are_reported_again(tmp_path, monkeypatch):
    from cala.reports import assemble

    monkeypatch.setattr(assemble, "assemble", lambda *_: ([], ["report.html"], ["h"]))
    run, photos = make_run(tmp_path / "run", ("cala",), draws=1), tmp_path / "photos"
    (photos / "apple").mkdir(parents=True)
    make_report([run], run / "report", photos)
    (run / "report" / "report.html").write_text("")
    assert make_report([run], run / "report", photos).reused
    (photos / "apple" / "1.png").write_bytes(b"a picture")
    assert not make_report([run], run / "report", photos).reused


def test_counts_of_draws_name_methods_with_fewer(tmp_path):
    run = make_run(tmp_path / "run", ("nearest-mean", "cala"), draws=3)
    lines = (run / "records.jsonl").read_text().splitlines(keepends=True)
    kept = [x for x in lines if not ('"cala"' in x and '"random:1"' in x)]
    (run / "records.jsonl").write_text("".join(kept))
    (study,) = make_studies([load_run(run)])
    assert "Mean of n = 3 random draws of the shots (cala: 2);" in over_draws(study)
    for pair in (("cala", "nearest-mean"), ("nearest-mean", "cala")):
        assert [e.n for e in study.gains(*pair)] == [2] * 4


def test_the_papers_data_sets_by_any_spelling():
    assert in_paper("sessions", "mini-ImageNet:/some/folder")
    assert in_paper("gamma", "CIFAR100")
    assert not in_paper("sessions", "cifar100")
