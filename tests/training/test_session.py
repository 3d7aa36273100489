"""The base session: it learns, stops, continues, and never ends differently for it."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file, save_file

from cala.encoders import Transform
from cala.encoders.weights import load_encoder_file, save_encoder
from cala.errors import DamagedFile, InputError, StateError
from cala.training.images import base_rows
from cala.training.recipes import RECIPES
from cala.training.run_dir import (
    CHECKPOINT,
    ENCODER_FILE,
    LOG_FILE,
    load_checkpoint,
    save_checkpoint,
)
from cala.training.session import train_base
from encoders.tiny import noise_set
from refusals import refused
from training.small import RECIPE, Small, session


class Pair:
    rank, world = 0, 2


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("train") / "whole"
    assert train_base(session(out)) == out / ENCODER_FILE
    return out


def stop_after(*steps: int):
    """A `stop` that says yes at these calls."""
    calls = iter(range(1, 1000))
    return lambda: next(calls) in steps


def test_it_learns_and_keeps_a_log(whole):
    lines = [json.loads(line) for line in (whole / LOG_FILE).read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4]
    assert [line["size"] for line in lines] == [6, 6, 8, 8]
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert 0 <= lines[-1]["validation"] <= 1
    assert lines[0]["images_per_second"] > 0


def test_the_encoder_knows_what_it_was_kept_from(whole):
    encoder = load_encoder_file(whole / ENCODER_FILE)
    images = session(whole).images
    digests = images.train.digests()
    rows = base_rows(images, 3, 2, 0)
    assert encoder.holdout == {digests[row] for row in rows.holdout}
    assert len(encoder.holdout) == 6
    assert encoder.scale == pytest.approx(16, abs=3)
    assert encoder.scale != 16  # learned
    assert encoder.trained == {digests[row][:32] for row in rows.train}
    assert encoder.about["classes"] == ["class 0", "class 1", "class 2"]
    assert encoder(next(images.test.batches(8))).shape == (8, 6)


def test_interrupted_twice_ends_with_the_same_weights(whole, tmp_path):
    out = tmp_path / "parts"
    assert train_base(session(out), stop=stop_after(3)) is None  # in the middle of an epoch
    assert load_checkpoint(out / CHECKPOINT)[2].step == 3
    assert train_base(session(out), resume=True, stop=stop_after(5)) is None
    assert load_checkpoint(out / CHECKPOINT)[2].step == 8
    assert train_base(session(out), resume=True) is not None
    ours, theirs = load_file(out / ENCODER_FILE), load_file(whole / ENCODER_FILE)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    keep = ("epoch", "loss", "accuracy", "validation", "lr", "scale")
    logs = [
        [{k: json.loads(line)[k] for k in keep} for line in (p / LOG_FILE).read_text().splitlines()]
        for p in (out, whole)
    ]
    assert logs[0] == logs[1]


def test_a_run_that_an_earlier_version_began_goes_on(whole, tmp_path):
    """Its checkpoint does not know the settings that came later."""
    out = tmp_path / "early"
    train_base(session(out), stop=stop_after(5))
    tensors, config, progress = load_checkpoint(out / CHECKPOINT)
    for name in ("average", "keep", "blend", "norms", "freeze", "layer_decay", "means"):
        del config["recipe"][name]
    save_checkpoint(out / CHECKPOINT, tensors, config, progress)
    changed = RECIPE.changed(average=0.9)
    with refused("recipe.average", 0.0, 0.9, field="out", code="another_run"):
        train_base(session(out, recipe=changed), resume=True)
    train_base(session(out), resume=True)
    ours, theirs = load_file(out / ENCODER_FILE), load_file(whole / ENCODER_FILE)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_seeds_decide(whole, tmp_path):
    train_base(session(tmp_path / "again"))
    train_base(session(tmp_path / "other", seed=1))
    one, same, other = (
        load_file(p / ENCODER_FILE) for p in (whole, tmp_path / "again", tmp_path / "other")
    )
    assert torch.equal(one["conv.weight"], same["conv.weight"])
    assert not torch.equal(one["conv.weight"], other["conv.weight"])


def test_a_finished_run_stays(whole):
    with refused(whole, field="resume", code="already_begun"):
        train_base(session(whole))
    before = (whole / ENCODER_FILE).read_bytes()
    assert train_base(session(whole), resume=True) is not None
    assert (whole / ENCODER_FILE).read_bytes() == before


def test_validation_selects_the_best_epoch(tmp_path):
    out = tmp_path / "best"
    # A learning rate that breaks the end of the run.
    recipe = RECIPE.changed(schedule="milestones", milestones=(2,), factor=1000.0, lr=0.05)
    train_base(session(out, recipe=recipe, selection="validation"))
    tensors, _, progress = load_checkpoint(out / CHECKPOINT)
    best = {k[13:]: v for k, v in tensors.items() if k.startswith("best.encoder.")}
    written = load_file(out / ENCODER_FILE)
    assert all(torch.equal(written[k], v) for k, v in best.items() if k in written)
    scores = [line["validation"] for line in progress.log]
    assert progress.best == max(scores)
    assert progress.best_epoch == scores.index(max(scores)) + 1


def test_a_copy_of_a_held_out_image_does_not_train():
    images = noise_set([12, 12, 12], [1, 1, 1])
    plain = base_rows(images, 2, 3, seed=0)
    array = images.train.pixels.array
    same, other = plain.train[0], plain.train[-1]
    array[same] = array[plain.holdout[0]]  # in its own class, and in another one
    array[other] = array[plain.holdout[1]]
    rows = base_rows(images, 2, 3, seed=0)
    assert rows.holdout.tolist() == plain.holdout.tolist()
    assert rows.train.tolist() == plain.train[1:-1].tolist()
    assert not set(images.train.digests(rows.train)) & set(images.train.digests(rows.holdout))
    array[:12] = array[0]
    with refused("class 0", field="holdout", code="only_copies"):
        base_rows(images, 2, 3, seed=0)


def test_hold_out_is_never_trained_on():
    rows = base_rows(noise_set([12, 9, 30], [1, 1, 1]), 2, 4, seed=3)
    other = base_rows(noise_set([12, 9, 30], [1, 1, 1]), 2, 4, seed=4)
    assert rows.holdout.tolist() != other.holdout.tolist()
    assert len(rows.holdout) == 8
    assert not set(rows.train.tolist()) & set(rows.holdout.tolist())
    assert rows.labels[rows.train].max() == 1
    assert len(rows.train) == 8 + 5


@pytest.mark.parametrize(
    ("changes", "field", "named", "fix"),
    [
        ({"n_base": 1}, "base", "1", "2"),
        ({"n_base": 9}, "base", "9", "4"),
        ({"holdout": 12}, "holdout", "12", "--holdout"),
        ({"holdout": -1}, "holdout", "-1", "0"),
        ({"recipe": RECIPE.changed(batch=31)}, "batch", "31", "--batch 30"),
        ({"selection": "test"}, "selection", "'test'", "last, validation"),
        ({"selection": "validation", "holdout": 0}, "holdout", "validation", "--holdout 25"),
        ({"recipe": RECIPE.changed(pretrained=True)}, "init", RECIPE.name, "--init FILE"),
        ({"recipe": RECIPES["adapt-photos"]}, "init", "", "--init efficientnet-lite0"),
        ({"recipe": RECIPE.changed(encoder="resnet21")}, "architecture", "", "'resnet20'?"),
    ],
)
def test_bad_input(tmp_path, changes, field, named, fix):
    with refused(named, field=field) as caught:
        train_base(session(tmp_path / "x", **changes))
    assert fix in caught.value.fix
    assert not (tmp_path / "x").exists()


def test_a_checkpoint_of_another_run_is_refused(whole):
    with refused("seed is 0, not 1", code="another_run"):
        train_base(session(whole, seed=1), resume=True)
    other = RECIPE.changed(encoder="small-gn")
    both = ("recipe.encoder", '"small-bn"', '"small-gn"', "seed is 0, not 1")
    with refused(*both, code="another_run"):
        train_base(session(whole, recipe=other, seed=1), resume=True)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"images": noise_set([12] * 4, [2] * 4, seed=1)}, ["images", '"0"', '"1"']),
        ({"autocast": torch.bfloat16}, ["precision", '"float32"', '"bfloat16"']),
        ({"compiled": True}, ["compiled", "false", "true"]),
        ({"ranks": Pair()}, ["devices", 1, 2]),
    ],
)
def test_whatever_decides_the_weights_must_be_equal(whole, changes, named):
    with refused(*named, field="out", code="another_run"):
        train_base(session(whole, **changes), resume=True)


def test_other_weights_under_the_same_name_are_noticed(whole, tmp_path):
    out, init = tmp_path / "run", tmp_path / "init.safetensors"
    tensors = load_file(whole / ENCODER_FILE)
    save_file(tensors, init)
    train_base(session(out, init=init), stop=stop_after(1))
    save_file({**tensors, "conv.weight": tensors["conv.weight"] + 1}, init)
    with refused("init.sha256", code="another_run"):
        train_base(session(out, init=init), resume=True)


@pytest.mark.parametrize("cut", [0, 10, -5])
def test_a_damaged_checkpoint_is_named(whole, tmp_path, cut):
    out = tmp_path / "cut"
    out.mkdir()
    (out / CHECKPOINT).write_bytes((whole / CHECKPOINT).read_bytes()[:cut])
    with pytest.raises(DamagedFile) as caught:
        train_base(session(out), resume=True)
    assert str(caught.value.path).endswith(CHECKPOINT)


def test_flipped_bytes_in_a_checkpoint_are_noticed(whole, tmp_path):
    content = (whole / CHECKPOINT).read_bytes()
    out = tmp_path / "flipped"
    out.mkdir()
    start = content.index(b'"progress') - 40
    for place in (start, len(content) // 2, len(content) - 9, len(content) - 1):
        changed = bytearray(content)
        changed[place] ^= 0x01
        (out / CHECKPOINT).write_bytes(changed)
        with pytest.raises(InputError) as caught:
            load_checkpoint(out / CHECKPOINT)
        assert caught.value.code in ("damaged_file", "other_kind", "newer_file")
    (out / CHECKPOINT).write_bytes(content)
    assert load_checkpoint(out / CHECKPOINT)[2].step > 0


def test_a_checkpoint_from_before_there_were_kinds_is_read(whole, tmp_path):
    tensors, config, progress = load_checkpoint(whole / CHECKPOINT)
    path = tmp_path / CHECKPOINT
    for version in (2, 1):
        meta = {"version": version, "config": config, "progress": asdict(progress)}
        save_file(tensors, path, metadata={"cala": json.dumps(meta), "sha256": "0"})
        if version == 1:
            with refused(path, "version 1", code="other_kind"):
                load_checkpoint(path)
            continue
        found = load_checkpoint(path)
        assert found[1:] == (config, progress)
        assert found[0].keys() == tensors.keys()
        assert all(torch.equal(found[0][name], tensors[name]) for name in tensors)


def test_disk_full_keeps_the_old_checkpoint(tmp_path, monkeypatch):
    out = tmp_path / "full"
    train_base(session(out), stop=stop_after(3))
    before = (out / CHECKPOINT).read_bytes()

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("safetensors.numpy.save_file", full)
        for place, resume in ((out, True), (tmp_path / "new", False)):
            with refused(place, "No space left", code="not_written") as caught:
                train_base(session(place), resume=resume, stop=stop_after(2))
            assert ("still there" in caught.value.detail) == resume
    assert (out / CHECKPOINT).read_bytes() == before
    assert train_base(session(out), resume=True) is not None


def test_one_process_at_a_time(tmp_path):
    out = tmp_path / "shared"
    out.mkdir()
    with FileLock(out / "lock"), refused(out, kind=StateError, code="in_use"):
        train_base(session(out))
    assert train_base(session(out), stop=stop_after(2)) is None
    assert train_base(session(out), resume=True) is not None


def test_a_run_that_began_meanwhile_is_not_overwritten(whole, tmp_path, monkeypatch):
    """Another process may finish between the start of the command and its hold on the folder."""
    out = tmp_path / "late"

    def late(images, *options):
        out.mkdir()
        (out / CHECKPOINT).write_bytes((whole / CHECKPOINT).read_bytes())
        return base_rows(images, *options)

    monkeypatch.setattr("cala.training.session.base_rows", late)
    with refused(out, code="already_begun"):
        train_base(session(out))


def test_leftovers_of_a_killed_run_are_cleared(tmp_path):
    out = tmp_path / "killed"
    out.mkdir()
    for name in (CHECKPOINT, ENCODER_FILE, LOG_FILE):
        (out / f".{name}.0123456789abcdef.tmp").touch()
    mine = out / f".{CHECKPOINT}.mine.tmp"
    mine.touch()
    with FileLock(out / "lock"), refused(out, kind=StateError, code="in_use"):
        train_base(session(out))
    assert len(list(out.glob(".*.tmp"))) == 4  # they may be the other process's
    train_base(session(out), stop=stop_after(1))
    assert list(out.glob(".*.tmp")) == [mine]


def test_a_diverged_run_ends_and_keeps_the_last_good_checkpoint(tmp_path):
    out = tmp_path / "far"
    hot = RECIPE.changed(lr=1e30, schedule="milestones")
    with refused("of 12", field="lr", code="diverged") as caught:
        train_base(session(out, recipe=hot))
    assert "1e+30" in caught.value.fix
    assert not (out / ENCODER_FILE).exists()
    assert not (out / CHECKPOINT).exists()

    def broken(trainer):
        if trainer.progress.step == 5:  # the loss is still fine, the weights are not
            trainer.model.encoder.conv.weight.data[0] = float("nan")

    with refused("conv.weight", field="lr", code="diverged") as caught:
        train_base(session(out, minutes=0), after_step=broken)
    assert "step 4" in caught.value.fix
    tensors, _, progress = load_checkpoint(out / CHECKPOINT)
    assert progress.step == 4
    assert all(tensor.isfinite().all() for tensor in tensors.values())


def test_a_broken_encoder_is_never_written(tmp_path):
    module = Small()
    for value, half in ((float("nan"), False), (1e9, True)):
        module.conv.weight.data[0] = value
        with refused("conv.weight", code="not_finite"):
            save_encoder(
                tmp_path / ENCODER_FILE, module, architecture="small-bn", transform=Transform(8, 8),
                half=half,
            )  # fmt: skip
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["notes.txt", "notes.pth", "notes.safetensors"])
def test_a_text_is_no_weight_file(tmp_path, name):
    (tmp_path / name).write_text("iterate until done")
    with refused(tmp_path / name, field="path", code="unreadable_file"):
        train_base(session(tmp_path / "x", init=tmp_path / name))


def test_a_damaged_encoder_is_not_started_from(whole, tmp_path):
    content = bytearray((whole / ENCODER_FILE).read_bytes())
    content[-1] ^= 1
    (tmp_path / "init.safetensors").write_bytes(content)
    with pytest.raises(DamagedFile):
        train_base(session(tmp_path / "x", init=tmp_path / "init.safetensors"))


def test_weights_to_start_from(whole, tmp_path):
    out = tmp_path / "init"
    recipe = RECIPE.changed(epochs=1, lr=1e-9)
    train_base(session(out, recipe=recipe, init=whole / ENCODER_FILE))
    ours, theirs = load_file(out / ENCODER_FILE), load_file(whole / ENCODER_FILE)
    torch.testing.assert_close(ours["conv.weight"], theirs["conv.weight"])
    fewer = session(tmp_path / "fewer", recipe=recipe, n_base=2, init=whole / ENCODER_FILE)
    train_base(fewer)
    before, after = (load_encoder_file(p / ENCODER_FILE) for p in (whole, fewer.out))
    assert after.about["classes"] == ["class 0", "class 1", "class 2"]  # 2 trained what it began as
    assert before.trained <= after.trained
    wrong = RECIPE.changed(encoder="resnet20")
    with refused("resnet20", code="other_weights"):
        train_base(session(tmp_path / "y", recipe=wrong, init=whole / ENCODER_FILE))
