"""Records on disk: a changed line is noticed, old lines are read, and only whole cells count."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from cala.errors import DamagedFile, InputError
from cala.records import Record, find_runs, parse_line, read_config, read_records, read_run

RECORD = Record(
    "cala", "random:1", 0, 2, 16, 192, {"accuracy": 0.4762, "hm": 0.31, "novel": None},
    groups={"base_images": [3, 4], "base_right": [2, 2]},
)  # fmt: skip
CONFIG = {"schema": 1, "methods": ["cala"], "draws": ["random:1"], "protocol": {"sessions": 2}}


def old(**changes) -> str:
    """A line as versions without checksums wrote it."""
    values = json.loads(RECORD.line())
    del values["crc32"]
    return json.dumps({**values, **changes})


def a_run(folder, records=(), config=CONFIG):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "records.jsonl").write_text("".join(r.line() for r in records))
    return folder


def cell(draw="random:1", sessions=(0, 1, 2)):
    return [replace(RECORD, draw=draw, session=t) for t in sessions]


def test_a_line_is_read_as_it_was_written():
    for record in (RECORD, replace(RECORD, groups=None), replace(RECORD, method='"é\\ 🐦')):
        assert parse_line(record.line().rstrip("\n")) == record


@pytest.mark.parametrize("bit", ["0", "9", "e", '"', "\x00", " "])
def test_no_changed_character_gives_another_record(bit):
    line = RECORD.line().rstrip("\n")
    for i, own in enumerate(line):
        found = parse_line(line[:i] + bit + line[i + 1 :])
        assert found in (None, RECORD), (i, own)
        assert parse_line(line[:i]) is None, "cut short"


@pytest.mark.parametrize("digit", re.findall(r"\d", '"accuracy": 0.4762'))
def test_a_changed_digit_is_noticed(digit):
    line = RECORD.line().rstrip("\n")
    changed = line.replace("0.4762", "0.4762".replace(digit, "3" if digit != "3" else "5", 1))
    assert changed != line
    assert parse_line(changed) is None


def test_lines_without_a_checksum_are_read():
    assert parse_line(old()) == RECORD
    assert parse_line(old(mood="good")) == RECORD, "fields of newer versions are passed over"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_classes", 0), ("n_classes", None), ("session", True), ("session", 1.5),
        ("session", -1), ("session", float("inf")), ("seed", "0"), ("draw", 7), ("method", None),
        ("method", {}), ("method", "two\nlines"), ("method", "\ud800"), ("metrics", []),
        ("groups", 7), ("n_images", -1),
        *(("metrics", {"accuracy": v}) for v in (float("nan"), "x", True, None, 1e308, -0.1, 10.7)),
        *(("metrics", {"accuracy": 0.5, "fpr": v}) for v in (float("nan"), "x", [], 1.5)),
    ],
)  # fmt: skip
def test_values_that_no_run_writes_are_not_read(field, value):
    assert parse_line(old(**{field: value})) is None


@pytest.mark.parametrize("line", ["", "[1]", "null", "{}", "\x00", "[" * 200_000, "9" * 5000])
def test_lines_that_are_no_record(line):
    assert parse_line(line) is None


def test_unreadable_lines_are_counted(tmp_path):
    path = tmp_path / "records.jsonl"
    assert read_records(path) == ([], 0)
    whole = RECORD.line()
    path.write_text('{"method": 3}\n\n\x00\n' + whole + whole[:50])
    assert read_records(path) == ([RECORD], 3)
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError) as error:
        read_records(path)
    assert error.value.code == "unreadable_file"


def test_only_cells_with_all_sessions_count(tmp_path):
    records = [*cell(), *cell("random:2", (0, 2)), *cell("random:3", (0, 1, 2, 3))]
    later = replace(RECORD, metrics={"accuracy": 0.5})
    found = read_run(a_run(tmp_path, [*records, later]))
    assert found.records == [*cell(sessions=(0, 1)), later], "a later copy replaces an earlier one"
    assert (found.unreadable, found.damage, found.sessions) == (0, [], 2)


def test_a_cell_with_a_changed_line_is_left_out_and_counted(tmp_path):
    run = a_run(tmp_path, [*cell(), *cell("random:2")])
    text = (run / "records.jsonl").read_text()
    (run / "records.jsonl").write_text(text.replace("0.4762", "0.6762", 1))
    found = read_run(run)
    assert {r.draw for r in found.records} == {"random:2"}
    assert found.unreadable == len(found.damage) == 1


@pytest.mark.parametrize(
    "config",
    [
        [], {**CONFIG, "schema": "x"}, {**CONFIG, "schema": None}, {**CONFIG, "protocol": []},
        {**CONFIG, "protocol": {"sessions": "x"}}, {**CONFIG, "protocol": {"sessions": -1}},
        {**CONFIG, "protocol": {"sessions": float("inf")}}, {**CONFIG, "methods": 5},
        {**CONFIG, "draws": [[1]]}, {**CONFIG, "own_embeddings": "abc"}, {},
    ],
)  # fmt: skip
def test_a_damaged_configuration_is_named(tmp_path, config):
    with pytest.raises(DamagedFile) as error:
        read_run(a_run(tmp_path, cell(), config))
    assert error.value.path == str(tmp_path / "config.json")


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe{}", b"[" * 200_000])
def test_a_configuration_that_is_no_json(tmp_path, text):
    (tmp_path / "config.json").write_bytes(text)
    with pytest.raises(DamagedFile):
        read_config(tmp_path)


def test_a_configuration_of_a_newer_version(tmp_path):
    with pytest.raises(InputError) as error:
        read_run(a_run(tmp_path, (), {**CONFIG, "schema": 9}))
    assert error.value.code == "newer_version"
    assert read_run(a_run(tmp_path, cell(), {**CONFIG, "weather": []})).records


def test_a_protocol_of_a_billion_sessions_costs_nothing(tmp_path):
    run = a_run(tmp_path, cell(), {**CONFIG, "protocol": {"sessions": 10**9}})
    assert read_run(run).records == []


def test_run_folders_are_found(tmp_path):
    inner = [a_run(tmp_path / name) for name in ("b", "a")]
    assert find_runs([tmp_path]) == sorted(inner)
    assert find_runs([inner[0], inner[0]]) == [inner[0]]
    (tmp_path / "empty").mkdir()
    for bad in (tmp_path / "empty", tmp_path / "no"):
        with pytest.raises(InputError) as error:
            find_runs([bad])
        assert error.value.field == "runs"
    with pytest.raises(InputError):
        read_run(tmp_path / "empty")
