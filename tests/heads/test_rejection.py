"""Learning when nothing fits, for everything that is registered."""

from __future__ import annotations

import numpy as np
import pytest

from cala.core.fakes import draw_pairs, mix_features
from cala.core.metric import METRICS
from cala.errors import FallbackWarning
from cala.heads import ADAPTERS, HEADS, BaseData, make_head, restore_head
from cala.heads.adapter_training import MANY_SHOTS
from cala.heads.factory import split_name
from cala.heads.rejection import familiarity, fit_rejection
from problems import blobs, first_of, random_parts

pytestmark = pytest.mark.filterwarnings(
    "ignore::cala.errors.BaseQueryWarning", "ignore::cala.errors.FallbackWarning"
)

SAME = ("bidist", "bidist-base", "topic")  # as nearest mean
HOSTS = [name for name in HEADS if name not in SAME]
METHODS = [
    *HOSTS,
    *ADAPTERS,
    *(f"{host}+{('la', 'cala', 'cala-plus')[i % 3]}" for i, host in enumerate(HOSTS)),
]
# Nearest mean in each metric, the others in one: the metric is not theirs.
EVERY = [
    (method, metrics[i % len(metrics)])
    for i, method in enumerate(METHODS)
    for metrics in [HEADS[split_name(method)[0]].traits.metrics]
]
EVERY += [("nearest-mean", metric) for metric in METRICS if ("nearest-mean", metric) not in EVERY]
QUICK = {"episodes": 4, "heldout_episodes": 2, "epochs": 2, "steps": 5}
N_BASE, DIM = 12, 16
X, Y = blobs(N_BASE + 6, 60, DIM)
FIRST = np.arange(len(Y)) % 60 < 30
LEARN, FRESH = (Y < N_BASE) & FIRST, ~FIRST


def fitted(method, metric, x=X[LEARN], y=Y[LEARN]):
    parts = random_parts(method, x.shape[1])
    few = {"steps": 5} if method.startswith("nc-fscil") else {}
    head = make_head(method, metric=metric, adapter=QUICK, parts=parts, **few)
    return head.fit_base(BaseData(x, y))


@pytest.fixture(scope="module", params=EVERY)
def made(request):
    head = fitted(*request.param)
    return head, fit_rejection(head, BaseData(X[LEARN], Y[LEARN]))


def grown(head, k=5, labels=range(N_BASE, N_BASE + 3)):
    rows = first_of(np.where(FIRST, Y, -1), labels, k)
    return head.fork().add(X[rows], Y[rows])


def test_it_tells_known_from_unknown(made):
    head, rejection = made
    full = grown(head)
    p = familiarity(full, rejection, X)
    known, new, unknown = (
        p[FRESH & mask] for mask in (Y < N_BASE, (Y >= N_BASE) & (Y < N_BASE + 3), Y >= N_BASE + 3)
    )
    assert ((p > 0) & (p <= 1)).all()
    assert (known < 0.05).mean() < 0.1
    assert (new < 0.05).mean() < 0.25
    if full.host.name == "nc-fscil":  # its neck is random here, and random places tell nothing
        return
    assert (unknown < 0.05).mean() > 2 * (known < 0.05).mean()


def test_base_images_are_turned_away_as_often_as_asked(made):
    """Nothing else is known, so the rate is met, not only kept."""
    head, rejection = made
    p = familiarity(head, rejection, X[FRESH & (Y < N_BASE)])
    for rate in (0.05, 0.1, 0.3):
        assert abs((p < rate).mean() - rate) < 0.03 + 0.3 * rate  # two standard errors


def test_neither_adapter_nor_operating_point_counts(made):
    head, rejection = made
    full = grown(head)
    before = familiarity(full, rejection, X)
    assert np.array_equal(before, familiarity(full.host, rejection, X))
    if full.adapted:
        full.gamma, full.delta = 0.0, 3.0
        assert np.array_equal(before, familiarity(full, rejection, X))


def test_the_head_is_left_as_it_was(made):
    head, rejection = made
    before = head.logits(X)
    again = vars(fit_rejection(head, BaseData(X[LEARN], Y[LEARN])))
    assert np.array_equal(head.logits(X), before)
    assert len(head.classes) == N_BASE
    for name, value in vars(rejection).items():
        assert np.array_equal(value, again[name])


def test_a_restored_head_gives_the_same(made):
    head, rejection = made
    full = grown(head)
    kept = type(rejection)(**vars(rejection))
    assert np.array_equal(
        familiarity(restore_head(full.state()), kept, X), familiarity(full, rejection, X)
    )


def test_more_shots_move_a_class_to_another_table(made):
    head, rejection = made
    assert rejection.shots.tolist() == list(MANY_SHOTS)
    for k, row in ((1, 1), (3, 2), (25, 5)):
        counts = grown(head, k).table.counts
        assert rejection.row_of(counts, N_BASE).tolist() == [0] * N_BASE + [row] * 3


@pytest.mark.parametrize("method", ["nearest-mean", "cala-plus"])
@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("photos", [2, 3, 8])
def test_few_classes_and_few_photos(method, classes, photos):
    x, y = blobs(classes, photos, 6)
    head = fitted(method, None, x, y)
    p = familiarity(head, fit_rejection(head, BaseData(x, y)), x)
    assert p.shape == (classes * photos,)
    assert ((p > 0) & (p <= 1)).all()


def test_one_photo_per_class_turns_it_off_and_says_so():
    x, y = blobs(4, 1, 6)
    head = fitted("nearest-mean", "cosine", x, y)
    with pytest.warns(FallbackWarning) as caught:
        rejection = fit_rejection(head, BaseData(x, y))
    assert "nothing_unknown" in [getattr(warning.message, "code", "") for warning in caught]
    assert not rejection.is_on
    assert familiarity(head, rejection, x).tolist() == [1] * 4


def test_a_pool_serves_the_shots_it_can():
    head = fitted("nearest-mean", "cosine")
    rng, rows = np.random.default_rng(0), BaseData(X[LEARN], Y[LEARN]).rows
    for images, shots in ((2, [1]), (3, [1, 2]), (8, [1, 2, 5])):
        pairs = draw_pairs(N_BASE, 20, rng)
        pool = mix_features(X[LEARN], rows, pairs, count=images, rng=rng)
        rejection = fit_rejection(head, BaseData(X[LEARN], Y[LEARN], fakes=pool))
        assert rejection.shots.tolist() == shots
        assert familiarity(grown(head), rejection, X).shape == (len(X),)
