"""Figures of one method's classes before and after its adapter, and of its calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cala.reports.class_tables import BINS, ClassGains, artifact_reliability, swallowed
from cala.reports.drawing import BASE, INK, MUTED, NOVEL, PAPER, Picture, clipped, make_figure
from cala.reports.phrases import one_cell
from cala.reports.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE = (0.0, 0.32, 0.62)
POWER = 0.4  # of the share, so that rare mistakes show
ALL_NAMED = 12  # most classes for which every row of a matrix is named
SWALLOWED_SHOWN = 15
GAINS_NAMED = 8
_FEWEST = 10  # images of a bin that is drawn
_SIDES = (("all", INK, "o"), ("base", BASE, "s"), ("novel", NOVEL, "^"))
TITLES = {"before": "without adapter", "after": "with adapter"}


def softmax(study: Study, method: str) -> Picture | None:
    """Mean probability per class (Fig. figlogit), base and novel apart, in order of arrival."""
    artifact = study.artifacts[method]
    if not artifact.has("softmax_before", "softmax_after"):
        return None
    figure, axes = make_figure(2, 2.9, sharey=True)
    top = 106 * max(artifact["softmax_before"].max(), artifact["softmax_after"].max())
    b, c = artifact.n_base, artifact.n_classes
    for panel, when in zip(axes, TITLES, strict=True):
        values = 100 * artifact[f"softmax_{when}"].astype(float)
        for start, stop, colour, name in _sides(b, c):
            x, part = np.arange(start, stop), values[start:stop]
            panel.vlines(x, 0, part, color=colour, alpha=0.35, lw=max(0.8, min(3.0, 220 / c)))
            panel.plot(x, part, "." if name == "base" else "^", color=colour, ms=3)
            panel.hlines(part.mean(), start - 0.5, stop - 0.5, color=colour, lw=2)
            panel.annotate(
                f"{name}: mean {part.mean():.2f} %", ((start + stop - 1) / 2, 1.0), fontsize=8,
                xycoords=("data", "axes fraction"), ha="center", va="bottom", color=colour,
            )  # fmt: skip
        panel.axhline(100 / c, color=INK, lw=0.9, ls="--")
        _class_axis(panel, c)
        panel.set(ylim=(0, top), title=f"{when}\n")
    axes[0].set_ylabel("mean probability, %")
    caption = (
        f"Mean probability that each class is given, {method} before and after adjustment; "
        f"{one_cell(study, method)}. Dashed: 1/{c}, the same for all; thick: means."
    )
    alt = "Mean softmax probability of base and novel classes before and after adjustment."
    return Picture("softmax", "Probability per class", caption, alt, figure)


def _sides(n_base: int, n_classes: int) -> list[tuple[int, int, str, str]]:
    """First and last column, colour and name of base and novel classes, where there are any."""
    base, novel = (0, n_base, BASE, "base"), (n_base, n_classes, NOVEL, "novel")
    return [base, novel] if n_base < n_classes else [base]


def _class_axis(panel: Axes, count: int) -> None:
    """Classes in order of arrival, whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    panel.set(xlim=(-0.7, count - 0.3), xlabel="class, in order of arrival")
    panel.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))


def confusion(study: Study, method: str) -> Picture:
    """Confusion matrices (Fig. figcm): rows are true classes, shade grows with the share."""
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm
    from matplotlib.ticker import PercentFormatter

    artifact = study.artifacts[method]
    b, c = artifact.n_base, artifact.n_classes
    found = {when: artifact.shares(when) for when in TITLES}
    single = bool(np.isnan(found["before"]).any()) or not study.adapter(method)
    times = ["after"] if single else ["before", "after"]
    figure, axes = make_figure(len(times), 5.0 if single else 4.0, sharey=True)
    images = artifact["confusion"][b:].sum(1)
    # One blue, as opaque as the share is large, so that it works on any paper.
    shades = LinearSegmentedColormap.from_list("share", [(*BLUE, 0.0), (*BLUE, 1.0)])
    look = {"cmap": shades, "norm": PowerNorm(POWER, 0, 1), "extent": (0, c, c, 0)}
    for panel, when in zip(axes, times, strict=True):
        image = panel.imshow(found[when], **look)  # type: ignore[arg-type]
        _frame(panel, b, c)
        lost = 100 * found[when][b:, :b].sum(1) @ images / max(images.sum(), 1)
        title = f"{method if single else TITLES[when]}: {lost:.0f} % to base"
        panel.set(title=title, xlabel="predicted class")
    axes[0].set_ylabel("true class")
    if c <= ALL_NAMED:
        axes[0].set_yticks(np.arange(c) + 0.5, [n[:20] for n in artifact.names()])
    bar = figure.colorbar(
        image, ax=axes, shrink=0.7, pad=0.03, ticks=[0, 0.01, 0.1, 0.25, 0.5, 1],
        format=PercentFormatter(1, 0), label="share of the true class's images",
    )  # fmt: skip
    bar.solids.set_rasterized(True)  # type: ignore[union-attr]
    caption = (
        f"{method}; {one_cell(study, method)}. Classes in order of arrival, rows are true classes; "
        f"the lines separate {b} base from {c - b} novel classes; lower left: novel taken for "
        "base, with their percentage above. The colour scale is stretched at its low end, so that "
        "rare mistakes show."
    )
    alt = "Confusion matrices without and with the adapter; the lower left is novel taken for base."
    return Picture("confusion", "Confusion matrices", caption, alt, figure)


def _frame(panel: Axes, n_base: int, n_classes: int) -> None:
    from matplotlib.ticker import MaxNLocator

    panel.grid(False)
    panel.spines[:].set_visible(True)
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    if n_base < n_classes:
        panel.axhline(n_base, color=NOVEL, lw=1.2)
        panel.axvline(n_base, color=NOVEL, lw=1.2)
        for place, name in ((n_base / 2, "base"), ((n_base + n_classes) / 2, "novel")):
            panel.text(
                1.01, 1 - place / n_classes, name, transform=panel.transAxes, rotation=270,
                va="center", fontsize=8, color=INK,
            )  # fmt: skip


def swallowed_figure(study: Study, method: str) -> Picture | None:
    """One line per novel class: share of its images given to base classes, then and now."""
    artifact = study.artifacts[method]
    found = swallowed(artifact)[:SWALLOWED_SHOWN]
    if not found:
        return None
    names = artifact.names()
    figure, (axes,) = make_figure(1, 0.23 * len(found) + 1.0)
    place = np.arange(len(found))[::-1]
    now = [100 * s.share for s in found]
    axes.plot(now, place, "o", color=NOVEL, ms=6, label="with adapter", zorder=3)
    then = [100 * s.share_before for s in found]
    if study.adapter(method) and np.isfinite(then).all():
        axes.hlines(place, now, then, color=MUTED, lw=1.2)
        axes.plot(then, place, "s", color=BASE, mfc=PAPER, ms=5, label="without", zorder=2)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.0 + 0.6 / len(found)), ncols=2)
    labels = [f"{clipped(names[s.column], 20)} → {clipped(names[s.by[0][0]], 20)}" for s in found]
    axes.set_yticks(place, labels)
    axes.set(xlabel="share of the novel class's images given to base classes, %", xlim=(0, 100))
    axes.set_ylim(-0.7, len(found) - 0.3)
    _horizontal(axes)
    caption = (
        f"{method}: the {len(found)} novel classes that lose most images to base (behind the "
        f"arrow: the class that takes most); {one_cell(study, method)}."
    )
    alt = f"Novel classes lost to base classes; worst: {labels[0]}."
    return Picture("swallowed", "Swallowed novel classes", caption, alt, figure)


def classes(study: Study, gains: ClassGains) -> Picture:
    """All classes in order of arrival, and the largest gains and losses by name."""
    named = gains.extremes(GAINS_NAMED)
    height = max(3.2, 0.19 * len(named) + 0.9)
    figure, (left, right) = make_figure(2, height, gridspec_kw={"width_ratios": [1.25, 1]})
    count, b = len(gains.gain), gains.n_base
    colours = [BASE] * b + [NOVEL] * (count - b)
    left.bar(np.arange(count), gains.gain, color=colours, width=0.8)
    left.axhline(0, color=MUTED, lw=0.7)
    if b < count:
        left.axvline(b - 0.5, color=INK, lw=0.8, ls="--")
    _class_axis(left, count)
    left.set_title("gain in accuracy, points")
    for start, stop, colour, name in _sides(b, count):
        mean = f"{name}: {gains.gain[start:stop].mean():+.1f}".replace("-", "−")
        left.text(
            (start + stop - 1) / 2, 0.99, mean, color=colour,
            ha="center", va="top", fontsize=8, transform=left.get_xaxis_transform(),
        )  # fmt: skip
    left.margins(y=0.12)
    place = np.arange(len(named))[::-1]
    right.barh(
        place, gains.gain[named], color=[colours[i] for i in named], height=0.7,
        hatch=["" if i < b else "///" for i in named], edgecolor=PAPER, lw=0,
    )  # fmt: skip
    right.set_yticks(place, [clipped(gains.names[i], 26) for i in named])
    right.axvline(0, color=MUTED, lw=0.7)
    _horizontal(right)
    right.set_title("largest, by name")
    if not named:
        right.text(0.5, 0.5, "no class changes", transform=right.transAxes, ha="center")
    caption = (
        f"Accuracy of each class with {gains.method} minus that of {gains.against}; "
        f"{one_cell(study, gains.method)}. The means over base and over novel classes are above; "
        "hatched by name: novel."
    )
    won, lost = int((gains.gain > 0).sum()), int((gains.gain < 0).sum())
    alt = f"{won} classes gain, {lost} lose with {gains.method}."
    return Picture("classes", "Gains and losses per class", caption, alt, figure)


def _horizontal(axes: Axes) -> None:
    """Grid lines for horizontal bars."""
    axes.grid(True, axis="x")
    axes.grid(False, axis="y")


def reliability_figure(study: Study, method: str) -> Picture | None:
    """Accuracy against confidence; a point's size is its share of the images."""
    artifact = study.artifacts[method]
    times = ["before", "after"] if study.adapter(method) else ["after"]
    if artifact_reliability(artifact, times[0]) is None:
        return None
    width = 7.4 if len(times) == 2 else 4.2
    figure, axes = make_figure(len(times), 3.8, width=width, sharey=True)
    errors = []
    for panel, when in zip(axes, times, strict=True):
        panel.plot([0, 1], [0, 1], color=MUTED, lw=0.8, ls="--")
        for side, colour, marker in _SIDES:
            found = artifact_reliability(artifact, when, side)
            if found is None or not found.count.any():
                continue
            full = found.count >= _FEWEST
            x, y = found.confidence[full], found.accuracy[full]
            panel.plot(x, y, color=colour, lw=1.0)
            area = 6 + 220 * found.count[full] / found.count.sum()
            label = f"{side}: ECE {found.ece:.1f}"
            panel.scatter(x, y, s=area, color=colour, marker=marker, alpha=0.8, lw=0, label=label)
            errors += [f"{found.ece:.1f} {when}"] if side == "all" else []
        legend = panel.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=3, handletextpad=0.2,
            columnspacing=1.0,
        )  # fmt: skip
        for handle in legend.legend_handles:
            handle.set_sizes([24])  # type: ignore[union-attr]
        panel.set(title=TITLES[when] if len(times) == 2 else method, xlabel="confidence")
        panel.set(xlim=(0, 1), ylim=(0, 1), xticks=np.linspace(0, 1, 6))
    axes[0].set_ylabel("accuracy")
    caption = (
        f"{method}: share of right predictions against the probability given to them, {BINS} bins; "
        f"{one_cell(study, method)}. Below the diagonal: too sure. ECE in points; a point's area "
        f"grows with its share of the images; bins with fewer than {_FEWEST} images are not drawn."
    )
    alt = f"Reliability diagram; expected calibration error {', '.join(errors)}."
    return Picture("reliability", "Reliability", caption, alt, figure)
