"""End `cala watch` at each of its steps in turn, run it again, and print what is there then.

python killing.py MODEL PHOTOS ACTION
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from cli.inside import within
from store.crashing import CRASHED, crash


def main() -> None:
    import torch

    import cala
    from cala.connections.watch import LEDGER

    torch.set_num_threads(1)
    model, photos, action = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    cala.load(model).explain(photos)  # what they show is in the cache
    root = photos.parent
    for last in range(1000):
        inbox, out = root / f"inbox {last}", root / f"out {last}"
        shutil.copytree(photos, inbox)
        how = [] if action == "copy" else [f"--{action}"]
        words = ["watch", model, inbox, "--sort", out, *how, "--once", "--every", "0.05", "-q"]
        code, step = crash([*map(str, words), "--json"], last, False)
        ended = within(*words)
        assert ended.returncode == 0, ended.stderr
        copies = [path.read_bytes() for path in out.rglob("*.png")]
        found = {
            "step": step.rpartition("\n")[2] if code == CRASHED else "none",
            "copies": len(copies),
            "different": len(set(copies)),
            "inbox": len(list(inbox.rglob("*.png"))),
            "lines": len((out / LEDGER).read_text().splitlines()),
            "rests": sorted(p.name for p in out.rglob("*") if p.is_file() and is_rest(p)),
        }
        sys.stdout.write(json.dumps(found) + "\n")
        if code != CRASHED:
            return


def is_rest(path: Path) -> bool:
    return path.suffix not in (".png", ".lock")


if __name__ == "__main__":
    main()
