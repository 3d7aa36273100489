"""Every system at its published length: the commands, to print or to run.

    python benchmarks/full_length.py cifar100 --data DIR --out bases            # prints them
    python benchmarks/full_length.py cifar100 --data DIR --out bases --run      # on a GPU machine
    python benchmarks/full_length.py mini_imagenet --data DIR --out bases --run --epochs 1

One base session for each system with all that its authors used on the data set (`cala train
--published`; the line above each command says what that is), and one `cala run` with all of them,
plain and with every adapter, in which sessions are as published. `--epochs 1` goes through the same
commands with one epoch each and short sessions. Stopped, the same command continues.

`--hours` prints what the base sessions would take instead: multiplications, counted, at the rate of
one known run, ResNet-18 on mini-ImageNet, 200 epochs in 19 minutes on an H100. An estimate.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path

from cala.cli.train_session import PAPER_RECIPES
from cala.systems.published import Published, published
from cala.systems.registry import SYSTEMS

ADAPTERS = ("la", "cala", "cala-plus")
#: Encoders of the ordinary base session, which has the paper's recipe.
BASE = {"cifar100": "resnet18-small", "mini_imagenet": "resnet18-small", "cub200": "resnet18"}
#: Images per base class that judge and never train.
HOLDOUT = {"cifar100": 25, "mini_imagenet": 25, "cub200": 3}
#: Systems that work on the encoder of an ordinary base session.
ON_BASE = ("nearest-mean", "calibrated-mean", "teen", "gkeal", "icarl-star")
#: Heads that share the encoder of another system.
ALSO = {"bidist": ("bidist-base",)}

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


def hours(dataset: str) -> dict[str, dict[str, str | float]]:
    """What the base session of each system would take."""
    known = ("resnet18", SIDES["mini_imagenet"])
    rate = 3 * 200 * IMAGES["mini_imagenet"] * multiplications(*known) / KNOWN_SECONDS
    ordinary = Published(BASE[dataset], {"epochs": EPOCHS[dataset]})
    found = {}
    for name in ("base", *SYSTEMS):
        numbers = ordinary if name == "base" else published(name, dataset)
        epochs, views = numbers.base["epochs"], numbers.base.get("views", 1)
        work = multiplications(numbers.encoder, SIDES[dataset])
        seconds = PASSES[name] * views * epochs * IMAGES[dataset] * work / rate
        found[name] = {"encoder": numbers.encoder, "epochs": epochs, "hours": seconds / 3600}
    return found


def described(name: str, numbers: Published) -> str:
    """A system's numbers on one line."""
    stated = {"encoder": numbers.encoder, **numbers.base, **numbers.loss}
    stated.update({f"session {key}": value for key, value in numbers.session.items()})
    text = ", ".join(f"{key} {value}" for key, value in stated.items())
    return f"# {name}: {text}" + (f" (missing: {numbers.missing})" if numbers.missing else "")


def commands(
    dataset: str,
    data: str,
    out: Path,
    systems: list[str],
    *,
    epochs: float | None = None,
    init: str | None = None,
    extra: str = "",
) -> list[tuple[str, list[str]]]:
    """Each with a line about it; init : weights that a recipe starts from, as CUB-200's does"""
    common = ["--holdout", str(HOLDOUT[dataset]), *shlex.split(extra)]
    common += [] if epochs is None else ["--epochs", f"{epochs:g}"]
    start = [] if init is None else ["--init", init]
    recipe = ["--recipe", PAPER_RECIPES[dataset]]
    base = out / "base"
    numbers = {name: published(name, dataset) for name in systems}
    about = f"# ordinary base session: {PAPER_RECIPES[dataset]}"
    found = [(about, ["cala", "train", data, "-o", str(base), *recipe, *start, *common])]
    kinds = dict.fromkeys(numbers[name].encoder for name in systems if SYSTEMS[name].continues)
    bases = {kind: base if kind == BASE[dataset] else out / f"base-{kind}" for kind in kinds}
    for kind, place in bases.items():
        if place != base:
            words = ["-o", str(place), *recipe, "--encoder", kind, *start, *common]
            found.append((f"{about}, {kind}", ["cala", "train", data, *words]))
    for name in systems:
        begin = start
        if SYSTEMS[name].continues:
            begin = ["--init", str(bases[numbers[name].encoder] / "encoder.safetensors")]
        words = ["cala", "train", data, "-o", str(out / name), "--method", name, "--published"]
        found.append((described(name, numbers[name]), [*words, *begin, *common]))
    hosts = [*ON_BASE, *(host for name in systems for host in (name, *ALSO.get(name, ())))]
    encoders = ["--encoder", str(base)]
    for name in systems:
        for host in (name, *ALSO.get(name, ())):
            encoders += ["--encoder", f"{host}={out / name}"]
    methods = [m for host in hosts for m in (host, *(f"{host}+{a}" for a in ADAPTERS))]
    run = ["cala", "run", dataset, "--data", data, *encoders, "--methods", ",".join(methods)]
    long = [] if epochs is not None else ["--full-sessions"]
    short = [] if epochs is None else ["--draws", "random:1", "--fakes", "12", "--no-report"]
    teen = f"# teen: alpha {published('teen', dataset).head['alpha']}"
    return [*found, (teen, [*run, *long, *short, "--out", str(out / "run")])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", choices=PAPER_RECIPES)
    parser.add_argument("--data", default="DIR", help="folder of the images")
    parser.add_argument("--out", type=Path, default=Path("bases"))
    parser.add_argument("--systems", default="", help="some of them (default: all)")
    parser.add_argument("--init", help="weights that a pretrained recipe starts from")
    parser.add_argument("--epochs", type=float, help="instead of the published number")
    parser.add_argument("--extra", default="", help="more options for every `cala train`")
    parser.add_argument("--run", action="store_true", help="run them instead of printing")
    parser.add_argument("--hours", action="store_true", help="estimate what they would take")
    parser.add_argument("--json", type=Path, help="file that gets the hours too")
    options = parser.parse_args()
    if options.hours:
        found = hours(options.dataset)
        for name, numbers in found.items():
            print(f"{name:9} {numbers['encoder']:15} {numbers['epochs']:5g} epochs", end="  ")
            print(f"{numbers['hours']:6.1f} h")
        if options.json:
            before = json.loads(options.json.read_text("utf-8")) if options.json.exists() else {}
            text = json.dumps({**before, options.dataset: found}, indent=1) + "\n"
            options.json.write_text(text, "utf-8")
        return
    if options.dataset == "cub200" and options.init is None:
        parser.error("cub200 starts from weights trained on ImageNet: give --init FILE")
    wanted = options.systems.split(",") if options.systems else list(SYSTEMS)
    unknown = [name for name in wanted if name not in SYSTEMS]
    if unknown:
        parser.error(f"no system {unknown[0]}: known are {', '.join(SYSTEMS)}")
    for about, words in commands(
        options.dataset,
        options.data,
        options.out,
        wanted,
        epochs=options.epochs,
        init=options.init,
        extra=options.extra,
    ):
        print(about, shlex.join(words), sep="\n", flush=True)
        if not options.run:
            continue
        started = words[1] == "train" and (Path(words[words.index("-o") + 1]) / "config.json")
        again = ["--resume"] if started and started.exists() else []
        done = subprocess.run([sys.executable, "-m", *words, *again], check=False)
        if done.returncode:
            sys.exit(f"this command ended with {done.returncode}: {shlex.join(words)}")


if __name__ == "__main__":
    main()
