"""All methods of a run in one table: each host plain and with every adapter, and what these do.

    cala run cifar100 --data DIR --encoder resnet20-cifar100 --encoder alice=bases/alice ... -o RUN
    python benchmarks/methods_table.py RUN -o docs/results/cifar100-methods

Writes NAME.md (tables, below whatever stands above its mark) and NAME.json (means, intervals and
paired differences over draws). What a run measured is read from its records alone; nothing is
computed anew.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from cala.benchmark.tables import HEADINGS
from cala.heads.factory import split_name
from cala.heads.registry import ADAPTERS
from cala.records import read_records
from cala.results import Results

SHOWN = ("last", "avg", "hm", "avg_novel", "fpr_last", "ausuc")
MARK = "<!-- what follows is written by benchmarks/methods_table.py -->"
JUDGED = ("last", "hm", "avg_novel", "fpr_last", "ausuc")
#: Last session / average, as their own papers or public leaderboards print them: other encoders,
#: hundreds of epochs, and epochs chosen on test images in most of them.
QUOTED = {
    "cifar100": {
        "nearest-mean": "55.42 / 67.11 (the CALA paper's baseline)",
        "cala": "56.64 / 67.92 (the CALA paper's)",
        "teen": "52.64 / 63.10",
        "gkeal": "51.40 / 61.35",
        "alice": "54.1 / 63.21",
        "fact": "52.10 / 62.24",
        "cec": "49.14 / 59.53",
        "limit": "51.23 / 61.84",
        "bidist": "56.56 / 66.55",
        "savc": "53.12 / 63.63",
        "topic": "29.37 / 42.62",
        "nc-fscil": "56.11 / 67.50",
    },
    "cub200": {
        "teen": "59.31 / 66.63",
        "gkeal": "58.67 / 66.35",
        "alice": "60.1 / 65.75",
        "fact": "56.94 / 64.42",
        "cec": "52.28 / 61.33",
        "limit": "57.41 / 65.48",
        "bidist": "63.81 / 68.61",
        "savc": "62.50 / 69.35",
        "topic": "26.28 / 43.92",
        "nc-fscil": "59.44 / 67.28",
    },
    "mini_imagenet": {
        "la": "56.65 / 67.67 (the CALA paper's; its average printed as 65.43)",
        "cala": "57.75 / 68.75 (the CALA paper's)",
        "topic": "24.42 / 39.64",
        "cec": "47.45 / 57.77",
        "fact": "50.60 / 60.82",
        "limit": "49.19 / 59.05",
        "alice": "55.70 / 63.99",
        "bidist": "53.39 / 62.06 (its own)",
        "savc": "54.04 / 65.29",
        "teen": "52.08 / 61.44",
        "gkeal": "51.31 / 60.47",
        "icarl-star": "17.21 / 33.29",
        "bidist-base": "49.01 / 59.79",
        "nc-fscil": "58.31 / 67.82 (its own)",
    },
}


def by_host(methods: list[str]) -> dict[str, list[str]]:
    """Methods of each host, the plain one first, in the run's order."""
    found: dict[str, list[str]] = {}
    for method in methods:
        host, adapter = split_name(method)
        mine = found.setdefault(host, [])
        mine.insert(0 if adapter is None else len(mine), method)
    return found


def table(
    results: Results, draws: list[str], costs: dict[str, dict[str, float]], dataset: str
) -> list[str]:
    heads = [HEADINGS[c] for c in SHOWN]
    more = "canonical last / avg | time per session | encoding again | kB | quoted, last / avg"
    lines = [f"| method | n | {' | '.join(heads)} | {more} |"]
    lines.append("|---" * (len(heads) + 7) + "|")
    for methods in by_host(results.methods).values():
        for method in methods:
            cells = [results.estimate(method, c, draws) for c in SHOWN]
            numbers = [str(cells[0].n), *(f"{c.mean:.1f} ± {c.half:.1f}" for c in cells)]
            canonical = [results.values(method, c, ["canonical"]) for c in ("last", "avg")]
            numbers.append(" / ".join(f"{v[0]:.1f}" for v in canonical) if canonical[0] else "–")
            cost = costs.get(method, {})
            numbers.append(duration(cost.get("session_seconds")))
            numbers.append(duration(cost.get("session_encode_seconds")))
            numbers.append(f"{cost['head_bytes'] / 1000:,.0f}" if cost else "–")
            numbers.append(QUOTED.get(dataset, {}).get(method, ""))
            lines.append(f"| {method} | {' | '.join(numbers)} |")
    return lines


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.1f} ms"


def differences(results: Results, draws: list[str]) -> list[str]:
    heads = [HEADINGS[c] for c in JUDGED]
    lines = [f"| adapter | on | {' | '.join(heads)} |", "|---" * (len(heads) + 2) + "|"]
    for adapter in ADAPTERS:
        for host, methods in by_host(results.methods).items():
            for method in methods[1:]:
                if split_name(method)[1] != adapter:
                    continue
                cells = [results.difference(method, methods[0], c, draws) for c in JUDGED]
                lines.append(f"| +{adapter} | {host} | {' | '.join(map(shown, cells))} |")
    return lines


def hosts(results: Results, draws: list[str], reference: str = "nearest-mean") -> list[str]:
    heads = [HEADINGS[c] for c in JUDGED]
    lines = [f"| host | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for host, methods in by_host(results.methods).items():
        if host != reference and split_name(methods[0])[1] is None:
            cells = [results.difference(methods[0], reference, c, draws) for c in JUDGED]
            lines.append(f"| {host} | {' | '.join(map(shown, cells))} |")
    return lines


def to_host(results: Results, method: str, draws: list[str]) -> dict[str, object]:
    """What an adapter adds to its host, if the run has both."""
    host, adapter = split_name(method)
    if adapter is None or host not in results.methods:
        return {}
    cells = {c: results.difference(method, host, c, draws) for c in SHOWN}
    plain = {c: {"mean": x.mean, "half": x.half, "n": x.n} for c, x in cells.items() if x.n > 1}
    return {"to_host": plain} if plain else {}


def shown(cell) -> str:
    sign = "≈ " if abs(cell.mean) <= cell.half else ""
    return f"{sign}{cell.mean:+.2f} ± {cell.half:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--costs", type=Path, help="run whose times count, made on an idle machine")
    parser.add_argument("-o", "--out", type=Path, required=True, help="without a suffix")
    options = parser.parse_args()
    records, _ = read_records(options.run / "records.jsonl")
    results = Results(records)
    draws = results.random_draws()
    config = json.loads((options.run / "config.json").read_text("utf-8"))
    path = (options.costs or options.run) / "costs.json"
    costs = json.loads((options.run / "costs.json").read_text("utf-8")).get("cost", {})
    costs |= json.loads(path.read_text("utf-8")).get("cost", {}) if path.exists() else {}
    n_images = max(record.n_images for record in records)
    text = [
        f"Mean of n random draws ± 95 % interval {results.covered(draws)}, percent; {n_images:,} "
        f"{config['split']} images after the last session, seeds {config['seeds']}. Quoted numbers "
        "are of other encoders and far longer training: not comparable with those beside them.",
        "",
        *table(results, draws, costs, config["dataset"]),
        "",
        "Adapters against the same host without one, paired over draws (≈: the interval includes "
        "0; a lower FPR is better):",
        "",
        *differences(results, draws),
    ]
    others = hosts(results, draws) if "nearest-mean" in results.methods else []
    if len(others) > 2:
        title = "Hosts without an adapter against nearest mean, paired over draws:"
        text += ["", title, "", *others]
    page = options.out.with_suffix(".md")
    before = page.read_text("utf-8").split(MARK)[0] if page.exists() else ""
    page.write_text(f"{before}{MARK}\n\n" + "\n".join(text) + "\n", "utf-8")
    small = {
        "config": {k: v for k, v in config.items() if k not in ("machine",)},
        "cost": costs,
        **{
            group: {
                method: {
                    **{k: found[k] for k in ("summary", "difference_to", "difference")},
                    "sessions": {"accuracy": found["sessions"]["accuracy"]},
                    **to_host(results, method, draws if group == "random" else ["canonical"]),
                }
                for method, found in methods.items()
            }
            for group, methods in results.as_json("nearest-mean").items()
        },
    }
    written = json.dumps(small, indent=1, ensure_ascii=False)
    options.out.with_suffix(".json").write_text(written + "\n", "utf-8")


if __name__ == "__main__":
    main()
