"""Two nodes on this machine: processes that were started for it join, and survive a kill."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from cala.training.devices import Ranks, joining, make_ranks
from cala.training.run_dir import CHECKPOINT, ENCODER_FILE
from cala.training.session import train_base
from conftest import missing
from refusals import refused
from training.small import RECIPE, session
from waiting import GENEROUS, wait_for

SCRIPT = """
import sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from cala.training.devices import make_ranks
from cala.training.session import train_base
from training.small import RECIPE, session

out, pause = Path(sys.argv[1]), float(sys.argv[2])
nodes = int(sys.argv[3])
ranks = make_ranks(1, nodes, "ddp", "cpu")
assert ranks.world == 2, ranks.world
job = session(out, recipe=RECIPE.changed(encoder="small-gn", epochs=3), ranks=ranks, minutes=0.0)
train_base(job, resume=True, after_step=lambda trainer: time.sleep(pause))
"""


@pytest.fixture
def start(tmp_path):
    """Starts the two nodes of a training, with what their launchers would tell them."""
    if importlib.util.find_spec("lightning_fabric") is None:
        missing("train", "lightning-fabric is not installed")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    tests = Path(__file__).parents[1]
    running = []

    def nodes(out: Path, pause: float = 0.0, *, launcher: bool = True) -> list[subprocess.Popen]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        for rank in ("0", "1"):
            told = {"RANK": rank, "WORLD_SIZE": "2"} if launcher else {"NODE_RANK": rank}
            environment = {
                **os.environ, **told, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                "PYTHONPATH": f"{tests}:{os.environ.get('PYTHONPATH', '')}",
            }  # fmt: skip
            arguments = [str(script), str(out), str(pause), "1" if launcher else "2"]
            running.append(
                subprocess.Popen(
                    [sys.executable, *arguments], env=environment, stderr=subprocess.PIPE, text=True
                )
            )
        return running[-2:]

    yield nodes
    for process in running:
        process.kill()
        process.communicate()


def finished(processes) -> None:
    for process in processes:
        _, err = process.communicate(timeout=GENEROUS)
        assert process.returncode == 0, err[-2000:]


@pytest.mark.system
def test_a_killed_job_ends_with_the_weights_of_one_that_was_not(start, tmp_path):
    """And both with those of one process, since no image meets another in this network."""
    out = tmp_path / "killed"
    first, second = start(out, pause=0.3)
    wait_for(lambda: (out / CHECKPOINT).exists() or first.poll() is not None)
    assert first.poll() is None, first.communicate()[1][-2000:]
    second.send_signal(signal.SIGKILL)
    _, err = first.communicate(timeout=GENEROUS)
    assert first.returncode != 0
    assert not (out / ENCODER_FILE).exists()
    assert "another process of this training was lost" in err
    finished(start(out))
    train_base(session(tmp_path / "one", recipe=RECIPE.changed(encoder="small-gn", epochs=3)))
    ours, theirs = load_file(out / ENCODER_FILE), load_file(tmp_path / "one" / ENCODER_FILE)
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.system
@pytest.mark.long
def test_nodes_and_launchers_give_the_same_bits(start, tmp_path):
    finished(start(tmp_path / "joined"))
    finished(start(tmp_path / "asked", launcher=False))
    ours, theirs = (load_file(tmp_path / name / ENCODER_FILE) for name in ("joined", "asked"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.system
def test_torchrun(tmp_path):
    """The command itself, as the help has it."""
    if importlib.util.find_spec("lightning_fabric") is None:
        missing("train", "lightning-fabric is not installed")
    draw = np.random.default_rng(0)
    for name in ("ant", "bee", "cow"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(10):  # 30 images: a quarter of them are no batch for two
            pixels = draw.integers(0, 256, (32, 32, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    options = ("--recipe", "fast-cifar100", "--epochs", "1", "--threads", "1")
    done = subprocess.run(
        [sys.executable, *launcher, "-m", "cala", "train", tmp_path / "photos",
         "-o", tmp_path / "out", *options, "--devices", "2"],
        env={**os.environ, "CALA_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=GENEROUS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("encoder: ") == 1  # the first process alone speaks
    assert done.stderr.count("note: batches of 6, not") == 1
    assert (tmp_path / "out" / ENCODER_FILE).exists()


def test_what_a_launcher_says_is_checked(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert joining() is None
    assert type(make_ranks(1, 1, "ddp", "cpu")) is Ranks
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with refused("--nodes 2", field="nodes") as caught:
        make_ranks(1, 2, "ddp", "cpu")
    assert "torchrun --nnodes 2" in caught.value.fix
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.delenv("MASTER_PORT", raising=False)
    for rank in (None, "2", "-1", "x"):
        if rank is not None:
            monkeypatch.setenv("NODE_RANK", rank)
        with refused(rank, field="NODE_RANK"):
            make_ranks(1, 2, "ddp", "cpu")
    monkeypatch.setenv("NODE_RANK", "0")
    for port in (None, "zz", "70000"):
        if port is not None:
            monkeypatch.setenv("MASTER_PORT", port)
        with refused(port, field="MASTER_PORT"):
            make_ranks(1, 2, "ddp", "cpu")
    monkeypatch.delenv("NODE_RANK")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert joining() == (2, 4)
    assert (os.environ["LOCAL_RANK"], os.environ["NODE_RANK"]) == ("1", "1")
    with refused("3 processes", "4 were", "2 on each", field="devices"):
        make_ranks(3, 1, "ddp", "cpu")
    with refused("4 processes", "4 were", "2 on each", field="devices"):
        make_ranks(1, 4, "ddp", "cpu")
    monkeypatch.setenv("RANK", "4")
    with refused("'RANK': '4'", "'WORLD_SIZE': '4'", field="RANK"):
        joining()


def test_processes_that_see_other_checkpoints_stop(tmp_path):
    """A folder that only the first node has: the second would begin anew."""

    class Second(Ranks):
        rank, world = 1, 2

        def total(self, sums):
            return sums + torch.tensor([6.0, 36.0], dtype=sums.dtype)  # the first is at step 6

    with refused(tmp_path, field="out", code="other_checkpoints"):
        train_base(session(tmp_path, ranks=Second()))
