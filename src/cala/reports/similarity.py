"""β against similarity to base, per class and over data sets (Fig. figsim)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr

from cala.reports.drawing import COLOURS, MUTED, NOVEL, Picture, clipped, make_figure
from cala.reports.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Relation:
    """Per novel class: mean similarity to base and β, each with its spread over draws."""

    similarity: NDArray[Any]
    beta: NDArray[Any]
    similarity_sd: NDArray[Any]
    beta_sd: NDArray[Any]
    nearest: NDArray[Any]
    draws: int

    @property
    def correlation(self) -> tuple[float, float, float]:
        return pearson(self.similarity, self.beta)


def relation(study: Study) -> Relation | None:
    """Of the focus; None where β is the same for all classes, as for LA, or for too few."""
    artifact = study.artifacts.get(study.focus)
    if artifact is None or not artifact.has("beta", "similarity"):
        return None
    similar = artifact["similarity"]
    if similar.size == 0:
        return None
    near, beta = similar.mean(1)[None], artifact["beta"][None, artifact.n_base :]
    if artifact.has("beta_draws", "similarity_draws") and len(artifact["beta_draws"]) > 1:
        near, beta = artifact["similarity_draws"], artifact["beta_draws"]
    draws = len(beta)
    near_sd, beta_sd = (v.std(0, ddof=int(draws > 1)).astype(float) for v in (near, beta))
    near, beta = (v.mean(0).astype(float) for v in (near, beta))
    if len(beta) < 2 or np.ptp(beta) < 1e-6:
        return None
    return Relation(near, beta, near_sd, beta_sd, similar.max(1).astype(float), draws)


def pearson(x: NDArray[Any], y: NDArray[Any]) -> tuple[float, float, float]:
    """r with its 95 % interval (Fisher); NaN where it does not exist.

    >>> [round(v, 2) for v in pearson(np.arange(6.0), np.array([0, 1, 2, 3, 4, 3.0]))]
    [0.91, 0.37, 0.99]
    """
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return (float("nan"),) * 3
    found = pearsonr(x, y)
    low, high = found.confidence_interval() if len(x) > 3 else (float("nan"), float("nan"))
    return float(found.statistic), float(low), float(high)


def in_words(found: tuple[float, float, float], n: int) -> str:
    """A correlation with its sign, interval and n."""
    r, low, high = found
    if r != r:
        return f"no correlation can be stated (n = {n} classes)"
    sign = "positive" if r > 0 else "negative"
    if low == low and low <= 0 <= high:
        sign += ", though the interval includes 0"
    inside = f", 95 % interval {low:+.2f} to {high:+.2f}" if low == low else ""
    return f"r = {r:+.2f}{inside} (n = {n} classes; {sign})".replace("-", "−")


def meaning(found: tuple[float, float, float], similarity_to: str) -> str:
    """What the sign of a correlation with β says, beside what the CALA paper reports."""
    r, low, high = found
    if r != r or low <= 0 <= high:
        return f"β does not clearly depend on {similarity_to}."
    if r > 0:
        return (
            f"β grows with {similarity_to}: the more a novel class resembles base classes, the "
            "more it is favoured over them, as the CALA paper reports."
        )
    return (
        f"β falls with {similarity_to}: the more a novel class resembles base classes, the less it "
        "is favoured over them, since that costs base images; the CALA paper reports the opposite."
    )


def similarity_figure(
    study: Study, method: str, found: Relation, others: list[tuple[str, Relation]]
) -> Picture:
    """Per class; and one point with error bars per data set where there are several."""
    several = len(others) > 1
    figure, axes = make_figure(3 if several else 2, 3.2)
    panels = list(axes)
    if several:
        _data_sets(panels.pop(0), others)
    bars: dict[str, Any] = {"color": NOVEL, "marker": "^", "ls": "", "ms": 5}
    bars |= {"elinewidth": 0.7, "ecolor": MUTED}
    n, near = len(found.beta), pearson(found.nearest, found.beta)
    panels[0].errorbar(found.similarity, found.beta, found.beta_sd, found.similarity_sd, **bars)
    panels[1].errorbar(found.nearest, found.beta, found.beta_sd, **bars)
    for panel, (r, *_), label in (
        (panels[0], found.correlation, "mean similarity to base"),
        (panels[1], near, "similarity to the nearest base"),
    ):
        panel.set(title=f"r = {r:+.2f}".replace("-", "−"), xlabel=label)
    panels[0].set_ylabel("β of the class")
    several_draws = f"bars: standard deviation over {found.draws} draws"
    bars_mean = several_draws if found.draws > 1 else "one draw"
    caption = (
        f"β that {method} gives each of the n = {n} novel classes ({bars_mean}). With mean "
        f"similarity: {in_words(found.correlation, n)}. With the nearest base class: "
        f"{in_words(near, n)}. {meaning(found.correlation, 'mean similarity')} "
        f"{meaning(near, 'similarity to the nearest base class')}"
    )
    if several:
        caption += " Left: mean and standard deviation over the novel classes of each data set."
    alt = f"β against similarity to base on {study.dataset}: {in_words(found.correlation, n)}."
    return Picture("similarity", "β and similarity to base", caption, alt, figure)


def _data_sets(axes: Axes, others: list[tuple[str, Relation]]) -> None:
    for i, (name, r) in enumerate(others, 1):
        x, y = r.similarity.mean(), r.beta.mean()
        spread = r.beta.std(ddof=1)
        colour = COLOURS[i % len(COLOURS)]
        axes.errorbar(x, y, spread, r.similarity.std(ddof=1), color=colour, marker="o", capsize=2)
        up = 1 if i % 2 else -1  # names alternate above and below the bars
        axes.annotate(
            clipped(name, 14), (x, y + up * spread), xytext=(0, 9 * up), ha="center", va="center",
            textcoords="offset points", fontsize=8, color=colour,
        )  # fmt: skip
    axes.set(title="data sets", xlabel="mean similarity to base", ylabel="β, mean of the classes")
    axes.margins(0.25)
