"""Adapting trained weights: who learns, how fast, what stays, and which weights are written."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cala.encoders import ARCHITECTURES, Transform, load_encoder
from cala.encoders.efficientnet_lite0 import TRANSFORM
from cala.encoders.registry import weights_file
from cala.errors import InputError
from cala.training.images import base_rows, load_base
from cala.training.layers import SLOW, layer_rates, layers
from cala.training.loop import Trainer
from cala.training.recipes import RECIPES
from cala.training.run_dir import CHECKPOINT, ENCODER_FILE, load_checkpoint
from cala.training.session import make_trainer, train_base
from encoders.tiny import noise_set
from refusals import refused
from training.small import RECIPE, Small, session

AVERAGED = RECIPE.changed(average=0.8)


@pytest.fixture
def init(tmp_path):
    """Weights of `small-bn` whose norm has seen something."""
    torch.manual_seed(3)
    module = Small()
    module(torch.randn(20, 3, 8, 8))
    save_file(dict(module.state_dict()), tmp_path / "init.safetensors")
    return tmp_path / "init.safetensors"


def trainer(tmp_path, recipe, init=None) -> Trainer:
    job = session(tmp_path, recipe=recipe, init=init)
    data = load_base(job.images, base_rows(job.images, 3, 2, 0), recipe)
    return make_trainer(job, data)


def lite(**changes):
    """The recipe for photos at 32 pixels: two steps of it take a second."""
    small = Transform(32, 36, TRANSFORM.mean, TRANSFORM.std, filter=TRANSFORM.filter)
    usual = {"transform": small, "store": 36, "sizes": (), "epochs": 1, "batch": 15}
    return RECIPES["adapt-photos"].changed(**{**usual, **changes})


@pytest.mark.parametrize(
    ("name", "first", "count"),
    [("efficientnet-lite0", 2, 18), ("resnet18", 2, 5), ("resnet20", 2, 4), ("resnet12", 1, 4)],
)
def test_layers_from_the_image_to_the_embedding(name, first, count):
    encoder = ARCHITECTURES[name]()
    found = layers(encoder)
    assert (len(found[0]), len(found)) == (first, count)
    order = [p for layer in found for module in layer for p in module.parameters()]
    assert {id(p) for p in order} == {id(p) for p in encoder.parameters()}
    assert len(order) == len(list(encoder.parameters()))


def test_rates_of_layers_and_norms():
    encoder = ARCHITECTURES["efficientnet-lite0"]()
    recipe = lite(layer_decay=0.5, freeze=2, norms="slow")
    found = layer_rates(encoder, recipe)
    assert found[encoder.conv_head.weight] == 0.5
    assert found[encoder.bn1.weight] == 0.5 * SLOW
    assert found[encoder.blocks[15].project_conv.weight] == 0.25
    assert found[encoder.blocks[1].expand_conv.weight] == 0.5**16
    assert found[encoder.blocks[0].project_conv.weight] == 0
    assert found[encoder.conv_stem.weight] == found[encoder.bn0.bias] == 0
    with refused(19, "efficientnet-lite0", 18, field="freeze"):
        layer_rates(encoder, recipe.changed(freeze=19))


def test_the_optimiser_steps_at_these_rates(tmp_path, init):
    """Without momentum and decay, one step is the gradient times the rate."""
    recipe = RECIPE.changed(momentum=0.0, weight_decay=0.0, layer_decay=0.25, norms="slow")
    slow = trainer(tmp_path, recipe, init)
    even = trainer(tmp_path, recipe.changed(layer_decay=1.0), init)
    before = {name: p.detach().clone() for name, p in slow.model.named_parameters()}
    for loop in (slow, even):
        loop._step(0)
    factors = {"encoder.conv.weight": 0.25, "encoder.norm.bias": 0.25, "classifier.weight": 1.0}
    for name, factor in factors.items():
        moved = slow.model.get_parameter(name) - before[name]
        usual = even.model.get_parameter(name) - before[name]
        assert usual.abs().max() > 0
        torch.testing.assert_close(moved, factor * usual, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize(("norms", "affine", "statistics"), [
    ("train", True, True), ("slow", True, False), ("frozen", False, False),
])  # fmt: skip
def test_norms(tmp_path, init, norms, affine, statistics):
    loop = trainer(tmp_path, RECIPE.changed(norms=norms), init)
    before = {name: tensor.clone() for name, tensor in loop.model.encoder.state_dict().items()}
    loop.run()
    after = loop.model.encoder.state_dict()
    assert not torch.equal(after["conv.weight"], before["conv.weight"])
    changed = {name: not torch.equal(after[f"norm.{name}"], before[f"norm.{name}"])
               for name in ("weight", "bias", "running_mean", "running_var")}  # fmt: skip
    assert changed == {"weight": affine, "bias": affine, "running_mean": statistics,
                       "running_var": statistics}  # fmt: skip


def test_frozen_layers_stay_and_need_no_gradient(tmp_path):
    init = weights_file("efficientnet-lite0")
    loop = trainer(tmp_path, lite(freeze=17, norms="train"), init)
    before = {name: tensor.clone() for name, tensor in loop.model.encoder.state_dict().items()}
    loop._step(0)
    assert loop.model.encoder.blocks[15].project_conv.weight.grad is None
    changed = {name for name, tensor in loop.model.encoder.state_dict().items()
               if not torch.equal(tensor, before[name])}  # fmt: skip
    assert changed == {"conv_head.weight", "bn1.weight", "bn1.bias", "bn1.running_mean",
                       "bn1.running_var", "bn1.num_batches_tracked"}  # fmt: skip


def test_a_frozen_encoder_leaves_the_classifier(tmp_path, init):
    loop = trainer(tmp_path, RECIPE.changed(freeze=1), init)
    before = {name: p.detach().clone() for name, p in loop.model.named_parameters()}
    loop.run()
    changed = {n for n, p in loop.model.named_parameters() if not torch.equal(p, before[n])}
    assert changed == {"classifier.weight", "classifier.scale"}


def test_the_classifier_starts_at_the_means(tmp_path, init):
    loop = trainer(tmp_path, RECIPE.changed(means=True), init)
    means = loop.class_means()
    loop.begin()
    assert torch.equal(loop.model.classifier.weight, means)
    cold = trainer(tmp_path, RECIPE.changed(means=True))
    before = cold.model.classifier.weight.clone()
    cold.begin()
    assert torch.equal(cold.model.classifier.weight, before)


@pytest.mark.parametrize("keep", [0.5, 30.0])
def test_the_pull_is_the_implicit_step_of_the_penalty(tmp_path, init, keep):
    """w' = argmin ‖w' - w‖² / (2 lr) + keep/2 ‖w' - w_start‖², w after the step of SGD."""
    free, kept = (trainer(tmp_path, RECIPE.changed(keep=k), init) for k in (0.0, keep))
    start = {name: p.detach().clone() for name, p in kept.model.named_parameters()}
    lr = RECIPE.lr_at(0, 3)
    for loop in (free, kept):
        loop._step(0)
    for name, w in free.model.named_parameters():
        pull = lr * keep if name.startswith("encoder.") else 0.0
        expected = (w + pull * start[name]) / (1 + pull)
        torch.testing.assert_close(kept.model.get_parameter(name), expected, msg=name)


def test_an_endless_pull_keeps_the_embeddings(tmp_path, init):
    recipe = RECIPE.changed(norms="frozen")
    free, kept = (trainer(tmp_path, recipe.changed(keep=k), init) for k in (0.0, 1e30))
    images = torch.rand(4, 3, 8, 8)
    before = kept.model.eval().encoder(images)
    for loop in (free, kept):
        loop.run()
    assert torch.equal(kept.model.eval().encoder(images), before)
    assert not torch.allclose(free.model.eval().encoder(images), before)
    with refused("keep", field="init"):
        session(tmp_path, recipe=RECIPE.changed(keep=2.0))


def test_the_average_by_hand(tmp_path):
    """The plain mean of the first steps, then each step has its share."""
    loop = trainer(tmp_path, AVERAGED)
    seen = []
    expected = None
    for step in range(8):
        loop._step(step)
        seen.append(loop.model.encoder.conv.weight.detach().clone())
        expected = 0.8 * expected + 0.2 * seen[-1] if step >= 5 else torch.stack(seen).mean(0)
        torch.testing.assert_close(loop.average["encoder.conv.weight"], expected)
    assert loop.average["encoder.norm.num_batches_tracked"] == 8


def test_the_average_is_validated_and_written(tmp_path):
    plain, averaged = tmp_path / "plain", tmp_path / "averaged"
    train_base(session(plain))
    train_base(session(averaged, recipe=AVERAGED))
    tensors, _, progress = load_checkpoint(averaged / CHECKPOINT)
    written, last = load_file(averaged / ENCODER_FILE), load_file(plain / ENCODER_FILE)
    for name, tensor in written.items():
        assert torch.equal(tensor, tensors[f"average.encoder.{name}"])
        assert torch.equal(last[name], tensors[f"model.encoder.{name}"])  # it changes no step
    assert not torch.equal(written["conv.weight"], last["conv.weight"])
    scale = load_encoder(averaged).scale
    assert scale == float(tensors["average.classifier.scale"])
    loop = trainer(tmp_path, AVERAGED)
    loop.model.load_state_dict({k[8:]: v for k, v in tensors.items() if k.startswith("average.")})
    assert loop.validate() == progress.log[-1]["validation"]


@pytest.mark.parametrize("selection", ["last", "validation"])
def test_interrupted_with_everything_on_it_ends_the_same(tmp_path, init, selection):
    recipe = AVERAGED.changed(means=True, norms="slow", keep=3.0, layer_decay=0.5)

    def job(name):
        return session(tmp_path / name, recipe=recipe, init=init, selection=selection)

    train_base(job("whole"))
    for count in (4, 3):
        calls = iter(range(1, 1000))
        stop = lambda count=count, calls=calls: next(calls) == count  # noqa: E731
        assert train_base(job("parts"), resume=True, stop=stop) is None
    train_base(job("parts"), resume=True)
    for name in (CHECKPOINT, ENCODER_FILE):
        one, two = (load_file(tmp_path / part / name) for part in ("whole", "parts"))
        assert one.keys() == two.keys()
        assert all(torch.equal(one[key], two[key]) for key in one)


def test_efficientnet_lite0_is_adapted_and_read_again(tmp_path):
    images = noise_set([12, 12, 12, 12], [2, 2, 2, 2])
    job = session(
        tmp_path / "run", images=images, recipe=lite(), init=weights_file("efficientnet-lite0")
    )
    train_base(job)
    assert load_checkpoint(job.out / CHECKPOINT)[2].step == 2
    ours, theirs = load_encoder(job.out), load_encoder("efficientnet-lite0")
    assert ours.transform == job.recipe.transform
    assert (ours.dim, ours.pretrained, theirs.pretrained) == (1280, False, True)
    assert ours.about["init"]["file"] == weights_file("efficientnet-lite0").name
    one, two = (e.module.state_dict() for e in (ours, theirs))
    assert torch.equal(one["blocks.3.bn1.running_var"], two["blocks.3.bn1.running_var"])
    assert torch.equal(one["blocks.3.project_conv.weight"], two["blocks.3.project_conv.weight"])
    moved = (one["conv_head.weight"] - two["conv_head.weight"]).abs().max()
    assert 0 < moved < 0.1
    found = ours(next(images.test.batches(8)))
    assert found.shape == (8, 1280)
    assert np.isfinite(found).all()


def test_the_transform_is_that_of_the_weights():
    for name in ("adapt-photos", "adapt-cub200"):
        recipe = RECIPES[name]
        assert recipe.transform == load_encoder("efficientnet-lite0").transform
        assert recipe.pretrained
        assert recipe.means


def test_blend_is_between_start_and_trained_weights(tmp_path, init):
    found = []
    for share in (1.0, 0.25):
        job = session(tmp_path / str(share), recipe=AVERAGED.changed(blend=share), init=init)
        found.append(load_file(train_base(job)))
    start = load_file(init)
    for name, weights in start.items():
        if weights.is_floating_point():
            expected = 0.25 * found[0][name] + 0.75 * weights
            torch.testing.assert_close(found[1][name], expected)
    with pytest.raises(InputError) as caught:
        session(tmp_path, recipe=RECIPE.changed(blend=0.5))
    assert caught.value.field == "init"
