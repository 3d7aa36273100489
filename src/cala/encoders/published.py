"""Published encoders: an index with checksums, and files that are fetched into the cache by name.

The index that comes with cala says where the files are. A mirror is a folder or a URL with an
`index.json` and the files beside it, as benchmarks/release_assets.py lays them out.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cala.data.cache import cache_folder
from cala.data.download import retrieve
from cala.encoders.registry import ENCODERS
from cala.errors import DamagedFile, InputError
from cala.files import read_whole, reason, shown
from cala.registry import check_choice

INDEX = "index.json"
PUBLISHED_LIST = Path(__file__).with_name("published.json")
MIRROR = "check the name and the connection, or give a folder or URL with --from"

Entries = dict[str, dict[str, Any]]


def read_index(source: str | None = None) -> tuple[str, Entries]:
    """Return where the files are, and what is known about each encoder.

    Parameters
    ----------
    source : str, optional
        A folder or URL with an `index.json`; by default the index that comes with cala.
        An entry without `sha256` is not published: `train` is the command that makes it.
    """
    if source is None:
        return _parsed(PUBLISHED_LIST, str(PUBLISHED_LIST))
    with TemporaryDirectory() as folder:
        place, url = Path(folder, INDEX), f"{source.rstrip('/')}/{INDEX}"
        retrieve(url, place, None, MIRROR)
        return source.rstrip("/"), _parsed(place, url)[1]


def _parsed(path: Path, source: str) -> tuple[str, Entries]:
    try:
        found = json.loads(read_whole(path))
        entries: Entries = {str(name): dict(entry) for name, entry in found["encoders"].items()}
        for entry in entries.values():
            if not ("sha256" in entry or isinstance(entry["train"], str)):
                raise ValueError("the command in `train` is not a string")
            if not re.fullmatch("[0-9a-f]{64}", entry.get("sha256", 64 * "0")):
                raise ValueError("a sha256 is not 64 hexadecimal digits")
        return str(found.get("from") or ""), entries
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedFile(shown(source), reason(error), "use the index of a release") from error


def get_encoder(name: str, source: str | None = None) -> Path:
    """Fetch a published encoder into the cache and return its file.

    It is then known to `load_encoder` by name. A file that is already there is checked, and
    fetched again only if its SHA-256 differs.
    """
    place, entries = read_index(source)
    check_choice("published encoder", name, entries)
    if name in ENCODERS or Path(name).name != name:
        detail = f"{shown(name)} cannot be the name of a published encoder"
        raise InputError(detail, "use another index", field="name")
    entry = entries[name]
    if "sha256" not in entry:
        raise InputError(
            f"{name} is not published yet",
            f"train it with `{entry['train']}`, or name a folder or URL that has it with --from",
            field="name",
            code="not_published",
        )
    file = f"{name}.safetensors"
    path = cache_folder("encoders") / file
    retrieve(f"{place}/{file}", path, f"sha256:{entry['sha256']}", MIRROR)
    return path
