"""Stop `cala add` at every write, flush, rename, new file and deletion, one after the other.

A program of its own: it makes a small model, then lets a forked copy of itself add a class and end
without a word at step k, for k = 0, 1, 2, … until the command gets through. After each it looks at
the model and prints one JSON line: the step, and what was found.

    python crashing.py FOLDER COMMAND...
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

CRASHED = 77
STEPS = ("write", "fsync", "replace", "rename", "link", "mkdir", "unlink", "open")


def install(last: int, torn: bool) -> None:
    """End the process at step number `last`, before it is done or, for a write, half done."""
    count = 0

    def stopping(name: str, real: Callable) -> Callable:
        def call(*given, **named):
            nonlocal count
            making = name != "open" or (len(given) > 1 and given[1] & os.O_CREAT)
            if making:
                if count == last:
                    if name == "write" and torn:
                        real(given[0], bytes(given[1])[: len(given[1]) // 2])
                    os.write_real(1, name.encode())
                    os._exit(CRASHED)
                count += 1
            return real(*given, **named)

        return call

    os.write_real = os.write
    for name in STEPS:
        setattr(os, name, stopping(name, getattr(os, name)))


def crash(command: list[str], last: int, torn: bool) -> tuple[int, str]:
    """Run a command in a copy of this process until its step number `last`."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(write, 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.argv = ["cala", *command]
        install(last, torn)
        from cala.cli import main

        try:
            main()
        except SystemExit as error:
            os._exit(int(error.code or 0))
        os._exit(0)
    os.close(write)
    said = b""
    while piece := os.read(read, 4096):
        said += piece
    os.close(read)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), said.decode(errors="replace")[-8:]


def main() -> None:
    import torch

    import cala.encoders  # noqa: F401  once, and not in every copy

    torch.set_num_threads(1)
    from cala.model import load

    folder, command = Path(sys.argv[1]), sys.argv[2:]
    model, spare = folder / "model", folder / "spare"
    shutil.copytree(model, spare)
    writes: list[int] = []
    todo = [(False, last) for last in range(1000)]
    while todo:
        torn, last = todo.pop(0)
        shutil.rmtree(model)
        shutil.copytree(spare, model)
        code, step = crash(command, last, torn)
        found = load(model)
        line = {
            "step": step if code == CRASHED else "none",
            "torn": torn,
            "version": found.version,
            "classes": found.classes,
        }
        found.rename("class 0", "again")  # life goes on, and the rests are cleared away
        line["after"] = [p.name for p in model.rglob("*.tmp")]
        sys.stdout.write(json.dumps(line) + "\n")
        if code != CRASHED:  # it got through: once more with the writes, each half done
            todo = [(True, place) for place in writes]
        elif not torn and step == "write":
            writes.append(last)


if __name__ == "__main__":
    main()
