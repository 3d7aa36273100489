"""Recipes are data: the paper's numbers, schedules, sizes."""

from __future__ import annotations

import itertools
import json

import pytest

from cala.encoders import ARCHITECTURES
from cala.training.augment import augmentation
from cala.training.recipes import RECIPES, Recipe
from refusals import refused


@pytest.mark.parametrize("name", list(RECIPES))
def test_every_recipe_is_whole(name):
    recipe = RECIPES[name]
    assert recipe.name == name
    assert recipe.encoder in ARCHITECTURES
    assert Recipe.from_dict(json.loads(json.dumps(recipe.as_dict()))) == recipe
    assert augmentation(recipe).draws > 0
    rates = [recipe.lr_at(step, 10) for step in range(recipe.epochs * 10)]
    assert all(0 < rate <= recipe.lr * (1 + 1e-9) for rate in rates)
    assert max(rates) == pytest.approx(recipe.lr)
    assert rates[-1] < recipe.lr / 50
    assert recipe.size_at(recipe.epochs - 1) == recipe.transform.size


def test_the_paper():
    for name in ("paper-cifar100", "paper-mini-imagenet"):
        recipe = RECIPES[name]
        assert (recipe.epochs, recipe.lr, recipe.milestones, recipe.factor) == (
            200, 0.1, (120, 160), 0.1,
        )  # fmt: skip
        assert recipe.lr_at(120 * 10 - 1, 10) == 0.1
        assert recipe.lr_at(120 * 10, 10) == pytest.approx(0.01)
        assert recipe.lr_at(160 * 10, 10) == pytest.approx(0.001)
    cub = RECIPES["paper-cub200"]
    assert (cub.epochs, cub.lr, cub.milestones) == (120, 0.01, (50, 70, 90))
    assert cub.pretrained


def test_one_cycle_rises_and_falls_in_straight_lines():
    recipe = RECIPES["fast-cifar100"].changed(epochs=10)
    rates = [recipe.lr_at(step, 10) for step in range(100)]
    assert rates[0] == pytest.approx(0.1 / 20)
    assert rates.index(max(rates)) == 19
    falls = [a - b for a, b in itertools.pairwise(rates[20:])]
    assert max(falls) == pytest.approx(min(falls))
    assert [recipe.size_at(e) for e in (0, 3, 4, 6, 7, 9)] == [24, 24, 28, 28, 32, 32]


def test_settings():
    recipe = RECIPES["fast-cifar100"].with_settings(["policy=2", "schedule=cosine", "cutout=4"])
    assert (recipe.policy, recipe.schedule, recipe.cutout) == (2, "cosine", 4)
    assert len(augmentation(recipe).operations) == 4
    for text, field, named, fix in (
        ("cutout", "settings", "'cutout'", "NAME=VALUE"),
        ("cutot=3", "settings", "'cutot'", "'cutout'?"),
        ("cutout=x", "settings", "'cutout=x'", "number"),
        ("augment=mirror", "augment", "'mirror'", "Known"),
        ("norms=frozn", "norms", "'frozn'", "'frozen'?"),
    ):
        with refused(named, field=field) as caught:
            recipe.with_settings([text])
        assert fix in caught.value.fix


@pytest.mark.parametrize(
    "text",
    [
        "pad=-3", "pad=200", "smoothing=2", "smoothing=1", "policy=-1", "policy=1000", "cutout=-5",
        "cutout=33", "momentum=5", "momentum=1", "momentum=nan", "jitter=nan", "jitter=-1",
        "store=-1", "store=100000", "warmup=7", "weight_decay=nan", "weight_decay=-1", "factor=0",
        "factor=inf", "scale=nan", "average=1", "average=-1", "layer_decay=0", "layer_decay=1.5",
        "freeze=-1", "blend=0", "blend=1.1", "keep=-1", "keep=nan", "keep=inf",
    ],
)  # fmt: skip
def test_settings_out_of_range(text):
    name, _, value = text.partition("=")
    with refused(value, field=name):
        RECIPES["fast-cifar100"].with_settings([text])


def test_bad_numbers():
    recipe = RECIPES["fast-cifar100"]
    with refused(0, field="epochs"):
        recipe.changed(epochs=0)
    with refused("nan", field="lr"):
        recipe.changed(lr=float("nan"))
    with refused("'cosin'", field="schedule", code="unknown_name") as caught:
        recipe.changed(schedule="cosin")
    assert "'cosine'?" in caught.value.fix
