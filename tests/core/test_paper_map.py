"""docs/paper-map.md names the functions that run."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import tokenize
from importlib import import_module
from io import StringIO
from pathlib import Path
from types import CodeType

import numpy as np
import pytest

from cala import CalaClassifier
from problems import blobs, first_of

MAP = Path(__file__).parents[2] / "docs" / "paper-map.md"
TABLE = MAP.read_text("utf-8").split("## Beyond")[0]
WANTED = re.compile(r"Eq\. [1-9],|disjoint class pairs|Algorithm 1|pseudo-testing")


def rows() -> list[tuple[str, list[str]]]:
    """What the paper says, and the functions of the second column, for what runs in every fit."""
    found = []
    for line in TABLE.splitlines():
        paper, _, functions = line.strip("|").partition("|")
        if WANTED.match(paper.strip()):
            found.append((paper.strip(), re.findall(r"`([\w.]+)`", functions.split("|")[0])))
    return found


def codes_of(name: str) -> set[CodeType]:
    """The code of a function, method or property; of a class, what calling an instance runs."""
    parts = name.split(".")
    split = next(i for i, part in enumerate(parts) if part[0].isupper() or i == len(parts) - 1)
    thing = import_module(".".join(parts[:split]))
    for part in parts[split:]:
        thing = inspect.getattr_static(thing, part)
    if isinstance(thing, property):
        thing = thing.fget
    if isinstance(thing, (classmethod, staticmethod)):
        thing = thing.__func__
    if inspect.isclass(thing):
        thing = thing.__call__
    return {thing.__code__}


@pytest.fixture(scope="module")
def called() -> dict[str, set[CodeType]]:
    """All code that ran in `fit`, `partial_fit` and `predict` of the paper's method."""
    x, y = blobs(10, 12, 8)
    base, shots = y < 8, first_of(y, [8], 5)
    model = CalaClassifier(method="cala")
    found: dict[str, set[CodeType]] = {}
    for name, call in (
        ("fit", lambda: model.fit(x[base], y[base], holdout="all")),
        ("partial_fit", lambda: model.partial_fit(x[shots], y[shots])),
        ("predict", lambda: model.predict(x)),
    ):
        codes = found[name] = set()
        sys.setprofile(lambda frame, event, _, codes=codes: codes.add(frame.f_code))
        try:
            call()
        finally:
            sys.setprofile(None)
    return found


def test_every_row_names_a_function():
    assert len(rows()) == 12
    assert all(functions for _, functions in rows())


@pytest.mark.parametrize(("paper", "functions"), rows(), ids=[paper for paper, _ in rows()])
def test_what_the_map_names_runs(called, paper, functions):
    ran = set.union(*called.values())
    assert [name for name in functions if not codes_of(name) <= ran] == []


@pytest.mark.parametrize(
    ("call", "names"),
    [
        ("fit", ["mix", "PrototypeTable.of", "play", "train_by_steps", "AdapterLoss"]),
        ("partial_fit", ["normalise", "PrototypeTable.extended", "similarity", "ClassContext.of"]),
        ("predict", ["normalise", "cosine_logits", "novel_shift", "adjusted_logits"]),
    ],
)
def test_each_call_runs_its_own_equations(called, call, names):
    assert [n for n in names if not codes_of(f"cala.core.cala.{n}") <= called[call]] == []


def code_lines(path: Path) -> int:
    """Lines without docstrings, comments and blanks."""
    source = path.read_text("utf-8")
    documented: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
            node
        ):
            documented.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    silent = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type not in (*silent, tokenize.ENDMARKER):
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


def test_beta_is_in_six_short_files():
    """What the page promises a reader of the paper."""
    before = MAP.read_text("utf-8").split("| paper |")[0]
    named = re.findall(r"`(cala\.(?:core|heads)\.\w+)`", before.split("six files")[1])
    files = [Path(import_module(name).__file__) for name in named]
    assert len(files) == 6
    assert sum(map(code_lines, files)) <= 900
    functions = {name for paper, found in rows() for name in found if "operating" not in name}
    assert {".".join(name.split(".")[:3]) for name in functions} <= set(named)


def test_prediction_is_eq_2_to_8_by_hand():
    """The estimator's logits, from its prototypes and β, with the paper's numbers."""
    x, y = blobs(10, 12, 8)
    base, shots = y < 8, first_of(y, (8, 9), 5)
    model = CalaClassifier(preset="paper", scale=16.0).fit(x[base], y[base], holdout="all")
    model.partial_fit(x[shots], y[shots])
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    rows = [np.flatnonzero(y == c) for c in range(8)] + [first_of(y, [c], 5) for c in (8, 9)]
    prototypes = np.stack([unit[own].mean(0) for own in rows])
    np.testing.assert_allclose(model.prototypes_, prototypes)
    directions = prototypes / np.linalg.norm(prototypes, axis=1, keepdims=True)
    expected = 16 * unit @ directions.T + 10 * model.beta_
    assert (model.beta_[:8] == 0).all()
    assert (model.beta_[8:] != 0).all()
    np.testing.assert_allclose(model.decision_function(x), expected)
    assert np.array_equal(model.predict(x), expected.argmax(1))
