"""A grid of base trainings, methods × seeds: one after another or spread over a cluster."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
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
    from cala.methods import METHODS
    from cala.training.place import CHECKPOINT

    if given["devices"] * given["nodes"] > 1:
        raise InputError(
            "--devices and --nodes share one training, --seeds, several methods and --on ray make "
            "several: use one or the other"
        )
    jobs = _jobs(given)
    for method in {job["method"] for job in jobs.values()} - {None}:
        METHODS[method]  # says now which there are
    begun = [job["out"] for job in jobs.values() if (job["out"] / CHECKPOINT).exists()]
    if begun and not given["resume"]:
        raise InputError(
            f"{shown(begun[0])} holds a training run already: add --resume to continue it, or "
            "choose another folder"
        )
    if where is not None:
        _on_cluster(jobs, where, given["quiet"])
        return
    for name, job in jobs.items():
        if not given["quiet"]:
            typer.echo(name, err=True)
        train_one(job)


def _jobs(given: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Name of each training and its options; one alone has the folder to itself."""
    listed = [name.strip() for name in (given["method"] or "").split(",") if name.strip()]
    first, methods = given["seed"], list(dict.fromkeys(listed)) or [None]
    jobs = {}
    for method in methods:
        for seed in range(first, first + given["seeds"]):
            out = Path(given["out"])
            if method is not None and len(methods) > 1:
                out /= method
            if given["seeds"] > 1:
                out /= f"seed-{seed}"
            name = f"{method}, seed {seed}" if method else f"seed {seed}"
            jobs[name] = {**given, "method": method, "seed": seed, "out": out}
    return jobs


def _on_cluster(jobs: dict[str, dict[str, Any]], where: Where, quiet: bool) -> None:
    from cala.cli.progress import progress_bar
    from cala.cluster.ray_engine import connected

    with connected(where) as cluster, progress_bar("training encoders", quiet) as advance:
        for name, job in jobs.items():
            threads = job["threads"] or 1
            cluster.submit(
                name,
                train_task,
                _located(job),
                threads,
                cpus=min(threads, cluster.widest),
                gpus=int(cluster.gpus > 0),
            )
        advance(0, len(jobs))
        for done, (key, (path, said)) in enumerate(cluster.results(), 1):
            advance(done, len(jobs))
            for line in said.splitlines():
                typer.echo(f"{key}: {line}", err=True)
            typer.echo(f"encoder: {path}")


def _located(job: dict[str, Any]) -> dict[str, Any]:
    """Options that mean the same in a process that runs elsewhere: paths are absolute."""
    found = {**job, "quiet": True, "out": job["out"].absolute(), "data": job["data"].absolute()}
    if job["init"] is not None and Path(job["init"]).exists():
        found["init"] = str(Path(job["init"]).absolute())
    return found


def train_task(given: dict[str, Any], threads: int) -> tuple[str, str]:
    """On a node: a training from its last checkpoint on, if a worker that was lost left one.

    Returns the encoder's path, and what there was to say.
    """
    import torch

    from cala.cli.train import make_session
    from cala.training.events import epoch_events
    from cala.training.session import train_base

    torch.set_num_threads(threads)
    with redirect_stderr(io.StringIO()) as said:
        session = make_session(given)
        events = epoch_events(given["out"]) if given["tensorboard"] else lambda line: None
        path = train_base(session, resume=True, after_epoch=events)
    return str(path), said.getvalue()
