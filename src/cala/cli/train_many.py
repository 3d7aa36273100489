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
    from cala.cli.train import check_method, train_one
    from cala.errors import InputError
    from cala.files import shown
    from cala.training.place import CHECKPOINT

    if given["devices"] * given["nodes"] > 1:
        raise InputError(
            "--devices and --nodes share one training, --seeds, several methods and --on ray make "
            "several: use one or the other"
        )
    jobs = _jobs(given)
    for job in jobs.values():
        check_method(job)  # before the first of them takes its hours
    begun = [job["out"] for job in jobs.values() if (job["out"] / CHECKPOINT).exists()]
    if begun and not given["resume"]:
        raise InputError(
            f"{shown(begun[0])} holds a training run already: add --resume to continue it, or "
            "choose another folder"
        )
    if where is not None:
        from cala.cli import Stopped

        try:
            _on_cluster(jobs, where, given["quiet"])
        except Stopped:
            again = f"the same command with --resume continues from {shown(given['out'])}"
            typer.echo(f"stopped; {again}", err=True)
            raise typer.Exit(130) from None
        return
    for name, job in jobs.items():
        if not given["quiet"]:
            typer.echo(name, err=True)
        train_one(job)


def _jobs(given: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Name of each training and its options; one alone has the folder to itself."""
    from cala.systems.registry import SYSTEMS

    first, methods = given["seed"], _methods(given["method"])
    known = [name for name in methods if name is not None and name in SYSTEMS]
    with_views = {name for name in known if "views" in SYSTEMS[name].changes}
    jobs = {}
    for method in methods:
        # Views are for those that have them, where one has.
        views = None if with_views and method not in with_views else given["views"]
        for seed in range(first, first + given["seeds"]):
            out = Path(given["out"])
            if method is not None and len(methods) > 1:
                out /= method
            if given["seeds"] > 1:
                out /= f"seed-{seed}"
            name = f"{method}, seed {seed}" if method else f"seed {seed}"
            jobs[name] = {**given, "method": method, "views": views, "seed": seed, "out": out}
    return jobs


def _methods(given: str | None) -> list[str | None]:
    """Every method of a list once, in its order."""
    from cala.errors import InputError

    if given is None:
        return [None]
    listed = [name.strip() for name in given.split(",")]
    if not all(listed):
        raise InputError(f"--method {given}: give names with a comma between them, as alice,fact")
    return list(dict.fromkeys(listed))


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
                saves=True,
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

    from cala.cli.train import Stop, make_session
    from cala.errors import InputError
    from cala.files import shown
    from cala.training.events import epoch_events
    from cala.training.session import train_base

    torch.set_num_threads(threads)
    with redirect_stderr(io.StringIO()) as said, Stop() as stop:  # Ray asks as Ctrl-C does
        session = make_session(given)
        events = epoch_events(given["out"]) if given["tensorboard"] else lambda line: None
        path = train_base(session, resume=True, stop=stop.asked, after_epoch=events)
    if path is None:
        raise InputError(
            f"the training in {shown(given['out'])} was stopped on its node: the same command with "
            "--resume continues it"
        )
    return str(path), said.getvalue()
