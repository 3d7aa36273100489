"""A million classes: approximate search for the best one, against comparing with all of them.

    python benchmarks/million_classes.py            # 20,000 classes × 128, seconds
    python benchmarks/million_classes.py --scale    # 1,000,000 classes × 256, 6 GB of memory

CALA is fitted to 1,000 base classes and learns the rest in sessions, one row per class, which
stands for the mean of its shots; β is the adapter's own, so every novel class has its own bias.
Classes are generated as a tree (families, genera, classes, in 48 directions plus a little in all
others), since classes of the world are not scattered evenly; --even scatters them evenly, the hard
case for every index. Recall@1 is the share of queries for which the search returns the class that
comparing with all returns, γβ included. Times are processor time of one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from arguments import target_file
from cala.errors import BaseQueryWarning
from cala.heads import make_head
from cala.heads.approximate import ApproximateHead
from cala.heads.top import top_of_unit
from machine import machine
from memory import peak

PROBES = (4, 16, 64)
ALONE = 50  # queries that are asked one at a time
BASE, BASE_ROWS = 1000, 20
DIRECTIONS = 48
QUICK = {"shots": (1,), "novel": 100, "episodes": 20, "heldout_episodes": 5, "epochs": 5}


@dataclass(frozen=True)
class Size:
    classes: int
    dim: int
    session: int
    queries: int


SMALL = Size(20_000, 128, 5_000, 1000)
LARGE = Size(1_000_000, 256, 50_000, 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", action="store_true", help="a million classes")
    parser.add_argument("--even", action="store_true", help="classes without any structure")
    parser.add_argument("--json", type=target_file, help="also write the numbers here")
    args = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    warnings.simplefilter("ignore", BaseQueryWarning)
    size = LARGE if args.scale else SMALL
    print(
        f"{machine()}\n{size.classes:,} classes × {size.dim}, "
        f"{'evenly scattered' if args.even else 'in a tree'}, {size.queries:,} queries",
        flush=True,
    )
    found = measure(size, args.even)
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1))


def measure(size: Size, even: bool) -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)
    world = World(size, even, generator)
    head, grown = timed(lambda: learned(world, size, generator))
    shift = head.shift[BASE:]
    print(
        f"learned in {grown:.0f} s; s {head.host.scale:.1f}, γβ of novel classes "
        f"{shift.mean():.2f} ± {shift.std():.2f} (from {shift.min():.2f} to {shift.max():.2f})",
        flush=True,
    )
    labels = torch.randint(size.classes, (size.queries,), generator=generator)
    unit = head.embed(world.rows(labels, 1.0))
    exact, all_seconds = timed(lambda: top_of_unit(head, unit))
    _, alone = timed(lambda: [top_of_unit(head, unit[i : i + 1]) for i in range(ALONE)])
    index = ApproximateHead(head)
    _, built = timed(index.make_index)
    right = (exact.columns[:, 0] == labels).float().mean()
    print(
        f"index of {index._index.nlist:,} cells made in {built:.0f} s; {100 * right:.1f} % of the "
        "queries are right when compared with all\n\n"
        "ms of a query among all of them at once, and alone\n"
        f"{'':<20}{'recall@1':>9}{'right':>9}{'at once':>10}{'faster':>9}{'alone':>9}{'faster':>9}"
    )
    print(
        f"{'compared with all':<20}{'':>9}{100 * right:>7.1f} %"
        f"{1000 * all_seconds / size.queries:>10.2f}{'':>9}{1000 * alone / ALONE:>9.2f}"
    )
    table = []
    for probes in PROBES:
        index.probes = probes
        found, seconds = timed(lambda: index.top_of_unit(unit))
        same = found.columns[:, 0] == exact.columns[:, 0]
        own = (found.columns[:, 0] == labels).float().mean()
        _, single = timed(lambda: [index.top_of_unit(unit[i : i + 1]) for i in range(ALONE)])
        weights, bias = head.linear_at(found.columns[:, 0])
        wrong = ((unit * weights).sum(1) + bias - found.logits[:, 0]).abs().max()
        row = {
            "probes": probes,
            "recall": float(same.float().mean()),
            "right": float(own),
            "ms": 1000 * seconds / size.queries,
            "faster": all_seconds / seconds,
            "error": float(wrong),
            "alone_ms": 1000 * single / ALONE,
            "alone_faster": alone / single,
        }
        table.append(row)
        print(
            f"{f'{probes} cells searched':<20}{100 * row['recall']:>7.1f} %"
            f"{100 * row['right']:>7.1f} %{row['ms']:>10.2f}{row['faster']:>9.1f}"
            f"{row['alone_ms']:>9.2f}{row['alone_faster']:>9.1f}",
            flush=True,
        )
    worst = max(row["error"] for row in table)
    print(f"\nlargest error of a logit that was found: {worst:.1e}")
    print(f"peak {peak() / 1e9:.1f} GB resident")
    return {
        "machine": machine(),
        "exact_ms": 1000 * all_seconds / size.queries,
        "exact_alone_ms": 1000 * alone / ALONE,
        "built": built,
        "rows": table,
    }


class World:
    """Where classes lie: centres are made again from their numbers, none are kept but a tree."""

    def __init__(self, size: Size, even: bool, generator: torch.Generator) -> None:
        self.size, self.even, self.generator = size, even, generator
        self.directions = torch.randn(DIRECTIONS, size.dim, generator=generator) / DIRECTIONS**0.5
        self.families = torch.randn(200, DIRECTIONS, generator=generator)
        self.genera = torch.randn(size.classes // 20, DIRECTIONS, generator=generator)
        self.classes = torch.randn(size.classes, DIRECTIONS, generator=generator).half()

    def rows(self, labels: Tensor, noise: float) -> Tensor:
        """A row (d,) of each label (n,), `noise` away from its centre."""
        own = self.classes[labels].float()
        if self.even:
            spread = torch.Generator().manual_seed(1)
            turn = torch.randn(DIRECTIONS, self.size.dim, generator=spread)
            centres = torch.sin(40 * own @ turn)  # waves of so few numbers look like noise
        else:
            family, genus = labels % 200, labels % len(self.genera)
            latent = self.families[family] + 0.7 * self.genera[genus] + 0.5 * own
            centres = latent @ self.directions
        noise *= 1.0 if self.even else 1.5
        return centres + noise * torch.randn(centres.shape, generator=self.generator)


def learned(world: World, size: Size, generator: torch.Generator):
    """CALA on the base classes, and every other class added."""
    head = make_head("cala", adapter=QUICK)
    labels = torch.arange(BASE).repeat_interleave(BASE_ROWS)
    head.fit_base(world.rows(labels, 1.0), labels)
    for start in range(BASE, size.classes, size.session):
        labels = torch.arange(start, min(start + size.session, size.classes))
        head.add(world.rows(labels, 5**-0.5), labels)
        end = "\r" if sys.stderr.isatty() else "\n"
        print(f"{labels[-1] + 1:,} classes", end=end, file=sys.stderr, flush=True)
    return head


def timed(work):
    """A result and the processor time of it: other work on the machine does not count."""
    started = time.process_time()
    result = work()
    return result, time.process_time() - started


if __name__ == "__main__":
    main()
