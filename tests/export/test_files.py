"""What lies on disk after an export, and what is refused."""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import pytest
import torch

from cala import __version__
from cala.encoders import load_encoder
from cala.encoders.base import Encoder
from cala.encoders.torch_module import OPSET, by_tracing, by_translating, to_onnx
from cala.errors import InputError
from cala.export import export_onnx
from cala.extras import install
from encoders.tiny_models import MODELS, write_onnx
from export.small import (
    SIDE,
    logits_of,
    make_model,
    many,
    need_onnx,
    photos,
    prepared,
    tiny_encoder,
)
from export.test_same_answers import same_logits, session_of

need_onnx()
import onnx  # noqa: E402

from refusals import refused  # noqa: E402


@pytest.fixture
def model(tmp_path):
    return make_model(tmp_path / "birds", method="la")


def test_growing_the_file_and_the_model_on_disk(model, tmp_path):
    """`Model.add` itself, with a forgotten and a renamed class before and after."""
    model.add(photos(12, 5), "twelve")
    model.forget("class 3").rename("class 4", "four")
    session = session_of(model, tmp_path)
    table = dict(np.load(tmp_path / "model.npz"))
    assert table["classes"].tolist() == model.classes
    for label, k in ((13, 1), (14, 5)):
        shots = photos(label, k)
        row, bias = session.run(["new_weight", "new_bias"], {"images": prepared(model, shots)})
        table["weights"] = np.vstack([table["weights"], row])
        table["bias"] = np.append(table["bias"], bias)
        model.add(shots, str(label))
    feed = {"weights": table["weights"], "bias": table["bias"]}
    same_logits(session, model, many(80), **feed)
    model.forget("twelve")
    place = table["classes"].tolist().index("twelve")
    same_logits(session, model, many(80), **{k: np.delete(v, place, 0) for k, v in feed.items()})


def test_the_mirrored_pass_is_inside(tmp_path):
    model = make_model(tmp_path / "m", tta="flip")
    session = session_of(model, tmp_path)
    for n in (1, 7, 64):
        same_logits(session, model, many(n))
    shots = photos(12, 5)
    row, bias = session.run(["new_weight", "new_bias"], {"images": prepared(model, shots)})
    model.add(shots, "twelve")
    weights, all_bias = model.current.classifier.head_.linear_form()
    np.testing.assert_allclose(row, weights[-1:], atol=1e-4)
    np.testing.assert_allclose(bias, all_bias[-1:], atol=1e-4)


def test_after_tuning(model, tmp_path):
    model.add(photos(12, 5), "twelve")
    model.tune(objective="harmonic")
    same_logits(session_of(model, tmp_path), model, many(40))


def test_the_file_describes_itself(model, tmp_path):
    done = export_onnx(model, tmp_path / "birds.onnx")
    proto = onnx.load(done.path)
    onnx.checker.check_model(proto, full_check=True)
    meta = {entry.key: entry.value for entry in proto.metadata_props}
    facts = json.loads(meta["cala"])
    assert facts["classes"] == model.classes
    assert facts["n_known"] == 12
    assert (facts["cala"], facts["model_version"], facts["method"]) == (__version__, 1, "la")
    assert facts["encoder"] == {
        "uri": "tiny", "fingerprint": model.encoder.fingerprint, "dim": 9,
    }  # fmt: skip
    assert facts["opset"] == done.opset == OPSET == proto.opset_import[0].version
    transform = model.encoder.transform.as_dict()
    assert {key: facts["preprocessing"][key] for key in ("size", "resize", "fit", "filter")} == {
        key: transform[key] for key in ("size", "resize", "fit", "filter")
    }
    dims = [d.dim_param or d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    assert dims == ["n", SIDE, SIDE, 3]
    assert [i.name for i in proto.graph.input] == ["images", "weights", "bias"]
    assert sorted(os.listdir(tmp_path)) == ["birds", "birds.npz", "birds.onnx"]


@pytest.mark.parametrize("door", ["timm", "hf", "torch", "onnx"])
def test_every_door(door, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    encoder = load_encoder(f"{door}:{MODELS[door](tmp_path, 0)}")
    model = make_model(tmp_path / "m", encoder, "cala")
    (tmp_path / "out").mkdir()
    same_logits(session_of(model, tmp_path / "out"), model, many(30))


def test_a_model_never_replaces_its_own_encoder(tmp_path):
    path = write_onnx(tmp_path / "net.onnx")
    model = make_model(tmp_path / "m", load_encoder(f"onnx:{path}"), "la")
    before = path.read_bytes()
    with pytest.raises(InputError) as caught:
        export_onnx(model, path, force=True)
    assert caught.value.field == "path"
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "changes", [{"last": True}, {"pool": False}, {"dtype": 10}, {"meta": {"size": "16"}}]
)
def test_onnx_encoders_of_any_layout(changes, tmp_path):
    encoder = load_encoder(f"onnx:{write_onnx(tmp_path / 'net.onnx', **changes)}")
    model = make_model(tmp_path / "m", encoder, "la")
    session = session_of(model, tmp_path)
    (found,) = session.run(["logits"], {"images": prepared(model, many(30))})
    limit = 0.05 if "dtype" in changes else 1e-4
    assert np.abs(found - logits_of(model, many(30))).max() < limit


def test_onnx_encoders_with_a_fixed_batch_are_refused(tmp_path):
    encoder = load_encoder(f"onnx:{write_onnx(tmp_path / 'net.onnx', batch=4)}")
    model = make_model(tmp_path / "m", encoder, "la")
    with refused("net.onnx", "batches of 4", field="encoder"):
        export_onnx(model, tmp_path / "x.onnx")
    assert not (tmp_path / "x.onnx").exists()


def test_a_function_has_no_graph(tmp_path):
    tiny = tiny_encoder()
    plain = Encoder("plain", 9, tiny.transform, lambda x: tiny.forward(x), "0" * 64)
    model = make_model(tmp_path / "m", plain, "la")
    with refused("plain", field="encoder"):
        export_onnx(model, tmp_path / "x.onnx")


def test_a_graph_that_says_something_else_is_not_written(model, tmp_path, monkeypatch):
    def wrong(self, features, weights, bias):
        unit = self.metric(features)
        return 1.01 * (unit @ weights.T) + bias, unit, *self.new_class(unit)

    monkeypatch.setattr("cala.export.modules.Tail.forward", wrong)
    with pytest.raises(InputError) as caught:
        export_onnx(model, tmp_path / "x.onnx")
    assert caught.value.code == "disagree"
    assert not (tmp_path / "x.onnx").exists()


def test_a_head_that_is_not_linear_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    model = make_model(tmp_path / "model", method="gkeal+la", metric="cosine")
    with refused("gkeal", code="not_linear"):
        export_onnx(model, tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_files_are_replaced_only_when_told(model, tmp_path):
    target = tmp_path / "birds.onnx"
    (tmp_path / "birds.npz").write_text("mine")
    with refused("birds.npz", field="path", code="exists"):
        export_onnx(model, target)
    assert not target.exists()
    export_onnx(model, target, force=True)
    before = target.read_bytes()
    with refused("birds.onnx", field="path", code="exists"):
        export_onnx(model, target)
    model.add(photos(12, 2), "twelve")
    export_onnx(model, target, force=True)
    assert target.read_bytes() != before
    assert len(np.load(tmp_path / "birds.npz")["bias"]) == 13


def test_targets_that_cannot_be(model, tmp_path, monkeypatch):
    with refused("birds.bin", field="path"):
        export_onnx(model, tmp_path / "birds.bin")
    with refused(tmp_path / "nowhere", field="path", code="no_folder"):
        export_onnx(model, tmp_path / "nowhere" / "birds.onnx")
    (tmp_path / "folder.onnx").mkdir()
    with refused("folder.onnx", field="path", code="is_folder"):
        export_onnx(model, tmp_path / "folder.onnx", force=True)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cala.files.os.replace", full)
    with refused("birds.onnx", "No space left", field="path", code="not_written"):
        export_onnx(model, tmp_path / "birds.onnx")
    assert not [name for name in os.listdir(tmp_path) if "birds." in name]


def test_a_missing_extra_is_named(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with refused("onnx", code="missing_extra") as caught:
        export_onnx(model, tmp_path / "birds.onnx")
    assert caught.value.fix == install("export")


def test_the_shipped_encoder(tmp_path):
    """Eight images through the real network."""
    model = make_model(tmp_path / "m", load_encoder("efficientnet-lite0"), "cala-plus", classes=3)
    session = session_of(model, tmp_path)
    same_logits(session, model, photos(1, 8, seed=9, side=300))


@pytest.mark.long
def test_both_exporters_of_torch(tmp_path, monkeypatch):
    pytest.importorskip("onnxscript")
    monkeypatch.setattr("cala.encoders.torch_module.EXPORTERS", (by_translating,))
    model = make_model(tmp_path / "m", tta="flip")
    session = session_of(model, tmp_path)
    for n in (1, 7, 30):
        same_logits(session, model, many(n))


def test_a_module_that_no_exporter_takes_is_named(monkeypatch):
    monkeypatch.setattr("cala.encoders.torch_module.EXPORTERS", (by_tracing,))

    class Odd(torch.nn.Module):
        def forward(self, x):
            raise RuntimeError("not today")

    with refused("odd", "not today", code="no_onnx_form"):
        to_onnx(Odd(), (torch.zeros(2, 3),), ["x"], ["y"], what="odd")
