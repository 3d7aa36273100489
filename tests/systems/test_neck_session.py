"""A session's steps against a slow version: NumPy from the equations, slopes by differences."""

from __future__ import annotations

import copy
import math
import time

import numpy as np
import torch

from cala.systems.nc_fscil import Neck, dot_regression, neck_width, simplex_etf, turn_neck

DIM, WIDTH = 2, 4


def layer_norm(x, gain, offset):
    centred = x - x.mean()
    return gain * centred / math.sqrt((centred**2).mean() + 1e-5) + offset


def leaky(x):
    return np.where(x > 0, x, 0.1 * x)


def slow_output(w, unit):
    x = math.sqrt(len(unit)) * unit
    h = leaky(
        layer_norm(w["body.0.weight"] @ x + w["body.0.bias"], w["body.1.weight"], w["body.1.bias"])
    )
    h = leaky(
        layer_norm(w["body.3.weight"] @ h + w["body.3.bias"], w["body.4.weight"], w["body.4.bias"])
    )
    return w["body.6.weight"] @ h + w["skip.weight"] @ x


def slow_loss(w, rows, vertices, weights):
    total = 0.0
    for row, vertex, weight in zip(rows, vertices, weights, strict=True):
        h = slow_output(w, row)
        total += weight * 5 * (h @ vertex / np.linalg.norm(h) - 1) ** 2
    return total


def slow_session(w, rows, vertices, weights, steps, lr):
    w = {name: value.copy() for name, value in w.items()}
    speed = {name: np.zeros_like(value) for name, value in w.items()}
    for _ in range(steps):
        slopes = {}
        for name, value in w.items():
            slope = np.zeros_like(value)
            for at in np.ndindex(value.shape):
                old, losses = value[at], []
                for moved in (old + 1e-5, old - 1e-5):
                    value[at] = moved
                    losses.append(slow_loss(w, rows, vertices, weights))
                value[at] = old
                slope[at] = (losses[0] - losses[1]) / 2e-5
            slopes[name] = slope
        for name in w:
            speed[name] = 0.9 * speed[name] + slopes[name]
            w[name] = w[name] - lr * speed[name]
    return w


def problem():
    torch.manual_seed(0)
    neck = Neck(DIM, WIDTH).double().requires_grad_(False)
    for parameter in neck.parameters():
        parameter += 0.1 * torch.randn_like(parameter)
    angles = torch.tensor([0.3, 1.7, 4.0]).double()
    rows = torch.stack([angles.cos(), angles.sin()], 1)
    vertices = simplex_etf(3, WIDTH).double()
    return neck, rows, vertices, torch.tensor([0.25, 0.25, 0.5]).double()


def arrays(neck):
    return {name: value.numpy().copy() for name, value in neck.state_dict().items()}


def test_the_neck_against_its_equations():
    neck, rows, *_ = problem()
    slow = np.stack([slow_output(arrays(neck), row) for row in rows.numpy()])
    torch.testing.assert_close(neck(rows), torch.tensor(slow))


def test_steps_against_a_slow_version():
    neck, rows, vertices, weights = problem()
    before = arrays(neck)
    found = turn_neck(neck, rows, vertices, weights, steps=4, lr=0.05)
    slow = slow_session(before, rows.numpy(), vertices.numpy(), weights.numpy(), steps=4, lr=0.05)
    for name, value in found.state_dict().items():
        np.testing.assert_allclose(value.numpy(), slow[name], atol=1e-7, err_msg=name)
        np.testing.assert_array_equal(before[name], neck.state_dict()[name].numpy())
    assert not any(p.requires_grad or p.grad is not None for p in found.parameters())


def test_nothing_is_drawn_and_gradients_may_be_off():
    neck, rows, vertices, weights = problem()
    state = torch.get_rng_state()
    with torch.no_grad():
        one = turn_neck(neck, rows, vertices, weights, steps=30, lr=0.1)
    two = turn_neck(neck, rows, vertices, weights, steps=30, lr=0.1)
    assert all(map(torch.equal, one.parameters(), two.parameters()))
    assert torch.equal(torch.get_rng_state(), state)
    ends = slow_loss(arrays(one), rows.numpy(), vertices.numpy(), weights.numpy())
    assert ends < 0.1 * slow_loss(arrays(neck), rows.numpy(), vertices.numpy(), weights.numpy())


def test_a_wide_simplex_needs_a_wide_neck():
    assert (neck_width(100), neck_width(512), neck_width(700)) == (512, 512, 700)


def test_a_small_session_costs_less_than_torch_takes_for_its_slopes_alone():
    """Adapters on this head play hundreds of sessions."""
    neck, rows, vertices, weights = problem()

    def with_torch(steps):
        tracked = copy.deepcopy(neck).requires_grad_(True)
        with torch.enable_grad():
            for _ in range(steps):
                loss = (weights * dot_regression(tracked(rows), vertices)).sum()
                torch.autograd.grad(loss, list(tracked.parameters()))

    def seconds(work):
        times = []
        for _ in range(3):
            start = time.process_time()
            work()
            times.append(time.process_time() - start)
        return min(times)

    own = seconds(lambda: turn_neck(neck, rows, vertices, weights, steps=100, lr=0.01))
    assert own < seconds(lambda: with_torch(100))
