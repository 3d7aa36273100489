"""`cala train --seeds N`: one training per seed, one after another or spread over a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from cala.cluster import Where


def train_many(given: dict[str, Any], where: Where | None) -> None:
    """given : the command's options; where : None for this process"""
    from cala.cli.train import train_one
    from cala.errors import InputError
    from cala.files import shown
    from cala.training.place import CHECKPOINT

    if given["devices"] * given["nodes"] > 1:
        raise InputError(
            "--devices and --nodes share one training, --seeds and --on ray make several: use one "
            "or the other"
        )
    jobs = _jobs(given)
    begun = [job["out"] for job in jobs if (job["out"] / CHECKPOINT).exists()]
    if begun and not given["resume"]:
        raise InputError(
            f"{shown(begun[0])} holds a training run already: add --resume to continue it, or "
            "choose another folder"
        )
    if where is not None:
        _on_cluster(jobs, where, given["quiet"])
        return
    for job in jobs:
        if not given["quiet"]:
            typer.echo(f"seed {job['seed']}", err=True)
        train_one(job)


def _jobs(given: dict[str, Any]) -> list[dict[str, Any]]:
    """The options of each training; one alone has the folder to itself."""
    if given["seeds"] == 1:
        return [given]
    first, out = given["seed"], Path(given["out"])
    return [
        {**given, "seed": seed, "out": out / f"seed-{seed}"}
        for seed in range(first, first + given["seeds"])
    ]


def _on_cluster(jobs: list[dict[str, Any]], where: Where, quiet: bool) -> None:
    from cala.cli.progress import progress_bar
    from cala.cluster.ray_engine import connected

    with connected(where) as cluster, progress_bar("training encoders", quiet) as advance:
        for job in jobs:
            threads = job["threads"] or 1
            cluster.submit(
                f"seed {job['seed']}",
                train_task,
                _located(job),
                threads,
                cpus=min(threads, cluster.widest),
                gpus=int(cluster.gpus > 0),
            )
        advance(0, len(jobs))
        for done, (_, path) in enumerate(cluster.results(), 1):
            advance(done, len(jobs))
            typer.echo(f"encoder: {path}")


def _located(job: dict[str, Any]) -> dict[str, Any]:
    """Options that mean the same in a process that runs elsewhere: paths are absolute."""
    found = {**job, "quiet": True, "out": job["out"].absolute(), "data": job["data"].absolute()}
    if job["init"] is not None and Path(job["init"]).exists():
        found["init"] = str(Path(job["init"]).absolute())
    return found


def train_task(given: dict[str, Any], threads: int) -> str:
    """On a node: a training from its last checkpoint on, if a worker that was lost left one."""
    import torch

    from cala.cli.train import make_session
    from cala.training.session import train_base

    torch.set_num_threads(threads)
    return str(train_base(make_session(given), resume=True))
