"""What version 0.1 has written is read, and answers as it did there.

`data_0_1` was made by 0.1.0 from generated numbers: `model` by `cala.fit` on photos of
`model.photos` (5 classes of 4, `fakes=100`), `add` of two classes and `tune`; the classifiers by
`fit` of 5 classes and `partial_fit` of two, in 4 dimensions, and stored as `classifier_state`
gives them. Beside them stand the answers of 0.1.0.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import cala
from cala import storage
from cala.estimator.growing import GrowingClassifier
from cala.estimator.state import classifier_state, restore_classifier
from cala.model.prediction import predict
from model.photos import ENCODER, write_photos

FOLDER = Path(__file__).with_name("data_0_1")
CLASSIFIERS = json.loads((FOLDER / "classifiers.json").read_text())
EXPECTED = json.loads((FOLDER / "model.expected.json").read_text())


def restored(name: str) -> GrowingClassifier:
    kept = CLASSIFIERS[name]
    arrays = load_file(FOLDER / f"{name}.safetensors")
    return restore_classifier({"config": kept["config"], "meta": kept["meta"], "tensors": arrays})


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_answers_as_before(name):
    kept, model = CLASSIFIERS[name], restored(name)
    queries = np.array(kept["queries"], dtype=name.rpartition(".")[2])
    close = {"rtol": 1e-5, "atol": 1e-4 if queries.dtype == np.float32 else 1e-9}
    np.testing.assert_allclose(model.decision_function(queries), kept["logits"], **close)
    assert not model.rejection_.is_on  # it judged by other rules
    assert (model.familiarity(queries) == 1).all()
    np.testing.assert_allclose(model.beta_, kept["beta"], rtol=1e-5, atol=1e-6)
    assert model.predict(queries).tolist() == kept["labels"]
    assert model.delta_ == kept["delta"]
    if "later" in kept:
        later = kept["later"]
        label = "later" if queries.dtype == np.float32 else 7
        model.partial_fit(np.array(later["shots"], dtype=queries.dtype), [label] * 3)
        np.testing.assert_allclose(model.decision_function(queries), later["logits"], **close)
        np.testing.assert_allclose(model.beta_, later["beta"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_is_stored_under_the_same_names(name):
    arrays = load_file(FOLDER / f"{name}.safetensors")
    state = classifier_state(restored(name))
    # What max_base_loss is kept by.
    later = {f"head.kept.{name}" for name in ("rows", "best", "own", "queries")}
    kept = {key: array for key, array in arrays.items() if not key.startswith("rejection.")}
    now = {key for key in state["tensors"] if not key.startswith("rejection.")}
    assert now - later == set(kept)
    for key, array in kept.items():
        np.testing.assert_allclose(state["tensors"][key].reshape(array.shape), array, rtol=1e-6)


@pytest.fixture
def old(tmp_path):
    """A copy of the model's folder."""
    shutil.copytree(FOLDER / "model", tmp_path / "birds")
    return tmp_path / "birds"


def check_answers(model: cala.Model, expected: list[dict]) -> None:
    features = np.array(EXPECTED["features"], dtype=np.float32)
    names = tuple(str(row) for row in range(len(features)))
    found = predict(model.current, features, names, top=3, unknown="report", why=True)
    for answer, before in zip(found, expected, strict=True):
        now = answer.to_json()
        for key in ("best", "kind"):
            assert now[key] == before[key]
        assert (now["label"], now["unknown"]) == (now["best"], False)
        assert now["familiarity"] is None
        assert now["probability"] == pytest.approx(before["probability"], abs=1e-5)
        assert now["why"]["without_adapter"] == before["why"]["without_adapter"]
        for near, then in zip(now["why"]["closest"], before["why"]["closest"], strict=True):
            assert (near["label"], near["kind"]) == (then["label"], then["kind"])
            for key in ("cosine", "logit", "shift"):
                assert near[key] == pytest.approx(then[key], rel=1e-4, abs=1e-4)


def test_a_model_answers_as_before(old):
    model = cala.load(old, trust_encoder=ENCODER)
    assert model.classes == EXPECTED["classes"]
    check_answers(model, EXPECTED["answers"])
    model.undo()
    assert model.classes == EXPECTED["before"]["classes"]
    check_answers(model, EXPECTED["before"]["answers"])


def test_a_model_goes_on(old, tmp_path):
    model = cala.load(old, trust_encoder=ENCODER)
    model.rename("class 5", "fifth")
    blobs = json.loads((old / "model.json").read_text())["blobs"]
    storage.read(old / "blobs" / f"{blobs['photos']}.safetensors", "model")  # as 0.1 had none
    model.add(write_photos(tmp_path / "more", range(9, 10), range(3)), "ninth")
    assert cala.load(old, trust_encoder=ENCODER).classes == [
        *EXPECTED["classes"][:5],
        "fifth",
        "class 6",
        "ninth",
    ]
    model.undo()
    model.undo()
    check_answers(cala.load(old, trust_encoder=ENCODER), EXPECTED["answers"])
