"""The numbers that each system's authors used on each data set, and what takes them."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace

import pytest
import torch

from benchmark.test_full_length import small_cifar
from cala.benchmark.config import RunConfig
from cala.benchmark.runner import fit_configured
from cala.data.embeddings import Embeddings
from cala.data.protocol import Protocol
from cala.heads import HEADS
from cala.heads.factory import head_options
from cala.systems.published import BENCHMARKS, PUBLISHED, published
from cala.systems.registry import SYSTEMS
from cala.training.recipes import RECIPES
from cala.training.session import BaseSession, make_model
from cli.inside import within
from data.tiny_sets import folder
from problems import blobs
from scans import FIRST, IMAGES, N_BASE

OF_SYSTEMS = [name for name in HEADS if HEADS[name].__module__.startswith("cala.systems")]
PAPER = dict(
    zip(BENCHMARKS, ("paper-cifar100", "paper-mini-imagenet", "paper-cub200"), strict=True)
)


def test_every_system_has_an_entry():
    assert set(PUBLISHED) == {*OF_SYSTEMS, *SYSTEMS}


@pytest.mark.parametrize("dataset", BENCHMARKS)
@pytest.mark.parametrize("name", PUBLISHED)
def test_every_data_set_has_numbers_or_a_reason(name, dataset):
    """What is stated exists: architecture, fields of a recipe, options of objective and head."""
    assert tuple(PUBLISHED[name]) == BENCHMARKS
    found = published(name, dataset)
    assert found.base or found.missing
    recipe = RECIPES[PAPER[dataset]].changed(**found.base, encoder=found.encoder or None)
    assert all(getattr(recipe, key) == value for key, value in found.base.items())
    assert all(0 < milestone < recipe.epochs for milestone in found.base.get("milestones", ()))
    if name in SYSTEMS:
        options = inspect.signature(SYSTEMS[name].objective.build).parameters
        assert found.loss.keys() <= options.keys()
    options = set(head_options(name))
    assert found.head.keys() <= options
    learns = name in SYSTEMS and SYSTEMS[name].learner is not None
    assert found.session.keys() <= ({"steps"} if learns or name == "bidist-base" else options)
    assert not learns or found.session["steps"] > 0


def test_numbers_that_differ_between_data_sets():
    def loss(name, key):
        return [published(name, dataset).loss[key] for dataset in BENCHMARKS]

    assert loss("fact", "balance") == [1e-3, 0.01, 0.01]
    assert loss("fact", "alpha") == [0.5, 0.5, 2.0]
    assert loss("fact", "after") == [0.0, 0.15, 0.0]
    assert loss("alice", "fusion") == [True, True, False]
    assert loss("cec", "queries") == [15, 15, 10]
    assert loss("savc", "slowness") == [0.995, 0.999, 0.999]
    assert [published("teen", d).head["alpha"] for d in BENCHMARKS] == [0.1, 0.5, 0.5]
    assert [published("nc-fscil", d).session["lr"] for d in BENCHMARKS] == [0.25, 0.025, 0.05]
    assert [published("topic", d).session["steps"] for d in BENCHMARKS] == [70, 100, 120]
    assert published("topic", "photos") == published("topic", "cifar100")


@pytest.mark.parametrize("dataset", BENCHMARKS)
@pytest.mark.parametrize("name", SYSTEMS)
def test_objectives_take_their_numbers(name, dataset, tmp_path):
    numbers = published(name, dataset)
    recipe = FIRST.changed(views=numbers.base.get("views"))
    job = BaseSession(
        IMAGES, recipe, N_BASE, tmp_path, objective=SYSTEMS[name].objective, loss=numbers.loss
    )
    model = make_model(job)
    assert {key: getattr(model, key) for key in numbers.loss} == numbers.loss
    assert job.config.get("loss", {}) == numbers.loss


def test_an_episode_of_cec_has_as_many_queries_as_it_was_told(tmp_path):
    make = SYSTEMS["cec"].objective
    model = make_model(
        BaseSession(IMAGES, FIRST, N_BASE, tmp_path, objective=make, loss={"queries": 3})
    )
    labels = torch.arange(N_BASE).repeat(9)
    rows = model.rows(torch.arange(4), labels, torch.Generator().manual_seed(0))
    assert len(rows) == N_BASE * (3 + 1)
    loss, shown = model.train()(torch.rand(len(rows), 3, 32, 32), labels[rows])
    assert shown.shape == (3 * N_BASE, N_BASE)
    assert loss.isfinite()


def test_the_losses_of_fact_join_after_a_share_of_the_training(tmp_path):
    make = SYSTEMS["fact"].objective
    job = BaseSession(IMAGES, FIRST, N_BASE, tmp_path, objective=make, loss={"after": 0.25})
    model = make_model(job).eval()
    images, labels = torch.rand(8, 3, 32, 32), torch.arange(8) % N_BASE
    plain = model.cross_entropy(model.logits(images), labels)
    model.reached(0.2)
    torch.testing.assert_close(model(images, labels)[0], plain)
    model.reached(0.25)
    assert bool(model(images, labels)[0] > plain)


def test_alice_has_no_classes_of_pairs_without_fusion(tmp_path):
    make = SYSTEMS["alice"].objective
    job = BaseSession(IMAGES, FIRST, N_BASE, tmp_path, objective=make)
    pairs = N_BASE * (N_BASE - 1) // 2
    assert len(make_model(job).weight) == N_BASE + pairs
    assert len(make_model(replace(job, loss={"fusion": False})).weight) == N_BASE


@pytest.mark.parametrize(("dataset", "alpha"), [("cifar100", 0.1), ("cub200", 0.5), ("mine", 0.1)])
def test_a_run_takes_the_numbers_of_its_data_set(dataset, alpha):
    x, y = blobs(6, 8, 5)
    data, protocol = Embeddings(x, y, x, y), Protocol(dataset, 4, 1, 2, 2)
    config = RunConfig(dataset, ("teen",), ("random:0",))
    assert fit_configured(config, "teen", 0, data, protocol).alpha == alpha


def test_cala_train_takes_them_with_published(tmp_path):
    out, data = tmp_path / "fact", small_cifar(tmp_path / "cifar")
    words = ("--holdout", "1", "--epochs", "1", "--encoder", "resnet20", "--threads", "1", "-q")
    cache = {"CALA_CACHE": tmp_path / "cache"}
    trained = ("train", data, "-o", out, "--published", *words)
    done = within(*trained, "--method", "fact", **cache)
    assert done.returncode == 0, done.stderr
    config = json.loads((out / "config.json").read_text())
    assert config["loss"] == {"balance": 1e-3, "alpha": 0.5, "after": 0.0}
    shown = {key: config["recipe"][key] for key in ("name", "schedule", "batch", "lr")}
    assert shown == {"name": "paper-cifar100", "schedule": "cosine", "batch": 256, "lr": 0.1}
    assert within(*trained, **cache).returncode == 2  # whose numbers?
    photos = folder(tmp_path / "photos")
    other = within("train", photos, *trained[2:], "--method", "fact", **cache)
    assert (other.returncode, "no published numbers" in other.stderr) == (2, True)
