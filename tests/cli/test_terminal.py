"""Tables in a terminal of 80 columns are whole, whatever they hold."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from cala.benchmark.tables import HEADINGS, differences_table, results_table
from cala.cli.bench import print_results
from cala.cli.compare import find_method, short_names
from cala.cli.terminal import TerminalTable
from cala.records import Record
from cala.results import SESSION_COLUMNS, Results
from refusals import refused

DRAWS = ("random:0", "random:1", "random:2")
LONG = [f"{host}+cala-plus" for host in ("nearest-mean", "calibrated-mean", "x" * 60)]
MANY = ["nearest-mean", *LONG, *(f"a-host-with-a-long-name-{i}+cala-plus" for i in range(10))]


def extreme(methods) -> Results:
    """Rates between 0 and 100 % that jump from draw to draw: the widest numbers there are."""
    made = []
    for i, method in enumerate(methods):
        for j, draw in enumerate(DRAWS):
            for session in range(3):
                value = 0.0 if i == 0 else float((i + j) % 3 > 0)
                values = dict.fromkeys(SESSION_COLUMNS, value)
                made.append(Record(method, draw, 0, session, 10, 100, values))
    return Results(made)


def printed(*things, width=80) -> str:
    out = io.StringIO()
    screen = Console(file=out, width=width)
    for thing in things:
        screen.print(TerminalTable(thing))
    return out.getvalue()


def check_whole(text: str, methods, width=80) -> None:
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    words = text.split()
    for heading in HEADINGS.values():
        assert heading in words
    names = "".join(word for word in words if not re.fullmatch(r"[±≈+-]?[\d.]+", word))
    for method in methods:
        assert method in names


@pytest.mark.parametrize("methods", [MANY[:2], MANY], ids=["two", "fourteen"])
def test_large_values_and_long_names_are_whole(methods):
    assert len(MANY) == 14
    results = extreme(methods)
    text = printed(results_table(results, DRAWS, "means"))
    check_whole(text, methods)
    assert text.count("100.0") + text.count("66.7") >= len(HEADINGS) * (len(methods) - 1)
    pairs = [(m, methods[0]) for m in methods[1:]]
    text = printed(differences_table(results, DRAWS, pairs, "differences"))
    check_whole(text, methods[1:])
    shown = [word for word in text.split() if word.startswith(("±", "≈"))]
    assert len(shown) == len(HEADINGS) * len(pairs)
    assert {float(word[1:]) for word in shown} == {143.42}


def test_a_table_that_fits_is_one_block():
    found = results_table(extreme(["nearest-mean", "la"]), DRAWS[:1], "one draw")
    table = TerminalTable(found)
    assert len(table.blocks(90)) == 1
    assert [len(b) for b in table.blocks(50)] == [6, 6]
    assert printed(found).count("AUSUC") == 1


def test_references_stand_in_the_rows_only_where_they_differ():
    results = extreme(["a", "b", "c"])
    assert "− a" not in printed(differences_table(results, DRAWS, [("b", "a"), ("c", "a")], "to a"))
    text = printed(differences_table(results, DRAWS, [("b", "a"), ("c", "b")], "both"))
    assert "− a" in text
    assert "− b" in text


def test_names_are_text_never_markup():
    assert "[bold]x[/bold]" in printed(
        results_table(extreme(["a", "[bold]x[/bold]"]), DRAWS, "[t]")
    )


def test_all_tables_of_a_result_and_their_legend():
    out = io.StringIO()
    print_results(Console(file=out, width=80), extreme(MANY), "test", reference=MANY[1])
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert f"Difference to {MANY[1]} on the same draws" in text
    assert "FPR₁, FPR_T: novel" in text


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["cifar100-9432708d96", "cifar100-51c2e0a7b3"], ["9432", "51c2"]),
        (["/tmp/x/run", "/tmp/y/run"], ["x", "y"]),
        (["gamma=1", "gamma=10", "gamma=100"], ["1", "10", "100"]),
        (["cosine", "whitened"], ["cosine", "whitened"]),
        (["a", "a-b"], ["a", "a-b"]),
        (["samebeginning1", "samebeginning2"], ["run 1", "run 2"]),
        (["only-one-run-with-a-long-name"], ["only"]),
    ],
)
def test_runs_are_named_by_what_tells_them_apart(names, short):
    assert list(short_names(names).values()) == short


def test_a_reference_is_found_by_any_of_its_names():
    aliases = {"x-1: la": ("1: la", "la"), "x-2: la": ("2: la", "la"), "x-2: cala": ("cala",)}
    assert find_method("x-2: la", aliases) == "x-2: la"
    assert find_method("1: la", aliases) == "x-1: la"
    assert find_method("cala", aliases) == "x-2: cala"
    with refused("'la'", field="reference") as several:
        find_method("la", aliases)
    assert several.value.fix == "give one of 'x-1: la', 'x-2: la'"
    with refused("'calla'", field="reference", code="unknown_name") as caught:
        find_method("calla", {"cala": ()})
    assert "'cala'?" in caught.value.fix
