"""Several looks at the shots: averaged views, the same for fake classes, queries untouched."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import cala
from benchmark.test_task import photos
from cala.benchmark.runner import fit_method
from cala.benchmark.scoring import run_draw
from cala.benchmark.task import Encoding, ProtocolOverrides, load_task, make_draw
from cala.core.fakes import FakePool
from cala.data.embeddings import load_embeddings, save_embeddings
from cala.data.protocol import make_protocol
from cala.encoders.embed import EmbeddingCache, embed
from cala.encoders.encode import encode_set
from cala.errors import InputError
from cala.heads import BaseData, make_head
from data.embedding_arrays import write
from encoders.tiny import counting_encoder, noise_set
from model.photos import ENCODER, write_photos
from problems import blobs


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))


def test_a_shot_is_the_mean_of_its_views_and_each_is_encoded_once():
    images, encoder = noise_set([4, 4], [1, 1]), counting_encoder()
    found = embed(images.train, encoder, crops=2)
    assert encoder.forward.images == 8 * 4
    digests = [bytes.fromhex(d) for d in images.train.digests()]
    views = ["plain", "flip", "crop0", "crop1"]
    parts = [EmbeddingCache(encoder, view).find(digests)[0] for view in views]
    np.testing.assert_allclose(found, np.mean(parts, axis=0), rtol=1e-5, atol=1e-6)
    assert all(not np.allclose(a, b) for i, a in enumerate(parts) for b in parts[:i])
    embed(images.train, encoder, crops=3)
    assert encoder.forward.images == 8 * 5  # only the third crop is new


def test_crops_follow_from_the_image_alone(tmp_path, monkeypatch):
    images = noise_set([6, 6], [1, 1])
    whole = embed(images.train, counting_encoder(), crops=2)
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "another"))
    alone = embed(images.train, counting_encoder(), rows=[7, 3], crops=2)
    np.testing.assert_allclose(alone, whole[[7, 3]], rtol=1e-5, atol=1e-6)


def test_a_set_with_views_keeps_queries_and_survives_its_file(tmp_path):
    images = noise_set([6, 6, 6, 6], [2, 2, 2, 2])
    options = {"base": range(3), "pairs": 3, "fake_images": 4}
    plain = encode_set(images, counting_encoder(), **options)
    found = encode_set(images, counting_encoder(), shot_views=2, shot_rows=range(18, 24), **options)
    np.testing.assert_array_equal(found.x_train, plain.x_train)
    np.testing.assert_array_equal(found.x_test, plain.x_test)
    np.testing.assert_array_equal(found.fakes.features, plain.fakes.features)
    assert found.fakes.shots.shape == plain.fakes.features.shape
    assert not np.allclose(found.fakes.shots, plain.fakes.features)
    again = load_embeddings(save_embeddings(tmp_path / "a.npz", found))
    np.testing.assert_array_equal(again.shots(np.array([20, 18])), found.x_shot[[2, 0]])
    np.testing.assert_array_equal(again.fakes.shots, found.fakes.shots)
    assert again.provenance["shot_views"] == 2
    with pytest.raises(InputError) as caught:
        again.shots(np.array([0, 20]))
    assert caught.value.field == "shot_views"


@pytest.mark.parametrize(
    "changes",
    [
        {"x_shot": np.ones((2, 3))},
        {"shot_rows": np.array([0, 1])},
        {"x_shot": np.ones((2, 3)), "shot_rows": np.array([0])},
        {"x_shot": np.ones((2, 4)), "shot_rows": np.array([0, 1])},
        {"x_shot": np.ones((2, 3)), "shot_rows": np.array([0, 40])},
        {"fake_shot": np.ones((5, 5, 3))},
    ],
)
def test_members_that_do_not_fit_are_refused(tmp_path, changes):
    with pytest.raises(InputError):
        load_embeddings(write(tmp_path, **changes))


def test_adapters_learn_from_fake_shots_as_they_are_seen():
    """Better shots of fake classes need less help; queries stay the same."""
    x, y = blobs(12, 30, 16, spread=1.2)
    rng = np.random.default_rng(0)
    pairs = np.array([[a, b] for a in range(12) for b in range(a)])
    centres = np.stack([x[y == label].mean(0) for label in range(12)])[pairs].mean(1)
    queries = centres[:, None] + rng.normal(0, 1.2, (len(pairs), 12, 16))
    shifts = []
    for shots in (None, centres[:, None] + (queries - centres[:, None]) / 4):
        data = BaseData(x, y, fakes=FakePool(queries, pairs, shots), holdout=np.ones(len(y), bool))
        head = make_head("la", scale=8.0).fit_base(data)
        shifts.append(float(head.fork().add(x[:5] + 9, np.full(5, 99)).shift[-1]))
    assert shifts[1] < shifts[0] - 0.05


def test_a_run_looks_at_drawn_shots_only(tmp_path):
    where = photos(tmp_path / "photos")
    options = {"draws": "random:2", "overrides": ProtocolOverrides(base=3, way=1, shot=2)}
    encoding = Encoding(encoder=ENCODER, fakes=3, shot_views=2)
    found = load_task(str(where), encoding=encoding, **options)
    draws = [found.draw(name) for name in found.draws]
    drawn = np.unique(np.concatenate([rows for draw in draws for rows in draw.rows]))
    np.testing.assert_array_equal(found.data.shot_rows, drawn)
    head = fit_method("nearest-mean", found.data, found.protocol)
    plain = replace(found.data, x_shot=None)
    grown = head.fork().add(found.data.shots(drawn[:2]), found.data.y_train[drawn[:2]])
    other = head.fork().add(plain.shots(drawn[:2]), plain.y_train[drawn[:2]])
    assert not np.allclose(grown.prototypes[-1], other.prototypes[-1])
    run_draw(head, found.data, found.protocol, draws[0])
    with pytest.raises(InputError) as caught:
        load_task(str(where), encoding=replace(encoding, fakes=0), **options)
    assert caught.value.field == "shot_views"


def test_hosts_whose_fakes_are_mixed_from_embeddings_see_plain_shots():
    images = noise_set([8] * 6, [2] * 6)
    protocol = make_protocol(6, 4, 1, 2, 2)
    data = encode_set(
        images, counting_encoder(), base=range(4), pairs=6, fake_images=6,
        shot_views=2, shot_rows=range(32, 48),
    ).relabelled(protocol)  # fmt: skip
    draw = make_draw("random:0", protocol, data)
    head = fit_method("alice", data, protocol)
    plain = run_draw(head, replace(data, x_shot=None), protocol, draw)
    assert run_draw(head, data, protocol, draw)[1:] == plain[1:]


def test_a_model_remembers_how_it_looks_at_new_photos(tmp_path):
    known = write_photos(tmp_path / "known", range(6), range(6))
    new = write_photos(tmp_path / "new", range(7, 8), range(3))
    model = cala.fit(known, tmp_path / "model", encoder=ENCODER, shot_views=2, fakes=60)
    model.add([new / "class 7"], "class 7")
    split = cala.model.photos.gather([new / "class 7"])
    several = embed(split, model.encoder, crops=2)
    head = cala.load(model.path).current.classifier.head_
    np.testing.assert_allclose(
        head.prototypes[-1], head.fork().add(several, np.full(3, 99)).prototypes[-1], rtol=1e-5
    )
    assert cala.load(model.path).current.encoder.shot_views == 2
    with pytest.raises(InputError) as caught:
        cala.fit(known, tmp_path / "other", encoder=ENCODER, shot_views=2, fakes="feature")
    assert caught.value.field == "shot_views"
