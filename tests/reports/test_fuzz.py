"""Whatever happens to the text of a run, it is read, or refused in one sentence."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cala.errors import InputError
from cala.reports.phrases import headline
from cala.reports.result_tables import (
    difference_table,
    gamma_sweep,
    plug_table,
    rate_table,
    sessions_table,
    summary_table,
)
from cala.reports.run_tables import protocol_table
from cala.reports.runs import load_run, read_artifact
from cala.reports.study import make_studies
from reports.make_run import make_run

BITS = ['"', "}", "null", "NaN", "-1", "1e999", "true", "[]", "{}", "\n", "\x00", "é", "99", ""]
CHANGES = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 9), st.sampled_from(BITS)),
    min_size=1,
    max_size=6,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("fuzz") / "run", draws=2, sessions=2)


def damaged(text, changes):
    for place, length, bit in changes:
        at = place % (len(text) + 1)
        text = text[:at] + bit + text[at + length :]
    return text


@pytest.mark.parametrize("name", ["records.jsonl", "config.json"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=CHANGES)
def test_text(run, tmp_path, name, changes):
    shutil.rmtree(tmp_path)
    shutil.copytree(run, tmp_path)
    (tmp_path / name).write_text(damaged((run / name).read_text(), changes))
    try:
        found = load_run(tmp_path)
    except InputError:
        return
    for study in make_studies([found]):
        assert headline(study)
        for table in (
            summary_table(study, study.draws, "s", "S"), sessions_table(study), plug_table(study),
            difference_table(study), rate_table(study, "fpr"), protocol_table(found, "p"),
        ):  # fmt: skip
            if table is not None:
                assert {len(row.cells) for row in table.rows} <= {len(table.columns)}
        gamma_sweep(study)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10**7), value=st.binary(min_size=1, max_size=8), cut=st.booleans())
def test_artifact(run, tmp_path, place, value, cut):
    data = (run / "artifacts" / "cala.safetensors").read_bytes()
    at = place % 4000 if place % 2 else place % len(data)
    path = tmp_path / "x.safetensors"
    path.write_bytes(data[:at] + value + (b"" if cut else data[at + len(value) :]))
    try:
        found = read_artifact(path)
    except InputError:
        return
    assert len(found.names()) == found.n_classes
    found.trade_off()
    found.shares("before")
