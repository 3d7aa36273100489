"""What commands say about how good a model is, and which photos went wrong."""

from __future__ import annotations

import csv
import json

import pytest

from model.photos import ENCODER, write_photos


@pytest.fixture
def birds(tmp_path, inside, monkeypatch):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    write_photos(tmp_path / "known", range(6), range(5))
    write_photos(tmp_path / "new", range(6, 8), range(5))
    write_photos(tmp_path / "test", range(9), range(100, 103))
    options = ("--encoder", ENCODER, "--fakes", "feature", "--json")
    code, said, _ = inside("fit", tmp_path / "known", "-o", tmp_path / "birds", *options)
    assert code == 0
    found = json.loads(said)["estimate"]
    assert (found["judged"], found["all"]["photos"], found["all"]["enough"]) == (30, 30, True)
    return tmp_path / "birds"


def test_few_photos_are_said_to_be_few(tmp_path, inside, monkeypatch):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    write_photos(tmp_path / "known", range(2), range(5))
    code, said, _ = inside("fit", tmp_path / "known", "-o", tmp_path / "m", "--encoder", ENCODER)
    assert (code, "too few photos to tell" in said) == (0, True)
    assert "100" not in said.partition("photos to tell")[0]
    assert json.loads(inside("show", tmp_path / "m", "--curve", "--json")[1])["curve"] == []
    assert "%" not in inside("show", tmp_path / "m", "--curve")[1]
    code, said, _ = inside("tune", tmp_path / "m", "--delta", 1)
    assert (code, "%" in said) == (0, False)


def test_add_show_and_tune_tell(birds, tmp_path, inside):
    stray = tmp_path / "new" / "class 6" / "stray.png"
    stray.write_bytes((tmp_path / "test" / "class 2" / "0100.png").read_bytes())
    code, said, _ = inside("add", birds, tmp_path / "new")
    assert (code, "class 6/stray.png" in said) == (0, True)
    _, said, _ = inside("show", birds, "--photos")
    assert said.count(".png") == 41
    found = json.loads(inside("show", birds, "--photos", "--json")[1])["photos"]
    assert [p["name"] for p in found if p["doubt"]][-1] == "class 6/stray.png"
    _, said, _ = inside("show", birds)
    assert "β" not in said
    assert "β" in inside("show", birds, "--details")[1]
    found = json.loads(inside("tune", birds, "--delta", 1, "--json")[1])
    assert set(found["moved"]) == {"known", "new", "photos"}
    assert "moved" not in json.loads(inside("tune", birds, "--reject", 0.1, "--json")[1])


def test_how_many_photos_more(birds, tmp_path, inside):
    found = json.loads(inside("show", birds, "--curve", "--json")[1])["curve"]
    assert [one["photos"] for one in found] == [1, 2, 3, 4]
    assert 0.3 < found[0]["right"] < found[-1]["right"] <= 1
    code, said, _ = inside("show", birds, "--curve")
    assert (code, said.count(" %")) == (0, 4)


def test_eval_names_wrong_photos(birds, tmp_path, inside):
    table = tmp_path / "answers.csv"
    code, said, _ = inside("eval", birds, tmp_path / "test", "--csv", table, "--mistakes", 2)
    assert code == 0
    rows = list(csv.DictReader(table.open()))
    assert len(rows) == 27
    wrong = [row for row in rows if row["right"] == "False"]
    assert sum(row["image"] in said for row in wrong) == min(2, len(wrong))
    found = json.loads(inside("eval", birds, tmp_path / "test", "--json")[1])["results"]
    assert [one["image"] for one in found] == [row["image"] for row in rows]
    assert sum(one["right"] for one in found) == len(rows) - len(wrong)
    assert "AUROC" in inside("eval", birds, tmp_path / "test", "--details")[1]


def test_rates_of_few_photos_are_counts(birds, tmp_path, inside):
    _, said, _ = inside("eval", birds, tmp_path / "test")
    assert "of 18 photos right" in said
    assert said.count("%") == 1  # the rate that is allowed
    write_photos(tmp_path / "more", range(6), range(200, 204))
    _, said, _ = inside("eval", birds, tmp_path / "more")
    assert "of 24 photos right, " in said


def test_why_in_words_and_in_numbers(birds, tmp_path, inside):
    photo = tmp_path / "test" / "class 1" / "0100.png"
    _, said, _ = inside("predict", birds, photo, "--why")
    assert "looks most like class 1" in said
    assert not any(word in said for word in ("β", "cosine", "logit"))
    _, said, _ = inside("predict", birds, photo, "--details")
    assert all(word in said for word in ("β", "cosine", "logit"))
