"""From what a user names to embeddings, protocol and draws."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cala.benchmark.task import Encoding, ProtocolOverrides, load_task, make_draw, split_dataset
from cala.data.embeddings import Embeddings, load_embeddings, save_embeddings
from cala.data.protocol import find_shots, load_protocol, make_protocol
from cala.encoders import load_encoder
from cala.encoders.encode import encode_set
from cala.errors import InputError
from data.tiny_sets import mini_imagenet
from refusals import refused


def benchmark_file(path: Path, name: str, *, named: bool = True, lost: int = 0) -> Path:
    """Random embeddings of a benchmark: its published shots by name, and a few other rows.

    lost : how many of the shots, from the first on, are not there
    """
    protocol = load_protocol(name)
    names, labels = [], []
    for label, called in enumerate(protocol.expected.classes):
        for number in range(6):
            names.append(f"images/{called}/other_{number}.jpg")
            labels.append(label)
    shots = [shot for session in protocol.canonical for shot in session]
    for shot in shots[lost:]:
        names.append(f"images/{shot}")
        called = shot.split("/")[0] if "/" in shot else shot[:9]
        labels.append(protocol.expected.classes.index(called))
    order = np.random.default_rng(0).permutation(len(names))
    y = np.array(labels)[order]
    rng = np.random.default_rng(0)
    data = Embeddings(
        x_train=rng.normal(size=(len(y), 4)).astype(np.float32),
        y_train=y,
        x_test=rng.normal(size=(400, 4)).astype(np.float32),
        y_test=np.arange(400) % len(protocol.expected.classes),
        names_train=tuple(names[i] for i in order) if named else None,
    )
    return save_embeddings(path, data)


@pytest.mark.parametrize("name", ["mini_imagenet", "cub200"])
def test_published_names_are_found_in_the_file(tmp_path, name):
    path = benchmark_file(tmp_path / "e.npz", name)
    problem = load_task(name, path, draws="canonical,random:2")
    assert problem.draws == ("canonical", "random:0", "random:1")
    draw = make_draw("canonical", problem.protocol, problem.data)
    published = load_protocol(name)
    for session, rows in enumerate(draw.rows, start=1):
        found = [problem.data.names_train[row] for row in rows.tolist()]
        assert found == [f"images/{shot}" for shot in published.canonical[session - 1]]
        labels = set(problem.data.y_train[rows].tolist())
        assert labels == set(published.session_labels(session))
    assert load_task(name, path).draws[0] == "canonical"


def test_missing_shots_are_counted_and_the_first_is_named(tmp_path):
    path = benchmark_file(tmp_path / "e.npz", "cub200", lost=3)
    first = load_protocol("cub200").canonical[0][0]
    with refused("3 of 500", "cub200", "e.npz", first, code="missing_shots"):
        load_task("cub200", path, draws="canonical")
    usual = load_task("cub200", path)
    assert usual.draws == tuple(f"random:{i}" for i in range(20))
    assert [note.code for note in usual.notes] == ["no_canonical"]
    assert load_task("cub200", path, draws="random:1").notes == ()


def test_a_file_without_names(tmp_path):
    path = benchmark_file(tmp_path / "e.npz", "mini_imagenet", named=False)
    with refused("mini_imagenet", "e.npz", "names_train", code="no_names"):
        load_task("mini_imagenet", path, draws="canonical")
    assert "canonical" not in load_task("mini_imagenet", path).draws


def test_rows_of_another_order_are_noticed(tmp_path):
    """CIFAR-100's shots are row numbers: in a file that is sorted otherwise they are others."""
    y, one = np.arange(50_000) % 100, np.ones((50_000, 1), np.float32)
    data = Embeddings(one, y, one[:100], np.arange(100))
    path = save_embeddings(tmp_path / "e.npz", data)
    with refused("session 1", "e.npz", code="wrong_class"):
        load_task("cifar100", path, draws="canonical")


def test_dev_keeps_the_published_shots_out_of_the_queries(tmp_path):
    path = benchmark_file(tmp_path / "e.npz", "cub200", lost=3)
    problem = load_task("cub200", path, draws="random:1", split="dev")
    shots = {f"images/{s}" for session in load_protocol("cub200").canonical for s in session}
    queries = set(problem.data.names_test)
    assert queries
    assert not queries & shots
    assert queries <= set(load_embeddings(path).names_train)


def test_features_is_short_for_a_name_and_a_file(tmp_path):
    assert split_dataset("features:some/my.npz", None) == ("my", Path("some/my.npz"))
    assert split_dataset("my", Path("x.npz")) == ("my", Path("x.npz"))
    for dataset, file in (("features:", None), ("features:a.npz", Path("b.npz"))):
        with pytest.raises(InputError) as error:
            split_dataset(dataset, file)
        assert (error.value.code, error.value.field) == ("bad_value", "dataset")
    with refused("my.npz", field="dataset", code="no_embeddings") as caught:
        split_dataset("my.npz", None)
    assert "features:my.npz" in caught.value.fix


def test_a_benchmark_with_other_numbers_keeps_the_rest(tmp_path):
    path = benchmark_file(tmp_path / "e.npz", "cub200")

    def numbers(**given):
        p = load_task("cub200", path, overrides=ProtocolOverrides(**given)).protocol
        return p.base, p.way, p.shot, p.sessions

    assert numbers(shot=1) == (100, 10, 1, 10)
    assert numbers(base=150) == (150, 10, 5, 5)
    assert numbers(way=5) == (100, 5, 5, 20)
    assert numbers(order_seed=1) == (100, 10, 5, 10)
    shuffled = load_task("cub200", path, overrides=ProtocolOverrides(order_seed=1))
    assert "canonical" not in shuffled.draws
    with pytest.raises(InputError) as error:
        numbers(base=100, way=10, sessions=11)
    assert error.value.field == "sessions"


def test_no_test_rows(tmp_path):
    y, x = np.arange(30) % 3, np.random.default_rng(0).normal(size=(30, 2))
    data = Embeddings(x, y, x[:0], y[:0])
    path = save_embeddings(tmp_path / "my.npz", data)
    own = ProtocolOverrides(base=2, way=1, shot=2)
    with pytest.raises(InputError) as error:
        load_task(f"features:{path}", overrides=own)
    assert error.value.code == "no_test_rows"
    assert len(load_task(f"features:{path}", overrides=own, split="dev").data.y_test) == 30


def photos(root: Path, classes: int = 5, images: int = 8) -> Path:
    draw = np.random.default_rng(0)
    for part, count in (("train", images), ("test", 3)):
        for label in range(classes):
            folder = root / part / f"class {label}"
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = draw.integers(0, 256, (32, 32, 3)).astype(np.uint8)
                pixels[..., 0] = 50 * label
                Image.fromarray(pixels).save(folder / f"{number}.png")
    return root


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("own_cache")
def test_images_are_encoded_for_the_protocol(tmp_path):
    encoding = Encoding("resnet20-cifar100", fakes=3)
    done = []
    problem = load_task(
        str(photos(tmp_path / "birds")),
        encoding=encoding,
        overrides=ProtocolOverrides(base=3, way=1, shot=2, order_seed=5),
        advance=lambda now, total: done.append((now, total)),
    )
    assert problem.dataset == "birds"
    assert problem.data.x_train.shape == (40, 64)
    assert problem.protocol.order  # shuffled, and the fake classes are of the shuffled base
    assert problem.data.fakes.pairs.max() < 3
    assert len(problem.data.fakes) == 3
    assert done[-1] == (40 + 15 + 24, 40 + 15 + 24)  # 8 images each: no photo is mixed twice
    assert problem.default.name == "birds encoded by resnet20-cifar100"


@pytest.mark.usefixtures("own_cache")
def test_photos_without_a_test_part_are_refused_before_encoding(tmp_path):
    root = photos(tmp_path / "birds") / "train"
    own = ProtocolOverrides(base=3, way=1, shot=2)
    encoding, done = Encoding("resnet20-cifar100", fakes=0), []
    with pytest.raises(InputError) as error:
        load_task(str(root), encoding=encoding, overrides=own, advance=lambda *n: done.append(n))
    assert (error.value.code, error.value.field) == ("no_test_images", "test")
    assert done == []
    assert len(load_task(str(root), encoding=encoding, overrides=own, split="dev").data.y_test)
    held = load_task(str(root), encoding=replace(encoding, test=0.25), overrides=own)
    assert len(held.data.y_test) == 10


@pytest.mark.usefixtures("own_cache")
def test_a_user_may_say_what_a_folder_is(tmp_path):
    root = photos(tmp_path / "birds")
    encoding = Encoding("resnet20-cifar100", fakes=0, kind="folder")
    found = load_task(str(root), encoding=encoding, overrides=ProtocolOverrides(shot=2))
    assert found.dataset == "birds"
    with refused(root, "cub200", field="path", code="bad_layout"):
        load_task(str(root), encoding=replace(encoding, kind="cub200"))
    with refused("'photos'", code="unknown_name"):
        load_task(str(root), encoding=replace(encoding, kind="photos"))
    named = mini_imagenet(tmp_path / "mini")
    said = replace(encoding, kind="mini_imagenet")
    problem = load_task(str(named), encoding=said)
    assert (problem.dataset, problem.protocol.base) == ("mini_imagenet", 60)


def test_cifar100_comes_with_the_package():
    problem = load_task("cifar100")
    assert problem.draws[0] == "canonical"
    assert len(problem.draws) == 21
    data, protocol = problem.data, problem.protocol
    assert (protocol.base, protocol.way, protocol.sessions) == (60, 5, 8)
    assert len(data.x_test) == 10_000
    assert data.holdout.sum() == 60 * 25
    assert data.fakes.features.shape == (600, 25, 64)
    labels = [data.y_train[list(rows)].tolist() for rows in protocol.canonical]
    for session, found in enumerate(labels, start=1):
        assert set(found) == set(protocol.session_labels(session))


@pytest.mark.parametrize("given", [{"base": 40, "way": 5}, {"order_seed": 7}])
def test_classes_that_trained_the_shipped_encoder_are_not_new(given):
    with refused("embeddings.npz", field="base", code="leakage") as caught:
        load_task("cifar100", overrides=ProtocolOverrides(**given))
    assert "--allow-seen" in caught.value.fix
    problem = load_task("cifar100", overrides=ProtocolOverrides(**given), allow_seen=True)
    assert [note.code for note in problem.notes] == ["seen_classes"]
    assert load_task("cifar100", overrides=ProtocolOverrides(shot=1, way=4)).notes == ()


def test_images_of_classes_that_trained_the_encoder_are_not_new(tmp_path, monkeypatch):
    """With an order, too: what counts is which classes arrive, not their labels."""
    about = {"dataset": "folder", "classes": ["class 0", "class 3"]}
    kind = replace(load_encoder("resnet20-cifar100"), about=about)
    monkeypatch.setattr("cala.encoders.registry.load_encoder", lambda *_, **__: kind)
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    root, encoding = str(photos(tmp_path / "birds")), Encoding("mine", fakes=0)

    def load(**given):
        return load_task(
            root, encoding=encoding, overrides=ProtocolOverrides(shot=2, way=1, **given)
        )

    with refused("(class 3)", field="base", code="leakage"):
        load(base=3)
    assert load(base=4).notes == ()
    assert load(base=2, sessions=1).notes == ()  # class 3 does not arrive
    assert make_protocol(5, order_seed=0).order == (2, 4, 3, 0, 1)
    with refused("(class 0)", field="base", code="leakage"):
        load(base=3, order_seed=0)
    assert load(base=4, order_seed=0).data.provenance["seen"] == about["classes"]


@pytest.mark.usefixtures("own_cache")
def test_options_of_an_encoding_reach_the_encoder(tmp_path, monkeypatch):
    """Mirror images, a share that tests, and the base classes of a shuffled order."""
    root = tmp_path / "birds"
    shutil.move(photos(tmp_path / "all") / "train", root)
    seen = {}

    def spy(images, encoder, **options):
        seen.update(options, test=len(images.test))
        return encode_set(images, encoder, **options)

    monkeypatch.setattr("cala.encoders.encode.encode_set", spy)
    load_task(
        str(root),
        encoding=Encoding("resnet20-cifar100", fakes=0, tta="flip", test=0.25),
        overrides=ProtocolOverrides(base=3, way=1, shot=2, order_seed=0),
    )
    assert list(seen["base"]) == [2, 4, 3]
    assert (seen["tta"], seen["pairs"], seen["test"]) == ("flip", 0, 5 * 2)


def test_dev_keeps_published_rows_where_the_draw_is_canonical(tmp_path):
    """Classes with so few rows that every one would become a query."""
    path = benchmark_file(tmp_path / "e.npz", "cub200")
    problem = load_task("cub200", path, draws="canonical", split="dev")
    rows = [row for session in problem.protocol.canonical for row in session]
    assert problem.data.usable[rows].all()


def test_canonical_rows_of_a_part_are_found_by_number():
    names = ["train/30", "train/4", "train/17"]
    assert find_shots(names, 3, [17, 4, 5]) == {17: 2, 4: 1}
    assert find_shots(None, 3, [2, 5]) == {2: 2}
    assert find_shots(["a", "b", "c"], 3, [2, 5]) == {2: 2}


def test_embeddings_and_images_at_once(tmp_path):
    with refused(field="embeddings", code="two_sources"):
        load_task("features:x.npz", encoding=Encoding())


def test_dev_keeps_the_canonical_shots_of_a_part_of_a_set_whose_rows_are_numbers():
    """The shipped embeddings are a part of CIFAR-100, called by rows of the whole archive."""
    problem = load_task("cifar100", draws="canonical", split="dev")
    assert problem.data.usable is not None
    shots = [row for session in problem.protocol.canonical for row in session]
    assert len(shots) == 200
    assert problem.data.usable[shots].all()
