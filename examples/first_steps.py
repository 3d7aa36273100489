"""The first steps with cala, on pictures that it draws: learn, ask, teach, ask again, undo.

    python examples/first_steps.py [FOLDER]        # the folder keeps pictures and model

Calls the commands of the installed package and prints them with what they say; ends with exit code
1 where one fails or the new class is not learned. `make demo` begins with it, and it is how an
installation without extras is tested.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from cala.app.sample import CLASSES, LEARNED, STRANGER, picture


def draw(folder: Path, label: str, numbers: range) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        (folder / f"{label} {number}.jpg").write_bytes(picture(label, number))


def cala(*words: str | Path, shown: bool = True) -> str:
    if shown:
        print(
            "\n$ cala", *(f"'{word}'" if " " in str(word) else word for word in words), flush=True
        )
    command = [sys.executable, "-m", "cala", *map(str, words)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if shown or done.returncode:
        print(done.stdout, end="")
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def answers(model: Path, trip: Path) -> dict[str, str]:
    """What each picture was taken for."""
    found = json.loads(cala("predict", model, trip, "--json", shown=False))["predictions"]
    return {Path(one["image"]).name: one["label"] for one in found}


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo")
    known, trip, model = folder / "known", folder / "trip", folder / "things"
    shutil.rmtree(model, ignore_errors=True)
    for label in CLASSES:
        draw(known / label, label, range(LEARNED))
        draw(trip, label, range(LEARNED, LEARNED + 1))
    draw(folder / STRANGER, STRANGER, range(5))
    draw(trip, STRANGER, range(5, 7))

    print(f"Drawn: {LEARNED} pictures each of {', '.join(CLASSES)}; some more to ask about.")
    cala("fit", known, "-o", model)
    cala("predict", model, trip)
    print(f"\nIt has never seen an {STRANGER}. Teach it one from five pictures:")
    cala("add", model, folder / STRANGER, "--as", STRANGER)
    cala("predict", model, trip)
    found = answers(model, trip)
    right = sum(name.startswith(label) for name, label in found.items())
    print(f"\n{right} of {len(found)} right. Every change can be undone:")
    cala("undo", model)
    cala("redo", model)
    if right < len(found) - 1:
        sys.exit(f"only {right} of {len(found)} pictures were recognised: {found}")


if __name__ == "__main__":
    main()
