"""What a model expects of itself: photos are judged without themselves, and bad ones named."""

from __future__ import annotations

import numpy as np
import pytest

import cala
from cala.model import kept
from cala.model.estimate import FEWEST, Share, moved, unlearned_logits
from cala.store import Content, JournalEntry
from model.photos import ENCODER, write_photos


def paths_of(folder, labels):
    found = [p for label in labels for p in sorted((folder / f"class {label}").iterdir())]
    return found, [p.parent.name for p in found]


def test_a_share_is_honest():
    assert not Share(FEWEST - 1, FEWEST - 1).tells
    assert Share(FEWEST, FEWEST).tells
    for right, photos in ((17, 20), (50, 50), (0, 30), (499, 500)):
        low, high = Share(right, photos).interval()
        assert 0 <= low <= right / photos <= high + 1e-12 <= 1 + 1e-9
        assert "100 %" not in str(Share(right, photos))


def test_every_photo_is_judged_and_the_mean_is_left_out(model, photos):
    found = model.estimate()
    assert (len(found.photos), found.total) == (96, 96)
    assert found.share().value > 0.9
    model.add(*paths_of(photos / "new", range(12, 16)))
    found = model.estimate()
    assert (found.share("known").photos, found.share("new").photos) == (96, 20)
    assert cala.load(model.path).estimate() == found  # what it needs is on the disk
    # by hand: a class of 5 without one of them
    current, head = model.current, model.current.classifier.head_.host
    places, columns, logits = unlearned_logits(current)
    row = int(np.flatnonzero(columns == 12)[2])
    others = [i for i in range(len(current.kept)) if current.columns_kept()[i] == 12]
    others.remove(int(places[row]))
    mean = head.embed(current.kept.rows[others]).mean(0)
    own = head.embed(current.kept.rows[places[row]][None])[0, : head.dim]
    assert logits[row, 12] == pytest.approx(
        head.scale * own @ mean / np.linalg.norm(mean), rel=1e-4
    )


def test_only_the_photo_of_a_class_cannot_be_judged(model, photos):
    path = sorted((photos / "new" / "class 12").iterdir())[0]
    model.add([path], "one")
    found = model.estimate()
    assert found.share("new").photos == 0
    assert [(one.label, one.name) for one in found.unjudged] == [("one", f"class 12/{path.name}")]


def test_a_wrong_photo_is_named(photos, tmp_path):
    write_photos(tmp_path / "known", range(6), range(6))
    stray = tmp_path / "known" / "class 2" / "stray.png"
    stray.write_bytes((photos / "test" / "class 4" / "0100.png").read_bytes())
    model = cala.fit(tmp_path / "known", tmp_path / "m", encoder=ENCODER, fakes="feature")
    worst = model.estimate().doubtful()[0]
    assert (worst.name, worst.label, worst.answer) == ("class 2/stray.png", "class 2", "class 4")


def test_what_tune_changes(photos, tmp_path):
    known = photos / "known"
    model = cala.fit(known, tmp_path / "m", encoder=ENCODER, method="la", fakes="feature")
    model.add(*paths_of(photos / "new", range(12, 16)))
    model.add(*paths_of(photos / "test", range(12, 16)))
    before = model.current
    found = moved(before, model.tune(delta=1000.0).current)
    judged = model.estimate()
    assert found.photos == (judged.share("known").photos, judged.share("new").photos)
    assert found.known[1] == 0.0 < found.known[0]
    assert found.new[1] >= found.new[0]
    assert moved(before, before).known[0] == moved(before, before).known[1]


def test_more_photos_than_are_kept(model, photos, monkeypatch):
    monkeypatch.setattr(kept, "MOST_KEPT", 100)
    model.add(*paths_of(photos / "new", range(12, 14)))
    assert (len(model.current.kept), len(model.current.photos)) == (100, 106)
    again = cala.load(model.path)
    assert len(again.estimate().photos) <= 100
    again.forget("class 0")
    assert len(again.current.kept) == 92


def test_a_version_that_kept_no_embeddings(model):
    def change(content):
        groups = {k: v for k, v in content.groups.items() if not k.startswith("embeddings")}
        return Content(content.meta, groups), JournalEntry("refit")

    model.store.change(change)
    found = cala.load(model.path)
    assert len(found.estimate().photos) == 0
    assert not found.estimate().share().tells
    assert "class 1" not in found.forget("class 1").classes


def test_results_of_an_evaluation_name_photos(model, photos):
    paths, labels = paths_of(photos / "test", [0, 1, 17])
    found = model.evaluate(paths, labels)
    assert [one.image for one in found.results] == [str(path) for path in paths]
    inside = [one for one in found.results if not one.stranger]
    assert sum(one.right for one in inside) / len(inside) == pytest.approx(found.answered)
    assert {one.stranger for one in found.results} == {True, False}
    assert all(not one.right for one in found.wrong())
