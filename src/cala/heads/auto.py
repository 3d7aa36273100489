"""The guarded default: the simplest host and shift that held-out classes support.

A shift learned on fake classes can be worse than none if real new classes look different from mixed
ones. So `auto` tests on real classes if it can: it holds out groups of base classes in turn, fits
hosts to the others, and adds the held-out classes from a few shots. In each metric it takes the
simplest of no shift, one shift for all new classes and one per class that is not beaten by more
than one standard error; then it takes the metric that does best. Ties go to the simpler one, so
that the result is not worse than plain nearest mean. With two base classes none can be held out, so
plain nearest mean is used.

Classes that the encoder was trained on are not new to it. If `holdout` says that it saw the base
classes, held-out fake classes decide instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
from typing_extensions import Self

from cala.core.adapters import Adapter
from cala.core.cala import AdapterLoss, Episode, Queries, normalise, play, train_convex
from cala.core.calibration import Temperature
from cala.core.operating_point import pseudo_trade_off
from cala.core.rows import Array, ClassRows
from cala.heads.adapted import AdaptedHead
from cala.heads.adapter_training import (
    CALA_PLUS,
    LA,
    MANY_SHOTS,
    MIN_PAIRS,
    SAMPLED,
    AdapterRecipe,
    play_fakes,
)
from cala.heads.base import Head
from cala.heads.base_data import BaseData
from cala.heads.table import TableHead
from cala.heads.wrapper import warn_of_base_queries
from cala.metrics import harmonic

_GROUPS = 3  # groups of base classes, each held out in turn
FEWEST_REPEATS = 2  # a repeat holds out every class once
HELD_OUT, MOST_REPEATS = 60, 12  # classes to hold out in all, and the most repeats
JUDGES, FOLDS = 12, 4  # trials that judge shifts: fewer, since shifts take longer to learn
CAUTION = 0.5  # share of a shift that is used if `holdout` is not given
QUERY_SHARE = 0.2  # share of the rows of classes that are not held out
ROWS_PER_CLASS = 100  # the most that a trial uses
_SHOTS = (5, 2, 10)  # of held-out classes, in turn, if any number of shots may come
RIDGE = 1e-2
TIE = 1e-9
MIXED_ROWS, MIXED_RATIO = 1000, 20.0

_Objective = Callable[[Episode, Array], float]


class AutoReport(TypedDict):
    """What was chosen and why.

    evidence : what kind of classes decided; trials : how many trials there were
    host, metric, shift : what was chosen; shift is "none", "one" or "class-aware"
    values : mean over the trials by "host, metric, shift"
    """

    evidence: str
    trials: int
    host: str
    metric: str
    shift: str
    values: dict[str, float]


class AutoHead(AdaptedHead):
    """An adapted head that chooses its host and adapter in `fit_base`.

    hosts : unfitted heads, the simplest first
    """

    def __init__(self, hosts: Sequence[TableHead], recipe: AdapterRecipe, *, seed: int = 0) -> None:
        super().__init__(hosts[0], recipe, seed=seed)
        self.hosts = tuple(hosts)

    def blank(self) -> Self:
        return type(self)([host.blank() for host in self.hosts], self.recipe, seed=self.seed)

    def fit_base(self, data: BaseData) -> Self:
        fitted = self.blank()
        warn_of_base_queries(data)
        value = _objective(self.recipe.objective, self.recipe.max_base_loss)
        usable = [host for host in fitted.hosts if data.n_base >= host.fewest_base]
        hosts = [host.blank().fit_base(data) for host in usable]
        if asks_fakes(data):
            evidence, trials = "fake classes", [self._fake_trials(host, data) for host in hosts]
        elif data.n_base > 2:
            evidence = "held-out classes"
            trials = [self._real_trials(host, data) for host in hosts]
        else:
            evidence, trials = "base classes alone", [Trials([], [], 0) for _ in hosts]
        caution = CAUTION if data.holdout is None else 1.0
        if all(own.judged for own in trials):
            values = {
                (host, name): own.worth(recipe, value, caution)
                for host, own in enumerate(trials)
                for name, recipe in _SHIFTS.items()
            }
            metrics = [host.metric_name for host in hosts]
            chosen, shift = _choice(values, metrics, [own.advantage(value) for own in trials])
        else:
            # Base classes alone say nothing about new ones: take the simplest host, or the last one
            # if the columns differ so much in scale that cosines mean little.
            evidence = "base classes alone"
            values, chosen, shift = {}, len(hosts) - 1 if _mixed_units(data) else 0, "none"
        judged = trials[chosen].judged
        recipe = replace(_SHIFTS[shift], novel=self.recipe.novel, shots=self.recipe.shots)
        adapter = _trained(recipe, trials[chosen].learned)
        fitted._host = hosts[chosen]
        curve = judged or self._fake_trials(fitted._host, data).judged
        fitted._take(adapter, replace(recipe, gamma=caution * recipe.gamma), curve, data)
        if not judged:  # fake classes do not decide the temperature here
            fitted.temperature = Temperature()
        fitted.report = {
            "evidence": evidence,
            "trials": len(judged),
            "host": fitted._host.name,
            "metric": hosts[chosen].metric_name,
            "shift": shift,
            "values": {
                f"{hosts[i].name}, {hosts[i].metric_name}, {name}": round(float(np.mean(found)), 4)
                for (i, name), found in values.items()
            },
        }
        return self._become(fitted)

    def _fake_trials(self, host: Head, data: BaseData) -> Trials:
        _, learned, judged = play_fakes(host, self.recipe, data, np.random.default_rng(self.seed))
        return Trials(learned, judged, len(judged))

    def _real_trials(self, host: Head, data: BaseData) -> Trials:
        """Episodes that hold out groups of base classes; they are cross-validated."""
        rng = np.random.default_rng(self.seed)
        rows = data.rows.draw(ROWS_PER_CLASS, rng)
        numbers = _SHOTS if self.recipe.shots == MANY_SHOTS else self.recipe.shots
        episodes: list[Episode] = []
        repeats = min(max(FEWEST_REPEATS, round(HELD_OUT / data.n_base)), MOST_REPEATS)
        for repeat in range(repeats):
            shots = numbers[repeat % len(numbers)]
            groups = np.array_split(rng.permutation(data.n_base), min(_GROUPS, data.n_base))
            found = [_trial(host, data, rows, held, shots, rng) for held in groups]
            episodes += [episode for episode in found if episode is not None]
        return Trials(episodes, episodes, JUDGES)


#: Shifts to choose from, the simplest first; the last is cala-plus's adapter with one ridge.
_SHIFTS = {
    "none": replace(LA, adapter="none"),
    "one": LA,
    "class-aware": replace(CALA_PLUS, ridges=(RIDGE,)),
}


@dataclass(frozen=True)
class Trials:
    """Episodes that judge a host and its shifts.

    learned : what shifts learn from; if it is the same as `judged`, they are cross-validated
    judged : all of them judge the host, the first `most` judge its shifts
    """

    learned: list[Episode]
    judged: list[Episode]
    most: int

    def worth(self, recipe: AdapterRecipe, value: _Objective, caution: float) -> list[float]:
        """The score on each judging episode of an adapter that has not learned from it.

        caution : share of the shift that is used
        """
        judges = self.judged[: self.most]
        apart = self.learned is not self.judged
        folds = 1 if apart else min(FOLDS, len(judges))
        found = np.zeros(len(judges))
        for fold in range(folds):
            others = [e for i, e in enumerate(judges) if i % folds != fold]
            adapter = _trained(recipe, self.learned if apart else others)
            for i in range(fold, len(judges), folds):
                shift = caution * recipe.gamma * adapter(judges[i].context)
                found[i] = value(judges[i], shift)
        return found.tolist()

    def advantage(self, value: _Objective) -> float:
        """How much higher the host alone scores on all episodes than on the first `most`."""
        alone = [value(e, np.zeros(len(e.context))) for e in self.judged]
        return float(np.mean(alone) - np.mean(alone[: self.most]))


Values = dict[tuple[int, str], list[float]]


def _choice(values: Values, metrics: Sequence[str], advantage: Sequence[float]) -> tuple[int, str]:
    """Choose host and shift: the simplest in each metric that is good enough, then the best metric.

    values : by host and shift; metrics, advantage : of each host
    """
    best, picked = -np.inf, (0, "none")
    for metric in dict.fromkeys(metrics):
        own = [key for key in values if metrics[key[0]] == metric]
        key = own[simplest([values[k] for k in own])]
        worth = float(np.mean(values[key])) + advantage[key[0]]
        if worth > best + TIE:
            best, picked = worth, key
    return picked


def asks_fakes(data: BaseData) -> bool:
    """Whether the encoder may know the base classes, so that only fake ones are new to it.

    False if there are too few fake classes to decide.
    """
    pairs = data.n_base * (data.n_base - 1) // 2 if data.fakes is None else len(data.fakes)
    if pairs < MIN_PAIRS or not data.queries.any():
        return False
    return data.fakes is not None if data.holdout is None else not bool(data.holdout.all())


def simplest(candidates: Sequence[Sequence[float]]) -> int:
    """The first candidate that the best one does not beat by more than one standard error.

    candidates : values of the same trials, simpler candidates first

    >>> simplest([[0.5, 0.6], [0.6, 0.7]]), simplest([[0.5, 0.6], [0.4, 0.9]])
    (1, 0)
    """
    values = np.array(candidates, dtype=np.float64)
    best = int(values.mean(1).argmax())
    for index in range(best):
        ahead = values[best] - values[index]
        error = ahead.std(ddof=1) / np.sqrt(len(ahead)) if len(ahead) > 1 else np.inf
        if ahead.mean() <= error:
            return index
    return best


def _trial(
    host: Head,
    data: BaseData,
    rows: ClassRows,
    held: Array,
    shots: int,
    rng: np.random.Generator,
) -> Episode | None:
    """Fit a host without the held-out classes (h,) and the query rows, then add those classes.

    None if too few classes or queries are left.
    """
    mixed = rows.shuffled(rng)
    is_held = np.isin(mixed.columns, held)
    ranks, counts = mixed.ranks, mixed.counts[mixed.columns]
    shot = is_held & (ranks < np.minimum(shots, counts - 1))
    share = np.maximum(np.rint(QUERY_SHARE * counts), 1)
    query = np.where(is_held, ~shot & (counts > 1), (ranks < share) & (counts > 1))
    learn = ~is_held & ~query
    few = data.n_base - len(held) < 2
    if few or not (query & is_held).any() or not (query & ~is_held).any():
        return None
    # Held-out classes are numbered after the others; one without a row to spare is left out.
    present = np.unique(mixed.columns[shot])
    stay = np.unique(mixed.columns[learn])
    number = np.full(data.n_base, -1)
    number[stay], number[present] = np.arange(len(stay)), len(stay) + np.arange(len(present))
    own = number[mixed.columns]
    query &= own >= 0
    fold = host.alike().fit_base(BaseData(data.features[mixed.order[learn]], own[learn]))
    queries = Queries(
        fold.embed(data.features[mixed.order[query]]), own[query], np.full(int(query.sum()), -1)
    )
    session = fold.embed(data.features[mixed.order[shot]]), own[shot] - len(stay)
    return play(fold, [session], queries, normalise(fold.prototypes), sampled=SAMPLED)


def _mixed_units(data: BaseData) -> bool:
    """Whether columns differ so much in spread that they are unlikely to be embeddings."""
    rows = data.rows.thinned(MIXED_ROWS, np.random.default_rng(0)).order
    spread = data.features[rows].std(0)
    return bool(spread.max() > MIXED_RATIO * np.median(spread))


def _objective(objective: str, max_base_loss: float | None) -> _Objective:
    """A function that scores an episode after a shift (F,) of its novel columns."""

    def value(episode: Episode, shift: Array) -> float:
        if max_base_loss is not None:
            return pseudo_trade_off([episode], [shift]).novel_at_base_loss(max_base_loss)
        if objective == "harmonic":
            curve = pseudo_trade_off([episode], [shift])
            best = curve.index_of_best_harmonic()
            return harmonic(curve.base[best], curve.novel[best])
        scores = episode.scores
        best_novel, winner = scores.best(shift)
        novel = best_novel > scores.base_max
        right = np.where(scores.own < 0, scores.base_right & ~novel, (winner == scores.own) & novel)
        return float(scores.weight @ right)

    return value


def _trained(recipe: AdapterRecipe, episodes: Sequence[Episode]) -> Adapter:
    """An adapter trained on all episodes; if there are none, one that does nothing."""
    fewest = min((e.context.similarity.shape[1] for e in episodes), default=1)
    adapter = recipe.make(fewest, np.random.default_rng(0))
    if episodes and adapter.linear:
        adapter.calibrate([episode.context for episode in episodes])
        loss = AdapterLoss(recipe.gamma, recipe.loss)
        train_convex(adapter, episodes, (), loss, ridges=recipe.ridges)
    return adapter


def describe(report: AutoReport) -> str:
    """One sentence for `cala show` and logs."""
    shift = {
        "none": "no shift",
        "one": "one shift for all new classes",
        "class-aware": "a shift per class",
    }
    return (
        f"{shift[report['shift']]} in the {report['metric']} metric ({report['host']}), "
        f"decided on {report['evidence']}"
    )
