"""The manifests, protocols from numbers, and shots in a copy of a set."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cala.data import protocol as module
from cala.data.protocol import (
    MANIFESTS,
    Protocol,
    canonical_draw,
    load_protocol,
    make_protocol,
    random_draw,
)
from cala.data.sets import open_images
from cala.errors import InputError
from data.tiny_sets import WNIDS, cub200, mini_folders, plain_folder, published_draw
from refusals import refused


@pytest.mark.parametrize("name", MANIFESTS)
def test_every_manifest_is_consistent(name):
    p = load_protocol(name)
    shots = [shot for session in p.canonical for shot in session]
    assert len(p.canonical) == p.sessions
    assert [len(session) for session in p.canonical] == [p.way * p.shot] * p.sessions
    assert len(set(shots)) == len(shots)
    expected = p.expected
    assert len(set(expected.classes)) == p.n_classes
    assert set(expected.images) == set(expected.per_class) == {"train", "test"}
    for part, totals in expected.images.items():
        for total, per_class, classes in zip(
            totals, expected.per_class[part], (p.base, p.n_classes - p.base), strict=True
        ):
            assert per_class is None or total == per_class * classes


def test_mini_imagenet_and_cub200_are_the_fields_protocols():
    mini, cub = load_protocol("mini_imagenet"), load_protocol("cub200")
    assert (mini.base, mini.way, mini.shot, mini.sessions) == (60, 5, 5, 8)
    assert (cub.base, cub.way, cub.shot, cub.sessions) == (100, 10, 5, 10)
    of_mini, of_cub = mini.expected.images, cub.expected.images
    assert (sum(of_mini["train"]), sum(of_mini["test"])) == (50_000, 10_000)
    assert (sum(of_cub["train"]), sum(of_cub["test"])) == (5_994, 5_794)
    assert (of_cub["train"][0], of_cub["test"][0]) == (3_000, 2_864)
    assert list(mini.expected.classes) == sorted(mini.expected.classes)
    for session, names in enumerate(mini.canonical, start=1):
        labels = [mini.expected.classes.index(name[:9]) for name in names]
        assert labels == [c for c in mini.session_labels(session) for _ in range(5)]
    for session, names in enumerate(cub.canonical, start=1):
        labels = [cub.expected.classes.index(name.split("/")[0]) for name in names]
        assert labels == [c for c in cub.session_labels(session) for _ in range(5)]


def test_a_damaged_class_list_is_noticed(monkeypatch):
    real = module.json.loads
    monkeypatch.setattr(module.json, "loads", lambda text: real(text.replace("beaver", "baever")))
    with refused("cifar100", code="damaged_file"):
        load_protocol("cifar100")


def test_names_are_no_rows():
    with refused(code="named"):
        canonical_draw(load_protocol("cub200"))


def named(*sessions, base=1):
    return Protocol("tiny", base=base, way=1, shot=2, sessions=len(sessions), canonical=sessions)


def test_shots_are_found_by_the_end_of_their_path(tmp_path):
    images = open_images(mini_folders(tmp_path))
    draw = published_draw(named((f"{WNIDS[1]}/2.jpg", f"{WNIDS[1]}/0.jpg")), images)
    assert [images.train.names[row] for row in draw.rows[0]] == [
        f"train/{WNIDS[1]}/2.jpg",
        f"train/{WNIDS[1]}/0.jpg",
    ]
    assert draw.name == "canonical"


def test_shots_that_are_missing_or_of_another_class(tmp_path):
    images = open_images(cub200(tmp_path))
    shots = ("002.Bird_1/Bird_train_0.jpg", "002.Bird_1/Bird_train_9.jpg")
    with refused("1 of 2", "Bird_train_9.jpg", code="missing_shots"):
        published_draw(named(shots), images)
    wrong = ("002.Bird_1/Bird_train_0.jpg", "003.Bird_2/Bird_train_0.jpg")
    with refused("Bird_2/Bird_train_0.jpg", "session 1", code="wrong_class"):
        published_draw(named(wrong), images)
    with refused(code="no_shots"):
        published_draw(named(), images)
    assert published_draw(named((4, 7)), images).rows[0].tolist() == [4, 7]
    with refused("99", code="missing_shots"):
        published_draw(named((4, 99)), images)


def test_defaults_fit_the_number_of_classes():
    assert make_protocol(100) == Protocol("custom", base=60, way=5, shot=5, sessions=8)
    assert make_protocol(2) == Protocol("custom", base=1, way=1, shot=5, sessions=1)
    assert make_protocol(20, base=10).sessions == 2
    assert make_protocol(20, way=4, sessions=4).base == 4
    assert make_protocol(20, sessions=4).way == 2


@pytest.mark.parametrize(
    ("numbers", "field", "message"),
    [
        ({"classes": 1}, "classes", "only 1 class"),
        ({"classes": 10, "base": 10}, "base", "base is 10 of 10 classes"),
        ({"classes": 10, "base": 0}, "base", "base is 0"),
        ({"classes": 10, "way": -1}, "way", "way is -1"),
        ({"classes": 10, "shot": 0}, "shot", "shot is 0"),
        ({"classes": 10, "base": 6, "way": 5, "sessions": 1}, "sessions", "1 session × 5 classes"),
        (
            {"classes": 10, "base": 6, "sessions": 9},
            "sessions",
            "6 base + 9 sessions × 1 class ",
        ),
        ({"classes": 10, "way": 10}, "sessions", "more than 10 classes"),
    ],
)
def test_impossible_numbers_are_named(numbers, field, message):
    with refused(message, field=field):
        make_protocol(**numbers)


SMALL = st.none() | st.integers(1, 30)


@given(st.integers(2, 40), SMALL, SMALL, SMALL, st.none() | st.integers(0, 9))
def test_any_numbers_give_a_protocol_that_fits_or_an_error(classes, base, way, sessions, seed):
    try:
        p = make_protocol(classes, base, way, 5, sessions, seed)
    except InputError:
        assert (base or 0) + (way or 1) * (sessions or 1) + (base is None) > classes
        return
    assert p.n_classes <= classes
    assert (base or p.base, way or p.way, sessions or p.sessions) == (p.base, p.way, p.sessions)
    labels = np.arange(classes)
    assert sorted(p.relabel(labels).tolist()) == labels.tolist()


def test_an_order_decides_which_classes_come_when(tmp_path):
    images = open_images(plain_folder(tmp_path))
    labels = images.train.labels
    p = make_protocol(3, base=1, way=1, shot=2, order_seed=4)
    assert sorted(p.order) == [0, 1, 2]
    assert p == make_protocol(3, base=1, way=1, shot=2, order_seed=4)
    arrival = p.relabel(labels)
    draw = random_draw(p, arrival, np.ones(30, dtype=bool), seed=0)
    for session, rows in enumerate(draw.rows, start=1):
        assert set(labels[rows].tolist()) == {p.order[session]}
    np.testing.assert_array_equal(make_protocol(3).relabel(labels), labels, strict=True)
    with refused("label 3 ", field="y"):
        p.relabel(np.array([3]))
