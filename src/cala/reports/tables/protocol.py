"""How the numbers came about: protocol, selection, n, seeds, versions, hardware."""

from __future__ import annotations

from typing import Any

from cala.files import counted, shown
from cala.reports.run import Run
from cala.reports.table import Row, Table, text
from cala.results import Results

SELECTION = {
    "validation": "validation: pseudo sessions of base classes; test images choose nothing",
    "last": "last: nothing is selected",
}


def protocol_table(run: Run, name: str) -> Table:
    """What `config.json` says, in words; what it lacks is said to be unknown."""
    config = run.config
    protocol = _dict(config.get("protocol"))
    embeddings = _dict(config.get("embeddings"))
    machine = _dict(config.get("machine"))
    versions = _dict(config.get("versions"))
    draws, seeds = _list(config.get("draws")), _list(config.get("seeds"))
    own = _dict(config.get("own_embeddings"))
    random = [d for d in draws if d != "canonical"]
    facts = {
        "data set": config.get("dataset"),
        "protocol": _protocol(protocol),
        "images scored": {
            "test": "the test set",
            "dev": "training images that nothing was learned from",
        }.get(str(config.get("split")), config.get("split")),
        "methods": ", ".join(map(str, _list(config.get("methods")))),
        "draws of the shots": _draws(draws, random),
        "seeds": f"{len(seeds)} ({', '.join(map(str, seeds))}); averaged inside a draw",
        **_trained(config),
        "selection": SELECTION.get(str(config.get("selection")), config.get("selection")),
        "metric": config.get("metric") or "each method's own",
        "scale": config.get("scale") or "the encoder's, or fitted",
        "γ": config.get("gamma") or "as trained",
        "changes to adapters": config.get("adapter") or "none",
        "embeddings": _embeddings(embeddings),
        **{f"embeddings of {shown(host)}": _embeddings(_dict(of)) for host, of in own.items()},
        "versions": ", ".join(f"{k} {v}" for k, v in versions.items()),
        "hardware": f"{machine.get('platform')}, {machine.get('cpus')} CPUs",
        "intervals": _intervals(run),
    }
    rows = [Row([text(k), text(v if v not in (None, "") else "unknown")]) for k, v in facts.items()]
    return Table(name, "Protocol", f"Run {shown(run.path.name)}.", ["what", "value"], rows)


def _intervals(run: Run) -> str:
    results = Results(run.records)
    over = results.covered(results.random_draws() or results.draws)
    return (
        f"95 % t-intervals {over}, not encoders or training seeds; differences are paired on the "
        "same draws and test images"
    )


def _trained(config: dict[str, Any]) -> dict[str, str]:
    """What is special about methods that train their encoder in sessions, where there are any."""
    methods = _list(config.get("trained_in_sessions"))
    if not methods:
        return {}
    length = "published length" if config.get("full_sessions") else "short"
    few = _list(config.get("few_draws"))
    draws = f"; draws: {', '.join(map(str, few))}" if few else ""
    return {"sessions that train an encoder": f"{length}{draws}: {', '.join(map(str, methods))}"}


def _protocol(protocol: dict[str, Any]) -> str:
    wanted = ("base", "sessions", "way", "shot")
    if not all(isinstance(protocol.get(key), int) for key in wanted):
        return ""
    base, sessions, way, shot = (protocol[key] for key in wanted)
    return (
        f"{counted(base, 'base class')}, then {counted(sessions, 'session')} of "
        f"{counted(way, 'class')} with {counted(shot, 'shot')} each"
    )


def _embeddings(stated: dict[str, Any]) -> str:
    return f"{stated.get('source')}, SHA-256 {str(stated.get('fingerprint'))[:16]}…"


def _draws(draws: list[Any], random: list[Any]) -> str:
    parts = ["canonical (the published list)"] if "canonical" in draws else []
    parts += [f"{len(random)} random"] if random else []
    return " and ".join(parts)


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
