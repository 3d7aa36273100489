"""A model on disk: fit, add, predict, undo, forget, rename, tune."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import cala
from cala.errors import InputError, StateError
from cala.model import thumbnails
from cala.model.photos import gather
from cala.store import Content, JournalEntry
from cala.store.files import read_document, write_document
from model.photos import ENCODER, photo, write_photos
from refusals import refused


def labelled(folder, labels):
    paths = sorted(p for label in labels for p in (folder / f"class {label}").iterdir())
    return paths, [path.parent.name for path in paths]


def answers(model, photos):
    paths, _ = labelled(photos / "test", range(16))
    return model.explain(paths, top=3)


def test_it_learns_and_grows(model, photos):
    assert model.classes == sorted(f"class {label}" for label in range(12))
    added = model.add(*labelled(photos / "new", range(12, 16)))
    assert added.new == ("class 12", "class 13", "class 14", "class 15")
    assert set(added.photos.values()) == {5}
    paths, names = labelled(photos / "test", range(16))
    found = model.predict(paths, unknown="off")
    assert np.mean([a == b for a, b in zip(found, names, strict=True)]) > 0.8
    assert model.n_known == 12
    assert len(model.classes) == 16


def test_what_is_loaded_is_what_was_there(model, photos):
    model.add(*labelled(photos / "new", range(12, 16)))
    again = cala.load(model.path)
    assert again.classes == model.classes
    for a, b in zip(answers(model, photos), answers(again, photos), strict=True):
        assert a == b


def test_known_classes_do_not_move(model, photos):
    paths, _ = labelled(photos / "test", range(12))
    x = model.embed(paths)
    before = model.current.classifier
    model.add(*labelled(photos / "new", range(12, 16)))
    after = model.current.classifier
    np.testing.assert_array_equal(before.prototypes_, after.prototypes_[:12])
    # A product with more columns may round otherwise: logits here are below 200.
    logits = [classifier.decision_function(x)[:, :12] for classifier in (before, after)]
    np.testing.assert_allclose(*logits, rtol=0, atol=1e-4)


def test_in_one_go_or_one_by_one(model, photos, fitted, tmp_path):
    paths, names = labelled(photos / "new", [12, 13])
    for path, name in zip(paths, names, strict=True):
        model.add(path, name)
    whole = cala.load(fitted.path).current.with_photos(
        fitted.embed(paths), names, [bytes([i]) * 32 for i in range(len(paths))]
    )
    x = fitted.embed(labelled(photos / "test", range(14))[0])
    np.testing.assert_allclose(
        model.current.classifier.decision_function(x),
        whole.classifier.decision_function(x),
        atol=1e-4,
    )


def test_more_photos_of_a_known_class(model, photos):
    new = write_photos(model.path.parent / "more", range(3, 4), range(50, 60))
    added = model.add(*labelled(new, [3]))
    assert added.new == ()
    assert added.photos == {"class 3": 10}
    assert model.current.classifier.n_shots_[model.classes.index("class 3")] == 18


def test_the_same_photo_twice_is_noticed(model, photos, tmp_path):
    paths, names = labelled(photos / "new", [12])
    model.add(paths, names)
    version = model.version
    added = model.add(paths, names)
    assert (added.photos, added.again, added.version) == ({}, 5, version)
    copy = tmp_path / "another name.png"
    copy.write_bytes(paths[0].read_bytes())
    fresh = write_photos(tmp_path / "x", range(12, 13), range(70, 72))
    added = model.add([copy, *labelled(fresh, [12])[0]], "class 12")
    assert (added.photos, added.again) == ({"class 12": 2}, 1)


def test_the_same_photo_under_two_names_is_refused(model, photos):
    paths, _ = labelled(photos / "known", [0])
    before = model.version
    with refused("0000.png", "'heron'", "'class 0'", code="two_labels"):
        model.add(paths[0], "heron")
    fresh, _ = labelled(photos / "new", [12])
    with refused("'b'", "'a'", code="two_labels"):
        model.add([fresh[0], Image.open(fresh[1]), photo(12, 1)], ["a", "a", "b"])
    assert model.version == before


def test_paths_arrays_and_pictures_are_the_same(model, tmp_path):
    array = photo(5, 300)
    path = tmp_path / "5.png"
    Image.fromarray(array).save(path)
    one = model.explain([path, array, Image.open(path), str(path)])
    assert len({(a.best, round(a.probability, 5)) for a in one}) == 1
    assert model.predict(array, unknown="off") == ["class 5"]
    assert model.predict(np.stack([array, array]), unknown="off") == ["class 5"] * 2
    model.add(array, "class 5")
    assert model.add(Image.fromarray(array), "class 5").again == 1


@pytest.mark.parametrize(
    "images",
    [[], 3, np.zeros((4, 4, 3)), [np.zeros((2, 2, 2, 3), np.uint8)], [None], "nowhere.jpg"],
)
def test_no_photos(model, images):
    with pytest.raises(InputError):
        model.predict(images)


def test_undo_takes_back_exactly_one_change(model, photos):
    states = [answers(model, photos)]
    model.add(*labelled(photos / "new", [12]))
    states.append(answers(model, photos))
    model.add(*labelled(photos / "new", [13]))
    states.append(answers(model, photos))
    model.forget("class 3")
    for state in reversed(states):
        model.undo()
        assert answers(model, photos) == state
    with pytest.raises(StateError) as caught:
        model.undo()
    assert caught.value.code == "nothing_to_undo"
    model.redo()
    assert answers(model, photos) == states[1]
    actions = [entry["action"] for entry in model.history()]
    assert actions == ["fit", "add", "add", "forget", "undo", "undo", "undo", "redo"]


def test_forget_and_learn_again(model, photos):
    model.add(*labelled(photos / "new", [12, 13]))
    before = answers(model, photos)
    model.forget("class 12")
    assert "class 12" not in model.classes
    assert "class 12" not in {a.best for a in answers(model, photos)}
    added = model.add(*labelled(photos / "new", [12]))  # its photos were forgotten too
    assert added.photos == {"class 12": 5}
    after = answers(model, photos)
    assert [a.best for a in before] == [a.best for a in after]


def test_former_names_stand_for_their_class(model, photos):
    model.rename("class 3", "wren").rename("wren", "house wren")
    test = sorted((photos / "test" / "class 3").iterdir())
    for former in ("class 3", "wren"):
        assert model.evaluate(test, former).rejections.strange_photos == 0
    again = model.add(sorted((photos / "known" / "class 3").iterdir()), "class 3")
    assert (again.photos, again.again, again.renamed) == ({}, 8, {"class 3": "house wren"})
    added = model.add(test[:2], "wren")
    assert (added.photos, added.new) == ({"house wren": 2}, ())
    added = model.add(test[2:4], ["wren", "house wren"])
    assert (added.photos, added.renamed) == ({"house wren": 2}, {"wren": "house wren"})
    with pytest.raises(InputError) as caught:
        model.forget("wren")
    assert "house wren" in caught.value.fix
    again = cala.load(model.path)
    assert again.current.former == {"class 3": "house wren", "wren": "house wren"}
    again.undo().undo().undo()
    assert again.current.former == {"class 3": "wren"}


def test_a_former_name_can_be_taken_by_another_class(model, photos):
    first = model.classes.index("class 1")
    model.rename("class 1", "x").rename("class 2", "class 1").rename("x", "class 2")
    assert model.classes.index("class 2") == first
    assert model.current.former == {"x": "class 2"}
    model.forget("class 2")
    assert model.current.former == {}
    path = sorted((photos / "test" / "class 5").iterdir())[0]
    assert model.add([path], "x").new == ("x",)


def test_rename(model, photos):
    before = [a.best for a in answers(model, photos)]
    model.rename("class 3", "eisvogel 🐦 with a long name")
    after = [a.best for a in cala.load(model.path).explain(labelled(photos / "test", range(16))[0])]
    new = [name if name != "class 3" else "eisvogel 🐦 with a long name" for name in before]
    assert after == new
    more = write_photos(model.path.parent / "m", range(3, 4), range(80, 82))
    model.add(labelled(more, [3])[0], "eisvogel 🐦 with a long name")
    assert len(model.classes) == 12


@pytest.mark.parametrize(
    ("call", "field", "code"),
    [
        (lambda m: m.forget("heron"), "name", "no_such_class"),
        (lambda m: m.rename("heron", "x"), "name", "no_such_class"),
        (lambda m: m.rename("class 1", "class 2"), None, "label_taken"),
        (lambda m: m.rename("class 1", "unknown"), "name", "bad_value"),
        (lambda m: m.rename("class 1", " "), "name", "bad_value"),
        (lambda m: m.rename("class 1", "class 1"), "name", "bad_value"),
        (lambda m: m.add(photo(50, 1), " Unknown\n"), "name", "bad_value"),
        (lambda m: m.add(photo(50, 1), "\u200b"), "name", "bad_value"),
        (lambda m: m.add(photo(50, 1), 5), "label", "bad_value"),
        (lambda m: m.add(photo(50, 1), [["a"]]), "name", "bad_value"),
        (lambda m: m.explain(photo(1, 1), top=0), "top", "bad_value"),
        (lambda m: m.explain(photo(1, 1), top=2.5), "top", "bad_value"),
        (lambda m: m.evaluate(photo(1, 1), "class 1", reject=7), "reject", "bad_value"),
        (lambda m: m.evaluate(photo(1, 1), ["a", "b"]), "label", "bad_value"),
        (lambda m: m.tune(objective=""), None, "unknown_name"),
        (lambda m: m.add(photo(50, 1), "unknown"), "name", "bad_value"),
        (lambda m: m.add(photo(50, 1), ""), "name", "bad_value"),
        (lambda m: m.add(photo(50, 1), "unknown\u200b"), "name", "bad_value"),
        (lambda m: m.add(photo(50, 1), "un\u00adkno\u2060wn"), "name", "bad_value"),
        (
            lambda m: m.rename("class 1", "\uff35\uff4e\uff4b\uff4e\uff4f\uff57\uff4e"),
            "name",
            "bad_value",
        ),
        (lambda m: m.rename("class 1", "\U0001d42e\U0001d427\U0001d424nown"), "name", "bad_value"),
        (lambda m: m.rename("class 1", "x" * 201), "name", "bad_value"),
        (lambda m: m.add(photo(50, 1), "x" * 10_000_000), "name", "bad_value"),
        (lambda m: m.add(photo(50, 1), "a\ud800"), "name", "bad_value"),
        (lambda m: m.add([photo(50, 1)], ["a", "b"]), "label", "bad_value"),
        (lambda m: m.tune(), None, "bad_value"),
        (lambda m: m.tune(reject=1.0), "reject", "bad_value"),
        (lambda m: m.tune(objective="best"), None, "unknown_name"),
        (lambda m: m.tune(max_base_loss=-1), "max_base_loss", "bad_value"),
        (lambda m: m.tune(delta=2000), "delta", "bad_value"),
        (lambda m: m.predict(photo(1, 1), reject=2), "reject", "bad_value"),
        (lambda m: m.predict(photo(1, 1), unknown="maybe"), "unknown", "bad_value"),
    ],
)
def test_bad_requests_change_nothing(model, call, field, code):
    before = (model.version, model.classes)
    with pytest.raises(InputError) as caught:
        call(model)
    assert caught.value.code == code
    assert field is None or caught.value.field == field
    assert (model.version, model.classes) == before
    assert cala.load(model.path).classes == before[1]


def test_tune_moves_along_the_stored_curve(model, photos):
    model.add(*labelled(photos / "new", range(12, 16)))
    model.tune(objective="harmonic", reject=0.2)
    again = cala.load(model.path)
    assert again.current.reject == 0.2
    assert again.current.classifier.delta_ == model.current.classifier.delta_
    model.tune(max_base_loss=0.0)
    strict = model.current.classifier.delta_
    model.tune(max_base_loss=0.5)
    assert model.current.classifier.delta_ > strict
    model.undo()
    assert model.current.classifier.delta_ == strict
    assert model.current.reject == 0.2


def test_two_models_of_one_folder_do_not_overwrite_each_other(model, photos):
    other = cala.load(model.path)
    model.add(*labelled(photos / "new", [12]))
    other.add(*labelled(photos / "new", [13]))
    assert other.classes[-2:] == ["class 12", "class 13"]
    assert model.reload().classes == other.classes


def test_another_encoder_is_refused(model, monkeypatch, tmp_path):
    from model import photos as module

    paths = write_photos(tmp_path / "p", range(1), range(1))
    monkeypatch.setattr(
        module, "colours", lambda: module.nn.Sequential(module.Colours(), module.nn.Linear(12, 12))
    )
    with refused(field="encoder", code="other_encoder"):
        cala.load(model.path).predict(paths)
    monkeypatch.setattr(module, "colours", None)
    with refused(model.path, "colours", field="encoder", code="no_encoder") as caught:
        cala.load(model.path).predict(paths)
    assert "--encoder" in caught.value.fix
    assert len(cala.load(model.path).classes) == 12  # what needs no encoder still works


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("each", [1, 2, 5, 10, 20])
def test_a_small_base_still_gives_a_sensible_model(tmp_path, classes, each):
    known = write_photos(tmp_path / "known", range(classes), range(each))
    model = cala.fit(known, tmp_path / "m", encoder=ENCODER, fakes=50)
    new = write_photos(tmp_path / "new", range(20, 22), range(5))
    model.add(*labelled(new, [20, 21]))
    test = write_photos(tmp_path / "test", range(classes), range(100, 110))
    write_photos(test, range(20, 22), range(100, 110))
    paths, names = labelled(test, [*range(classes), 20, 21])
    found = model.predict(paths, unknown="off")
    right = np.array([a == b for a, b in zip(found, names, strict=True)])
    assert right.mean() > 0.6
    assert right[-20:].mean() > 0.3  # new classes are not swallowed
    said = {note.code for note in model.notes}
    assert ("few_photos" in said) == (each < 5)
    if each == 1:
        assert "adapter_off" in said
    elif classes == 2:
        assert model.current.classifier.report_["evidence"] == "base classes alone"


def test_fakes_are_bounded_and_cached(photos, tmp_path, monkeypatch):
    counts = []
    for fakes in (100, 100, "feature"):
        seen = []
        cala.fit(
            photos / "known",
            tmp_path / f"m{len(counts)}",
            encoder=ENCODER,
            fakes=fakes,
            advance=lambda done, total, seen=seen: seen.append((done, total)),
        )
        counts.append(seen[-1])
    assert counts == [(96 + 96, 96 + 96)] * 2 + [(96, 96)]


@pytest.mark.parametrize("fakes", ["pictures", 0, -5, "0"])
def test_fakes_that_make_no_sense(photos, tmp_path, fakes):
    with pytest.raises(InputError) as caught:
        cala.fit(photos / "known", tmp_path / "m", encoder=ENCODER, fakes=fakes)
    assert caught.value.field == "fakes"
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("method", ["cec", "fact+cala"])
def test_a_method_with_an_encoder_of_its_own(photos, tmp_path, method):
    with pytest.raises(InputError) as caught:
        cala.fit(photos / "known", tmp_path / "model", encoder=ENCODER, method=method)
    assert caught.value.field == "method"
    assert not (tmp_path / "model").exists()


def test_folders_that_are_not_what_was_meant(tmp_path):
    known = write_photos(tmp_path / "known", range(2), range(2))
    with refused("class 1", field="photos", code="one_class") as found:
        cala.fit(known / "class 1", tmp_path / "m", encoder=ENCODER)
    assert "robin" in found.value.fix
    for ask in (lambda path: cala.fit(path, tmp_path / "m", encoder=ENCODER), gather):
        with refused("knwon", field="photos", code="missing_file") as found:
            ask(tmp_path / "knwon")
        assert str(known) in found.value.fix
    assert not (tmp_path / "m").exists()


def test_one_class_is_too_few(tmp_path):
    known = write_photos(tmp_path / "known", range(1), range(3))
    with refused("'class 0'", field="photos", code="one_class"):
        cala.fit(known, tmp_path / "m", encoder=ENCODER)


def test_photos_twice_in_fit(tmp_path):
    known = write_photos(tmp_path / "known", range(3), range(4))
    (known / "class 0" / "again.png").write_bytes((known / "class 0" / "0000.png").read_bytes())
    model = cala.fit(known, tmp_path / "m", encoder=ENCODER, fakes="feature")
    assert len(model.current.photos) == 12
    assert [note.code for note in model.notes if "1 duplicate" in note.text] == ["duplicates"]
    (known / "class 1" / "again.png").write_bytes((known / "class 0" / "0000.png").read_bytes())
    with pytest.raises(InputError) as caught:
        cala.fit(known, tmp_path / "n", encoder=ENCODER, fakes="feature")
    assert caught.value.code == "two_labels"


def test_thumbnails_come_and_go_with_their_photos(model, photos, monkeypatch):
    from cala.store import store

    paths, names = labelled(photos / "new", [12])
    model.add(paths, names, keep_thumbnails=True)
    folder = model.path / "thumbnails"
    assert len(list(folder.iterdir())) == 5
    with Image.open(next(folder.iterdir())) as small:
        assert small.format == "JPEG"
    model.forget("class 12")
    assert len(list(folder.iterdir())) == 5  # undo may need them
    monkeypatch.setattr(store, "UNDO_STEPS", 1)
    model.rename("class 1", "one")
    model.rename("one", "two")
    assert not list(folder.iterdir())


def test_thumbnails_of_others_stay(model, photos, tmp_path, monkeypatch):
    mine = tmp_path / "pictures"
    mine.mkdir()
    (mine / f"{'0' * 64}.jpg").write_bytes(b"mine")
    (model.path / "thumbnails").symlink_to(mine)
    with pytest.raises(InputError) as caught:
        model.add(*labelled(photos / "new", [12]), keep_thumbnails=True)
    assert caught.value.code == "linked_folder"
    model.rename("class 1", "one")
    assert len(list(mine.iterdir())) == 1
    (model.path / "thumbnails").unlink()
    mine.rename(model.path / "thumbnails")
    (model.path / "thumbnails" / "holiday.jpg").write_bytes(b"mine")
    model.rename("one", "two")
    assert [p.name for p in (model.path / "thumbnails").iterdir()] == ["holiday.jpg"]


def test_no_thumbnail_of_a_photo_that_was_not_learned_stays(model, photos, monkeypatch):
    real, written = thumbnails.write_bytes, []

    def full(path, data):
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        written.append(path)
        real(path, data)

    monkeypatch.setattr(thumbnails, "write_bytes", full)
    with pytest.raises(InputError) as caught:
        model.add(*labelled(photos / "new", [12]), keep_thumbnails=True)
    assert caught.value.code == "not_saved"
    assert (len(written), list((model.path / "thumbnails").iterdir())) == (3, [])


def test_groups_of_later_versions_are_kept(model):
    """Rejected photos have their place in a version already."""
    later = {"rejected": {"digest": np.zeros((2, 32), np.uint8), "rows": np.ones((2, 12))}}

    def change(content):
        meta = {**content.meta, "later": 1}
        meta["encoder"] = {**meta["encoder"], "engine": "later"}
        return Content(meta, {**content.groups, **later}), JournalEntry("refit")

    model.store.change(change)
    again = cala.load(model.path).rename("class 1", "one")
    found = again.store.read().groups["rejected"]
    np.testing.assert_array_equal(found["rows"], later["rejected"]["rows"])
    assert "one" in cala.load(model.path).classes


def test_why_adds_up(model, photos):
    model.add(*labelled(photos / "new", range(12, 16)))
    paths, _ = labelled(photos / "test", range(16))
    x = model.embed(paths)
    z = model.current.classifier.decision_function(x)
    for row, answer in enumerate(model.explain(paths, why=True, unknown="off")):
        assert answer.why.closest[0].label == answer.best
        for near in answer.why.closest:
            column = model.classes.index(near.label)
            assert near.logit + near.shift == pytest.approx(z[row, column], abs=1e-4)
            assert near.kind == ("known" if column < 12 else "new")
            assert -1 <= near.cosine <= 1
        shift = model.current.classifier.head_.shift
        assert answer.why.without_adapter == model.classes[int((z[row] - shift).argmax())]


def test_names_that_look_the_same_are_the_same(model):
    model.add([photo(50, n) for n in range(3)], "café ")
    added = model.add([photo(50, n) for n in range(3, 5)], "cafe\u0301")
    assert added.new == ()
    assert model.classes[-1] == "café"
    found = model.evaluate([photo(50, n) for n in range(9, 12)], "cafe\u0301")
    assert found.counted("new") == 3


def test_the_journal_names_what_was_new(model, photos):
    paths, _ = labelled(photos / "new", [12])
    model.add(paths[:2], "heron")
    model.add(paths[:3], "heron")
    first, second = model.history()[1:]
    assert (len(first["sha256"]), len(second["sha256"])) == (2, 1)
    assert (second["classes"], second["again"]) == ({"heron": 1}, 2)
    assert model.add([paths[0], paths[0], paths[3], paths[3]], ["heron"] * 4).again == 3


def test_a_model_made_anew_meanwhile_is_not_mixed_with_the_old_one(model, photos, monkeypatch):
    import shutil

    from model import photos as module

    monkeypatch.setattr(module, "other", lambda: module.nn.Sequential(module.colours()), False)
    module.nn.Sequential.transform = module.Colours.transform
    try:
        shutil.rmtree(model.path)
        other = ENCODER.replace("colours", "other")
        cala.fit(photos / "known", model.path, encoder=other, fakes="feature")
        with pytest.raises(InputError) as caught:
            model.add(*labelled(photos / "new", [12]))
        assert caught.value.code == "encoder_changed"
        assert model.reload().encoder.name == other
    finally:
        del module.nn.Sequential.transform


def test_clearing_thumbnails_never_fails_a_change(model, photos):
    model.add(*labelled(photos / "new", [12]), keep_thumbnails=True)
    model.add(*labelled(photos / "new", [13]), keep_thumbnails=True)
    (model.path / "history" / "000001.json").unlink()
    model.forget("class 12")
    assert "class 12" not in cala.load(model.path).classes


def test_parts_that_do_not_fit_are_refused(model):
    path = model.path / "model.json"
    good = read_document(path)
    card = good["meta"]["encoder"]
    edits = [
        ("reject", "zzz"),
        ("encoder", {**card, "dim": "zzz"}),
        ("encoder", {**card, "dim": float(card["dim"])}),
        ("encoder", {name: value for name, value in card.items() if name != "tta"}),
        ("encoder", {**card, "tta": ["flip"]}),
        ("encoder", {**card, "shot_views": -1}),
        ("encoder", {**card, "shot_views": 10**9}),
        ("encoder", {**card, "shot_views": True}),
        ("classes", "zzz"),
        ("notes", 5),
        ("notes", [5, {}]),
        ("note_codes", [{}]),
        ("former_names", {"a": ["b"]}),
    ]
    good["meta"].update(notes=["a"], note_codes=["b"])
    deeper = [
        ("classifier", "config", "zzz"),
        ("classifier", "meta", {}),
    ]
    for name, value in edits:
        document = json.loads(json.dumps(good))
        document["meta"][name] = value
        write_document(path, document)
        with pytest.raises(InputError) as caught:
            cala.load(model.path)
        assert caught.value.code == "damaged_file"
    for name, inner, value in deeper:
        document = json.loads(json.dumps(good))
        document["meta"][name][inner] = value
        write_document(path, document)
        with pytest.raises(InputError) as caught:
            cala.load(model.path)
        assert caught.value.code == "damaged_file"
    document = json.loads(json.dumps(good))
    document["meta"]["classifier"]["meta"]["head"]["meta"]["gamma"] = "zzz"
    write_document(path, document)
    with pytest.raises(InputError) as caught:
        cala.load(model.path)
    assert caught.value.code == "damaged_file"


@pytest.mark.parametrize(
    ("part", "value"),
    [("sums", np.nan), ("sums", np.inf), ("counts", 0), ("counts", -3), ("beta", np.nan),
     ("delta", np.nan), ("rows", np.inf)],
)  # fmt: skip
def test_numbers_that_no_model_has_are_refused(model, part, value):
    """Each file is whole by its checksum; the answers would be wrong without a word."""

    def edited(content):
        hits = 0
        for group in content.groups.values():
            for name, array in group.items():
                if name.rpartition(".")[2] == part and array.size:
                    group[name] = array.copy()
                    group[name].flat[0] = value
                    hits += 1
        assert hits
        return content, JournalEntry("tune")

    model.store.change(edited)
    with pytest.raises(InputError) as refused:
        cala.load(model.path)
    assert refused.value.code == "damaged_file"
    model.store.undo()
    assert cala.load(model.path).classes == model.classes


def test_an_input_that_says_nothing_is_part_of_a_model(model):
    """An adapter ignores an input that is the same for all classes: its spread is infinite."""

    def edited(content):
        content.groups["base"]["head.adapter.spread"] = np.array([1.0, np.inf])
        return content, JournalEntry("tune")

    model.store.change(edited)
    assert cala.load(model.path).classes == model.classes


def test_a_version_without_its_photos_can_be_undone(model, photos):
    model.add(photos / "new" / "class 12", "new", keep_thumbnails=True)
    path = model.path / "model.json"
    for blobs in ({}, {"photos": read_document(path)["blobs"]["base"]}):
        document = read_document(path)
        own = {name: blob for name, blob in document["blobs"].items() if name != "photos"}
        write_document(path, {**document, "blobs": {**own, **blobs}})
        with pytest.raises(InputError):
            cala.load(model.path)
        model.undo()
        assert "new" not in cala.load(model.path).classes
        assert len(list((model.path / "thumbnails").iterdir())) == 5  # a version may need them
        model.add(photos / "new" / "class 12", "new")


@pytest.mark.parametrize("uri", ["views:1:" * 3000 + "x", "views:1:size:32:" * 2000 + "x"])
def test_an_encoder_that_is_wrapped_without_end(model, uri):
    path = model.path / "model.json"
    document = read_document(path)
    document["meta"]["encoder"]["uri"] = uri
    write_document(path, document)
    with pytest.raises(InputError) as refused:
        cala.load(model.path).predict(photo(1, 1))
    assert refused.value.code == "no_encoder"
    with pytest.raises(InputError) as refused:
        cala.load_encoder(uri)
    assert refused.value.field == "encoder"


@pytest.mark.parametrize("path", ["x" * 5000, "a\0b"])
def test_places_where_no_model_can_lie(photos, path):
    for call in (cala.load, lambda p: cala.fit(photos / "known", p, encoder=ENCODER)):
        with pytest.raises(InputError):
            call(path)


def test_what_needs_no_photo_loads_no_engine(fitted, tmp_path):
    shutil.copytree(fitted.path, tmp_path / "birds")
    code = """
import sys
from cala.model import load
from cala.model.overview import overview
model = load(sys.argv[1])
model.rename("class 0", "first").forget("class 1").tune(objective="harmonic").undo().redo()
overview(model)
print("torch" in sys.modules)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "birds")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


def test_an_encoder_card_names_the_views_that_encoders_know():
    from cala.encoders import embed
    from cala.model import version

    assert version.TTA == embed.TTA_MODES
