"""Modern pretrained encoders on the three benchmarks: the commands, to print or to run.

    python benchmarks/modern_encoders.py --data cub200=DIR --data cifar100=DIR    # prints them
    python benchmarks/modern_encoders.py --data cub200=DIR --out runs --run      # with a network
    python benchmarks/modern_encoders.py --data cub200=DIR --encoder mine=timm:NAME --run

Weights are downloaded from their hubs (`pip install -c constraints.txt '.[timm,hf]'`); nothing is
trained. None of these rows was measured by us. What to expect of such encoders, last / average on
CUB-200 with ViT-B/16, as published: CASP 85.8 / 86.4, SEC 84.8 / 84.9.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

from cala.data.protocol import MANIFESTS

ENCODERS = {
    "dinov2-s": "hf:facebook/dinov2-small",
    "dinov2-b": "hf:facebook/dinov2-base",
    "siglip-b16": "hf:google/siglip-base-patch16-224",
    "vit-b16": "timm:vit_base_patch16_224.augreg_in21k",
}
#: Classes of mini-ImageNet are classes of ImageNet, whose labels trained these.
LABELLED = ("vit-b16",)
HOSTS = ("nearest-mean", "teen", "gkeal", "nc-fscil", "icarl-star", "bidist-base")
METHODS = [m for host in HOSTS for m in (host, *(f"{host}+{a}" for a in ("la", "cala-plus")))]
OPTIONS = "--tta flip --shot-views 4 --fakes 100 --draws canonical,random:20"


def commands(
    data: dict[str, str], encoders: dict[str, str], out: Path, methods: str, options: str
) -> list[tuple[str, list[str]]]:
    """Each with a line about it."""
    found = []
    for dataset, folder in data.items():
        runs = []
        for name, uri in encoders.items():
            leak = dataset == "mini_imagenet" and name in LABELLED
            about = ": NOT a fair result, the novel classes trained this encoder" if leak else ""
            runs.append(str(out / f"{dataset}-{name}"))
            words = ["cala", "run", dataset, "--data", folder, "--encoder", uri]
            words += ["--methods", methods, *shlex.split(options), "--out", runs[-1]]
            found.append((f"# {dataset}, {name}{about}", words))
        if len(runs) > 1:
            found.append((f"# {dataset}, side by side", ["cala", "compare", *runs]))
    return found


def named(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r}: write NAME=VALUE")
    return name, value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=named, action="append", metavar="SET=DIR", required=True)
    parser.add_argument("--encoder", type=named, action="append", metavar="NAME=URI", default=[])
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--options", default=OPTIONS, help=f"of `cala run` (default: {OPTIONS})")
    parser.add_argument("--run", action="store_true", help="run them instead of printing")
    given = parser.parse_args()
    data, encoders = dict(given.data), dict(given.encoder) or ENCODERS
    unknown = [name for name in data if name not in MANIFESTS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]}: known are {', '.join(MANIFESTS)}")
    for about, words in commands(data, encoders, given.out, given.methods, given.options):
        print(about, shlex.join(words), sep="\n", flush=True)
        if given.run and subprocess.run([sys.executable, "-m", *words], check=False).returncode:
            sys.exit(f"this command failed: {shlex.join(words)}")


if __name__ == "__main__":
    main()
