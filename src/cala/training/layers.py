"""Which layers of an encoder learn, and how fast: early ones slower, or not at all."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from cala.errors import InputError
from cala.training.recipes import Recipe

SLOW = 0.1  # rate of norms that are "slow"


def layers(encoder: nn.Module) -> list[list[nn.Module]]:
    """Its children in the order in which they were entered, which is the way of an image.

    The entries of a list count one by one, and a norm belongs to what it follows.
    """
    found: list[list[nn.Module]] = []
    for child in encoder.children():
        for module in child if isinstance(child, nn.ModuleList) else (child,):
            if not any(True for _ in module.parameters()):
                continue
            if isinstance(module, _BatchNorm) and found:
                found[-1].append(module)
            else:
                found.append([module])
    return found


def layer_rates(encoder: nn.Module, recipe: Recipe) -> dict[nn.Parameter, float]:
    """Factor of the learning rate of every parameter; 0 for those that stay as they are."""
    whole = layers(encoder)
    if recipe.freeze > len(whole):
        raise InputError(
            f"freeze is {recipe.freeze}, and {recipe.encoder} has {len(whole)} layers",
            f"use at most {len(whole)}",
            field="freeze",
        )
    of_norms = {"train": 1.0, "slow": SLOW, "frozen": 0.0}[recipe.norms]
    found = {}
    for place, layer in enumerate(whole):
        rate = recipe.layer_decay ** (len(whole) - place) if place >= recipe.freeze else 0.0
        for module in (part for top in layer for part in top.modules()):
            own = rate * of_norms if isinstance(module, _BatchNorm) else rate
            found.update(dict.fromkeys(module.parameters(recurse=False), own))
    return found


def at_rates(
    groups: list[dict[str, Any]], rates: dict[nn.Parameter, float]
) -> list[dict[str, Any]]:
    """Parameter groups of an optimiser, divided by rate; what stays is left out."""
    found = []
    for group in groups:
        by_rate: dict[float, list[nn.Parameter]] = {}
        for parameter in group["params"]:
            by_rate.setdefault(rates.get(parameter, 1.0), []).append(parameter)
        factor = group.get("factor", 1.0)
        found += [{**group, "params": p, "factor": factor * r} for r, p in by_rate.items() if r]
    return found


def hold(encoder: nn.Module, recipe: Recipe) -> None:
    """Keep what is frozen out of the backward pass, and its statistics as they are."""
    for parameter, rate in layer_rates(encoder, recipe).items():
        if not rate:
            parameter.requires_grad_(False)
    for place, layer in enumerate(layers(encoder)):
        for module in (part for top in layer for part in top.modules()):
            if isinstance(module, _BatchNorm) and (
                place < recipe.freeze or recipe.norms != "train"
            ):
                module.eval()
