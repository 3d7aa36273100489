"""When nothing fits: how well an image fits its nearest class, against how well genuine images do.

Images are compared by the cosine of the signed roots of their embeddings, whatever the metric of
the classifier: a metric that tells the classes apart is blind to much that none of them has. The
score of an image is its best cosine with a class mean, less half of what images of that class
have, so that a loose class does not attract everything. Genuine images that were kept give the
scores to expect, each judged as if its class had been learned without it.

Images that were rejected move the point of view: half of their mean is taken off all images, since
it is what strangers and genuine images have in common, and the nearest ones count against an image.
What fits no class without them does not become familiar by being unlike them, too.

With few genuine images a rank says little, so Student's t stands in for it, and gives way to the
rank as images arrive. How far scores scatter is a matter of the encoder: where that is known, it
counts for some images more. Base and novel classes are judged apart, and the larger p-value
counts: in each group a genuine image is turned away at most about as often as was asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from typing_extensions import Self

from cala.core.cala import PrototypeTable, normalise
from cala.core.metric import rooted
from cala.core.rows import Array, ClassRows, Features, chunks

MOST_IMAGES = 256  # genuine images that are kept, of base and of novel classes
FEWEST_IMAGES = 4  # genuine base images without which nothing can be said
_WEIGHT = 0.5  # of the cosine to expect of a class, and of the mean of rejected images
_AGAINST = 0.75  # of the cosine with the nearest rejected images
_NEAREST = 3  # rejected images that count
FEW_REJECTED = 3  # their mean has half of its weight with so many of them
_PLAIN = 1.5  # times the p-value without rejected images is the most that one with them can be
_PAIRS = 10  # pairs of images with the mean cosine of all classes that every class is lent
T_WEIGHT = 50  # genuine images that the t distribution counts for
SPREAD_WEIGHT = 20  # independent images that a spread known beforehand counts for
FEW = 20  # genuine novel images below which base images stand in for them
EFFECTIVE = 0.5  # fraction of images that count as independent: those of a class share a mean
LEAST_SPREAD = 1e-3
_SAME = 1 - 1e-6  # cosine from which on two images are one


@dataclass(frozen=True)
class Rejection:
    """Class means in a space of their own, and genuine images to compare with.

    table : sums and counts of the classes' unit vectors, base classes first
    n_base : how many base classes
    images : (m, d) unit vectors of genuine images; columns : (m,), their classes
    rejected : (r, d) unit vectors of images that belong to no class
    spread : how far scores scatter with this encoder, times √(1 - t) with t as in
        `expected_cosine`; 0 if that is not known

    Immutable: a change returns a new one.
    """

    table: PrototypeTable
    n_base: int
    images: Array
    columns: Array
    rejected: Array = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    spread: float = 0.0

    @classmethod
    def of(cls, features: Features, columns: Array, queries: ClassRows) -> Self:
        """From base rows (n, d) and their columns (n,); `queries` are rows that are judged."""
        n, dim = features.shape
        n_base = int(columns.max()) + 1
        table = PrototypeTable(np.zeros((n_base, dim), np.float32), np.zeros(n_base, np.int64))
        for rows in chunks(n, dim):
            table = table.extended(unit_vectors(features[rows]), columns[rows])
        return cls(table, n_base, unit_vectors(features[queries.order]), queries.columns)

    @classmethod
    def off(cls) -> Self:
        """Nothing is ever unknown."""
        return cls(PrototypeTable.empty(0, 0), 0, np.zeros((0, 0)), np.zeros(0, np.int64))

    @property
    def is_on(self) -> bool:
        return int((self.columns < self.n_base).sum()) >= FEWEST_IMAGES

    def added(self, features: Array, columns: Array) -> Self:
        """After learning rows (n, d) of the given columns (n,); those past the end are new."""
        if not len(self.table):
            return self
        unit = unit_vectors(features)
        table = self.table.extended(unit, columns)
        shot = (columns >= self.n_base) & (table.counts[columns] > 1)
        images, own = (
            np.concatenate(pair)
            for pair in ((self.images, unit[shot]), (self.columns, columns[shot]))
        )
        novel = np.flatnonzero(own >= self.n_base)
        kept = np.delete(np.arange(len(own)), novel[:-MOST_IMAGES])
        rejected = self.rejected[~among(self.rejected, unit)]  # what belongs to a class by now
        return replace(self, table=table, images=images[kept], columns=own[kept], rejected=rejected)

    def removed(self, features: Array, column: int) -> Self:
        """After taking rows (n, d) out of the class of a column."""
        if not len(self.table):
            return self
        unit = unit_vectors(features)
        table = self.table.reduced(unit, column)
        gone = among(self.images, unit) | (table.counts[column] < 2)
        kept = ~(gone & (self.columns == column))
        return replace(self, table=table, images=self.images[kept], columns=self.columns[kept])

    def without(self, column: int) -> Self:
        """After forgetting the class of a column."""
        if not len(self.table):
            return self
        kept = self.columns != column
        columns = self.columns[kept]
        return replace(
            self,
            table=self.table.without(column),
            n_base=self.n_base - (column < self.n_base),
            images=self.images[kept],
            columns=columns - (columns > column),
        )

    def rejecting(self, features: Array) -> Self:
        """With more images (n, d) that belong to no class; those it has already count once."""
        unit = unit_vectors(features)
        old = self.rejected if len(self.rejected) else unit[:0]
        return replace(self, rejected=np.concatenate([old, unit[~among(unit, old)]]))

    def p_values(self, features: Array) -> Array:
        """Share of genuine images that fit no better: (n, d) -> (n,), 1 where nothing is known."""
        if not self.is_on:
            return np.ones(len(features))
        unit = unit_vectors(features)
        p = self._judged(unit)
        if len(self.rejected):
            p = np.minimum(p, _PLAIN * self._plain._judged(unit))
        return p

    def _judged(self, unit: Array) -> Array:
        """p-values (n,) of unit vectors (n, d)."""
        scores = self._scores(unit)
        spread = self.spread * np.sqrt(1 - self._pooled)
        p: Array = np.max([p_value(genuine, scores, spread) for genuine in self._genuine], axis=0)
        return p

    @cached_property
    def _plain(self) -> Self:
        """Without rejected images."""
        return replace(self, rejected=self.rejected[:0])

    @cached_property
    def _centre(self) -> Array:
        """(d,): what is taken off all images."""
        half: Array = _WEIGHT * self.rejected.sum(0) / (len(self.rejected) + FEW_REJECTED)
        return half

    def _seen(self, unit: Array) -> Array:
        """Unit vectors (n, d) as unit vectors seen from the centre."""
        return normalise(unit - self._centre) if len(self.rejected) else unit

    @cached_property
    def _sums(self) -> Array:
        """(C, d): sums of the classes' unit vectors, seen from the centre."""
        sums, counts = self.table.sums, self.table.counts[:, None]
        if not len(self.rejected):
            return sums
        centre = self._centre
        squares = 1 + centre @ centre - 2 * (sums @ centre)[:, None] / counts  # of their lengths
        seen: Array = (sums - counts * centre) / np.sqrt(np.maximum(squares, LEAST_SPREAD))
        return seen

    @cached_property
    def _directions(self) -> Array:
        return normalise(self._sums)

    @cached_property
    def _expected(self) -> Array:
        """(C,): the cosine of a class's images with its mean."""
        squares = np.einsum("cd,cd->c", self._sums, self._sums, dtype=np.float64)
        return expected_cosine(squares, self.table.counts.astype(np.float64), self._pooled)

    @cached_property
    def _pooled(self) -> float:
        """Mean cosine of two images of one class, over all pairs."""
        sums, counts = self._sums, self.table.counts.astype(np.float64)
        squares = np.einsum("cd,cd->", sums, sums, dtype=np.float64)
        mean = (squares - counts.sum()) / max((counts * (counts - 1)).sum(), 1)
        return float(min(max(mean, -1.0), 1.0))

    def _scores(self, unit: Array, own: Array | None = None) -> Array:
        """Scores (n,) of unit vectors (n, d), which belong to the classes `own` (n,) or may not."""
        seen, expected = self._seen(unit), self._expected
        fits = seen @ self._directions.T - _WEIGHT * expected
        if own is not None:
            rest = self._sums[own] - seen
            squares = np.einsum("nd,nd->n", rest, rest, dtype=np.float64)
            alone = expected_cosine(squares, self.table.counts[own] - 1.0, self._pooled)
            cosines = (seen * normalise(rest)).sum(1) + expected[own] - alone
            fits[np.arange(len(own)), own] = cosines - _WEIGHT * expected[own]
        best: Array = fits.max(1).astype(np.float64)
        if len(self.rejected):
            near = seen @ self._seen(self.rejected).T
            count = min(_NEAREST, near.shape[1])
            best -= _AGAINST * np.partition(near, -count, axis=1)[:, -count:].mean(1)
        return best

    @cached_property
    def _genuine(self) -> list[Array]:
        """Scores of genuine images of base classes, and of novel ones if there are any."""
        scores = self._scores(self.images, self.columns)
        base, novel = (scores[self.columns < self.n_base], scores[self.columns >= self.n_base])
        if len(self.table) == self.n_base:
            return [base]
        if len(novel) < FEW:  # base images stand in, moved by what is expected of the classes
            expected = self._expected
            more = expected[self.n_base :].mean() - expected[: self.n_base].mean()
            novel = np.concatenate([novel, base + (1 - _WEIGHT) * more])
        return [base, novel]

    def arrays(self) -> dict[str, Array]:
        """What `restored` needs; those named `base_…` change only with the base classes."""
        base = self.columns < self.n_base
        return {
            "sums": self.table.sums,
            "counts": self.table.counts,
            "n_base": np.array([self.n_base]),
            "base_images": self.images[base],
            "base_columns": self.columns[base],
            "images": self.images[~base],
            "columns": self.columns[~base],
            "rejected": self.rejected,
            "spread": np.array([self.spread]),
        }

    @classmethod
    def restored(cls, arrays: Mapping[str, Array]) -> Self:
        """The inverse of `arrays`; off for those of version 0.1, which judged by other rules."""
        if "sums" not in arrays:
            return cls.off()
        table = PrototypeTable(arrays["sums"], arrays["counts"])
        images, columns = (
            np.concatenate([arrays[f"base_{name}"], arrays[name]]) for name in ("images", "columns")
        )
        spread = float(arrays["spread"][0]) if "spread" in arrays else 0.0
        n_base = int(arrays["n_base"][0])
        return cls(table, n_base, images, columns, arrays["rejected"], spread)


def unit_vectors(features: Array) -> Array:
    """Embeddings (n, d) as unit vectors of single precision."""
    return rooted(np.asarray(features, np.float32))


def among(unit: Array, others: Array) -> Array:
    """(n,) bool: which unit vectors (n, d) are one of (m, d) others."""
    if not len(unit) or not len(others):
        return np.zeros(len(unit), bool)
    return np.asarray((unit @ others.T).max(1) > _SAME)


def expected_cosine(squares: Array, counts: Array, pooled: float) -> Array:
    """The cosine of an image of each class with its mean, from the pairwise cosine t within it.

    The mean of K unit vectors has the squared length (1 + (K - 1) t) / K, and an image's product
    with it is t on average.

    squares : (n,) squared lengths of the sums of K unit vectors; counts : (n,) K
    pooled : t of all classes, towards which few images are drawn

    >>> expected_cosine(np.array([4.0]), np.array([2.0]), 1.0)
    array([1.])
    """
    pairs = counts * (counts - 1)
    t = np.clip((squares - counts + _PAIRS * pooled) / (pairs + _PAIRS), 0, 1)
    return t * np.sqrt(counts / (1 + (counts - 1) * t))


def p_value(genuine: Array, scores: Array, spread: float = 0.0) -> Array:
    """Share of genuine scores (m,) that are not above each score (n,) -> (n,) in (0, 1].

    A mean of the rank among them and of Student's t, the latter with the weight of `T_WEIGHT`.

    spread : standard deviation that genuine scores usually have, which counts for `SPREAD_WEIGHT`
        images; 0 if that is not known

    >>> p_value(np.array([0.4, 0.5, 0.6]), np.array([0.5])).round(2)
    array([0.51])
    """
    from scipy.special import stdtr  # takes a while to import, and not every command needs it

    count, more = EFFECTIVE * len(genuine), SPREAD_WEIGHT if spread else 0
    own = max(count - 1, 1)
    squares = own * max(float(genuine.std(ddof=1)), LEAST_SPREAD) ** 2 + more * spread**2
    deviation = np.sqrt(squares / (own + more) * (1 + 1 / count))
    t = stdtr(own + more, (scores - genuine.mean()) / deviation)
    rank = (1 + np.searchsorted(np.sort(genuine), scores, side="right")) / (1 + len(genuine))
    p: Array = (len(genuine) * rank + T_WEIGHT * t) / (len(genuine) + T_WEIGHT)
    return p
