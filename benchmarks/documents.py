"""Write the tables of README and REPRODUCIBILITY from the run summaries in docs/results.

    python benchmarks/documents.py            # rewrite what stands between the marks
    python benchmarks/documents.py --check    # exit 1 if a document differs from the summaries

benchmarks/methods_table.py writes the summaries. A table stands between `<!-- table NAME -->` and
`<!-- end table -->`; TABLES says which rows and columns it has. No number is typed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from methods_table import QUOTED

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs/results"
DOCUMENTS = ("README.md", "REPRODUCIBILITY.md")
MARKED = re.compile(r"(<!-- table ([\w-]+) -->\n).*?(<!-- end table -->)", re.S)


@cache
def summary(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return found


@dataclass(frozen=True)
class Row:
    """label : first cell; source : FILE:METHOD; paper : what the paper prints for it"""

    label: str
    source: str
    paper: str = "–"

    @property
    def method(self) -> str:
        return self.source.partition(":")[2]

    def figures(self, group: str) -> dict[str, Any]:
        found: dict[str, Any] = summary(self.source.partition(":")[0])[group][self.method]
        return found


Cell = Callable[[Row], str]


def mean(name: str, group: str = "random") -> Cell:
    return lambda row: f"{row.figures(group)['summary'][name]['mean']:.1f}"


def interval(*names: str) -> Cell:
    """Mean ± half width over the random draws, several figures divided by slashes."""

    def cell(row: Row) -> str:
        found = row.figures("random")["summary"]
        return " / ".join(f"{found[n]['mean']:.1f} ± {found[n]['half']:.1f}" for n in names)

    return cell


def canonical(*names: str) -> Cell:
    return lambda row: " / ".join(mean(n, "canonical")(row) for n in names)


def gain(name: str) -> Cell:
    """Paired difference to nearest mean of the same run; ≈ where the interval includes 0."""

    def cell(row: Row) -> str:
        figures = row.figures("random")
        if row.source.endswith(":nearest-mean") or figures["difference"][name]["mean"] is None:
            return "–"
        found = figures["difference"][name]
        sign = "≈" if abs(found["mean"]) <= found["half"] else "±"
        return f"{found['mean']:+.2f} {sign} {found['half']:.2f}"

    return cell


def quoted(dataset: str) -> Cell:
    """What the authors of the method print for it."""
    return lambda row: QUOTED[dataset].get(row.method, "–")


@dataclass(frozen=True)
class MarkdownTable:
    """Headings, each with the function that makes its cells, and rows."""

    columns: tuple[tuple[str, Cell], ...]
    rows: tuple[Row, ...]
    first: str = "method"

    def markdown(self) -> str:
        lines = [" | ".join(["", self.first, *(h for h, _ in self.columns), ""]).strip()]
        lines.append("|---" * (len(self.columns) + 1) + "|")
        for row in self.rows:
            cells = [cell(row) for _, cell in self.columns]
            lines.append(" | ".join(["", row.label, *cells, ""]).strip())
        return "\n".join(lines) + "\n"


CIFAR, WHITE = "cifar100", "cifar100-whitened"
FRONT = (
    ("all 100 classes", interval("last")),
    ("base", mean("base")),
    ("novel", mean("novel")),
    ("harmonic mean", interval("hm")),
    ("novel taken for base", mean("fpr_last")),
    ("AUSUC", interval("ausuc")),
)
MEASURED = (
    ("here, canonical draw, last / avg", canonical("last", "avg")),
    ("here, 20 draws, last / avg", interval("last", "avg")),
    ("HM_last", interval("hm")),
    ("AUSUC", interval("ausuc")),
    ("last, against nearest mean", gain("last")),
    ("HM, against nearest mean", gain("hm")),
)
PAPER = ("paper, last / avg", lambda row: row.paper)


def three(file: str, metric: str) -> tuple[Row, ...]:
    """Nearest mean, LA and CALA of one run."""
    names = {"nearest-mean": "nearest mean", "la": "LA", "cala": "CALA"}
    return tuple(Row(f"{n}, {metric}", f"{file}:{m}") for m, n in names.items())


TABLES = {
    "readme-cosine": MarkdownTable(
        FRONT,
        (
            Row("nearest mean", f"{CIFAR}:nearest-mean"),
            Row("LA, one shift for all novel classes", f"{CIFAR}:la"),
            Row("the paper's CALA", f"{CIFAR}:cala"),
            Row("**cala-plus**, and `auto`, which chooses it here", f"{CIFAR}:cala-plus"),
        ),
    ),
    "readme-whitened": MarkdownTable(
        FRONT,
        (
            Row("nearest mean", f"{WHITE}:nearest-mean"),
            Row("LA", f"{WHITE}:la"),
            Row("LA on calibrated-mean, the host of cala-plus", f"{WHITE}:calibrated-mean+la"),
            Row("CALA", f"{WHITE}:cala"),
            Row("cala-plus", f"{WHITE}:cala-plus"),
        ),
        first="method, whitened",
    ),
    "cifar100": MarkdownTable(
        (PAPER, *MEASURED),
        (
            Row("frozen baseline (`nearest-mean`)", f"{CIFAR}:nearest-mean", "55.42 / 67.11"),
            Row("LA-fscil (`la`)", f"{CIFAR}:la", "not printed for CIFAR-100"),
            Row("CALA, γ = 1 at inference", "cifar100-gamma1:cala", "55.59 / 67.16"),
            Row("CALA, γ = 10 (`cala`)", f"{CIFAR}:cala", "56.64 / 67.92"),
            Row("CALA, γ = 100 at inference", "cifar100-gamma100:cala", "26.53 / 42.31"),
            Row("nearest mean, whitened", f"{WHITE}:nearest-mean"),
            Row("LA, whitened", f"{WHITE}:la"),
            Row("CALA, whitened", f"{WHITE}:cala"),
            Row("`cala-plus`", f"{CIFAR}:cala-plus"),
        ),
    ),
    "cub200": MarkdownTable(
        (("published, last / avg", quoted("cub200")), *MEASURED),
        (
            *three("cub200-methods", "cosine"),
            *three("cub200-whitened", "whitened"),
            Row("`cala-plus`", "cub200-methods:cala-plus"),
            Row("TEEN", "cub200-methods:teen"),
            Row("GKEAL", "cub200-methods:gkeal"),
            Row("iCaRL\\*", "cub200-methods:icarl-star"),
            Row("`cala-literal` (Eq. 9 as printed)", "cub200-methods:cala-literal"),
        ),
    ),
    "cub200-288": MarkdownTable(
        MEASURED,
        (
            *three("cub200-288", "cosine"),
            *three("cub200-288-whitened", "whitened"),
            Row("`cala-plus`", "cub200-288:cala-plus"),
        ),
    ),
    "cub200-adapted": MarkdownTable(
        MEASURED,
        (
            *three("cub200-adapted", "cosine"),
            *three("cub200-adapted-whitened", "whitened"),
            Row("`cala-plus`", "cub200-adapted:cala-plus"),
        ),
    ),
}


def filled(text: str) -> str:
    """A document with every marked table written anew."""
    return MARKED.sub(lambda m: m[1] + TABLES[m[2]].markdown() + m[3], text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, say what differs")
    options = parser.parse_args()
    changed = []
    for name in DOCUMENTS:
        path = ROOT / name
        before = path.read_text("utf-8")
        after = filled(before)
        if after != before:
            changed.append(name)
            if not options.check:
                path.write_text(after, "utf-8")
    print("changed:" if changed else "nothing to change", *changed)
    sys.exit(bool(options.check and changed))


if __name__ == "__main__":
    main()
