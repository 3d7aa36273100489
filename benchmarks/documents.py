"""Write tables and numbers of the documents from the run summaries in docs/results.

    python benchmarks/documents.py            # rewrite what stands between the marks
    python benchmarks/documents.py --check    # exit 1 if a document differs from the summaries

A table stands between `<!-- table NAME -->` and `<!-- end table -->`; TABLES says which rows and
columns it has. A number in a sentence stands between `<!--v KIND FILE:METHOD COLUMN…-->` and
`<!--/v-->`; KINDS says what there is. No measured number is typed.

benchmarks/methods_table.py and benchmarks/paired.py write the summaries; `summary.json` of a run
has the same form. A new data set: put its summaries into docs/results, add an entry
`"NAME": measured(DATASET, FILE, WHITENED_FILE)` to TABLES, and put the marks of NAME into a
document.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from methods_table import QUOTED

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs/results"
DOCUMENTS = (
    "README.md", "REPRODUCIBILITY.md", "docs/alternatives.md", "docs/bench-cifar100.md",
    "docs/encoders.md", "docs/method-measurements.md",
)  # fmt: skip
MARKED = re.compile(r"(<!-- table ([\w-]+) -->\n).*?(<!-- end table -->)", re.S)
VALUE = re.compile(r"(<!--v ([^>]+?)-->).*?(<!--/v-->)", re.S)
NONE = "–"


@cache
def summary(name: str) -> dict[str, Any]:
    path = RESULTS / f"{name}.json"
    if not path.exists():
        sys.exit(f"no {path.relative_to(ROOT)}: write it with benchmarks/methods_table.py")
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


@dataclass(frozen=True)
class Row:
    """label : first cell; source : FILE:METHOD; note : a cell that is not measured

    reference : of a difference
    """

    label: str
    source: str
    note: str = NONE
    reference: str = ""

    @property
    def method(self) -> str:
        return self.source.partition(":")[2]

    @property
    def summary(self) -> dict[str, Any]:
        return summary(self.source.partition(":")[0])

    def figures(self, group: str) -> dict[str, Any]:
        found: dict[str, Any] = self.summary[group][self.method]
        return found


Cell = Callable[[Row], str]


def mean(*names: str) -> Cell:
    return lambda row: _means(row, "random", names)


def canonical(*names: str) -> Cell:
    return lambda row: _means(row, "canonical", names)


def _means(row: Row, group: str, names: Iterable[str]) -> str:
    return " / ".join(f"{row.figures(group)['summary'][n]['mean']:.1f}" for n in names)


def interval(*names: str) -> Cell:
    """Mean ± half width over the random draws, several figures divided by slashes."""

    def cell(row: Row) -> str:
        found = row.figures("random")["summary"]
        return " / ".join(f"{found[n]['mean']:.1f} ± {found[n]['half']:.1f}" for n in names)

    return cell


def session_0() -> Cell:
    return lambda row: f"{row.figures('random')['sessions']['accuracy'][0]['mean']:.1f}"


def difference(mean: float, half: float) -> str:
    """Of paired draws; ≈ where the interval includes 0."""
    sign = "≈" if abs(mean) <= half else "±"
    return f"{round(mean, 2) + 0.0:+.2f} {sign} {half:.2f}".replace("-", "−")


def gain(name: str) -> Cell:
    """Paired difference to nearest mean of the same run."""

    def cell(row: Row) -> str:
        found = row.figures("random")["difference"][name]
        if row.method == "nearest-mean" or found["mean"] is None:
            return NONE
        return difference(found["mean"], found["half"])

    return cell


def host_gain(name: str) -> Cell:
    """Of a host its interval; of an adapter its mean and the difference to its host."""

    def cell(row: Row) -> str:
        found = row.figures("random").get("to_host")
        if found is None:
            return interval(name)(row)
        return f"{mean(name)(row)} ({difference(found[name]['mean'], found[name]['half'])})"

    return cell


def against(name: str, reference: str = "") -> Cell:
    """Paired difference of a file of benchmarks/paired.py, to the row's reference or this one."""

    def cell(row: Row) -> str:
        found = row.summary["paired"][row.method][reference or row.reference][name]
        return difference(*found[:2])

    return cell


def quoted(dataset: str) -> Cell:
    """What the authors of the method print for it."""
    return lambda row: QUOTED[dataset].get(row.method.removeprefix("nearest-mean+"), NONE)


def hours(dataset: str) -> Cell:
    """Estimate of benchmarks/full_length.py for the base session that a method needs."""

    def cell(row: Row) -> str:
        known = summary("hours")[dataset]
        found = known.get(row.method.removesuffix("-base"), known["base"])
        time = f"{found['hours']:.1f} h" if found["hours"] >= 0.1 else "under 0.1 h"
        return f"{time} ({found['epochs']:g} epochs, {found['encoder']})"

    return cell


def note() -> Cell:
    return lambda row: row.note


KINDS: dict[str, Callable[..., Cell]] = {
    "mean": mean,
    "canonical": canonical,
    "interval": interval,
    "session_0": session_0,
    "gain": gain,
    "against": against,
}


def value(key: str) -> str:
    """Of the mark `KIND FILE:METHOD COLUMN…`."""
    kind, source, *names = key.split()
    return KINDS[kind](*names)(Row("", source))


@dataclass(frozen=True)
class MarkdownTable:
    """Headings, each with the function that makes its cells, and rows; first : first heading

    Columns in which nothing stands are left out.
    """

    columns: tuple[tuple[str, Cell], ...]
    rows: Callable[[], Iterable[Row]]
    first: str = "method"

    def markdown(self) -> str:
        rows = list(self.rows())
        columns = [[self.first, *(row.label for row in rows)]]
        for heading, cell in self.columns:
            cells = [cell(row) for row in rows]
            columns += [[heading, *cells]] if set(cells) != {NONE} else []
        lines = [f"| {' | '.join(cells)} |" for cells in zip(*columns, strict=True)]
        lines.insert(1, "|---" * len(columns) + "|")
        return "\n".join(lines) + "\n"


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
#: Methods in the order of a data set's table; the first three in every metric.
NAMES = {
    "nearest-mean": "nearest mean",
    "la": "LA",
    "cala": "CALA",
    "cala-plus": "`cala-plus`",
    "teen": "TEEN",
    "gkeal": "GKEAL",
    "icarl-star": "iCaRL\\*",
    "nc-fscil": "NC-FSCIL",
    "cec": "CEC",
    "limit": "LIMIT",
    "cala-literal": "`cala-literal` (Eq. 9 as printed)",
}


def measured(dataset: str, file: str, whitened: str = "") -> MarkdownTable:
    """The table of a data set: what is published, and every method of its summaries.

    whitened : a second summary, of a run with `--metric whitened`
    """

    def rows() -> Iterable[Row]:
        first, rest = list(NAMES)[:3], list(NAMES)[3:]
        parts = [(file, ", cosine", first), (whitened, ", whitened", first), (file, "", rest)]
        for name, metric, methods in parts:
            for method in methods:
                if name and method in summary(name)["random"]:
                    yield Row(NAMES[method] + metric, f"{name}:{method}")

    return MarkdownTable((("published, last / avg", quoted(dataset)), *MEASURED), rows)


def adapters(*files: str) -> MarkdownTable:
    """Every host of some summaries, plain and with its adapters, and what these add to it."""

    def rows() -> Iterable[Row]:
        shown = set()
        for file in files:
            metric = summary(file)["config"]["metric"]
            for method in summary(file)["random"]:
                if (method, metric) in shown:
                    continue
                shown.add((method, metric))
                host, _, adapter = method.partition("+")
                label = f"{'+ ' + adapter if adapter else f'`{host}`'}, {metric}"
                yield Row(label, f"{file}:{method}")

    columns = (("last", "last"), ("HM", "hm"), ("AUSUC", "ausuc"))
    return MarkdownTable(tuple((h, host_gain(c)) for h, c in columns), rows, first="host, metric")


def fixed(file: str, *rows: tuple[str, ...]) -> Callable[[], Iterable[Row]]:
    """Rows as listed: label, method and whatever else a `Row` has."""
    return lambda: [
        Row(label, method if ":" in method else f"{file}:{method}", *rest)
        for label, method, *rest in rows
    ]


def recognised(kind: str) -> Cell:
    """Of benchmarks/growing.py: base or novel accuracy after the last session."""

    def cell(row: Row) -> str:
        found = row.summary["accuracy"][row.method]
        return f"{found[kind]:.1f} ± {found[f'{kind}_half']:.1f} %"

    return cell


def _milliseconds(seconds: float) -> str:
    """Two digits, and never as a power of ten."""
    return f"{float(f'{1000 * seconds:.2g}'):g} ms"


def adding() -> Cell:
    """Of benchmarks/growing.py: seconds for a session, on embeddings of its case `small`."""

    def cell(row: Row) -> str:
        found = row.summary["speed"]["small"].get(row.method)
        return NONE if found is None else _milliseconds(found["add"])

    return cell


CIFAR, WHITE = "cifar100", "cifar100-whitened"
TABLES = {
    "readme-alternatives": MarkdownTable(
        (
            ("new classes recognised", recognised("novel")),
            ("known classes", recognised("base")),
            ("draws", lambda row: str(row.summary["accuracy"][row.method]["draws"])),
            ("adding five classes", adding()),
        ),
        fixed(
            "growing",
            ("logistic regression, refitted", "LogisticRegression"),
            ("the same, classes balanced", "LogisticRegression, balanced"),
            ("5 nearest neighbours (faiss)", "faiss kNN, k=5"),
            ("nearest centroid, refitted", "NearestCentroid"),
            ("**cala** (`cala-plus`)", "cala-plus"),
        ),
        first="",
    ),
    "readme-cosine": MarkdownTable(
        FRONT,
        fixed(
            CIFAR,
            ("nearest mean", "nearest-mean"),
            ("LA, one shift for all novel classes", "la"),
            ("CALA, as in its paper", "cala"),
            ("**cala-plus**, and `auto`, which chooses it here", "cala-plus"),
        ),
    ),
    "readme-whitened": MarkdownTable(
        FRONT,
        fixed(
            WHITE,
            ("nearest mean", "nearest-mean"),
            ("LA", "la"),
            ("LA on calibrated-mean, the host of cala-plus", "calibrated-mean+la"),
            ("CALA", "cala"),
            ("cala-plus", "cala-plus"),
        ),
        first="method, whitened",
    ),
    "readme-paired": MarkdownTable(
        (("points", against("last")), ("command", note())),
        fixed(
            "cifar100-paired",
            (
                "cala-plus − CALA, as in its paper",
                "cosine/cala-plus",
                "`cala run --reference cala`",
                "cosine/cala",
            ),
            (
                "CALA whitened − CALA, as in its paper",
                "whitened/cala",
                "`cala run --out a`, `cala run --metric whitened --out b`, "
                '`cala compare a b --reference "a: cala"`',
                "cosine/cala",
            ),
            (
                "cala-plus − CALA whitened",
                "whitened/cala-plus",
                "`cala run --metric whitened --reference cala`",
                "whitened/cala",
            ),
            (
                "cala-plus − LA whitened",
                "whitened/cala-plus",
                "`cala run --metric whitened --reference la`",
                "whitened/la",
            ),
            (
                "cala-plus − LA on calibrated-mean",
                "whitened/cala-plus",
                "`cala run --metric whitened --methods calibrated-mean+la,cala-plus "
                "--reference calibrated-mean+la`",
                "whitened/calibrated-mean+la",
            ),
        ),
        first="difference",
    ),
    "cifar100": MarkdownTable(
        (("paper, last / avg", note()), *MEASURED),
        fixed(
            CIFAR,
            ("frozen baseline (`nearest-mean`)", "nearest-mean", "55.42 / 67.11"),
            ("LA-fscil (`la`)", "la", "not printed for CIFAR-100"),
            ("CALA, γ = 1 at inference", "cifar100-gamma1:cala", "55.59 / 67.16"),
            ("CALA, γ = 10 (`cala`)", "cala", "56.64 / 67.92"),
            ("CALA, γ = 100 at inference", "cifar100-gamma100:cala", "26.53 / 42.31"),
            ("nearest mean, whitened", f"{WHITE}:nearest-mean"),
            ("LA, whitened", f"{WHITE}:la"),
            ("CALA, whitened", f"{WHITE}:cala"),
            ("`cala-plus`", "cala-plus"),
        ),
    ),
    "cifar100-resnet18": measured("cifar100", "cifar100-resnet18", "cifar100-resnet18-whitened"),
    "mini-imagenet": measured("mini_imagenet", "miniimagenet", "miniimagenet-whitened"),
    "cub200": measured("cub200", "cub200-methods", "cub200-whitened"),
    "cub200-288": measured("cub200", "cub200-288", "cub200-288-whitened"),
    "cub200-adapted": measured("cub200", "cub200-adapted", "cub200-adapted-whitened"),
    "frozen-hosts": adapters(
        "cifar100-frozen-hosts", "cifar100-frozen-nc", "cifar100-frozen-hosts-whitened"
    ),
    "systems": MarkdownTable(
        (
            ("CIFAR-100: published", quoted("cifar100")),
            ("here, 3 to 20 draws, last / avg", interval("last", "avg")),
            ("CIFAR-100, hours", hours("cifar100")),
            ("mini-ImageNet: paper ◇", quoted("mini_imagenet")),
            ("hours", hours("mini_imagenet")),
            ("CUB-200: published", quoted("cub200")),
            ("hours", hours("cub200")),
        ),
        fixed(
            "cifar100-methods",
            ("iCaRL", "icarl"),
            ("iCaRL\\* (frozen)", "icarl-star"),
            ("TOPIC", "topic"),
            ("CEC", "cec"),
            ("FACT", "fact"),
            ("LIMIT", "limit"),
            ("ALICE", "alice"),
            ("BiDist", "bidist"),
            ("BiDist, base branch", "bidist-base"),
            ("GKEAL", "gkeal"),
            ("SAVC", "savc"),
            ("TEEN", "teen"),
            ("NC-FSCIL (not in the paper's table)", "nc-fscil"),
            ("LA-fscil", "nearest-mean+la"),
            ("CALA", "nearest-mean+cala"),
        ),
        first="system",
    ),
}


def filled(text: str) -> str:
    """A document with every marked table and value written anew."""
    text = MARKED.sub(lambda m: m[1] + TABLES[m[2]].markdown() + m[3], text)
    return VALUE.sub(lambda m: m[1] + value(m[2]) + m[3], text)


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
