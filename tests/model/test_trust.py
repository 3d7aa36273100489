"""A model folder may come from anyone: it runs no code that the user has not allowed by name."""

from __future__ import annotations

import shutil
import sys

import pytest
from PIL import Image

import cala
from cala.errors import InputError
from cala.store.files import read_document, write_document
from cli.inside import refusal, within
from model.photos import ENCODER, photo, write_photos
from refusals import assert_names

EVIL = """
from pathlib import Path

Path(__file__).with_name("ran").touch()


def make():
    from model.photos import colours

    return colours()
"""


@pytest.fixture
def given(model, tmp_path, monkeypatch):
    """A model of someone else's: its encoder lies in its own folder, importable from here."""
    monkeypatch.setenv("CALA_CONFIG", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    for name in ("birds", "birds.evil"):  # of another test
        sys.modules.pop(name, None)
    (model.path / "evil.py").write_text(EVIL)
    return model.path


def name_encoder(folder, uri: str) -> None:
    path = folder / "model.json"
    document = read_document(path)
    document["meta"]["encoder"]["uri"] = uri
    write_document(path, document)


@pytest.mark.parametrize("uri", ["torch:birds.evil:make", "views:1:torch:birds.evil:make"])
def test_code_that_a_model_names_does_not_run(given, uri):
    name_encoder(given, uri)
    for trusted in (None, ENCODER, "torch"):
        with pytest.raises(InputError) as refused:
            cala.load(given, trust_encoder=trusted).predict(photo(1, 1))
        assert (refused.value.code, refused.value.field) == ("untrusted_encoder", "trust_encoder")
        assert uri in str(refused.value)
    assert not (given / "ran").exists()
    assert len(cala.load(given).rename("class 1", "one").classes) == 12  # needs no encoder


def test_files_that_a_graph_names_are_not_opened_unasked(given):
    name_encoder(given, "onnx-external:graph.onnx")
    with pytest.raises(InputError) as refused:
        cala.load(given).predict(photo(1, 1))
    assert refused.value.code == "untrusted_encoder"
    with pytest.raises(InputError) as refused:
        cala.load(given, trust_encoder="onnx-external:graph.onnx").predict(photo(1, 1))
    assert refused.value.code == "no_encoder"  # there is none


EVERY_COMMAND = [
    ("predict", "birds", "photo.png"),
    ("sort", "birds", "photo.png", "-o", "sorted"),
    ("eval", "birds", "photos"),
    ("add", "birds", "photos"),
    ("reject", "birds", "photo.png"),
    ("refit", "birds"),
    ("export", "birds", "--onnx", "birds.onnx"),
    ("serve", "birds", "--port", "0"),
]


@pytest.mark.parametrize("words", EVERY_COMMAND, ids=lambda words: words[0])
def test_no_command_runs_code_unasked(given, words):
    Image.fromarray(photo(40, 1)).save("photo.png")
    write_photos(given.parent / "photos", range(2), range(90, 92))
    name_encoder(given, "torch:birds.evil:make")
    assert refusal(*words).code == "untrusted_encoder"
    assert not (given / "ran").exists()
    assert_names(refusal(*words, "--trust-encoder", "torch:birds.evil:make"), code="other_encoder")
    assert (given / "ran").exists()


def test_commands_that_need_no_encoder_run_no_code(given):
    name_encoder(given, "torch:birds.evil:make")
    for words in (
        ("show", "birds"), ("rename", "birds", "class 1", "one"), ("undo", "birds"),
        ("redo", "birds"), ("tune", "birds", "--reject", "0.1"), ("forget", "birds", "class 2"),
        ("merge", "birds", "class 3", "class 4"),
    ):  # fmt: skip
        assert within(*words).returncode == 0
    assert not (given / "ran").exists()


def test_what_is_allowed_is_remembered_once_it_fits(given, tmp_path):
    name_encoder(given, "torch:birds.evil:make")
    with pytest.raises(InputError) as refused:  # the code runs, but it is not the model's encoder
        cala.load(given, trust_encoder="torch:birds.evil:make").predict(photo(1, 1))
    assert refused.value.code == "other_encoder"
    with pytest.raises(InputError) as refused:
        cala.load(given).predict(photo(1, 1))
    assert refused.value.code == "untrusted_encoder"
    name_encoder(given, ENCODER)
    with pytest.raises(InputError):
        cala.load(given).predict(photo(1, 1))
    assert cala.load(given, trust_encoder=ENCODER).predict(photo(1, 1), unknown="off")
    assert cala.load(given).predict(photo(1, 1), unknown="off")
    shutil.copytree(given, tmp_path / "copy")
    assert cala.load(tmp_path / "copy").predict(photo(1, 1), unknown="off")


def test_an_encoder_that_the_user_names_needs_no_other_word(given):
    assert cala.load(given, encoder=ENCODER).predict(photo(1, 1), unknown="off")
    assert cala.load(given).predict(photo(1, 1), unknown="off")


def test_a_model_of_ones_own_needs_no_word(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("CALA_CONFIG", str(tmp_path / "config"))
    cala.fit(photos / "known", tmp_path / "own", encoder=ENCODER, fakes="feature")
    assert cala.load(tmp_path / "own").predict(photo(1, 1), unknown="off")
