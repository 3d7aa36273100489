"""Where an image set lies that a user calls by name."""

from __future__ import annotations

import os
from pathlib import Path

from cala.data.protocol import MANIFESTS
from cala.data.sets import DATASETS
from cala.errors import InputError
from cala.files import shown
from cala.registry import check_choice


def locate(
    dataset: str, data: Path | None = None, kind: str | None = None
) -> tuple[Path, str | None]:
    """The path of a set and the layout to expect there (None: recognise it).

    dataset : a path, or a benchmark's name; a benchmark is looked for in `data`, in $CALA_DATA
        and in `data/` of the working folder, where `cala data get` puts it
    kind : the layout to expect, whatever the name says
    """
    if kind is not None:
        check_choice("data set", kind, DATASETS)
    if dataset not in MANIFESTS:
        path = data if data is not None else Path(dataset)
        return path, kind or (dataset if dataset in DATASETS else None)
    if data is not None:
        return data, kind or dataset
    given = os.environ.get("CALA_DATA")
    places = [Path(given)] if given else []
    for root in (*places, Path("data")):
        try:
            inside = sorted(p for p in root.iterdir() if p.is_dir()) if root.is_dir() else []
            fitting = [p for p in (root, *inside) if DATASETS[dataset].fits(p)]
            found = [p for p in fitting if DATASETS[dataset].recognise(p)] or fitting
        except OSError:
            continue
        if found:
            return found[0], kind or dataset
    raise InputError(
        f"no copy of {dataset} was found: give --data DIR, where DIR holds "
        f"{DATASETS[dataset].layout}" + (f" ({shown(given)} has none)" if given else "")
    )
