"""t-SNE of a few classes with decision regions before and after (Fig. figtsne)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from cala.reports.drawing import COLOURS, INK, PAPER, Picture, clipped, make_figure
from cala.reports.runs import Artifact
from cala.reports.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOVEL_SHOWN, BASE_EACH, GRID, FAINT = 2, 2, 140, 0.3
SMALLEST = 20  # places of a region that is outlined
NEEDED = ("sample", "sample_labels", "sample_logits", "shift", "prototypes")


@dataclass(frozen=True)
class Plane:
    """Some classes in two dimensions.

    columns : the classes shown, base first; points (m, 2), own (m,) place of the true class
    logits (m, k) : of the classes shown, without the adapter; shift (k,); stars (k, 2)
    """

    columns: list[int]
    points: NDArray[Any]
    own: NDArray[Any]
    logits: NDArray[Any]
    shift: NDArray[Any]
    stars: NDArray[Any]


def choose(artifact: Artifact) -> list[int]:
    """The novel classes that lose most to base without the adapter, and the takers."""
    b = artifact.n_base
    taken = artifact.shares("before")[:, :b]
    lost = taken[b:].sum(1)
    novel = [b + int(i) for i in np.argsort(-lost, kind="stable")[:NOVEL_SHOWN]]
    base: list[int] = []
    for column in novel:
        takers = [int(i) for i in np.argsort(-taken[column], kind="stable") if i not in base]
        base += takers[:BASE_EACH]
    return [*sorted(base), *novel]


def plane(artifact: Artifact) -> Plane | None:
    """The sample of the chosen classes, laid out by t-SNE on cosine distance."""
    if not artifact.has(*NEEDED):
        return None
    columns = choose(artifact)
    labels = artifact["sample_labels"]
    rows = np.flatnonzero(np.isin(labels, columns))
    if len(rows) < 8 or len(columns) < 2:
        return None
    from sklearn.manifold import TSNE

    own = np.array([columns.index(int(c)) for c in labels[rows]])
    vectors = np.concatenate([artifact["sample"][rows], artifact["prototypes"][columns]])
    perplexity = min(20.0, (len(vectors) - 1) / 4)
    flat = TSNE(
        2, perplexity=perplexity, metric="cosine", init="pca", random_state=0, max_iter=500
    ).fit_transform(vectors.astype(np.float64))
    logits = artifact["sample_logits"][rows][:, columns].astype(float)
    shift = artifact["shift"][columns].astype(float)
    return Plane(columns, flat[: len(rows)], own, logits, shift, flat[len(rows) :])


def tsne(study: Study, method: str) -> Picture | None:
    """Left without, right with the adapter: the points stay, the regions move."""
    artifact = study.artifacts[method]
    found = plane(artifact)
    if found is None:
        return None
    names = artifact.names()
    n_base = sum(c < artifact.n_base for c in found.columns)
    labels = [
        f"{clipped(names[c], 30)} ({'base' if k < n_base else 'novel'})"
        for k, c in enumerate(found.columns)
    ]
    figure, axes = make_figure(2, 4.1, sharex=True, sharey=True)
    x, y, near, close = _grid(found)
    kept = {}
    extent = (x[0], x[-1], y[0], y[-1])
    for panel, title, factor in zip(axes, ("without adapter", "with adapter"), (0, 1), strict=True):
        adjusted = found.logits + factor * found.shift
        around = (near @ adjusted).reshape(len(y), len(x), -1)
        tinted = _tint(around.argmax(-1), close)
        panel.imshow(tinted, extent=extent, origin="lower", aspect="auto")
        if 0 < n_base < around.shape[-1]:
            lead = around[..., n_base:].max(-1) - around[..., :n_base].max(-1)
            if lead.max() > 0:
                inside = np.minimum(lead / lead.max(), close - FAINT)
                inside[[0, -1]] = inside[:, [0, -1]] = -FAINT  # so that every line closes
                parts, _ = ndimage.label(inside > 0)
                inside[(np.bincount(parts.flat) < SMALLEST)[parts]] = -FAINT
                panel.contour(x, y, inside, levels=[0.0], colors=INK, linewidths=1.0)
        novel = found.own >= n_base
        kept[title] = int((adjusted.argmax(1) == found.own)[novel].sum())
        _points(panel, found, n_base, labels)
        title = f"{title}: {kept[title]} of {novel.sum()} novel right"
        panel.set(title=title, xticks=[], yticks=[])
        panel.grid(False)
    columns = 2 if max(map(len, labels)) > 24 or len(labels) < 5 else 3
    shown = axes[0].get_legend_handles_labels()
    figure.legend(*shown, loc="outside lower center", ncols=columns)
    caption = (
        f"t-SNE (cosine) of n = {len(found.points)} {study.split} images of the "
        f"{len(found.columns) - n_base} novel classes that lose most to base and of the base "
        f"classes that take them; large and outlined: prototypes; {artifact.draw} draw. "
        "Regions are a sketch, since no map leads from this plane back to embeddings: each place "
        "shows which of these classes wins on the images around it, fainter where none is near. "
        "Lines enclose the novel classes. Counts are of real predictions among these classes."
    )
    alt = (
        f"t-SNE of {len(found.columns)} classes; novel images right: {kept['without adapter']} "
        f"without the adapter, {kept['with adapter']} with it."
    )
    return Picture("tsne", "Decision regions", caption, alt, figure)


def _grid(found: Plane) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Axes (g,), (g,), each place's weights over the images (g², m), and how near they are (g, g).

    Nearness falls from 1 to 0 over some eight times the usual distance between images.
    """
    low, high = found.points.min(0), found.points.max(0)
    edge = 0.06 * (high - low) + 1e-9
    x, y = (np.linspace(low[i] - edge[i], high[i] + edge[i], GRID) for i in (0, 1))
    places = np.stack(np.meshgrid(x, y), -1).reshape(-1, 2)
    square = ((places[:, None] - found.points[None]) ** 2).sum(-1)
    apart = ((found.points[:, None] - found.points[None]) ** 2).sum(-1)
    np.fill_diagonal(apart, np.inf)
    width = max(float(np.median(apart.min(1))), 1e-12)
    weight = np.exp(-(square - square.min(1, keepdims=True)) / (2 * width))
    close = np.exp(-square.min(1) / (2 * 16 * width)).reshape(GRID, GRID)
    return x, y, weight / weight.sum(1, keepdims=True), close


def _points(panel: Axes, found: Plane, n_base: int, labels: list[str]) -> None:
    for k, label in enumerate(labels):
        style: dict[str, Any] = {"marker": _marker(k, n_base), "color": _colour(k), "ls": ""}
        panel.plot(*found.points[found.own == k].T, ms=5, mec=PAPER, mew=0.4, label=label, **style)
        panel.plot(*found.stars[k], ms=11, mec=INK, mew=1.3, **style)


def _colour(k: int) -> str:
    return COLOURS[1 + k % (len(COLOURS) - 1)]


def _marker(k: int, n_base: int) -> str:
    """One per class, so that grey tells them apart: novel classes are triangles."""
    return "osDP"[k % 4] if k < n_base else "^v<>"[(k - n_base) % 4]


def _tint(region: NDArray[Any], close: NDArray[Any]) -> NDArray[Any]:
    """RGBA of the regions, fainter the farther the next image is."""
    from matplotlib.colors import to_rgba_array

    palette = to_rgba_array([_colour(k) for k in range(int(region.max()) + 1)])
    image = palette[region]
    image[..., 3] = 0.26 * close
    return image
