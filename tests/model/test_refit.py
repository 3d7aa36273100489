"""Learning again from all kept embeddings: like a fit of all photos, undone, safe when killed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import cala
from cala.model.version import ModelVersion
from cala.store import JournalEntry
from cli.inside import inside  # noqa: F401
from model.photos import ENCODER, write_photos
from model.test_crash import crash_everywhere
from refusals import refused


@pytest.fixture
def grown(tmp_path):
    known = write_photos(tmp_path / "known", range(3), range(5))
    model = cala.fit(known, tmp_path / "model", encoder=ENCODER, fakes="feature")
    assert not model.current.refit_pays()
    model.add(write_photos(tmp_path / "zero", range(3, 4), range(5)), "a later class")
    model.rename("class 1", "first")
    model.tune(reject=0.1)
    model.reject(write_photos(tmp_path / "other", range(8, 9), range(4)))
    assert not model.current.refit_pays()
    model.add(write_photos(tmp_path / "more", range(4, 6), range(5)), ["x"] * 5 + ["y"] * 5)
    assert model.current.refit_pays()
    return model


def test_it_is_a_fit_of_all_photos(grown, tmp_path):
    before = grown.version
    grown.refit()
    assert grown.version == before + 1
    assert grown.n_known == len(grown.classes) == 6
    assert sorted(grown.classes) == ["a later class", "class 0", "class 2", "first", "x", "y"]
    assert len(grown.current.photos) == grown.current.fitted == 30
    assert not grown.current.refit_pays()
    named = {"a later class": range(3, 4), "class 0": range(1), "class 2": range(2, 3)}
    named |= {"first": range(1, 2), "x": range(4, 5), "y": range(5, 6)}
    for name, label in named.items():
        source = write_photos(tmp_path / "made", label, range(5)) / f"class {label[0]}"
        source.rename(tmp_path / "made" / f"new {name}")
    for name in named:
        (tmp_path / "made" / f"new {name}").rename(tmp_path / "made" / name)
    whole = cala.fit(tmp_path / "made", tmp_path / "whole", encoder=ENCODER, fakes="feature")
    rows = np.random.default_rng(0).normal(size=(40, 12)) ** 2
    one, other = (m.current.classifier for m in (grown, whole))
    np.testing.assert_array_equal(one.predict(rows), other.predict(rows))
    np.testing.assert_allclose(one.predict_proba(rows), other.predict_proba(rows), atol=1e-5)


def test_what_it_keeps(grown, tmp_path):
    grown.refit()
    again = cala.load(grown.path, trust_encoder=ENCODER)
    assert again.current.reject == 0.1
    assert again.current.former == {"class 1": "first"}
    assert len(again.current.classifier.rejection_.rejected) == 4
    assert again.history()[-1]["action"] == "refit"
    assert again.add(tmp_path / "known" / "class 0", "class 0").again == 5
    assert again.estimate().share().photos == 30


def test_it_can_be_undone(grown):
    rows = np.random.default_rng(0).normal(size=(40, 12)) ** 2
    before = grown.current.classifier.predict_proba(rows)
    classes = grown.classes
    grown.refit().undo()
    assert grown.classes == classes
    np.testing.assert_array_equal(grown.current.classifier.predict_proba(rows), before)
    assert grown.redo().n_known == 6


def test_photos_that_are_not_kept_cannot_be_learned_again(grown):
    def fewer(content):
        version = ModelVersion.from_content(content)
        kept = version.kept.at(range(1, len(version.kept)))
        return replace(version, kept=kept).to_content(), JournalEntry("tune", {"reject": 0.1})

    grown.store.change(fewer)
    grown.reload()
    version = grown.version
    assert not grown.current.refit_pays()
    with refused(code="not_kept"):
        grown.refit()
    assert grown.version == version


def test_the_command_says_what_it_did(grown, inside, tmp_path):  # noqa: F811
    write_photos(tmp_path / "even more", range(6, 7), range(5))
    trust = ("--trust-encoder", ENCODER)
    code, said, _ = inside("add", grown.path, tmp_path / "even more", *trust)
    assert (code, "cala refit" in said) == (0, True)
    code, said, _ = inside("refit", grown.path, "--json", *trust)
    found = json.loads(said)
    assert code == 0
    assert len(found["classes"]) == 7
    assert found["before"]["photos"] == found["estimate"]["judged"] == 35
    code, said, _ = inside("undo", grown.path)
    assert (code, "refit 7 classes" in said) == (0, True)


@pytest.mark.system
def test_killed_at_any_step_leaves_the_version_before_or_after(grown, tmp_path):
    version, before = grown.version, grown.classes
    lines = crash_everywhere(tmp_path, "refit", grown.path, "--quiet", "--trust-encoder", ENCODER)
    states = {(version, tuple(before)), (version + 1, tuple(sorted(before)))}
    assert {(line["version"], tuple(line["classes"])) for line in lines} == states
    assert all(line["after"] == [] for line in lines)
