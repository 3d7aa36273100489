"""From names to heads: `nearest-mean`, `cala`, `HOST+la`, `HOST+cala-plus`, …"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cala.errors import InputError
from cala.heads.adapted import AdaptedHead
from cala.heads.auto import AutoHead
from cala.heads.base import Head, State
from cala.heads.registry import ADAPTERS, HEADS
from cala.registry import unknown


def method_names() -> list[str]:
    """Short names: all heads, and all adapters on their own host."""
    return [*HEADS, *ADAPTERS]


def split_name(name: str) -> tuple[str, str | None]:
    """Host and adapter of a method name.

    >>> split_name("cala"), split_name("nearest-mean"), split_name("nearest-mean+la")
    (('nearest-mean', 'cala'), ('nearest-mean', None), ('nearest-mean', 'la'))
    """
    if name in ADAPTERS:
        return ADAPTERS[name].host, name
    host, plus, adapter = str(name).partition("+")
    if host not in HEADS or (plus and adapter not in ADAPTERS):
        known = [*method_names(), *(f"HOST+{a}" for a in ADAPTERS)]
        raise unknown("method", name, known)
    return host, adapter or None


def default_metric(name: str) -> str:
    """An adapter named alone brings its metric; everything else is the CALA paper's cosine.

    "auto" leaves the choice to the data.
    """
    return ADAPTERS[name].metric if name in ADAPTERS else "cosine"


def head_options(host: str) -> list[str]:
    """What the constructor of a head takes, its base classes' own options first.

    >>> head_options("teen")
    ['metric', 'shrinkage', 'scale', 'alpha', 'tau']
    """
    found: dict[str, None] = {}
    for base in reversed(HEADS[host].__mro__):
        if "__init__" in vars(base) and issubclass(base, Head):
            parameters = inspect.signature(base).parameters.values()
            found.update((p.name, None) for p in parameters if p.kind is not p.VAR_KEYWORD)
    return list(found)


def takes_parts(name: str) -> bool:
    """Whether a method's host takes arrays that were trained together with the encoder."""
    return "parts" in head_options(split_name(name)[0])


def make_head(
    name: str,
    *,
    metric: str | None = None,
    seed: int = 0,
    adapter: Mapping[str, Any] | None = None,
    **host_options: Any,
) -> Head:
    """Make an unfitted head by the name of its method.

    Parameters
    ----------
    name : str
        A head, an adapter on its own host, or HOST+ADAPTER; see `method_names`.
    metric : {"cosine", "whitened"}, optional
        None takes the method's own.
    seed : int, default=0
        Of the adapter's training, and of a host that draws anything.
    adapter : mapping, optional
        Changes to the adapter's recipe, such as {"shots": (1,), "novel": 20}.
    **host_options
        For the host, such as scale=16.0. `parts`, what was trained together with the encoder, is
        dropped for heads that do not take it.

    Returns
    -------
    Head
        Call `fit_base` on it.

    Examples
    --------
    >>> make_head("cala", scale=16.0).host.name
    'nearest-mean'
    """
    host_name, adapter_name = split_name(name)
    known = head_options(host_name)
    for option in host_options:
        if option not in known and option != "parts":
            detail = f"{host_name} has no option {option!r}"
            raise InputError(detail, f"it takes {', '.join(known)}", field=option)
    metric = default_metric(name) if metric is None else metric
    if "parts" not in known:
        host_options.pop("parts", None)
    if "seed" in known:
        host_options["seed"] = seed
    if adapter_name is None:
        return HEADS[host_name](metric=metric, **host_options)
    recipe = replace(ADAPTERS[adapter_name], **(adapter or {}))
    if not recipe.guarded:
        return AdaptedHead(HEADS[host_name](metric=metric, **host_options), recipe, seed=seed)
    hosts = [(host_name, metric)]
    if metric == "auto":
        hosts = [(host_name, m) for m in HEADS[host_name].traits.metrics]
        hosts += [("calibrated-mean", "whitened")] if host_name == "nearest-mean" else []
    return AutoHead([HEADS[n](metric=m, **host_options) for n, m in hosts], recipe, seed=seed)


def restore_head(state: State) -> Head:
    """The head, of whatever kind, that `Head.state` came from."""
    if state["name"] == AdaptedHead.name:
        return AdaptedHead.from_state(state)
    return HEADS[state["name"]].from_state(state)
