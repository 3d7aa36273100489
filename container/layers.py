"""The layers of the Dockerfile in a plain folder, for machines without docker.

    python container/layers.py FOLDER

Does what COPY, RUN and ENV say, with FOLDER as the root and this Python as the base image, then
deletes what the image does not take over from the build, starts the command and asks what
HEALTHCHECK asks. Users and the base image itself are not reproduced.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
PLACES = r"(?<![\w./-])/(?=(opt|cala|models)\b)"  # absolute paths that are the image's own
ROOT_ONLY = "useradd"
MINUTE = 60.0


def main() -> None:
    root = Path(sys.argv[1]).resolve()
    root.mkdir(parents=True, exist_ok=True)
    if any(root.iterdir()):
        sys.exit(f"{root} is not empty")
    image = reproduce(HERE, root)
    health = serve(image, root)
    size = sum(f.lstat().st_blocks for f in (root / "opt").rglob("*")) * 512 / 1e6
    print(f"{health}; /opt/cala has {size:.0f} MB")


def instructions(text: str) -> list[tuple[str, str]]:
    """(word, rest) of each instruction of a Dockerfile."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = lines.replace("\\\n", " ").splitlines()
    return [(word, rest.strip()) for word, _, rest in (x.partition(" ") for x in joined) if word]


def in_context(context: Path, path: Path) -> bool:
    """Whether .dockerignore lets a file through: the last line that matches it decides."""
    lines = (context / ".dockerignore").read_text().split()
    parts = path.relative_to(context).parts
    names = ["/".join(parts[: n + 1]) for n in range(len(parts))]
    kept = True
    for line in lines:
        pattern = line.removeprefix("!")
        loose = pattern.removeprefix("**/")
        tried = [*names, *parts] if loose != pattern else names
        if any(fnmatch.fnmatch(name, loose) for name in tried):
            kept = line.startswith("!")
    return kept


def copy(context: Path, root: Path, rest: str) -> None:
    """COPY SOURCE … TARGET, of files that docker would find."""
    *sources, target = rest.split()
    place = root / target.lstrip("/")
    for name in sources:
        source = context / name
        files = [p for p in (source, *source.rglob("*")) if p.is_file() and in_context(context, p)]
        if not files:
            sys.exit(f"COPY {rest}: {name} is not there, or .dockerignore leaves it out")
        for file in files:
            to = place / file.relative_to(source) if source.is_dir() else place
            to = to / file.name if source.is_file() and target.endswith("/") else to
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, to)


def inside(text: str, root: Path) -> str:
    """A command with the image's own paths below the root."""
    return re.sub(PLACES, f"{root}/", text)


def reproduce(context: Path, root: Path) -> dict[str, str]:
    """All layers; returns the last of each instruction of the image itself."""
    env, image = dict(os.environ), {}
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
        env.pop(name, None)
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    taken: list[Path] = []
    for word, rest in instructions((context / "Dockerfile").read_text()):
        print(f"{word} {rest}"[:100], flush=True)
        if word == "FROM":
            image = {}
        elif word == "COPY" and rest.startswith("--from=build "):
            taken.append(root / rest.split()[1].lstrip("/"))
        elif word == "COPY":
            copy(context, root, rest)
        elif word == "RUN" and not rest.startswith(ROOT_ONLY):
            done = subprocess.run(["sh", "-c", inside(rest, root)], env=env, check=False, cwd=root)
            if done.returncode:
                sys.exit(f"RUN {rest} ended with {done.returncode}")
        image[word] = inside(rest, root)
    for path in sorted(root.rglob("*"), reverse=True):  # the build's own files are not in it
        if not any(path.is_relative_to(one) or one.is_relative_to(path) for one in taken):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    (root / "models").mkdir()
    return image


def serve(image: dict[str, str], root: Path) -> str:
    """Start ENTRYPOINT and CMD with ENV on a free port, and ask what HEALTHCHECK asks."""
    env = {**os.environ, "CALA_TOKEN": "at-least-16-signs"}
    env.pop("PYTHONPATH", None)
    for name, value in (part.split("=", 1) for part in shlex.split(image["ENV"])):
        env[name] = value.replace("$PATH", os.environ["PATH"])
    command = [*json.loads(image["ENTRYPOINT"]), *json.loads(image["CMD"]), "--port", "0"]
    found = shutil.which(command[0], path=env["PATH"])
    if found is None or not found.startswith(str(root)):
        sys.exit(f"{command[0]} is not in the image's PATH ({found})")
    asked = json.loads(image["HEALTHCHECK"].partition(" CMD ")[2])
    with subprocess.Popen(
        [found, *command[1:]], env=env, cwd=image["WORKDIR"], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            port = server.stdout.readline().split(" (")[0].rpartition(":")[2].strip()
            health = [part.replace(f":{image['EXPOSE']}/", f":{port}/") for part in asked]
            until = time.monotonic() + MINUTE
            while subprocess.run(health, env=env, check=False, capture_output=True).returncode:
                if server.poll() is not None or time.monotonic() > until:
                    sys.exit(f"{' '.join(command)} does not answer")
                time.sleep(0.2)
        finally:
            server.terminate()
    return f"{' '.join(command[:2])} answers"


if __name__ == "__main__":
    main()
