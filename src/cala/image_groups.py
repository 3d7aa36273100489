"""Groups of test images: what a rate would be without one of them.

A run scores one sample of test images. How far its rates would be others on another sample follows
from leaving out one group of images after the other (a jackknife, see `cala.statistics`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cala.metrics import Answers, SessionMetrics, harmonic, trade_off

IMAGE_GROUPS = 20
#: Counts per group, and rates with each group left out, under their names in records.
COUNTS = (
    "base_images",
    "base_right",
    "base_as_novel",
    "novel_images",
    "novel_right",
    "novel_as_base",
)
_RATES = ("ausuc", "ncr2", "ncr5")
_MOST = 2**53  # images of a group that a float still counts one by one

Kept = dict[str, list[float]]


def image_groups(labels: ArrayLike, most: int = IMAGE_GROUPS) -> NDArray[np.int64]:
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
    tally[:, :, 0] = tally.sum(2)  # all images, whatever their outcome
    columns = tally.reshape(n_groups, 6).T.tolist()
    kept: Kept = {name: list(values) for name, values in zip(COUNTS, columns, strict=True)}
    if not any(kept["novel_images"]):
        return {name: values for name, values in kept.items() if name.startswith("base")}
    if curve:
        curves = [trade_off(answers.where(groups != group)) for group in range(n_groups)]
        rates = [(c.area, c.novel_at_base_loss(0.02), c.novel_at_base_loss(0.05)) for c in curves]
        for name, column in zip(_RATES, np.round(rates, 6).T, strict=True):
            if np.isfinite(column).all():
                kept[name] = column.tolist()
    return kept


def left_out(kept: Mapping[str, object]) -> list[SessionMetrics] | None:
    """The rates of a session without each group; None if these are not counts per group.

    What a record does not keep, and what does not exist without a group, is NaN.
    """
    try:
        found = {k: np.asarray(kept[k], np.float64) for k in (*COUNTS, *_RATES) if k in kept}
        table = np.stack(list(found.values()))
    except (TypeError, ValueError, OverflowError):
        return None
    most = np.array([[1.0 if name in _RATES else _MOST] for name in found])
    if table.ndim != 2 or table.shape[1] < 2 or not ((table >= 0) & (table <= most)).all():
        return None
    n_groups = table.shape[1]
    counts = {name: found.get(name, np.zeros(n_groups)) for name in COUNTS}
    for images, right, elsewhere in (COUNTS[:3], COUNTS[3:]):
        if (counts[right] + counts[elsewhere] > counts[images]).any():
            return None
    unknown = np.full(n_groups, np.nan)
    rest = {name: values.sum() - values for name, values in counts.items()}
    with np.errstate(divide="ignore", invalid="ignore"):
        images = rest["base_images"] + rest["novel_images"]
        columns = {
            "accuracy": (rest["base_right"] + rest["novel_right"]) / images,
            "base": rest["base_right"] / rest["base_images"],
            "novel": rest["novel_right"] / rest["novel_images"],
            "fpr": rest["novel_as_base"] / rest["novel_images"],
            "fpr_mirror": rest["base_as_novel"] / rest["base_images"],
            **{name: found.get(name, unknown) for name in _RATES},
        }
    rates = {name: values.tolist() for name, values in columns.items()}
    rates["hm"] = [harmonic(a, b) for a, b in zip(rates["base"], rates["novel"], strict=True)]
    return [SessionMetrics(**{k: v[g] for k, v in rates.items()}) for g in range(n_groups)]
