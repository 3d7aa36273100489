"""The base session: it learns, stops, continues, and never ends differently for it."""

from __future__ import annotations

import json

import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file

from cala.encoders.weights import load_encoder_file
from cala.errors import InputError
from cala.training.checkpoint import load_checkpoint
from cala.training.images import base_rows
from cala.training.session import CHECKPOINT, ENCODER, LOG, train_base
from encoders.tiny import noise_set
from training.small import RECIPE, session


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("train") / "whole"
    assert train_base(session(out)) == out / ENCODER
    return out


def stop_after(*steps: int):
    """A `stop` that says yes at these calls."""
    calls = iter(range(1, 1000))
    return lambda: next(calls) in steps


def test_it_learns_and_keeps_a_log(whole):
    lines = [json.loads(line) for line in (whole / LOG).read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4]
    assert [line["size"] for line in lines] == [6, 6, 8, 8]
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert 0 <= lines[-1]["validation"] <= 1
    assert lines[0]["images_per_second"] > 0


def test_the_encoder_knows_what_it_was_kept_from(whole):
    encoder = load_encoder_file(whole / ENCODER)
    images = session(whole).images
    digests = images.train.digests()
    rows = base_rows(images, 3, 2, 0)
    assert encoder.holdout == {digests[row] for row in rows.holdout}
    assert len(encoder.holdout) == 6
    assert encoder.scale == pytest.approx(16, abs=3)
    assert encoder.scale != 16  # learned
    assert encoder.about["classes"] == ["class 0", "class 1", "class 2"]
    assert encoder(images.test.stacked()).shape == (8, 6)


def test_interrupted_twice_ends_with_the_same_weights(whole, tmp_path):
    out = tmp_path / "parts"
    assert train_base(session(out), stop=stop_after(3)) is None  # in the middle of an epoch
    assert load_checkpoint(out / CHECKPOINT)[2].step == 3
    assert train_base(session(out), resume=True, stop=stop_after(5)) is None
    assert load_checkpoint(out / CHECKPOINT)[2].step == 8
    assert train_base(session(out), resume=True) is not None
    ours, theirs = load_file(out / ENCODER), load_file(whole / ENCODER)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    keep = ("epoch", "loss", "accuracy", "validation", "lr", "scale")
    logs = [
        [{k: json.loads(line)[k] for k in keep} for line in (p / LOG).read_text().splitlines()]
        for p in (out, whole)
    ]
    assert logs[0] == logs[1]


def test_seeds_decide(whole, tmp_path):
    train_base(session(tmp_path / "again"))
    train_base(session(tmp_path / "other", seed=1))
    one, same, other = (
        load_file(p / ENCODER) for p in (whole, tmp_path / "again", tmp_path / "other")
    )
    assert torch.equal(one["conv.weight"], same["conv.weight"])
    assert not torch.equal(one["conv.weight"], other["conv.weight"])


def test_a_finished_run_stays(whole):
    with pytest.raises(InputError, match=r"holds a training run already.*--resume"):
        train_base(session(whole))
    before = (whole / ENCODER).read_bytes()
    assert train_base(session(whole), resume=True) is not None
    assert (whole / ENCODER).read_bytes() == before


def test_validation_selects_the_best_epoch(tmp_path):
    out = tmp_path / "best"
    # A learning rate that breaks the end of the run.
    recipe = RECIPE.changed(schedule="milestones", milestones=(2,), factor=1000.0, lr=0.05)
    train_base(session(out, recipe=recipe, selection="validation"))
    tensors, _, progress = load_checkpoint(out / CHECKPOINT)
    best = {k[13:]: v for k, v in tensors.items() if k.startswith("best.encoder.")}
    written = load_file(out / ENCODER)
    assert all(torch.equal(written[k], v) for k, v in best.items() if k in written)
    scores = [line["validation"] for line in progress.log]
    assert progress.best == max(scores)
    assert progress.best_epoch == scores.index(max(scores)) + 1


def test_hold_out_is_never_trained_on():
    rows = base_rows(noise_set([12, 9, 30], [1, 1, 1]), 2, 4, seed=3)
    assert len(rows.holdout) == 8
    assert not set(rows.train.tolist()) & set(rows.holdout.tolist())
    assert rows.labels[rows.train].max() == 1
    assert len(rows.train) == 8 + 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_base": 1}, "1 base class is not enough"),
        ({"n_base": 9}, "9 base classes were asked for, there are 4"),
        ({"holdout": 12}, "class class 0 has 12 training images, of which 12"),
        ({"holdout": -1}, "holdout is -1"),
        ({"recipe": RECIPE.changed(batch=31)}, r"batch of 31 is larger than the 30.*--batch"),
        ({"selection": "test"}, "unknown selection 'test'"),
        ({"selection": "validation", "holdout": 0}, "needs held-out images"),
        ({"recipe": RECIPE.changed(pretrained=True)}, "--init"),
        ({"recipe": RECIPE.changed(encoder="resnet21")}, "did you mean 'resnet20'"),
    ],
)
def test_bad_input(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        train_base(session(tmp_path / "x", **changes))
    assert not (tmp_path / "x").exists()


def test_a_checkpoint_of_another_run_is_refused(whole):
    with pytest.raises(InputError, match="its seed is 0, not 1"):
        train_base(session(whole, seed=1), resume=True)
    other = RECIPE.changed(encoder="small-gn")
    with pytest.raises(InputError, match="its recipe is"):
        train_base(session(whole, recipe=other), resume=True)


@pytest.mark.parametrize("cut", [0, 10, -5])
def test_a_damaged_checkpoint_is_named(whole, tmp_path, cut):
    out = tmp_path / "cut"
    out.mkdir()
    (out / CHECKPOINT).write_bytes((whole / CHECKPOINT).read_bytes()[:cut])
    with pytest.raises(InputError, match="not a whole checkpoint"):
        train_base(session(out), resume=True)


def test_disk_full_keeps_the_old_checkpoint(tmp_path, monkeypatch):
    out = tmp_path / "full"
    train_base(session(out), stop=stop_after(3))
    before = (out / CHECKPOINT).read_bytes()

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("cala.training.checkpoint.save_file", full)
        with pytest.raises(InputError, match=r"No space left.*still there"):
            train_base(session(out), resume=True, stop=stop_after(2))
    assert (out / CHECKPOINT).read_bytes() == before
    assert train_base(session(out), resume=True) is not None


def test_one_process_at_a_time(tmp_path):
    out = tmp_path / "shared"
    out.mkdir()
    with FileLock(out / "lock"), pytest.raises(InputError, match="another process is training"):
        train_base(session(out))
    assert train_base(session(out), stop=stop_after(2)) is None
    assert train_base(session(out), resume=True) is not None


def test_weights_to_start_from(whole, tmp_path):
    out = tmp_path / "init"
    recipe = RECIPE.changed(epochs=1, lr=1e-9)
    train_base(session(out, recipe=recipe, init=whole / ENCODER))
    ours, theirs = load_file(out / ENCODER), load_file(whole / ENCODER)
    torch.testing.assert_close(ours["conv.weight"], theirs["conv.weight"])
    wrong = RECIPE.changed(encoder="resnet20")
    with pytest.raises(InputError, match="does not hold weights of resnet20"):
        train_base(session(tmp_path / "y", recipe=wrong, init=whole / ENCODER))
