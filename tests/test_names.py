"""One name, one meaning: no public name is defined in two modules."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import cala

ROOT = Path(cala.__file__).parent
#: Rooms that face users may use the words of what they call: `predict`, `evaluate`, ….
FACES = ("app", "cli", "model")
#: What every system defines, by the contract of `cala.systems.registry`.
SYSTEMS = {"SYSTEM", "PUBLISHED"}


def public_names(path: Path) -> set[str]:
    """Functions, classes and values that a module defines; type variables are not names."""
    names: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_") and len(name) > 1}


def test_no_public_name_is_defined_twice():
    places = defaultdict(list)
    for path in ROOT.rglob("*.py"):
        place = path.relative_to(ROOT)
        if place.parts[0] not in FACES:
            for name in public_names(path) - SYSTEMS:
                places[name].append(str(place))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
