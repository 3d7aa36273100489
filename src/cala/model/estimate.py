"""How good a model is, from its own photos: each is judged as if it had not been learned."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.core.cala import normalise
from cala.core.metric import rooted
from cala.errors import InputError
from cala.heads.base_data import BaseData
from cala.model.version import ModelVersion

FEWEST = 20  # photos; fewer tell nothing
FEWEST_USUAL = 50  # without which it is not known how well photos usually fit
FEWEST_SIDE = 10  # of them, of known and of new classes
FEWEST_CLASSES = 5  # known ones, without which those that `fit` left out tell nothing
Z = 1.96  # of a 95 % interval
BADLY = 0.02  # probability of its own class below which a photo is doubtful
FAR = 3.5  # robust standard deviations below the median at which a photo fits no class
OFTEN = 2  # mistakes that make two classes easily confused
DRAWS = 20  # of photos for a learning curve
SIZES = (1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120)
QUICK = 1000  # photos of known classes that are judged in about a second

Array = NDArray[Any]


@dataclass(frozen=True)
class Share:
    """How many photos were right, with a 95 % interval (Wilson).

    >>> Share(17, 20)
    Share(right=17, photos=20)
    >>> str(Share(17, 20)), str(Share(50, 50)), str(Share(9, 10))
    ('about 85 % (between 64 and 95)', 'more than 92 %', 'too few photos to tell')
    """

    right: int
    photos: int

    @property
    def value(self) -> float:
        return self.right / self.photos if self.photos else float("nan")

    def interval(self) -> tuple[float, float]:
        n, p = self.photos, self.value
        if not n:
            return 0.0, 1.0
        middle, wide = p + Z * Z / (2 * n), Z * (p * (1 - p) / n + (Z / (2 * n)) ** 2) ** 0.5
        scale = 1 + Z * Z / n
        return max(0.0, (middle - wide) / scale), min(1.0, (middle + wide) / scale)

    @property
    def tells(self) -> bool:
        """Whether there are photos enough to say anything."""
        return self.photos >= FEWEST

    def __str__(self) -> str:
        if not self.tells:
            return "too few photos to tell"
        low, high = (100 * side for side in self.interval())
        if self.right == self.photos:
            return f"more than {int(low)} %"
        return f"about {self.percent} % (between {low:.0f} and {high:.0f})"

    @property
    def percent(self) -> int:
        """In whole percent, 100 only if all are right."""
        return (
            round(100 * self.value)
            if self.right == self.photos
            else min(99, round(100 * self.value))
        )

    def to_json(self) -> dict[str, Any]:
        low, high = self.interval()
        told = {"low": round(low, 4), "high": round(high, 4), "enough": self.tells}
        return {**asdict(self), "accuracy": self.value if self.photos else None, **told}


@dataclass(frozen=True)
class JudgedPhoto:
    """A photo of the model, judged without itself.

    label, kind : its class; answer : the class that it would have been taken for
    probability : of its own class; far : whether it looks like no class at all
    """

    name: str
    sha256: str
    label: str
    kind: str
    answer: str
    probability: float
    far: bool

    @property
    def right(self) -> bool:
        return self.answer == self.label

    @property
    def doubt(self) -> str:
        """What seems wrong with it, empty if nothing does."""
        if not self.right and self.probability < BADLY:
            return f"looks like {self.answer}"
        return "unlike the other photos" if self.far else ""


@dataclass(frozen=True)
class UnjudgedPhoto:
    """A photo of the model that cannot be judged, such as the only one of its class."""

    name: str
    sha256: str
    label: str


@dataclass(frozen=True)
class Confusion:
    """Two classes, and how many of their photos were taken for the other one."""

    first: str
    second: str
    photos: int
    of: int


@dataclass(frozen=True)
class Estimate:
    """What to expect of a model on new photos of its classes.

    Parameters
    ----------
    photos : tuple of JudgedPhoto
        Photos that could be judged; a class's only photo cannot.
    total : int
        Photos that the model has learned from.
    unjudged : tuple of UnjudgedPhoto
        Others whose names are kept.

    Examples
    --------
    >>> import cala
    >>> found = cala.load("birds").estimate()  # doctest: +SKIP
    >>> str(found.share()), found.confused()  # doctest: +SKIP
    """

    photos: tuple[JudgedPhoto, ...]
    total: int
    unjudged: tuple[UnjudgedPhoto, ...] = ()

    def share(self, kind: str | None = None) -> Share:
        """How many were right, of all or of `known` or `new` classes."""
        own = [photo.right for photo in self.photos if kind in (None, photo.kind)]
        return Share(sum(own), len(own))

    def confused(self, most: int = 3) -> list[Confusion]:
        """Pairs of classes that are easily confused, most often first."""
        per_class = Counter(photo.label for photo in self.photos)
        pairs = Counter(
            (min(p.label, p.answer), max(p.label, p.answer)) for p in self.photos if not p.right
        )
        return [
            Confusion(*pair, count, per_class[pair[0]] + per_class[pair[1]])
            for pair, count in pairs.most_common(most)
            if count >= OFTEN
        ]

    def doubtful(self) -> list[JudgedPhoto]:
        """Photos that fit another class much better, or none; the worst first."""
        return sorted((p for p in self.photos if p.doubt), key=lambda p: p.probability)

    def to_json(self) -> dict[str, Any]:
        return {
            "photos": self.total,
            "judged": len(self.photos),
            "all": self.share().to_json(),
            "known": self.share("known").to_json(),
            "new": self.share("new").to_json(),
            "confused": [asdict(one) for one in self.confused(10)],
            "doubtful": [photo_json(one) for one in self.doubtful()],
        }


def photo_json(photo: JudgedPhoto) -> dict[str, Any]:
    told = {"probability": round(photo.probability, 6), "doubt": photo.doubt}
    return {**asdict(photo), **told}


def estimate(current: ModelVersion, quick: bool = False) -> Estimate:
    """Judge every photo whose embedding is kept by a model that has not learned from it.

    quick : leave out photos of known classes if there are many
    """
    names, head = current.names, current.classifier.head_
    places, columns, plain = unlearned_logits(current, quick)
    shares = head.probabilities(plain + head.shift) if len(plain) else plain
    answers, own = shares.argmax(1), np.arange(len(plain))
    fits = plain[own, columns]
    far = _far(fits)
    photos = tuple(
        JudgedPhoto(
            name=current.kept.names[place],
            sha256=bytes(current.kept.digest[place]).hex(),
            label=names[column],
            kind=current.kind_at(column),
            answer=names[answer],
            probability=float(shares[row, column]),
            far=bool(far[row]),
        )
        for row, (place, column, answer) in enumerate(
            zip(places.tolist(), columns.tolist(), answers.tolist(), strict=True)
        )
    )
    rest = np.setdiff1d(np.arange(len(current.kept)), places)
    every = current.columns_kept()
    unjudged = tuple(
        UnjudgedPhoto(
            current.kept.names[place], bytes(current.kept.digest[place]).hex(), names[every[place]]
        )
        for place in rest.tolist()
    )
    return Estimate(photos, len(current.photos), unjudged)


def unlearned_logits(current: ModelVersion, quick: bool = False) -> tuple[Array, Array, Array]:
    """Logits of photos without γβ and δ, each by a model that has not learned from it.

    A photo of a new class is left out of its mean. So is one of a known class where that is fair;
    else the metric was learned from it, and heads are fitted again without a fifth of them each.

    Returns places (m,) in `current.kept`, columns (m,) of their classes, and logits (m, C).
    """
    host, n_known = current.classifier.head_.host, current.n_known
    every, rows = current.columns_kept(), current.kept.rows.astype(host.dtype, copy=False)
    known, new = (np.flatnonzero(side) for side in (every < n_known, every >= n_known))
    parts: list[tuple[Array, Array]] = []  # places and logits
    if len(np.unique(every[known])) == n_known > 1 and not (quick and len(known) > QUICK):
        parts += _known_logits(host, rows, every, known, new)
    several = new[host.table.counts[every[new]] > 1]
    if len(several):
        parts.append((several, host.unit_logits(host.embed(rows[several]), every[several])))
    if not parts:
        return np.zeros(0, int), np.zeros(0, int), np.zeros((0, len(host.classes)))
    places = np.concatenate([place for place, _ in parts])
    return places, every[places], np.concatenate([logits for _, logits in parts])


def _known_logits(
    host: Any, rows: Array, every: Array, known: Array, new: Array
) -> list[tuple[Array, Array]]:
    """Places and logits of photos of known classes."""
    data = BaseData(rows[known], every[known])
    labels = np.array(host.classes)
    base = host.fork()
    try:
        for label in labels[host.n_base :].tolist():
            base.forget(label)
        scorers = base.scorers(data)
    except InputError:  # a method that cannot do without what it has learned
        return []
    found = []
    for scorer in scorers:
        asked = scorer.rows.where(data.queries)
        if not len(asked):
            continue
        if scorer.leave_out:
            head, members = host, asked.columns
        else:
            head, members = scorer.head, None
            if len(host.classes) > host.n_base:
                head = _with_new(head, rows, every, new, labels)
                if head is None:
                    continue
        unit = head.embed(data.features[asked.order])
        found.append((known[asked.order], head.unit_logits(unit, members)))
    return found


def _with_new(head: Any, rows: Array, every: Array, new: Array, labels: Array) -> Any:
    """A head that has learned the new classes too; None if the photos of one are not kept."""
    if set(every[new]) != set(range(head.n_base, len(labels))):
        return None
    return head.fork().add_unit(head.embed(rows[new]), labels[every[new]])


def _far(fits: Array) -> Array:
    """(n,) bool: logits of their own class that are far below what is usual."""
    if len(fits) < FEWEST_USUAL:
        return np.zeros(len(fits), bool)
    middle = np.median(fits)
    spread = 1.4826 * np.median(np.abs(fits - middle))
    return fits < middle - FAR * max(spread, 1e-9)


@dataclass(frozen=True)
class CurvePoint:
    """Fraction of photos that are right if each class has learned so many."""

    photos: int
    right: float


def learning_curve(current: ModelVersion, draws: int = DRAWS) -> list[CurvePoint]:
    """What more photos of each class have brought so far, from the embeddings that are kept.

    Some photos of each class are learned and its others are asked, over several draws, by nearest
    mean in a metric that was not learned from any of them; so it is a little below what the model
    itself does. The same photos are asked at every point.
    """
    columns, unit = current.columns_kept(), rooted(current.kept.rows)
    counts = np.bincount(columns, minlength=len(current.names))
    if len(columns) < FEWEST or (counts > 1).sum() < 2:
        return []
    most = int(np.median(counts[counts > 1])) - 1  # learned of a class, so that one is left to ask
    sizes = [size for size in SIZES if size < most] + [most]
    right: dict[int, list[float]] = {size: [] for size in sizes}
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(columns))
        own = [order[columns[order] == c] for c in range(len(counts))]
        asked = np.concatenate([rows[most:] for rows in own])
        for size in sizes:
            means = [unit[rows[:size]].sum(0) for rows in own]
            answers = (unit[asked] @ normalise(np.array(means)).T).argmax(1)
            right[size].append(float((answers == columns[asked]).mean()))
    return [CurvePoint(size, float(np.mean(right[size]))) for size in sizes]


@dataclass(frozen=True)
class Moved:
    """Accuracy on known and on new classes before and after `tune`.

    photos : the model's own photos of known and of new classes that were judged; None if it was
        judged on classes held out by `fit`
    """

    known: tuple[float, float]
    new: tuple[float, float]
    photos: tuple[int, int] | None = None


def moved(before: ModelVersion, after: ModelVersion) -> Moved | None:
    """What moving the operating point changes; None where there is nothing to tell from."""
    heads = [version.classifier.head_ for version in (before, after)]
    _, columns, plain = unlearned_logits(before)
    sides = columns < before.n_known, columns >= before.n_known
    if len(columns) >= FEWEST and all(side.sum() >= FEWEST_SIDE for side in sides):
        right = [(plain + head.shift).argmax(1) == columns for head in heads]
        known, new = ([float(found[side].mean()) for found in right] for side in sides)
        counts = int(sides[0].sum()), int(sides[1].sum())
        return Moved((known[0], known[1]), (new[0], new[1]), counts)
    curve = getattr(heads[1], "curve", None)
    if (
        before.n_known < FEWEST_CLASSES
        or curve is None
        or not len(curve.delta)
        or np.isnan([*curve.base, *curve.novel]).any()
    ):
        return None
    places = [max(0, np.searchsorted(curve.delta, head.delta, "right") - 1) for head in heads]
    known, new = ([float(line[place]) for place in places] for line in (curve.base, curve.novel))
    return Moved((known[0], known[1]), (new[0], new[1]))
