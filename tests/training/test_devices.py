"""Two processes train like one with the same global batch."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cala.extras import install
from cala.training.devices import FabricRanks
from cala.training.images import base_rows, load_base
from cala.training.loop import Trainer
from cala.training.run_dir import ENCODER_FILE
from cala.training.session import make_model, train_base
from conftest import missing
from refusals import refused
from training.small import RECIPE, session
from waiting import GENEROUS

SCRIPT = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from cala.training.devices import FabricRanks
from cala.training.session import train_base
from training.small import RECIPE, session

out, encoder, epochs = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
ranks = FabricRanks(2, "ddp", "cpu")
assert ranks.world == 2
train_base(session(out, recipe=RECIPE.changed(encoder=encoder, epochs=epochs), ranks=ranks))
"""


def two_processes(tmp_path: Path, encoder: str, epochs: int) -> Path:
    if importlib.util.find_spec("lightning_fabric") is None:
        missing("train", "lightning-fabric is not installed")
    script, out = tmp_path / "script.py", tmp_path / "two"
    script.write_text(SCRIPT)
    tests = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, str(script), str(out), encoder, str(epochs)],
        env={**os.environ, "PYTHONPATH": f"{tests}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True, text=True, timeout=GENEROUS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return out


@pytest.mark.system
def test_two_processes_equal_one_where_images_do_not_meet(tmp_path):
    encoder = "small-gn"
    two = two_processes(tmp_path, encoder, 2)
    train_base(session(tmp_path / "one", recipe=RECIPE.changed(encoder=encoder, epochs=2)))
    ours, theirs = load_file(two / ENCODER_FILE), load_file(tmp_path / "one" / ENCODER_FILE)
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.system
def test_batch_norm_sees_each_processs_share(tmp_path):
    """Ghost batches: gradients are averaged over shares that were normalised apart."""
    recipe = RECIPE.changed(encoder="small-bn", epochs=1)
    two = load_file(two_processes(tmp_path, "small-bn", 1) / ENCODER_FILE)
    job = session(tmp_path / "one", recipe=recipe)
    data = load_base(job.images, base_rows(job.images, 3, 2, 0), recipe)
    trainer = Trainer(make_model(job), data, recipe)
    model, optimiser = trainer.model, trainer.optimiser
    for step in range(trainer.total_steps):
        images, labels = trainer.batch(step)
        for group in optimiser.param_groups:
            group["lr"] = recipe.lr_at(step, trainer.steps_per_epoch)
        model.train()
        optimiser.zero_grad()
        statistics = {k: v.clone() for k, v in model.named_buffers()}
        kept = {}
        for rank in (0, 1):
            for name, buffer in model.named_buffers():
                buffer.copy_(statistics[name])
            share = slice(rank, None, 2)
            (model(images[share], labels[share])[0] / 2).backward()
            kept = kept or {k: v.clone() for k, v in model.named_buffers()}
        for name, buffer in model.named_buffers():
            buffer.copy_(kept[name])  # those of the first process count
        optimiser.step()
    for name, tensor in model.encoder.state_dict().items():
        if name in two:
            torch.testing.assert_close(two[name], tensor, rtol=1e-4, atol=1e-5)


def test_a_batch_that_cannot_be_shared(tmp_path):
    class Three:
        rank, world = 0, 3

    with refused(8, "3 processes", field="batch"):
        session(tmp_path, ranks=Three())


def test_devices_that_are_not_there():
    if importlib.util.find_spec("lightning_fabric") is None:
        missing("train", "lightning-fabric is not installed")
    with refused("'dpp'", field="devices"):
        FabricRanks(2, "dpp", "cpu")


def test_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    with refused("lightning_fabric", field="devices", code="missing_extra") as caught:
        FabricRanks(2, "ddp", "cpu")
    assert caught.value.fix == install("train")
