"""For each loader a tiny random model on disk: (folder, seed) -> what follows its prefix."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from conftest import missing

KEPT = []  # a library lives as long as the object that defined it


def need(*modules: str) -> None:
    for module in modules:
        if find_spec(module) is None:
            missing(module, f"{module} is not installed")
    if find_spec("torchvision") is not None:
        mend_torchvision()


def mend_torchvision() -> None:
    """With torch for CPUs alone the usual wheel cannot load an operator that it needs at import."""
    if KEPT or "torchvision" in sys.modules:
        return
    folder = Path(find_spec("torchvision").origin).parent
    try:
        for path in folder.glob("_C*"):
            torch.ops.load_library(str(path))
    except OSError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):  # never called here
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        KEPT.append(library)


def timm_model(folder: Path, seed: int) -> str:
    need("timm")
    import timm
    from timm.models import save_for_hf

    torch.manual_seed(seed)
    model = timm.create_model("test_resnet", pretrained=False, num_classes=3)
    save_for_hf(model, folder, safe_serialization=True)
    return f"local-dir:{folder}"


def hf_model(folder: Path, seed: int) -> str:
    need("transformers")
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(seed)
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        image_size=32, patch_size=8,
    )  # fmt: skip
    ViTModel(config).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(
        '{"image_processor_type": "ViTImageProcessor", "do_resize": true, "do_normalize": true,'
        ' "size": {"height": 32, "width": 32}, "resample": 3,'
        ' "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4]}'
    )
    return str(folder)


def onnx_model(folder: Path, seed: int, **changes) -> str:
    need("onnxruntime", "onnx")
    return str(write_onnx(folder / "model.onnx", seed, **changes))


def external_model(folder: Path, seed: int, location: str = "") -> str:
    """Its weights are in another file."""
    path = Path(onnx_model(folder, seed))
    import onnx

    location = location or f"model{seed}.data"
    options = {"save_as_external_data": True, "location": location, "size_threshold": 0}
    onnx.save(onnx.load(path), path, **options)
    return str(path)


def write_onnx(path, seed=0, batch="n", side=16, last=False, meta=None, pool=True, dtype=1):
    """Convolution and, where wanted, mean pooling; `last`: channels last."""
    import onnx
    from onnx import helper, numpy_helper

    kind = np.float32 if dtype == 1 else np.float16
    weight = np.random.default_rng(seed).standard_normal((5, 3, 3, 3)).astype(kind)
    shape = [batch, side, side, 3] if last else [batch, 3, side, side]
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2])] if last else []
    nodes.append(helper.make_node("Conv", ["t" if last else "x", "w"], ["map"]))
    if pool:
        nodes.append(helper.make_node("GlobalAveragePool", ["map"], ["mean"]))
        nodes.append(helper.make_node("Flatten", ["mean"], ["flat"]))
    out, axes = ("flat", [batch, 5]) if pool else ("map", [batch, 5, None, None])
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info(out, dtype, axes)],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for key, value in (meta or {}).items():
        model.metadata_props.add(key=key, value=value)
    onnx.save(model, path)
    return path


def torch_model(folder: Path, seed: int) -> str:
    name = f"tiny_factory_{seed}"
    (folder / f"{name}.py").write_text(
        f"""
import torch
from torch import nn
from cala.encoders import Transform

class Tiny(nn.Module):
    transform = Transform(size=20, resize=24)

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 7, 3)

    def forward(self, x):
        return self.conv(x).mean((2, 3))

def make():
    torch.manual_seed({seed})
    return Tiny()

def broken():
    raise RuntimeError("no weights today")

def number():
    return 3

def map():
    return nn.Conv2d(3, 7, 3)
"""
    )
    return f"{name}:make"


def trained_model(folder: Path, seed: int, **given) -> None:
    from cala.encoders import ARCHITECTURES, Transform
    from cala.encoders.weights import save_encoder

    torch.manual_seed(seed)
    save_encoder(
        folder / "encoder.safetensors",
        ARCHITECTURES["resnet20"](),
        architecture="resnet20",
        transform=Transform(size=16, resize=16),
        **given,
    )


def views_model(folder: Path, seed: int) -> str:
    trained_model(folder, seed, parts={"views": torch.tensor([4.0])})
    return f"3:{folder}"


def size_model(folder: Path, seed: int) -> str:
    trained_model(folder, seed)
    return f"24:{folder}"


MODELS = {
    "timm": timm_model,
    "hf": hf_model,
    "onnx": onnx_model,
    "onnx-external": external_model,
    "size": size_model,
    "torch": torch_model,
    "views": views_model,
}
