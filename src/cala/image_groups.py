"""Groups of test images: what a rate would be without one of them.

A run scores one sample of test images. How far its rates would be others on another sample follows
from leaving out one group of images after the other (a jackknife, see `cala.statistics`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cala.metrics import Answers, SessionMetrics, TradeOff, harmonic, switches_of

GROUPS = 20
#: Counts per group, and rates with each group left out, under their names in records.
COUNTS = (
    "base_images",
    "base_right",
    "base_as_novel",
    "novel_images",
    "novel_right",
    "novel_as_base",
)
RATES = ("ausuc", "ncr2", "ncr5")
MOST = 2**53  # images of a group that a float still counts one by one

Kept = dict[str, list[float]]


def image_groups(labels: ArrayLike, most: int = GROUPS) -> NDArray[np.int64]:
    """The group of each test image; the labels alone decide it, so all methods share it.

    Classes are dealt out one after the other, each in a seeded random order, so every group has
    its share of every class, and of the classes of the first sessions.

    labels : (n,) columns; most : groups, fewer where there are fewer images

    >>> groups = image_groups([0, 0, 0, 1, 1, 1], most=3)
    >>> sorted(groups[:3].tolist()), sorted(groups[3:].tolist())
    ([0, 1, 2], [0, 1, 2])
    """
    y = np.asarray(labels)
    shuffled = np.random.default_rng(0).permutation(len(y))
    order = shuffled[np.argsort(y[shuffled], kind="stable")]
    groups = np.empty(len(y), np.int64)
    groups[order] = np.arange(len(y)) % max(1, min(most, len(y)))
    return groups


def kept_groups(
    answers: Answers, groups: NDArray[np.int64], n_groups: int, curve: bool = False
) -> Kept | None:
    """What a record keeps of each group; None for fewer than two groups.

    groups : (n,) of the images that were answered
    curve : also keep AUSUC and NCR with each group left out, which counts do not give
    """
    if n_groups < 2:
        return None
    own_novel, as_novel = answers.own >= answers.n_base, answers.predicted >= answers.n_base
    right = answers.predicted == answers.own
    outcome = np.where(right, 1, np.where(own_novel != as_novel, 2, 0))
    found = np.bincount((2 * groups + own_novel) * 3 + outcome, minlength=6 * n_groups)
    tally = found.reshape(n_groups, 2, 3)
    lists = (
        tally[:, side].sum(1) if k == 0 else tally[:, side, k] for side in (0, 1) for k in (0, 1, 2)
    )
    kept: Kept = {name: values.tolist() for name, values in zip(COUNTS, lists, strict=True)}
    if not any(kept["novel_images"]):
        return {name: values for name, values in kept.items() if name.startswith("base")}
    if curve:
        curves = _curves(answers, groups, n_groups)
        rates = [(c.area, c.novel_at_base_loss(0.02), c.novel_at_base_loss(0.05)) for c in curves]
        for name, column in zip(RATES, np.round(rates, 6).T, strict=True):
            if np.isfinite(column).all():
                kept[name] = column.tolist()
    return kept


def left_out(kept: Mapping[str, object]) -> list[SessionMetrics] | None:
    """The rates of a session without each group; None if these are no counts of groups.

    What a record does not keep, and what does not exist without a group, is NaN.
    """
    try:
        found = {k: np.asarray(v, np.float64) for k, v in kept.items() if k in (*COUNTS, *RATES)}
    except (AttributeError, TypeError, ValueError, OverflowError):
        return None
    n_groups = len(found["base_images"]) if np.ndim(found.get("base_images", 0.0)) == 1 else 0
    if n_groups < 2 or any(values.shape != (n_groups,) for values in found.values()):
        return None
    nothing = np.zeros(n_groups)
    if not all(((values >= 0) & (values <= MOST)).all() for values in found.values()):
        return None
    for side, other in (("base", "novel"), ("novel", "base")):
        images, *parts = (
            found.get(f"{side}_{name}", nothing) for name in ("images", "right", f"as_{other}")
        )
        if (sum(parts) > images).any():
            return None
    if any((found[name] > 1).any() for name in RATES if name in found):
        return None
    unknown = np.full(n_groups, np.nan)
    rest = {k: (v := found.get(k, nothing)).sum() - v for k in COUNTS}
    with np.errstate(divide="ignore", invalid="ignore"):
        images = rest["base_images"] + rest["novel_images"]
        columns = {
            "accuracy": (rest["base_right"] + rest["novel_right"]) / images,
            "base": rest["base_right"] / rest["base_images"],
            "novel": rest["novel_right"] / rest["novel_images"],
            "fpr": rest["novel_as_base"] / rest["novel_images"],
            "fpr_mirror": rest["base_as_novel"] / rest["base_images"],
            **{name: found.get(name, unknown) for name in RATES},
        }
    rates = {name: values.tolist() for name, values in columns.items()}
    rates["hm"] = [harmonic(a, b) for a, b in zip(rates["base"], rates["novel"], strict=True)]
    return [SessionMetrics(**{k: v[g] for k, v in rates.items()}) for g in range(n_groups)]


def _curves(answers: Answers, groups: NDArray[np.int64], n_groups: int) -> Iterator[TradeOff]:
    """The trade-off curve without each group; images are sorted once for all."""
    switch, right, is_base = switches_of(answers)
    order = np.flatnonzero(right)
    order = order[np.argsort(switch[order], kind="stable")]
    at, own, base = switch[order], groups[order], is_base[order]
    ends = np.flatnonzero(np.append(np.diff(at) > 0, np.ones(min(len(at), 1), bool)))
    delta = np.append(-np.inf, at[ends])
    sizes = [np.bincount(groups[side], minlength=n_groups) for side in (is_base, ~is_base)]
    n_base, n_novel = (size.sum() - size for size in sizes)
    for group in range(n_groups):
        here = own != group
        lost, won = (np.append(0, np.cumsum(here & side)[ends]) for side in (base, ~base))
        with np.errstate(divide="ignore", invalid="ignore"):
            yield TradeOff(delta, (lost[-1] - lost) / n_base[group], won / n_novel[group])
