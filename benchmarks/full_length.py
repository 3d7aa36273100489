"""Every system at its published length: the commands, to print or to run.

    python benchmarks/full_length.py cifar100 --data DIR --out bases            # prints them
    python benchmarks/full_length.py cifar100 --data DIR --out bases --run      # on a GPU machine
    python benchmarks/full_length.py mini_imagenet --data DIR --out bases --run --epochs 1

One base session for each system, with the encoder, epochs, batch and rate that its authors used
for the data set (milestones at the same shares of the epochs as in the method's own schedule), and
one `cala run` with all of them, plain and with every adapter, in which sessions that train an
encoder have their published length. `--epochs 1` goes through the same commands with one epoch each
and short sessions. Stopped, the same command continues.

`--hours` prints what the base sessions would take instead: multiplications, counted, at the rate of
one known run, ResNet-18 on mini-ImageNet, 200 epochs in 19 minutes on an H100. An estimate.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ADAPTERS = ("la", "cala", "cala-plus")
RECIPES = {
    "cifar100": "paper-cifar100",
    "mini_imagenet": "paper-mini-imagenet",
    "cub200": "paper-cub200",
}
#: Encoders of these recipes.
BASE = {"cifar100": "resnet18-small", "mini_imagenet": "resnet18-small", "cub200": "resnet18"}
#: Images per base class that judge and never train.
HOLDOUT = {"cifar100": 25, "mini_imagenet": 25, "cub200": 3}
#: Systems that work on the encoder of an ordinary base session.
ON_BASE = ("nearest-mean", "calibrated-mean", "teen", "gkeal", "icarl-star")
#: Heads that share the encoder of another system.
ALSO = {"bidist": ("bidist-base",)}


@dataclass(frozen=True)
class Session:
    """A base session: the encoder, and what differs from the method's usual numbers."""

    encoder: str
    options: str
    continues: bool = False  # starts from an ordinary base session with the same encoder


TINY, SMALL, LARGE = "resnet20", "resnet18-small", "resnet18"
SESSIONS: dict[str, dict[str, Session]] = {
    "cifar100": {
        "cec": Session(TINY, "", True),
        "limit": Session(TINY, "--epochs 20", True),
        "fact": Session(TINY, "--epochs 600 --batch 256 --lr 0.1"),
        "alice": Session(SMALL, "--epochs 100 --batch 128 --lr 0.01"),
        "bidist": Session(SMALL, "--epochs 200 --batch 256 --lr 0.1"),
        "savc": Session(TINY, "--epochs 600 --batch 128 --lr 0.1 --views 2"),
        "icarl": Session(SMALL, "--epochs 200 --lr 0.1"),
        "topic": Session(SMALL, "--epochs 100 --lr 0.1"),
        "nc-fscil": Session("resnet12", "--epochs 200 --batch 512 --lr 0.25"),
    },
    "mini_imagenet": {
        "cec": Session(LARGE, "--lr 0.0002", True),
        "limit": Session(LARGE, "--epochs 20", True),
        "fact": Session(LARGE, "--epochs 1000 --batch 128 --lr 0.1"),
        "alice": Session(SMALL, "--epochs 200 --batch 64 --lr 0.01"),
        "bidist": Session(LARGE, "--epochs 200 --batch 256 --lr 0.1"),
        "savc": Session(LARGE, "--epochs 120 --batch 128 --lr 0.1 --views 12"),
        "icarl": Session(SMALL, "--epochs 200 --lr 0.1"),
        "topic": Session(SMALL, "--epochs 100 --lr 0.1"),
        "nc-fscil": Session("resnet12", "--epochs 500 --batch 512 --lr 0.25"),
    },
    "cub200": {
        "cec": Session(LARGE, "--lr 0.0002", True),
        "limit": Session(LARGE, "--epochs 40", True),
        "fact": Session(LARGE, "--epochs 400 --batch 256 --lr 0.005"),
        "alice": Session(LARGE, "--epochs 100 --batch 512 --lr 0.001"),
        "bidist": Session(LARGE, "--epochs 120 --batch 256 --lr 0.01"),
        "savc": Session(LARGE, "--epochs 120 --batch 128 --lr 0.002 --views 2"),
        "icarl": Session(LARGE, "--epochs 200 --lr 0.01"),
        "topic": Session(LARGE, "--epochs 120 --lr 0.01"),
        "nc-fscil": Session(LARGE, "--epochs 80 --batch 512 --lr 0.025"),
    },
}


#: Forward passes of a whole image that a step takes per training image; backward counts as two.
PASSES = {
    "base": 3.0,
    "cec": 6.0,  # every image also turned
    "limit": 4.4,  # 60 shots beside a batch of 128
    "fact": 4.5,  # mixed images go through the upper half
    "alice": 30.0,  # two views, and up to four mixed images for each
    "bidist": 3.0,
    "savc": 5.9,  # of each of two views: one large, two small, and one without backward
    "icarl": 3.0,
    "topic": 3.0,
    "nc-fscil": 3.0,
}
SIDES = {"cifar100": 32, "mini_imagenet": 84, "cub200": 224}
IMAGES = {"cifar100": 30_000, "mini_imagenet": 30_000, "cub200": 3_000}
EPOCHS = {"cifar100": 200, "mini_imagenet": 200, "cub200": 120}  # of the ordinary base session
KNOWN_SECONDS = 19 * 60  # of 200 epochs of mini-ImageNet with ResNet-18


def multiplications(encoder: str, side: int) -> float:
    """Of one image, forward."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from cala.encoders import ARCHITECTURES

    module = ARCHITECTURES[encoder]().eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(torch.zeros(1, 3, side, side))
    return counter.get_total_flops() / 2


def print_hours(dataset: str) -> None:
    from cala.systems.registry import SYSTEMS

    whole = 3 * 200 * IMAGES["mini_imagenet"] * multiplications(LARGE, SIDES["mini_imagenet"])
    rate = whole / KNOWN_SECONDS
    print(f"{dataset}: {rate / 1e12:.1f}e12 multiplications per second")
    for name in ("base", *SESSIONS[dataset]):
        system = SESSIONS[dataset].get(name, Session(BASE[dataset], f"--epochs {EPOCHS[dataset]}"))
        words = dict(zip(*[iter(shlex.split(system.options))] * 2, strict=True))
        epochs = float(words.get("--epochs", 0) or SYSTEMS[name].changes["epochs"])
        views = float(words.get("--views", 1))
        work = multiplications(system.encoder, SIDES[dataset])
        seconds = PASSES[name] * views * epochs * IMAGES[dataset] * work / rate
        print(f"  {name:9} {system.encoder:15} {epochs:5g} epochs  {seconds / 3600:6.1f} h")


def shortened(options: str, epochs: float | None) -> list[str]:
    """The options, with another number of epochs and whatever batch the set allows."""
    if epochs is None:
        return shlex.split(options)
    words, kept = shlex.split(options), []
    for name, value in zip(words[::2], words[1::2], strict=True):
        kept += [] if name in ("--epochs", "--batch") else [name, value]
    return [*kept, "--epochs", f"{epochs:g}"]


def commands(
    dataset: str,
    data: str,
    out: Path,
    systems: list[str],
    *,
    epochs: float | None = None,
    init: str | None = None,
    extra: str = "",
) -> list[list[str]]:
    """init : weights that a recipe starts from, as CUB-200's does"""
    common = ["--holdout", str(HOLDOUT[dataset]), *shlex.split(extra)]
    start = [] if init is None else ["--init", init]
    recipe = ["--recipe", RECIPES[dataset]]
    base, plain = out / "base", shortened("", epochs)
    found = [["cala", "train", data, "-o", str(base), *recipe, *start, *common, *plain]]
    own_start = {name: SESSIONS[dataset][name] for name in systems}
    kinds = dict.fromkeys(system.encoder for system in own_start.values() if system.continues)
    bases = {kind: base if kind == BASE[dataset] else out / f"base-{kind}" for kind in kinds}
    for kind, place in bases.items():
        if place != base:
            words = ["-o", str(place), *recipe, "--encoder", kind, *start, *common, *plain]
            found.append(["cala", "train", data, *words])
    for name, system in own_start.items():
        begin = start
        if system.continues:
            begin = ["--init", str(bases[system.encoder] / "encoder.safetensors")]
        kind = ["--encoder", system.encoder]
        own = [*kind, *begin, *common, *shortened(system.options, epochs)]
        found.append(
            ["cala", "train", data, "-o", str(out / name), "--method", name, *recipe, *own]
        )
    hosts = [*ON_BASE, *(host for name in systems for host in (name, *ALSO.get(name, ())))]
    encoders = ["--encoder", str(base)]
    for name in systems:
        for host in (name, *ALSO.get(name, ())):
            encoders += ["--encoder", f"{host}={out / name}"]
    methods = [m for host in hosts for m in (host, *(f"{host}+{a}" for a in ADAPTERS))]
    run = ["cala", "run", dataset, "--data", data, *encoders, "--methods", ",".join(methods)]
    long = [] if epochs is not None else ["--full-sessions"]
    short = [] if epochs is None else ["--draws", "random:1", "--fakes", "12", "--no-report"]
    return [*found, [*run, *long, *short, "--out", str(out / "run")]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", choices=SESSIONS)
    parser.add_argument("--data", default="DIR", help="folder of the images")
    parser.add_argument("--out", type=Path, default=Path("bases"))
    parser.add_argument("--systems", default="", help="some of them (default: all)")
    parser.add_argument("--init", help="weights that a pretrained recipe starts from")
    parser.add_argument("--epochs", type=float, help="instead of the published number")
    parser.add_argument("--extra", default="", help="more options for every `cala train`")
    parser.add_argument("--run", action="store_true", help="run them instead of printing")
    parser.add_argument("--hours", action="store_true", help="estimate what they would take")
    options = parser.parse_args()
    if options.hours:
        print_hours(options.dataset)
        return
    if options.dataset == "cub200" and options.init is None:
        parser.error("cub200 starts from weights trained on ImageNet: give --init FILE")
    wanted = options.systems.split(",") if options.systems else list(SESSIONS[options.dataset])
    unknown = [name for name in wanted if name not in SESSIONS[options.dataset]]
    if unknown:
        parser.error(f"no system {unknown[0]}: known are {', '.join(SESSIONS[options.dataset])}")
    for words in commands(
        options.dataset,
        options.data,
        options.out,
        wanted,
        epochs=options.epochs,
        init=options.init,
        extra=options.extra,
    ):
        print(shlex.join(words), flush=True)
        if not options.run:
            continue
        started = words[1] == "train" and (Path(words[words.index("-o") + 1]) / "config.json")
        again = ["--resume"] if started and started.exists() else []
        done = subprocess.run([sys.executable, "-m", *words, *again], check=False)
        if done.returncode:
            sys.exit(f"this command ended with {done.returncode}: {shlex.join(words)}")


if __name__ == "__main__":
    main()
