"""Tables about runs themselves: headroom, costs, and how the numbers came about."""

from __future__ import annotations

from typing import Any

from cala.files import counted, shown
from cala.reports.phrases import session_length
from cala.reports.runs import Headroom, Run
from cala.reports.study import Study
from cala.results import Results
from cala.table import Row, Table, TableCell, plain, row

#: Oracle in `headroom.json` -> how its row is called.
HEADROOM_ROWS = {
    "plain": "nearest mean, no shift",
    "single_shift": "oracle: best single shift",
    "class_shifts": "oracle: best shift per novel class",
    "likely_class_shifts": "oracle: likeliest shift per novel class",
    "all_images": "oracle: prototypes of all training images",
    "all_images_single_shift": "oracle: the same, best single shift",
}
#: Oracles that maximise accuracy, so that their accuracy where they were fitted is a bound.
BOUNDED = ("single_shift", "class_shifts", "all_images_single_shift")
_HOST = "nearest-mean"
#: Rate in `headroom.json` -> the heading; in lower case a column of results.
_RATES = {"accuracy": "last", "base": "base", "novel": "novel", "hm": "HM", "ausuc": "AUSUC"}
ORACLES_MEAN = (
    "Rows named oracle show what nearest mean would reach with shifts fitted to labelled test "
    "images, or with prototypes from all training images of the novel classes instead of the "
    "shots; an oracle uses test labels and cannot be selected.",
    "Shifts per novel class minus the best single shift is about what a class-aware shift can "
    "still gain on this encoder; what prototypes of all training images reach above that is the "
    "price of few shots, which no shift pays back.",
)
COSTS = {
    "fit_seconds": "base session, s",
    "session_seconds": "session, s",
    "head_bytes": "memory, kB",
    "session_encoded": "encoded again",
    "session_encode_seconds": "encoding, s",
}
DIGITS = {"fit_seconds": 1, "session_seconds": 3, "head_bytes": 0, "session_encoded": 0}
SELECTION = {
    "validation": "validation: pseudo sessions of base classes; test images choose nothing",
    "last": "last: nothing is selected",
}


def headroom_table(study: Study) -> Table | None:
    """In each metric the oracles, then the methods that work in it."""
    rows: list[Row] = []
    notes = []
    for found in study.headroom.values():
        rows += _oracles(found)
        rows += [_method(study, m, found) for m in study.methods if _comparable(study, m, found)]
        notes += _gains(found)
    if not rows:
        return None
    first = next(iter(study.headroom.values()))
    draws = ", ".join(dict.fromkeys(found.draw for found in study.headroom.values()))
    caption = (
        f"Percent, after the last session of one draw ({draws}), n = {first.images:,} "
        f"{study.split} images, so there is no interval. Oracles are fitted to one half of the "
        "images and scored on the other, both ways, averaged. Fitted half: accuracy where they "
        "were fitted; the best that such a shift could reach lies between this and last. Methods "
        "use no test label; one that is not on nearest mean changes more than shifts, and may lie "
        "above them."
    )
    columns = ["classifier", "metric", *_RATES.values(), "fitted half"]
    return Table("headroom", "Headroom (oracle)", caption, columns, rows, notes)


def _oracles(found: Headroom) -> list[Row]:
    rows = []
    for oracle, name in HEADROOM_ROWS.items():
        rates = found.rates.get(oracle, {})
        if rates:
            fitted = rates.get("fitted") if oracle in BOUNDED else None
            cells = [_percent(rates.get(rate)) for rate in _RATES]
            rows.append(row(name, found.metric, *cells, _percent(fitted)))
    return rows


def _method(study: Study, method: str, found: Headroom) -> Row:
    values = [study.results.values(method, c.lower(), [found.draw])[0] for c in _RATES.values()]
    host = study.artifacts[method].meta.get("host")
    name = method if host == _HOST or str(host) in method else f"{method} (on {host})"
    return row(name, found.metric, *(plain(v, 1) for v in values), TableCell())


def _comparable(study: Study, method: str, found: Headroom) -> bool:
    """Whether a method has the same draw, metric and embeddings as the oracles.

    Nearest mean without an adapter is their first row already.
    """
    artifact = study.artifacts.get(method)
    if artifact is None or artifact.meta.get("metric") != found.metric:
        return False
    host = artifact.meta.get("host")
    if host == _HOST and not artifact.meta.get("adapter"):
        return False
    others = ("own_embeddings", "trained_in_sessions")
    if any(host in (run.config.get(key) or ()) for run in study.runs for key in others):
        return False
    return bool(study.results.shared_draws([method], [found.draw]))


def _gains(found: Headroom) -> list[str]:
    """What each step is worth, in a sentence."""
    wanted = ("plain", "single_shift", "class_shifts", "likely_class_shifts", "all_images")
    last = [found.rates.get(oracle, {}).get("accuracy") for oracle in wanted]
    if None in last:
        return []
    none, single, *classes, full = (value or 0.0 for value in last)
    steps = (single - none, max(classes) - single, full - none)
    one, each, images = (f"{100 * step:+.1f}".replace("-", "−") for step in steps)
    return [
        f"{found.metric}: knowing the best single shift is worth {one} points of last, the better "
        f"of the two shifts per novel class {each} more; prototypes of all training images are "
        f"worth {images} without any shift (oracles)."
    ]


def _percent(rate: float | None) -> TableCell:
    return plain(None if rate is None else 100 * rate, 1)


def costs_table(study: Study) -> Table | None:
    """One row per method that has costs; None if none has."""
    rows = [
        row(method, *(_cost(found, key) for key in COSTS))
        for method in study.methods
        if (found := study.costs.get(method))
    ]
    if not rows:
        return None
    notes = [
        "base session: fitting the head and its adapter; session: learning the new classes; "
        "memory: what one session hands to the next, after the last; encoded again: test images "
        "per session that had to be encoded again, since the session had changed the encoder (all "
        "others are encoded once, ever).",
        "Times are of the machine that ran, as busy as it was: compare orders of magnitude.",
    ]
    if any(found.get("session_encoded") for found in study.costs.values()):
        notes.insert(
            1,
            "Methods that encode again train their encoder in every session; adapters on them are "
            "trained on the base branch, which stays frozen. Short sessions become published ones "
            f"with `--full-sessions`.{session_length(study)}",
        )
    caption = "Means over seeds, draws and sessions."
    return Table("costs", "Costs", caption, ["method", *COSTS.values()], rows, notes)


def _cost(found: dict[str, float], key: str) -> TableCell:
    value = found.get(key)
    scale = 1000 if key == "head_bytes" else 1
    return plain(None if value is None else value / scale, DIGITS.get(key, 1))


def protocol_table(run: Run, name: str) -> Table:
    """What `config.json` says, in words; missing values are "unknown"."""
    config = run.config
    machine, versions, own = (
        config.get(key) or {} for key in ("machine", "versions", "own_embeddings")
    )
    seeds, gamma = config.get("seeds") or [], config.get("gamma")
    images = {"test": "the test set", "dev": "training images that nothing was learned from"}
    results = Results(run.records)
    over = results.covered(results.random_draws() or results.draws)
    facts = {
        "data set": config.get("dataset"),
        "protocol": _protocol(config["protocol"]),
        "images scored": images.get(str(config.get("split")), config.get("split")),
        "methods": _listed(config.get("methods")),
        "draws of the shots": _draws(config.get("draws") or []),
        "seeds": f"{len(seeds)} ({_listed(seeds)}); averaged inside a draw",
        **_trained(config),
        "selection": SELECTION.get(str(config.get("selection")), config.get("selection")),
        "metric": config.get("metric") or "each method's own",
        "scale": config.get("scale") or "the encoder's, or fitted",
        "γ": "as trained" if gamma is None else gamma,
        "changes to adapters": config.get("adapter") or "none",
        "embeddings": _embeddings(config.get("embeddings")),
        **{f"embeddings of {shown(host)}": _embeddings(of) for host, of in own.items()},
        "versions": ", ".join(f"{k} {v}" for k, v in versions.items()),
        "hardware": f"{machine.get('platform')}, {machine.get('cpus')} CPUs",
        "intervals": (
            f"95 % t-intervals {over}, not encoders or training seeds; differences are paired on "
            "the same draws and test images"
        ),
    }
    rows = [row(k, "unknown" if v in (None, "") else str(v)) for k, v in facts.items()]
    return Table(name, "Protocol", f"Run {shown(run.path.name)}.", ["what", "value"], rows)


def _trained(config: dict[str, Any]) -> dict[str, str]:
    """What is special about methods that train their encoder in sessions, where there are any."""
    methods, few = config.get("trained_in_sessions"), config.get("few_draws")
    if not methods:
        return {}
    length = "published length" if config.get("full_sessions") else "short"
    draws = f"; draws: {_listed(few)}" if few else ""
    return {"sessions that train an encoder": f"{length}{draws}: {_listed(methods)}"}


def _protocol(protocol: dict[str, Any]) -> str:
    wanted = ("base", "sessions", "way", "shot")
    if not all(isinstance(protocol.get(key), int) for key in wanted):
        return ""
    base, sessions, way, shot = (protocol[key] for key in wanted)
    return (
        f"{counted(base, 'base class')}, then {counted(sessions, 'session')} of "
        f"{counted(way, 'class')} with {counted(shot, 'shot')} each"
    )


def _embeddings(stated: object) -> str:
    known = stated if isinstance(stated, dict) else {}
    return f"{known.get('source')}, SHA-256 {str(known.get('fingerprint'))[:16]}…"


def _draws(draws: list[str]) -> str:
    random = [d for d in draws if d != "canonical"]
    parts = ["canonical (the published list)"] if "canonical" in draws else []
    parts += [f"{len(random)} random"] if random else []
    return " and ".join(parts)


def _listed(values: object) -> str:
    return ", ".join(map(str, values)) if isinstance(values, list) else ""
