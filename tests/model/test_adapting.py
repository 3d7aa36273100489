"""`fit --adapt`: an encoder of its own where that helps, and a refusal where photos are few."""

from __future__ import annotations

from pathlib import Path

import pytest

import cala
from cala.encoders.efficientnet_lite0 import TRANSFORM
from cala.encoders.transform import Transform
from cala.errors import InputError
from cala.model import adapting
from cala.training.recipes import RECIPES
from model.photos import ENCODER, write_photos


def test_too_few_photos_are_refused_before_anything_is_written(tmp_path):
    known = write_photos(tmp_path / "known", range(5), range(4))
    with pytest.raises(InputError) as caught:
        cala.fit(known, tmp_path / "birds", adapt=1)
    assert (caught.value.field, caught.value.code) == ("adapt", "too_few")
    assert not list(tmp_path.glob("birds*"))
    with pytest.raises(InputError) as caught:
        cala.fit(known, tmp_path / "birds", encoder=ENCODER, adapt=1)
    assert caught.value.field == "adapt"


@pytest.mark.parametrize("gains", [True, False])
def test_the_encoder_is_used_if_held_out_photos_gain(tmp_path, monkeypatch, gains):
    known = write_photos(tmp_path / "known", range(5), range(10))
    small = Transform(32, 36, TRANSFORM.mean, TRANSFORM.std, filter=TRANSFORM.filter)
    recipe = RECIPES["adapt-photos"].changed(transform=small, store=36, sizes=())
    monkeypatch.setattr("cala.training.recipes.RECIPES", {"adapt-photos": recipe})
    rates = iter([0.5, 0.75 if gains else 0.5])
    monkeypatch.setattr(adapting, "_accuracy", lambda *given: next(rates))
    options = {"fakes": "feature", "method": "nearest-mean", "device": "auto"}
    model = cala.fit(known, tmp_path / "birds", adapt=0.02, **options)
    uri = Path(model.current.encoder.uri)
    assert (tmp_path / "birds-encoder" / "encoder.safetensors").is_file()
    assert (uri.parent.name == "birds-encoder") == gains
    assert any("50.0 %" in note.text and "10 held-out" in note.text for note in model.current.notes)
    assert len(cala.load(model.path).predict([known / "class 0" / "0000.png"])) == 1
