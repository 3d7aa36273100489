"""Concentration: tight classes deserve steeper logits (ours, beyond the paper).

Seen as directions, the images of class c follow a von Mises-Fisher density, whose log is
κ_c·cos(x, p_c) + log Z(κ_c): a class that is concentrated has a steeper slope and a lower offset
than one that is spread out. A shared scale ignores this. Here slope and offset are functions of
the class's tightness, with two parameters for all classes, learned on base rows that are left out
of their own prototypes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cala.core.logits import SCALE_RANGE
from cala.core.prototypes import PrototypeTable, chunks

RIDGE_ROWS = 40  # the ridge weighs as much as the loss of so many rows
SLOPE_UNIT = 0.1  # puts both parameters on one footing for the ridge


@dataclass(frozen=True)
class Concentration:
    """Logits are slope_c·cos + offset_c: slope (B,), offset (B,), the scale included."""

    slope: Tensor
    offset: Tensor


def standardised_tightness(table: PrototypeTable) -> Tensor:
    """Tightness of each class in units of its spread over classes; 0 where it is unknown."""
    tightness = table.tightness
    known = tightness[~tightness.isnan()]
    if len(known) < 2 or float(known.std()) < 1e-6:
        return torch.zeros_like(tightness)
    return ((tightness - known.mean()) / known.std()).nan_to_num(0.0)


def fit_concentration(
    cosines: Tensor, own: Tensor, tightness: Tensor, scale: float, *, free_scale: bool
) -> Concentration:
    """Fit slope s·exp(a·τ_c) and offset b·τ_c, and s too (in `SCALE_RANGE`) where it is free.

    cosines : (n, B) leave-one-out cosines of base rows; own : (n,) their columns
    tightness : (B,) τ, standardised
    """
    cosines, tau = cosines.double(), tightness.double().to(cosines.device)
    true = cosines.gather(1, own[:, None])[:, 0]
    counts = torch.bincount(own, minlength=cosines.shape[1]).double()
    true_sums = torch.zeros_like(tau).index_add_(0, own, true)
    parameters = torch.zeros(3, dtype=torch.float64, device=cosines.device, requires_grad=True)
    solver = torch.optim.LBFGS([parameters], max_iter=60, line_search_fn="strong_wolfe")

    def concentration() -> Concentration:
        stretch = parameters[2] if free_scale else 0.0 * parameters[2]
        # Noise is best served by no scale at all; the range keeps logits apart even then.
        log_scale = (math.log(scale) + stretch).clamp(*map(math.log, SCALE_RANGE))
        slope = torch.exp(log_scale + SLOPE_UNIT * parameters[1] * tau)
        return Concentration(slope, parameters[0] * tau)

    def closure() -> Tensor:
        solver.zero_grad()
        now = concentration()
        slope, offset = now.slope.detach(), now.offset.detach()
        # Cross-entropy and its gradient by hand: autograd would pass over (n, B) four times more.
        loss, by_offset, by_slope = torch.zeros_like(tau[0]), -counts, -true_sums
        for rows in chunks(*cosines.shape):
            logits = torch.addcmul(offset, cosines[rows], slope)
            logits -= logits.amax(1, keepdim=True)
            right = logits.gather(1, own[rows, None])[:, 0]
            share = logits.exp_()
            total = share.sum(1, keepdim=True)
            loss += (total[:, 0].log() - right).sum()
            share /= total
            by_offset += share.sum(0)
            by_slope += share.mul_(cosines[rows]).sum(0)
        loss, by_offset, by_slope = (x / len(own) for x in (loss, by_offset, by_slope))
        ridge = RIDGE_ROWS / len(own) * parameters[:2].square().sum()
        torch.autograd.backward([now.slope, now.offset, ridge], [by_slope, by_offset, None])
        return loss + ridge.detach()

    solver.step(closure)
    with torch.no_grad():
        return concentration()
