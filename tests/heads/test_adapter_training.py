"""What adapters are trained on: the host's own logits, the given fakes, calibrated inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

import cala.heads.adapter_training as module
from cala.core.adapters import ADAPTER_KINDS, Adapter
from cala.core.fakes import FakePool, draw_pairs, mix_features
from cala.heads import ADAPTERS, BaseData, make_head, method_names, restore_head
from cala.heads.adapter_training import CALA, LA, train_adapter
from cala.heads.nearest_mean import NearestMean
from problems import blobs, first_of
from refusals import warned

pytestmark = pytest.mark.filterwarnings("ignore::cala.errors.BaseQueryWarning")

QUICK = {"episodes": 6, "heldout_episodes": 3}
N_BASE, DIM = 12, 16
X, Y = blobs(N_BASE, 30, DIM, spread=1.2)


def handicapped(head, handicap, seen):
    """The same host, but its novel logits are lower by `handicap`."""
    kind = type(head)

    class Handicapped(kind):
        def unit_logits(self, unit, members=None):
            seen.append(members is not None and bool((members >= 0).any()))
            logits = kind.unit_logits(self, unit, members)
            logits[:, self.n_base :] -= handicap
            return logits

    head.__class__ = Handicapped
    return head


def test_training_reads_the_hosts_own_logits():
    """What the host takes from its novel classes, the adapter gives back."""
    alphas = []
    for handicap in (0.0, 1.5, -0.5):
        seen = []
        head = make_head("nearest-mean", scale=8.0).fit_base(BaseData(X, Y))
        host = handicapped(head, handicap, seen)
        adapter, recipe, judged = train_adapter(host, LA, BaseData(X, Y), seed=0)
        assert recipe == LA
        assert len(judged) == LA.heldout_episodes
        assert len(seen) == LA.episodes + LA.heldout_episodes
        assert all(seen), "base queries are left out of their own prototypes"
        alphas.append(adapter.parameters[0])
    assert alphas[1] == pytest.approx(alphas[0] + 1.5, abs=1e-3)
    assert alphas[2] == pytest.approx(alphas[0] - 0.5, abs=1e-3)


def test_scattered_fakes_need_a_larger_shift_than_tight_ones():
    """Few shots of a scattered class make a poor prototype, and its images fall to base."""
    pairs = draw_pairs(N_BASE, 40, np.random.default_rng(0))
    rows = BaseData(X, Y).rows
    fakes = mix_features(X, rows, pairs, count=20, rng=np.random.default_rng(1))
    centres = fakes.features.mean(1, keepdims=True)
    alphas = []
    for spread in (0.2, 1.0, 2.0):
        pool = FakePool(centres + spread * (fakes.features - centres), pairs)
        head = make_head("la", scale=16.0, adapter=QUICK).fit_base(BaseData(X, Y, fakes=pool))
        alphas.append(head.adapter.parameters[0])
    assert alphas == sorted(alphas)
    assert alphas[2] > alphas[0] + 0.5
    mixed = make_head("la", scale=16.0, adapter=QUICK).fit_base(BaseData(X, Y))
    assert alphas[0] < mixed.adapter.parameters[0] < alphas[2]


def test_the_summary_adapter_reads_inputs_standardised_on_the_fakes(monkeypatch):
    learned = []
    real = module.train_convex

    def fit(adapter, episodes, *others):
        learned.extend(episodes)
        return real(adapter, episodes, *others)

    monkeypatch.setattr(module, "train_convex", fit)
    head = make_head("cala-plus", adapter=QUICK).fit_base(BaseData(X, Y))
    inputs = np.concatenate([head.adapter.inputs(e.context) for e in learned])
    mean, spread = inputs.mean(0), inputs.std(0)
    known = [0, 1, 2, 3, 4, 5, 7]  # tightness (6) is imputed where there is one shot
    np.testing.assert_allclose(mean, 0, rtol=0, atol=1e-9)
    np.testing.assert_allclose(spread[known], 1, rtol=1e-7)
    assert 0 < float(spread[6]) < 1


SESSIONS = {"way": 3, "novel": 9, "shots": (2, 4), "episodes": 3, "heldout_episodes": 1}


class Recorder(NearestMean):
    """Nearest mean that says its columns move, and notes which classes arrive together."""

    name = "recorder"
    traits = NearestMean.traits._replace(old_columns_stay=False)
    together: ClassVar[list] = []

    def _add(self, unit, columns):
        super()._add(unit, columns)
        Recorder.together.append((len(unit), sorted(set(columns.tolist()))))


def test_pseudo_sessions_bring_some_classes_at_a_time():
    """Where columns move, every session of an episode is a session of the host."""
    Recorder.together.clear()
    data = BaseData(X, Y)
    train_adapter(Recorder(scale=8.0).fit_base(data), replace(LA, **SESSIONS), data, seed=0)
    found = Recorder.together
    assert [columns for _, columns in found] == 4 * [
        [12, 13, 14],
        [15, 16, 17],
        [18, 19, 20],
    ]
    assert {n for n, _ in found} <= set(range(6, 13))


def test_all_at_once_is_session_by_session_where_columns_stay(monkeypatch):
    """What is played and what is learned of it is the same."""
    played = []
    real = module.play

    def play(host, sessions, queries, base, **options):
        sessions = list(sessions)
        episode = real(host, sessions, queries, base, **options)
        played.append((len(sessions), episode))
        return episode

    monkeypatch.setattr(module, "play", play)
    trained = []
    for kind in (NearestMean, Recorder):
        data = BaseData(X, Y)
        host = kind(scale=8.0).fit_base(data)
        trained.append(train_adapter(host, replace(LA, **SESSIONS), data, seed=0)[0])
    assert [n for n, _ in played] == 4 * [1] + 4 * [3]
    for (_, once), (_, parts) in zip(played[:4], played[4:], strict=True):
        for name in ("scores", "context"):
            for key, value in vars(getattr(once, name)).items():
                np.testing.assert_allclose(vars(getattr(parts, name))[key], value, atol=1e-12)
    assert trained[0].parameters == pytest.approx(trained[1].parameters, abs=1e-9)


class Distance(Adapter):
    """β from the similarity to the nearest base class: weight·max(S) + offset."""

    linear = True
    layout: ClassVar = {"weights": (2,)}

    def __init__(self):
        self.parameters = np.zeros(2)

    def read(self, context):
        return np.column_stack([context.similarity.max(1), np.ones(len(context))])

    def score(self, inputs):
        return inputs @ self.parameters.astype(inputs.dtype)

    def gradient(self, inputs, by_beta):
        return by_beta @ inputs


@pytest.fixture
def _distance():
    """What the one file of a new adapter says."""
    ADAPTER_KINDS.register("distance", "linear on the nearest base class")(lambda *_: Distance())
    recipe = replace(LA, adapter="distance", host="calibrated-mean", metric="whitened")
    ADAPTERS.register("distance", "a shift by the distance to base, of an own kind")(recipe)
    yield
    for registry in (ADAPTER_KINDS, ADAPTERS):
        del registry._own["distance"], registry._summaries["distance"]


@pytest.mark.usefixtures("_distance")
@pytest.mark.parametrize("method", ["distance", "nearest-mean+distance", "teen+distance"])
def test_an_adapter_of_a_new_kind_is_one_file(method):
    x, y = blobs(N_BASE + 2, 30, DIM, spread=1.2)
    base, shots = y < N_BASE, first_of(y, (N_BASE, N_BASE + 1), 5)
    assert "distance" in method_names()
    head = make_head(method, adapter=QUICK).fit_base(BaseData(x[base], y[base]))
    assert head.host.name == ("calibrated-mean" if method == "distance" else method.split("+")[0])
    assert head.host.metric_name == ("whitened" if method == "distance" else "cosine")
    assert type(head.adapter) is Distance
    assert np.abs(head.adapter.parameters).min() > 0
    head.add(x[shots], y[shots])
    assert (head.beta[:N_BASE] == 0).all()
    assert (head.beta[N_BASE:] != 0).all()
    restored = restore_head(head.state())
    assert type(restored.adapter) is Distance
    assert np.array_equal(restored.logits(x), head.logits(x))
    assert np.array_equal(restored.add(x[:1], y[:1]).beta, head.add(x[:1], y[:1]).beta)


@pytest.mark.usefixtures("_distance")
def test_a_new_kind_of_adapter_falls_back_to_la():
    """Nothing of it was chosen but the shots."""
    assert replace(CALA, adapter="distance", shots=(3,)).as_la() == replace(LA, shots=(3,))
    x, y = blobs(4, 10, 6)
    with warned("few_fakes"):
        head = make_head("distance", adapter=QUICK).fit_base(BaseData(x, y))
    assert head.trained_as.adapter == "scalar"
