"""What each loader does beyond the contract."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cala.encoders import Transform, load_encoder
from cala.encoders.hub_loaders import Pooled, read_hf_processor, read_timm_config
from cala.encoders.onnx_loader import external_files, read_metadata
from cala.encoders.transform import IMAGENET_MEAN, IMAGENET_STD
from cala.errors import InputError, UnknownNameError
from encoders.tiny_models import (
    external_model,
    need,
    onnx_model,
    timm_model,
    torch_model,
    write_onnx,
)
from refusals import refused

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)


# --- timm
TIMM = {"input_size": (3, 224, 224), "mean": MEAN, "std": STD, "crop_pct": 0.9}


def test_timm_config():
    found = read_timm_config({**TIMM, "interpolation": "bicubic", "crop_mode": "center"}, "x")
    assert found == Transform(224, 248, MEAN, STD, "crop", "bicubic")
    found = read_timm_config({**TIMM, "crop_pct": 1.0, "crop_mode": "squash"}, "x")
    assert (found.resize, found.fit) == (224, "squeeze")
    assert read_timm_config({**TIMM, "interpolation": "random"}, "x").filter == "bilinear"


@pytest.mark.parametrize("change", [{"input_size": (1, 8, 8)}, {"input_size": (3, 8, 9)}])
def test_timm_other_inputs(change):
    with refused("×".join(map(str, change["input_size"])), code="wrong_input"):
        read_timm_config({**TIMM, **change}, "x")


def test_timm_gives_features_and_its_own_preprocessing(tmp_path):
    uri = "timm:" + timm_model(tmp_path, 0)
    import timm

    encoder = load_encoder(uri)
    model = timm.create_model(uri.removeprefix("timm:"), pretrained=True, num_classes=0).eval()
    x = torch.randn(2, 3, encoder.transform.size, encoder.transform.size)
    with torch.no_grad():
        found = torch.from_numpy(encoder.encode(x.numpy()))
        torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-5)
    config = timm.data.resolve_model_data_config(model)
    assert encoder.transform.mean == tuple(config["mean"])
    assert encoder.transform.size == config["input_size"][1]


def test_timm_errors(monkeypatch):
    need("timm")
    import timm

    with refused("'resnet181'", kind=UnknownNameError, field="encoder") as caught:
        load_encoder("timm:resnet181")
    assert "'timm:resnet18'?" in caught.value.fix

    def offline(*args, **kwargs):
        raise OSError("no route to the hub\nsecond line")

    monkeypatch.setattr(timm, "create_model", offline)
    with refused("timm:resnet18", "(no route to the hub)", code="not_loaded"):
        load_encoder("timm:resnet18")


# --- Hugging Face
def processor(**changes):
    fields = {
        "do_resize": True, "do_normalize": True, "do_rescale": True, "resample": 3,
        "image_mean": list(MEAN), "image_std": list(STD),
        "size": {"height": 224, "width": 224},
    }  # fmt: skip
    return {**fields, **changes}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Transform(224, 224, MEAN, STD, "squeeze", "bicubic")),
        ({"size": 224, "resample": 2}, Transform(224, 224, MEAN, STD, "squeeze", "bilinear")),
        (
            {"size": {"shortest_edge": 256}, "do_center_crop": True,
             "crop_size": {"height": 224, "width": 224}},
            Transform(224, 256, MEAN, STD, "crop", "bicubic"),
        ),
        (
            {"size": {"shortest_edge": 224}, "crop_pct": 0.875},
            Transform(224, 256, MEAN, STD, "crop", "bicubic"),
        ),
        (
            {"do_normalize": False},
            Transform(224, 224, (0.0,) * 3, (1.0,) * 3, "squeeze", "bicubic"),
        ),
    ],
)  # fmt: skip
def test_hf_processor(changes, expected):
    assert read_hf_processor(processor(**changes), "x") == expected


@pytest.mark.parametrize(
    "changes", [{"size": {"height": 8, "width": 9}}, {"do_rescale": False}]
)  # fmt: skip
def test_hf_other_inputs(changes):
    with pytest.raises(InputError):
        read_hf_processor(processor(**changes), "x")


def hf_folder(tmp_path, kind, config, size=32):
    kind(config).save_pretrained(tmp_path)
    fields = {"image_processor_type": "ViTImageProcessor", "size": {"height": size, "width": size}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(fields))
    return f"hf:{tmp_path}"


VIT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
       "intermediate_size": 16, "image_size": 32, "patch_size": 8}  # fmt: skip


def test_hf_pooler(tmp_path):
    need("transformers")
    import transformers as t

    uri = hf_folder(tmp_path, t.ViTModel, t.ViTConfig(**VIT))
    encoder = load_encoder(uri)
    x = torch.randn(2, 3, 32, 32)
    model = t.ViTModel.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        found = torch.from_numpy(encoder.encode(x.numpy()))
        expected = model(pixel_values=x).pooler_output
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert encoder.about["pooling"] == "pooler"


def test_hf_classifier_has_no_pooler(tmp_path):
    need("transformers")
    import transformers as t

    uri = hf_folder(tmp_path, t.ViTForImageClassification, t.ViTConfig(**VIT))
    first, second = load_encoder(uri), load_encoder(uri)
    assert first.fingerprint == second.fingerprint  # no random pooler
    assert first.about["pooling"] == "class token"
    x = torch.randn(2, 3, 32, 32)
    model = t.ViTForImageClassification.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        logits = model.classifier(torch.from_numpy(first.encode(x.numpy())))
        torch.testing.assert_close(logits, model(pixel_values=x).logits, rtol=1e-4, atol=1e-5)


def test_hf_resnet_and_clip(tmp_path):
    need("transformers")
    import transformers as t

    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
    config = t.ResNetConfig(**sizes, layer_type="basic")
    (tmp_path / "resnet").mkdir()
    assert load_encoder(hf_folder(tmp_path / "resnet", t.ResNetModel, config)).dim == 16
    tower = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
             "intermediate_size": 16}  # fmt: skip
    config = t.CLIPConfig(
        vision_config={**tower, "image_size": 32, "patch_size": 8},
        text_config={**tower, "vocab_size": 20, "max_position_embeddings": 8},
    )
    (tmp_path / "clip").mkdir()
    encoder = load_encoder(hf_folder(tmp_path / "clip", t.CLIPModel, config))
    assert encoder.dim == 16
    assert np.isfinite(encoder(np.zeros((1, 9, 9, 3), np.uint8))).all()


class Hidden(torch.nn.Module):
    """A model of transformers without a pooler: it returns what it was given."""

    def __init__(self, **weights):
        super().__init__()
        for name, value in weights.items():
            self.register_parameter(name, torch.nn.Parameter(value))

    def forward(self, pixel_values):
        return SimpleNamespace(last_hidden_state=pixel_values)


def test_hf_files_of_python_do_not_run(tmp_path):
    need("transformers")
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w')\nclass Mine: pass\n"
    (tmp_path / "mine.py").write_text(code)
    auto = dict.fromkeys(("AutoConfig", "AutoModel", "AutoImageProcessor"), "mine.Mine")
    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_text(json.dumps({"model_type": "mine", "auto_map": auto}))
    with refused(code="not_loaded"):
        load_encoder(f"hf:{tmp_path}")
    assert not ran.exists()


def test_hf_without_a_pooler():
    tokens, places = torch.randn(2, 5, 4), torch.randn(2, 4, 3, 3)
    plain, token = Hidden(), Hidden(cls_token=torch.zeros(1))
    for model, values, expected in (
        (plain, tokens, tokens.mean(1)),
        (token, tokens, tokens[:, 0]),
        (plain, places, places.mean((2, 3))),
        (token, places, places.mean((2, 3))),
    ):
        torch.testing.assert_close(Pooled(model, [], "x")(values), expected)


def test_hf_errors(tmp_path, monkeypatch):
    need("transformers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("nobody/nothing", str(tmp_path)):
        with refused(f"hf:{name}", code="not_loaded") as caught:
            load_encoder(f"hf:{name}")
        assert "\n" not in str(caught.value)


# --- ONNX
@pytest.mark.parametrize("batch", ["n", 1, 3, 8])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("pool", [True, False])
def test_onnx_layouts(tmp_path, batch, last, pool):
    images = np.random.default_rng(1).integers(0, 256, (7, 20, 30, 3), dtype=np.uint8)
    plain = load_encoder("onnx:" + onnx_model(tmp_path, 0))(images)
    uri = f"onnx:{write_onnx(tmp_path / 'other.onnx', 0, batch=batch, last=last, pool=pool)}"
    encoder = load_encoder(uri)
    assert encoder.dim == 5
    np.testing.assert_allclose(encoder(images), plain, rtol=1e-4, atol=1e-5)
    assert encoder.encode(np.empty((0, 3, 16, 16), np.float32)).shape == (0, 5)


def test_onnx_half_precision(tmp_path):
    uri = "onnx:" + onnx_model(tmp_path, 0, dtype=10)
    assert load_encoder(uri)(np.zeros((2, 9, 9, 3), np.uint8)).dtype == np.float32


def test_onnx_metadata(tmp_path):
    meta = {"mean": "[0.4, 0.5, 0.6]", "std": "0.2, 0.3, 0.4", "size": "24", "resize": "30"}
    uri = "onnx:" + onnx_model(tmp_path, 0, side=None, meta={**meta, "filter": "bicubic"})
    encoder = load_encoder(uri)
    assert encoder.transform == Transform(24, 30, MEAN, STD, "crop", "bicubic")
    assert encoder.about["preprocessing"] == "from the file"


def test_onnx_defaults():
    found, stated = read_metadata({"producer": "x"}, None, "x")
    assert (found.size, found.resize, found.mean, found.std) == (
        224,
        256,
        IMAGENET_MEAN,
        IMAGENET_STD,
    )
    assert not stated
    assert read_metadata({}, 32, "x")[0].size == 32


@pytest.mark.parametrize(
    "meta",
    [
        {"size": "big"},
        {"mean": "[1, 2]"},
        {"std": "{}"},
        {"size": "20"},
        {"fit": "bend"},
        {"mean": "[" * 100_000},
    ],
)
def test_onnx_bad_metadata(meta):
    with pytest.raises(InputError):
        read_metadata(meta, 32, "x")


def test_onnx_weights_beside_the_file_must_be_asked_for_and_count(tmp_path):
    prints = []
    for seed in (0, 1):
        folder = tmp_path / str(seed)
        folder.mkdir()
        path = external_model(folder, seed, "model.data")
        assert (folder / "model.data").is_file()
        with pytest.raises(InputError) as caught:
            load_encoder(f"onnx:{path}")
        assert caught.value.code == "external_data"
        prints.append(load_encoder(f"onnx-external:{path}").fingerprint)
    assert prints[0] != prints[1]
    same = [(tmp_path / seed / "model.onnx").read_bytes() for seed in "01"]
    assert same[0] == same[1]


def test_onnx_finds_other_files_in_attributes_of_inner_graphs():
    need("onnx")
    from onnx import TensorProto, helper

    hidden = TensorProto(name="w", data_type=1, dims=[1], data_location=TensorProto.EXTERNAL)
    hidden.external_data.add(key="location", value="../secret")
    constant = helper.make_node("Constant", [], ["w"], value=hidden)
    branch = helper.make_graph([constant], "branch", [], [])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    model = helper.make_model(helper.make_graph([node], "outer", [], []))
    assert external_files(model) == ["../secret"]


def test_onnx_files_too_large_are_not_parsed(tmp_path, monkeypatch):
    path = onnx_model(tmp_path, 0)
    monkeypatch.setattr("cala.encoders.onnx_loader._MAX_BYTES", 100)
    with pytest.raises(InputError) as caught:
        load_encoder(f"onnx:{path}")
    assert caught.value.code == "too_large"


def test_onnx_operators_of_others_are_refused(tmp_path):
    """They would need a library that runs its own code; none is ever loaded."""
    path = onnx_model(tmp_path, 0)
    import onnx

    model = onnx.load(path)
    model.graph.node[0].domain = "com.example"
    model.opset_import.add(domain="com.example", version=1)
    onnx.save(model, path)
    for loader in ("onnx", "onnx-external"):
        with refused(path, code="unreadable_file"):
            load_encoder(f"{loader}:{path}")


def test_onnx_errors(tmp_path):
    need("onnxruntime", "onnx")
    with refused("gone", code="no_file"):
        load_encoder(f"onnx:{tmp_path / 'gone.onnx'}")
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"not a graph")
    with refused(bad, code="unreadable_file"):
        load_encoder(f"onnx:{bad}")
    with refused("grey.onnx", "3, 16, 12", code="wrong_input"):
        load_encoder(f"onnx:{write_grey(tmp_path / 'grey.onnx')}")


def write_grey(path):
    import onnx

    model = onnx.load(write_onnx(path))
    sides = model.graph.input[0].type.tensor_type.shape.dim
    sides[3].dim_value = 12
    onnx.save(model, path)
    return path


# --- torch
def test_torch_default_transform_and_errors(tmp_path, monkeypatch):
    name = torch_model(tmp_path, 77).split(":")[0]
    monkeypatch.chdir(tmp_path)
    for rest, code, named in [
        (name, "bad_value", name),
        (f"{name}:", "bad_value", name),
        (f"{name}:mak", "unknown_name", "'mak'"),
        (f"{name}:broken", "not_loaded", "RuntimeError: no weights today"),
        (f"{name}:number", "not_a_module", "int"),
        (f"{name}:map", "wrong_output", "(1, 7, 222, 222)"),
        ("no_such_module:make", "not_loaded", "no_such_module"),
        ("..x:make", "not_loaded", "..x:make"),
    ]:
        with refused(named, code=code):
            load_encoder(f"torch:{rest}")


PARTS = """
import torch
from torch import nn
from cala.encoders import Transform
from {helper} import bend

class Part(nn.Module):
    def __init__(self, power):
        super().__init__()
        self.power = power
        self.shift = torch.tensor([{shift}])

    def forward(self, x):
        return {forward}

class Whole(nn.Sequential):
    transform = Transform(size=8, resize=8)

def make():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3), nn.LeakyReLU({slope}), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return Whole(*layers, Part({power}))
"""


def test_torch_parts_and_their_numbers_count(tmp_path, monkeypatch):
    """Weights and the outer class are the same each time; what it computes is not."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bent_helper.py").write_text("def bend(x):\n    return x\n")
    usual = {"helper": "bent_helper", "shift": 1.0, "slope": 0.1, "power": 2}
    usual["forward"] = "bend(x) ** self.power + self.shift"
    variants = [{}, {"shift": 2.0}, {"slope": 0.2}, {"power": 3}, {"forward": "bend(x)"}]
    prints = []
    for change in variants:
        (tmp_path / "bent_parts.py").write_text(PARTS.format(**{**usual, **change}))
        for _ in range(2):  # nothing in it depends on the moment
            sys.modules.pop("bent_parts", None)
            importlib.invalidate_caches()
            shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
            prints.append(load_encoder("torch:bent_parts:make").fingerprint)
    assert prints[::2] == prints[1::2]
    assert len(set(prints)) == len(variants)


def test_torch_values_count_without_a_change_of_code(tmp_path, monkeypatch):
    """A factory may read its numbers from elsewhere."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bent_helper.py").write_text("def bend(x):\n    return x\n")
    numbers = {"power": "int(__import__('os').environ['POWER'])", "shift": 0.0, "slope": 0.1}
    text = PARTS.format(helper="bent_helper", forward="x ** self.power", **numbers)
    (tmp_path / "bent_outside.py").write_text(text)
    prints = set()
    for power in ("2", "3"):
        monkeypatch.setenv("POWER", power)
        prints.add(load_encoder("torch:bent_outside:make").fingerprint)
    assert len(prints) == 2


def test_torch_says_what_does_not_fit(tmp_path, monkeypatch):
    (tmp_path / "odd_factories.py").write_text(
        """
from torch import nn

def plain():
    return nn.Sequential(nn.Conv2d(3, 4, 9, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten())

def other_dim():
    module = plain()
    module.dim = 5
    return module

def other_transform():
    module = plain()
    module.transform = "resize"
    return module
"""
    )
    monkeypatch.chdir(tmp_path)
    encoder = load_encoder("torch:odd_factories:plain")
    assert (encoder.dim, encoder.transform) == (4, Transform(size=224, resize=256))
    with refused(5, 4, field="dim"):
        load_encoder("torch:odd_factories:other_dim")
    with refused("str", field="transform"):
        load_encoder("torch:odd_factories:other_transform")
