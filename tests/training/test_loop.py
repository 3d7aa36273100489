"""Each step of the loop against one that is written out by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cala.training.augment import (
    Augmentation,
    ColourJitter,
    Cutout,
    Flip,
    PadCrop,
    ResizedCrop,
    augmentation,
)
from cala.training.images import base_rows, load_base
from cala.training.loop import Trainer
from cala.training.run_dir import CHECKPOINT, ENCODER_FILE, load_checkpoint
from cala.training.session import make_model, train_base
from training.small import RECIPE, session

BY_HAND = RECIPE.changed(encoder="small-gn", smoothing=0.2, weight_decay=0.05, lr=0.3)


def trainer(tmp_path, recipe=BY_HAND, **options) -> Trainer:
    job = session(tmp_path, recipe=recipe)
    data = load_base(job.images, base_rows(job.images, 3, 2, 0), recipe)
    return Trainer(make_model(job), data, recipe, **options)


def test_steps_by_hand(tmp_path):
    """SGD with Nesterov momentum from its formula: decay on all but the scale, smoothed labels."""
    ours, theirs = trainer(tmp_path), trainer(tmp_path)
    model = theirs.model
    momentum = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for step in range(4):
        ours._step(step)
        images, labels = theirs.batch(step)
        log_p = F.log_softmax(model.logits(images), 1)
        exact = log_p.gather(1, labels[:, None])[:, 0]
        loss = -(0.8 * exact + 0.2 * log_p.mean(1)).mean()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        lr = BY_HAND.lr_at(step, 3)
        with torch.no_grad():
            for (name, p), gradient in zip(model.named_parameters(), gradients, strict=True):
                decay = 0.0 if name == "classifier.scale" else 0.05
                gradient = gradient + decay * p
                momentum[name] = 0.9 * momentum[name] + gradient
                p -= lr * (gradient + 0.9 * momentum[name])
        for name, p in ours.model.named_parameters():
            torch.testing.assert_close(p, theirs.model.state_dict()[name], msg=f"{step} {name}")


def test_small_images_come_first(tmp_path):
    loop = trainer(tmp_path)
    sides = [loop.batch(epoch * loop.steps_per_epoch)[0].shape[-1] for epoch in range(4)]
    assert sides == [6, 6, 8, 8]


def test_the_best_weights_outlive_an_interruption(tmp_path):
    """Selection by validation after a stop: the best epoch lies before it."""
    out = tmp_path / "best"
    recipe = RECIPE.changed(schedule="milestones", milestones=(2,), factor=1000.0)
    job = session(out, recipe=recipe, selection="validation")
    at_stop = [False] * 8 + [True]
    assert train_base(job, stop=lambda: at_stop.pop(0)) is None
    before = load_checkpoint(out / CHECKPOINT)[0]
    train_base(job, resume=True)
    tensors, _, progress = load_checkpoint(out / CHECKPOINT)
    assert progress.best_epoch <= 3
    best = [name for name in tensors if name.startswith("best.")]
    assert best
    for name in best:
        assert torch.equal(tensors[name], before[name])
    assert (out / ENCODER_FILE).exists()


def test_the_scale_of_half_precision_goes_on(tmp_path):
    first, second = (trainer(tmp_path, autocast=torch.float16) for _ in range(2))
    first.scaler.load_state_dict({**first.scaler.state_dict(), "scale": 8.0, "_growth_tracker": 3})
    second.restore(first.tensors(), first.progress)
    assert second.scaler.state_dict() == first.scaler.state_dict()
    assert second.scaler.get_scale() == 8.0
    assert not [name for name in trainer(tmp_path).tensors() if name.startswith("scaler.")]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (PadCrop(1), Flip())),
        ({"augment": "resized-crop"}, (ResizedCrop(8, (0.08, 1.0)), Flip())),
        ({"augment": "none", "jitter": 0.3, "cutout": 2}, (ColourJitter(0.3, 0.3, 0.3), Cutout(2))),
    ],
)
def test_operations_of_a_recipe(changes, expected):
    assert augmentation(RECIPE.changed(**changes)) == Augmentation(expected)


@pytest.mark.parametrize(("minutes", "kept"), [(2.0, 0), (0.9, 6), (1.1, 7)])
def test_checkpoints_come_every_few_minutes(tmp_path, monkeypatch, minutes, kept):
    """A clock that moves by ten seconds a step."""
    job = session(tmp_path / "run", minutes=minutes)
    now = [0.0]
    monkeypatch.setattr("cala.training.session.time.monotonic", lambda: now[0])

    class Killed(BaseException):
        pass

    def after_step(loop):
        now[0] += 10
        if loop.progress.step == 10:
            raise Killed

    with pytest.raises(Killed):
        train_base(job, after_step=after_step)
    path = tmp_path / "run" / CHECKPOINT
    assert (load_checkpoint(path)[2].step if path.exists() else 0) == kept
